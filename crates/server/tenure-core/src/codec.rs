//! Versioned bytes of entries, of changes in the feed and of answers on their way to the node that asked. The first byte is the version of the form; fields
//! follow in the order of their declaration, numbers as variable-length integers. `tests/vectors` holds bytes
//! of every form ever written, so a field that moves is noticed.

use std::hash::Hasher;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::command::{Command, Entry};
use crate::effect::Change;
use crate::ids::Fingerprint;
use crate::response::{Answer, KeptAlive};
use crate::time::Timestamp;

/// The form of entries that this release writes.
const ENTRY_FORM: u8 = 1;
/// The form of changes that this release writes.
const CHANGE_FORM: u8 = 1;
/// The form of answers that this release writes.
const ANSWER_FORM: u8 = 1;

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The form is newer than this release, or the first byte is damaged.
    #[error("form {0} is not known to this release")]
    UnknownForm(u8),
    /// The bytes do not decode.
    #[error("the bytes do not decode as {0}")]
    Malformed(&'static str),
}

/// The bytes of an entry.
pub fn encode_entry(entry: &Entry) -> Bytes {
    encode(ENTRY_FORM, entry)
}

/// The entry in these bytes. Never panics, whatever the bytes are.
///
/// # Errors
/// [`CodecError`] if the form is unknown or the bytes do not decode to exactly one entry.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, CodecError> {
    decode(ENTRY_FORM, bytes, "an entry")
}

/// The bytes of a change.
pub fn encode_change(change: &Change) -> Bytes {
    encode(CHANGE_FORM, change)
}

/// The change in these bytes. Never panics, whatever the bytes are.
///
/// # Errors
/// [`CodecError`] if the form is unknown or the bytes do not decode to exactly one change.
pub fn decode_change(bytes: &[u8]) -> Result<Change, CodecError> {
    decode(CHANGE_FORM, bytes, "a change")
}

/// The bytes of an answer.
pub fn encode_answer(answer: &Answer) -> Bytes {
    encode(ANSWER_FORM, answer)
}

/// The answer in these bytes. Never panics, whatever the bytes are.
///
/// # Errors
/// [`CodecError`] if the form is unknown or the bytes do not decode to exactly one answer.
pub fn decode_answer(bytes: &[u8]) -> Result<Answer, CodecError> {
    decode(ANSWER_FORM, bytes, "an answer")
}

/// The bytes of the answer to a keep-alive and of the cluster time at which it was given.
pub fn encode_kept_alive(kept: KeptAlive, time: Timestamp) -> Bytes {
    encode(ANSWER_FORM, &(kept, time))
}

/// The answer to a keep-alive in these bytes, and its cluster time. Never panics, whatever the bytes are.
///
/// # Errors
/// [`CodecError`] if the form is unknown or the bytes do not decode to exactly one such answer.
pub fn decode_kept_alive(bytes: &[u8]) -> Result<(KeptAlive, Timestamp), CodecError> {
    decode(ANSWER_FORM, bytes, "an answer to a keep-alive")
}

/// The fingerprint of a command: a 128-bit hash with a fixed key over its bytes. It tells an honest mistake
/// (one request number for two commands); it is no defence against somebody who forges.
pub fn fingerprint(command: &Command) -> Fingerprint {
    let bytes = postcard::to_allocvec(command).expect("plain data always encodes");
    let mut hasher = SipHasher13::new();
    hasher.write(&bytes);
    Fingerprint(hasher.finish128().as_u128())
}

fn encode(form: u8, value: &impl Serialize) -> Bytes {
    Bytes::from(postcard::to_extend(value, vec![form]).expect("plain data always encodes"))
}

fn decode<T: DeserializeOwned>(known: u8, bytes: &[u8], what: &'static str) -> Result<T, CodecError> {
    let (form, body) = bytes.split_first().ok_or(CodecError::Malformed(what))?;
    if *form != known {
        return Err(CodecError::UnknownForm(*form));
    }
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(CodecError::Malformed(what)),
    }
}
