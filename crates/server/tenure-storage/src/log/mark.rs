//! The side file `synced`: the number and the end of the last synced batch.
//!
//! It is written after each sync of the log and not synced itself, so it may lag behind the log but never runs ahead of
//! it. What lies beyond it may be a torn tail; what lies before it was acknowledged. Two slots are written in turn, so
//! that one is whole at any moment, as long as there is power.
//!
//! A power loss may leave both of them torn, since neither is synced. Therefore two more slots are written by openings,
//! again in turn, and synced: each opening notes there how far the log goes, under a new run number, before it writes
//! anything else. A batch beyond the mark counts only if it was written in the mark's own run, so what an earlier run
//! left torn never comes back.

use std::io;
use std::path::{Path, PathBuf};

use super::record::field;
use crate::disk::{self, Disk, DiskFile, OpenMode};

pub(super) const MARK_FILE: &str = "synced";

/// A page each, so that no two slots share what a disk writes in one piece.
const SLOT_DISTANCE: u64 = 4096;
const SLOT_LENGTH: usize = 64;
/// The slots of openings, one of runs with an even number and one of the others; behind them those of batches.
const OPENING_SLOTS: u64 = 2;
const SLOTS: u64 = 4;
pub(super) const FILE_LENGTH_MAX: u64 = SLOTS * SLOT_DISTANCE;
const MAGIC: [u8; 8] = *b"TNRMARK1";

/// One slot:
///
/// ```text
///  0  "TNRMARK1"     12  segment      24  end        40  zeros
///  8  run            16  batch        32  salt       60  crc32c of 0..60
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Counts the openings of the log.
    pub(super) run: u32,
    /// The segment in which the batch ends, 0 before the first.
    pub(super) segment: u32,
    /// The last batch that is known to be synced, 0 before the first.
    pub(super) batch: u64,
    /// Where it ends in the segment.
    pub(super) end: u64,
    /// The log's own number.
    pub(super) salt: u64,
}

/// What was found in place of a mark.
#[derive(Debug)]
pub(super) enum MarkFound {
    /// No file.
    Absent,
    /// A file, but no slot in it is right.
    Unreadable,
    Good(Mark),
}

/// The open file.
pub(super) struct MarkFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    slot_next: u64,
}

impl MarkFound {
    pub(super) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<MarkFound> {
        let bytes = match disk::read_file(disk, &dir.join(MARK_FILE), FILE_LENGTH_MAX) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(MarkFound::Absent),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(MarkFound::Unreadable),
            Err(error) => return Err(error),
        };
        let best = (0..SLOTS)
            .filter_map(|slot| Mark::decode(&bytes, slot))
            .max_by_key(|mark| (mark.run, mark.batch));
        Ok(best.map_or(MarkFound::Unreadable, MarkFound::Good))
    }
}

/// Where in the file is something that no write of ours leaves whole: in a slot that cannot be read and is not empty,
/// or between slots. A loss of power may tear one slot; the others are then as good.
pub(super) fn strange_byte(bytes: &[u8]) -> Option<u64> {
    let mut slots = (0..)
        .step_by(SLOT_DISTANCE as usize)
        .zip(bytes.chunks(SLOT_DISTANCE as usize));
    slots.find_map(|(start, page)| {
        let slot = page.len().min(SLOT_LENGTH);
        let from = if Mark::decode(page, 0).is_some() { slot } else { 0 };
        let place = page[from..].iter().position(|byte| *byte != 0)?;
        Some(start + (from + place) as u64)
    })
}

impl MarkFile {
    /// Notes an opening and returns once that and the file's name are durable. The mark of the opening before it stays.
    pub(super) fn create(disk: &dyn Disk, dir: &Path, mark: &Mark) -> io::Result<MarkFile> {
        let path = dir.join(MARK_FILE);
        let file = disk.open(&path, OpenMode::Create)?;
        if file.length()? < FILE_LENGTH_MAX {
            file.set_length(FILE_LENGTH_MAX)?;
        }
        file.write_at(u64::from(mark.run) % OPENING_SLOTS * SLOT_DISTANCE, &mark.encode())?;
        file.sync_data()?;
        disk.sync_dir(dir)?;
        Ok(MarkFile {
            file,
            path,
            slot_next: OPENING_SLOTS,
        })
    }

    /// Notes a synced batch. Not durable until the system gets to it.
    pub(super) fn write(&mut self, mark: &Mark) -> io::Result<()> {
        self.file.write_at(self.slot_next * SLOT_DISTANCE, &mark.encode())?;
        self.slot_next = OPENING_SLOTS + SLOTS - 1 - self.slot_next;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Mark {
    fn encode(&self) -> [u8; SLOT_LENGTH] {
        let mut bytes = [0; SLOT_LENGTH];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.run.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.batch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.end.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], slot: u64) -> Option<Mark> {
        let bytes: &[u8; SLOT_LENGTH] = bytes.get((slot * SLOT_DISTANCE) as usize..)?.first_chunk()?;
        let right = bytes[0..8] == MAGIC && crc32c::crc32c(&bytes[..60]) == u32::from_le_bytes(field(bytes, 60));
        right.then(|| Mark {
            run: u32::from_le_bytes(field(bytes, 8)),
            segment: u32::from_le_bytes(field(bytes, 12)),
            batch: u64::from_le_bytes(field(bytes, 16)),
            end: u64::from_le_bytes(field(bytes, 24)),
            salt: u64::from_le_bytes(field(bytes, 32)),
        })
    }
}
