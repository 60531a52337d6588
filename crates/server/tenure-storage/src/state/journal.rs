//! Makes the engine's journal readable again after a loss of power.
//!
//! Batches are handed to the operating system and synced only now and then, so after a loss of power any page behind
//! the last sync may be missing, holes in the middle included. The engine itself takes a batch that ends early for a torn
//! tail, but refuses to open at all when a batch has its end and a wrong checksum. So the journal that was being
//! written is read before it is opened, and cut at the first batch that is not whole.
//!
//! That is safe whatever the reason of the damage: batches are atomic and ordered, so what is left is the state at an
//! earlier mark, with the mark that says so, and the log has the entries behind it. If it does not have them any more,
//! because what was cut had been synced, the mark lies below the log's purge point, and whoever opens the group must
//! look for that.
//!
//! Form of the journal (fjall's third disk format): batches of a start (`01`, number of items u32, sequence number
//! u64), items (`02`, kind of value, compression, keyspace u64, lengths u16 of the key, u32 of the value, u32 of the
//! value as stored, key, value) and an end (`03`, XXH3 of all items u64, a magic); numbers lowest byte first. The
//! checksum leaves out the start, so here the sequence numbers must rise from batch to batch.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
/// Bytes of an item before its key.
const ITEM_HEADER_BYTES: usize = 21;
/// No database ever counts so far: a higher sequence number is damage.
const SEQUENCE_NUMBER_MAX: u64 = 1 << 56;
/// The magic at the end of a batch.
const END_MAGIC: &[u8; 4] = b"FJL\x03";

/// Cuts the journal in `folder` that was written last at its first batch that is not whole. Nothing happens if there
/// is no journal, or nothing but the zeros of its preallocated rest behind whole batches.
pub(crate) fn cut_torn_tail(folder: &Path) -> io::Result<()> {
    let Some(path) = newest_journal(folder)? else {
        return Ok(());
    };
    let length = fs::metadata(&path)?.len();
    let whole = {
        let mut reader = BatchReader::open(&path)?;
        let mut whole = 0;
        while reader.read_batch()? {
            whole = reader.position;
        }
        if reader.rest_is_zero(&path, whole)? {
            return Ok(());
        }
        whole
    };
    tracing::warn!(
        journal = %path.display(),
        whole,
        length,
        "the journal of the state ends in a batch that is not whole; it is cut there, and the log is applied again"
    );
    let file = OpenOptions::new().write(true).open(&path)?;
    file.set_len(whole)?;
    file.sync_all()
}

/// The journal with the highest number. The ones before it were synced before it was begun.
fn newest_journal(folder: &Path) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut newest: Option<(u64, PathBuf)> = None;
    for entry in entries {
        let path = entry?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        if let Some(number) = number
            && newest.as_ref().is_none_or(|(highest, _)| number > *highest)
        {
            newest = Some((number, path));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

/// Reads a journal batch by batch.
struct BatchReader {
    reader: BufReader<File>,
    position: u64,
    /// Of the last batch.
    sequence_number: Option<u64>,
}

impl BatchReader {
    fn open(path: &Path) -> io::Result<BatchReader> {
        let reader = BufReader::with_capacity(1 << 20, File::open(path)?);
        Ok(BatchReader {
            reader,
            position: 0,
            sequence_number: None,
        })
    }

    /// Goes behind the next batch. `false`: there is no further whole batch.
    fn read_batch(&mut self) -> io::Result<bool> {
        let Some([TAG_START, header @ ..]) = self.take::<13>()? else {
            return Ok(false);
        };
        let (items, number) = header
            .split_first_chunk::<4>()
            .expect("a start is longer than its first number");
        let items = u32::from_le_bytes(*items);
        let number = u64::from_le_bytes(number.try_into().expect("the rest of a start is its second number"));
        if number >= SEQUENCE_NUMBER_MAX || self.sequence_number.is_some_and(|last| number <= last) {
            return Ok(false);
        }
        self.sequence_number = Some(number);
        let mut checksum = Xxh3::new();
        for _ in 0..items {
            if !self.read_item(&mut checksum)? {
                return Ok(false);
            }
        }
        let Some([TAG_END, end @ ..]) = self.take::<13>()? else {
            return Ok(false);
        };
        Ok(end[..8] == checksum.digest().to_le_bytes() && end[8..] == END_MAGIC[..])
    }

    fn read_item(&mut self, checksum: &mut Xxh3) -> io::Result<bool> {
        let Some([TAG_ITEM]) = self.take::<1>()? else {
            return Ok(false);
        };
        checksum.update(&[TAG_ITEM]);
        let Some(header) = self.take::<{ ITEM_HEADER_BYTES - 1 }>()? else {
            return Ok(false);
        };
        checksum.update(&header);
        let key_bytes = u16::from_le_bytes([header[10], header[11]]);
        let value_bytes = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        let stored_bytes = u32::from_le_bytes([header[16], header[17], header[18], header[19]]);
        // Nothing is compressed here, so a difference is damage, and one that the engine does not expect.
        if header[1] == 0 && value_bytes != stored_bytes {
            return Ok(false);
        }
        self.skip(u64::from(key_bytes) + u64::from(stored_bytes), checksum)
    }

    /// The next bytes; `None` if the file ends before.
    fn take<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        match self.reader.read_exact(&mut bytes) {
            Ok(()) => {
                self.position += N as u64;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Goes over so many bytes and takes them into the checksum. `false`: the file ends before.
    fn skip(&mut self, mut count: u64, checksum: &mut Xxh3) -> io::Result<bool> {
        while count > 0 {
            let bytes = self.reader.fill_buf()?;
            let taken = usize::try_from(count).map_or(bytes.len(), |count| count.min(bytes.len()));
            if taken == 0 {
                return Ok(false);
            }
            checksum.update(&bytes[..taken]);
            self.reader.consume(taken);
            self.position += taken as u64;
            count -= taken as u64;
        }
        Ok(true)
    }

    /// Whether the file holds only zeros from `position` on, as a journal does that was not torn.
    fn rest_is_zero(&self, path: &Path, position: u64) -> io::Result<bool> {
        let mut file = File::open(path)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(position))?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        loop {
            let bytes = reader.fill_buf()?;
            if bytes.is_empty() {
                return Ok(true);
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            let length = bytes.len();
            reader.consume(length);
        }
    }
}

#[cfg(test)]
mod tests;
