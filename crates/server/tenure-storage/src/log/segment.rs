//! Segments: the files of the log, made ahead, written from front to back, and used again.
//!
//! A segment's file is named by its number, which only grows. A file that holds nothing alive any more becomes a spare
//! and is written over under a higher number; what it held before has lower batch numbers and counts as nothing.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::field;
use crate::disk::{Disk, DiskFile, OpenMode};

/// Before the first batch of a segment:
///
/// ```text
///  0  "TNRSEGM1"     12  first batch     24  salt       60  crc32c of 0..60
///  8  number         20  run             32  zeros
/// ```
pub(super) const SEGMENT_HEADER_LENGTH: usize = 64;

/// Spares beyond this are deleted.
pub(super) const SPARES_MAX: usize = 2;

/// So many stay when room is short: the next segment must not need any.
pub(super) const SPARES_KEPT: usize = 1;

const MAGIC: [u8; 8] = *b"TNRSEGM1";
const SEGMENT_SUFFIX: &str = ".seg";
const SPARE_SUFFIX: &str = ".spare";
const UNFINISHED_SUFFIX: &str = ".tmp";
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A file of the log that is in use.
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn DiskFile>,
    /// Live entries in it. Changed by the writer alone.
    pub(super) live_entries: AtomicU64,
    /// Their length, in bytes.
    pub(super) live_bytes: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) number: u32,
    pub(super) first_batch: u64,
    pub(super) run: u32,
    pub(super) salt: u64,
}

/// Files that wait to be used again, or for the first time.
#[derive(Default)]
pub(super) struct Spares {
    ready: VecDeque<Spare>,
    name_next: u64,
}

/// A file of a segment's length that holds nothing.
pub(super) struct Spare {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn DiskFile>,
}

/// What lies in the log's folder.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) segments: Vec<u32>,
    pub(super) spares: Vec<String>,
    pub(super) unfinished: Vec<String>,
}

impl Segment {
    pub(super) fn new(number: u32, path: PathBuf, file: Box<dyn DiskFile>) -> Segment {
        Segment {
            number,
            path,
            file,
            live_entries: AtomicU64::new(0),
            live_bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn add_live(&self, entries: u64, bytes: u64) {
        self.live_entries.fetch_add(entries, Ordering::Relaxed);
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove_live(&self, bytes: u64) {
        self.live_entries.fetch_sub(1, Ordering::Relaxed);
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_LENGTH] {
        let mut bytes = [0; SEGMENT_HEADER_LENGTH];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.first_batch.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.run.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let bytes: &[u8; SEGMENT_HEADER_LENGTH] = bytes.first_chunk()?;
        let right = bytes[0..8] == MAGIC && crc32c::crc32c(&bytes[..60]) == u32::from_le_bytes(field(bytes, 60));
        right.then(|| SegmentHeader {
            number: u32::from_le_bytes(field(bytes, 8)),
            first_batch: u64::from_le_bytes(field(bytes, 12)),
            run: u32::from_le_bytes(field(bytes, 20)),
            salt: u64::from_le_bytes(field(bytes, 24)),
        })
    }
}

impl Spares {
    /// Opens the spares that are there, deletes those of another length, and what was not finished.
    pub(super) fn open(disk: &dyn Disk, dir: &Path, listing: &Listing, segment_bytes: u64) -> io::Result<Spares> {
        for name in &listing.unfinished {
            disk.remove(&dir.join(name))?;
        }
        let mut spares = Spares::default();
        for name in &listing.spares {
            let path = dir.join(name);
            let file = disk.open(&path, OpenMode::Write)?;
            if let Some(number) = number_of(name, SPARE_SUFFIX) {
                spares.name_next = spares.name_next.max(number + 1);
            }
            if file.length()? == segment_bytes && spares.ready.len() < SPARES_MAX {
                spares.ready.push_back(Spare { path, file });
            } else {
                disk.remove(&path)?;
            }
        }
        Ok(spares)
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn take(&mut self) -> Option<Spare> {
        self.ready.pop_front()
    }

    pub(super) fn put(&mut self, spare: Spare) {
        self.ready.push_back(spare);
    }

    /// A number that no spare has had since the log was opened.
    pub(super) fn next_name(&mut self) -> u64 {
        let number = self.name_next;
        self.name_next += 1;
        number
    }
}

impl Spare {
    /// Makes a new file and fills it, so that writing a segment never extends a file nor asks for room.
    pub(super) fn make(disk: &dyn Disk, dir: &Path, name: u64, segment_bytes: u64) -> io::Result<Spare> {
        let unfinished = dir.join(format!("{name:010}{UNFINISHED_SUFFIX}"));
        match Spare::fill(disk, dir, name, segment_bytes, &unfinished) {
            Ok(spare) => Ok(spare),
            Err(error) => {
                // The room is needed elsewhere. If this fails too, the next opening deletes the file.
                let _ = disk.remove(&unfinished);
                Err(error)
            }
        }
    }

    fn fill(disk: &dyn Disk, dir: &Path, name: u64, segment_bytes: u64, unfinished: &Path) -> io::Result<Spare> {
        let file = disk.open(unfinished, OpenMode::Create)?;
        file.allocate(segment_bytes)?;
        let mut offset = 0;
        while offset < segment_bytes {
            let length = (segment_bytes - offset).min(ZEROS.len() as u64);
            file.write_at(offset, &ZEROS[..length as usize])?;
            offset += length;
        }
        file.sync_data()?;
        let path = spare_path(dir, name);
        disk.rename(unfinished, &path)?;
        Ok(Spare { path, file })
    }
}

impl Listing {
    pub(super) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for name in disk.list(dir)? {
            if let Some(number) = number_of(&name, SEGMENT_SUFFIX).and_then(|number| u32::try_from(number).ok()) {
                listing.segments.push(number);
            } else if number_of(&name, SPARE_SUFFIX).is_some() {
                listing.spares.push(name);
            } else if number_of(&name, UNFINISHED_SUFFIX).is_some() {
                listing.unfinished.push(name);
            }
        }
        listing.segments.sort_unstable();
        Ok(listing)
    }
}

pub(super) fn segment_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:010}{SEGMENT_SUFFIX}"))
}

pub(super) fn spare_path(dir: &Path, name: u64) -> PathBuf {
    dir.join(format!("{name:010}{SPARE_SUFFIX}"))
}

/// The number in a name of ours. Names that say the same number in another way are not ours.
fn number_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    (digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}
