//! The whole table as bytes, and back. A snapshot is every row in key order and nothing else, so export,
//! import, export gives the same bytes.
//!
//! Form: the eight bytes `TNRSNAP1`; for each row the length of its key and of its value (each four bytes,
//! little-endian) and both; four bytes of ones; the number of rows (eight bytes); a 128-bit hash of all before.

use std::hash::Hasher;

use bytes::Bytes;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::table::{Table, TableRead, Visit};

const MAGIC: &[u8; 8] = b"TNRSNAP1";
const END: u32 = u32::MAX;
/// Chunks are handed on when they reach this size.
const CHUNK_BYTES: usize = 256 << 10;
/// No row is larger: a value of the largest size and its key, with room to spare.
const ROW_BYTES_MAX: usize = 8 << 20;

/// A snapshot that could not be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The bytes end early, or are damaged, or belong to another form.
    #[error("the snapshot is damaged: {0}")]
    Damaged(&'static str),
}

/// Writes every row in key order, in chunks, with a checksum at the end.
///
/// # Errors
/// Whatever `sink` returns; nothing else can fail.
pub fn export<E>(table: &dyn TableRead, sink: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let mut hasher = SipHasher13::new();
    let mut chunk = MAGIC.to_vec();
    let mut rows = 0u64;
    let mut result = Ok(());
    table.scan(&[], &[u8::MAX; 1], &mut |key, value| {
        rows += 1;
        chunk.extend_from_slice(&length(key.len()));
        chunk.extend_from_slice(&length(value.len()));
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(value);
        if chunk.len() < CHUNK_BYTES {
            return Visit::Continue(());
        }
        hasher.write(&chunk);
        result = sink(&chunk);
        chunk.clear();
        if result.is_ok() {
            Visit::Continue(())
        } else {
            Visit::Break(())
        }
    });
    result?;
    chunk.extend_from_slice(&END.to_le_bytes());
    chunk.extend_from_slice(&rows.to_le_bytes());
    hasher.write(&chunk);
    chunk.extend_from_slice(&hasher.finish128().as_u128().to_le_bytes());
    sink(&chunk)
}

/// Puts every row of the snapshot into an empty table. Never panics, whatever the bytes are.
///
/// # Errors
/// [`ImportError`] if the bytes are not a whole snapshot. The checksum is compared before the first row is
/// written, so nothing has happened then unless the rows themselves break the form.
pub fn import(bytes: &[u8], table: &mut dyn Table) -> Result<(), ImportError> {
    let body_len = bytes
        .len()
        .checked_sub(16)
        .ok_or(ImportError::Damaged("it ends early"))?;
    let (body, sum) = bytes.split_at(body_len);
    let mut hasher = SipHasher13::new();
    hasher.write(body);
    if hasher.finish128().as_u128().to_le_bytes() != sum {
        return Err(ImportError::Damaged("its checksum does not match"));
    }
    let mut rest = body
        .strip_prefix(MAGIC)
        .ok_or(ImportError::Damaged("it is not of this form"))?;
    let mut rows = 0u64;
    loop {
        let key_len = take_u32(&mut rest)?;
        if key_len == END {
            break;
        }
        let value_len = take_u32(&mut rest)?;
        let key = take(&mut rest, key_len as usize)?;
        let value = take(&mut rest, value_len as usize)?;
        table.put(key.to_vec(), Bytes::copy_from_slice(value));
        rows += 1;
    }
    if rest != rows.to_le_bytes() {
        return Err(ImportError::Damaged("its number of rows does not match"));
    }
    Ok(())
}

fn length(len: usize) -> [u8; 4] {
    assert!(len <= ROW_BYTES_MAX, "the limits keep every row far below this size");
    (len as u32).to_le_bytes()
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, ImportError> {
    let bytes = take(rest, 4)?;
    Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes were taken")))
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], ImportError> {
    let (taken, left) = rest
        .split_at_checked(len)
        .ok_or(ImportError::Damaged("it ends early"))?;
    *rest = left;
    Ok(taken)
}
