//! Records and batches, the bytes that a segment is made of.
//!
//! A batch is what one write and one sync make durable: records that lie one after the other and carry the same batch
//! number and run. The first and the last are marked, so a batch is whole or it is not there. Numbers are
//! little-endian. The checksum of a record begins with a number that belongs to the log, so that no bytes from another
//! log, nor a client that stores what looks like a record, are taken for one.

use tenure_core::ids::GroupId;

/// Before the payload of each record. The header has a checksum of its own, so that one can be told from bytes that
/// only look like it without reading as many bytes as it claims to have.
///
/// ```text
///  0  crc32c of the header behind it     14  kind
///  4  crc32c of the payload              15  1 = first of its batch, 2 = last
///  8  length of the payload              16  batch
/// 12  the magic number                   24  index
///                                        32  group      36  run
/// ```
pub(super) const HEADER_LENGTH: usize = 40;

/// The longest payload, in bytes: far above the 1 MiB of an entry, and a length that is read from damaged bytes is cut
/// off here.
pub(super) const PAYLOAD_LENGTH_MAX: usize = 64 << 20;

const MAGIC: u16 = 0x5e7a;
const FIRST: u8 = 1;
const LAST: u8 = 2;

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// An entry that continues the group's log.
    Entry = 1,
    /// A live entry that was written before, copied so that an old segment can go.
    Copied = 2,
    /// The group's vote.
    Vote = 3,
    /// What the group knows to be committed.
    Committed = 4,
    /// Entries from the index on are gone.
    Truncate = 5,
    /// Entries up to the index are gone; the payload is the id that belongs to it.
    Purge = 6,
    /// The group is gone with all it had.
    Remove = 7,
    /// The first record of each segment: the state of as many groups as the index says follows.
    Checkpoint = 8,
    /// The state of one group, without its entries.
    GroupState = 9,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Entry,
            2 => Kind::Copied,
            3 => Kind::Vote,
            4 => Kind::Committed,
            5 => Kind::Truncate,
            6 => Kind::Purge,
            7 => Kind::Remove,
            8 => Kind::Checkpoint,
            9 => Kind::GroupState,
            _ => return None,
        })
    }
}

/// A record whose checksum was found to be right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) header: Header,
    pub(super) payload: &'a [u8],
}

/// The fields before the payload, whose checksum was found to be right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// The header's checksum, which stands for the record: it covers the payload's.
    pub(super) crc: u32,
    payload_crc: u32,
    pub(super) payload_length: usize,
    pub(super) batch: u64,
    pub(super) index: u64,
    pub(super) group: GroupId,
    pub(super) kind: Kind,
    pub(super) first: bool,
    pub(super) last: bool,
    pub(super) run: u32,
}

impl Header {
    /// The header at `position`, if there is one and its checksum is right.
    pub(super) fn read(bytes: &[u8], position: usize, seed: u32) -> Option<Header> {
        let header: &[u8; HEADER_LENGTH] = bytes.get(position..)?.first_chunk()?;
        // First what costs nothing: this is asked of every byte of a segment.
        if u16::from_le_bytes(field(header, 12)) != MAGIC {
            return None;
        }
        let crc = u32::from_le_bytes(field(header, 0));
        let payload_length = u32::from_le_bytes(field(header, 8)) as usize;
        if crc32c::crc32c_append(seed, &header[4..]) != crc || payload_length > PAYLOAD_LENGTH_MAX {
            return None;
        }
        Some(Header {
            crc,
            payload_crc: u32::from_le_bytes(field(header, 4)),
            payload_length,
            batch: u64::from_le_bytes(field(header, 16)),
            index: u64::from_le_bytes(field(header, 24)),
            group: GroupId(u32::from_le_bytes(field(header, 32))),
            kind: Kind::from_byte(header[14])?,
            first: header[15] & FIRST != 0,
            last: header[15] & LAST != 0,
            run: u32::from_le_bytes(field(header, 36)),
        })
    }

    /// The length of the record, in bytes.
    pub(super) fn record_length(&self) -> usize {
        HEADER_LENGTH + self.payload_length
    }
}

impl<'a> Record<'a> {
    /// The record at `position`, if there is one and its checksums are right.
    pub(super) fn read(bytes: &'a [u8], position: usize, seed: u32) -> Option<Record<'a>> {
        let header = Header::read(bytes, position, seed)?;
        let payload = &bytes.get(position..position.checked_add(header.record_length())?)?[HEADER_LENGTH..];
        (crc32c::crc32c_append(seed, payload) == header.payload_crc).then_some(Record { header, payload })
    }
}

/// Builds one batch after the other in the same buffer.
pub(super) struct BatchBuilder {
    buffer: Vec<u8>,
    seed: u32,
    run: u32,
    batch: u64,
    /// Where the batch begins: what precedes it is not part of it.
    begin: usize,
    /// Where the newest record begins, whose header has no checksum yet.
    open: Option<usize>,
}

impl BatchBuilder {
    pub(super) fn new(seed: u32, run: u32) -> BatchBuilder {
        BatchBuilder {
            buffer: Vec::new(),
            seed,
            run,
            batch: 0,
            begin: 0,
            open: None,
        }
    }

    /// Begins a batch; `prefix` is written before it.
    pub(super) fn begin(&mut self, batch: u64, prefix: &[u8]) {
        self.buffer.clear();
        // A few huge batches should not hold memory for ever.
        self.buffer.shrink_to(super::BATCH_LENGTH_MAX);
        self.buffer.extend_from_slice(prefix);
        self.begin = prefix.len();
        self.batch = batch;
        self.open = None;
    }

    pub(super) fn push(&mut self, kind: Kind, group: GroupId, index: u64, payload: &[u8]) {
        self.seal(0);
        let start = self.buffer.len();
        let length = u32::try_from(payload.len()).expect("payloads are bounded before they are queued");
        let mut header = [0; HEADER_LENGTH];
        header[4..8].copy_from_slice(&crc32c::crc32c_append(self.seed, payload).to_le_bytes());
        header[8..12].copy_from_slice(&length.to_le_bytes());
        header[12..14].copy_from_slice(&MAGIC.to_le_bytes());
        header[14] = kind as u8;
        header[15] = if start == self.begin { FIRST } else { 0 };
        header[16..24].copy_from_slice(&self.batch.to_le_bytes());
        header[24..32].copy_from_slice(&index.to_le_bytes());
        header[32..36].copy_from_slice(&group.0.to_le_bytes());
        header[36..40].copy_from_slice(&self.run.to_le_bytes());
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(payload);
        self.open = Some(start);
    }

    /// Ends the batch and gives the bytes to write. Without a record there is no batch and nothing to write.
    pub(super) fn finish(&mut self) -> Option<&[u8]> {
        self.open?;
        self.seal(LAST);
        Some(&self.buffer)
    }

    /// The checksum of the header at `start` of a finished batch.
    pub(super) fn crc_at(&self, start: usize) -> u32 {
        u32::from_le_bytes(field(&self.buffer, start))
    }

    fn seal(&mut self, flags: u8) {
        if let Some(start) = self.open.take() {
            self.buffer[start + 15] |= flags;
            let crc = crc32c::crc32c_append(self.seed, &self.buffer[start + 4..start + HEADER_LENGTH]);
            self.buffer[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// The `N` bytes at `start`, which must be there.
pub(super) fn field<const N: usize>(bytes: &[u8], start: usize) -> [u8; N] {
    *bytes[start..]
        .first_chunk()
        .expect("fields lie inside what was checked for its length")
}

#[cfg(test)]
mod tests;
