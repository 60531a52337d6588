//! The rows of one group as an engine keeps them: their keys, and the two traits behind which an engine lies.
//!
//! Every key begins with one byte that says whose row it is, so the machine's own keys can never meet ours:
//!
//! | key | value |
//! |---|---|
//! | `00 01` | the applied mark |
//! | `00 02` | the head of the change feed |
//! | `01`, first revision | the changes of one segment |
//! | `02`, first revision | what is known of that segment |
//! | `10`, key of the machine | the machine's row |
//!
//! Revisions in keys are eight bytes, highest first, so that they sort as numbers.

use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenure_core::ids::GroupId;
use tenure_core::table::Visit;

use super::{AppliedMark, StateError};

/// Key of the applied mark.
pub(crate) const MARK_KEY: [u8; 2] = [0x00, 0x01];
/// Key of the head of the change feed.
pub(crate) const FEED_HEAD_KEY: [u8; 2] = [0x00, 0x02];
const SEGMENT_PREFIX: u8 = 0x01;
const SEGMENT_FACTS_PREFIX: u8 = 0x02;
const TABLE_PREFIX: u8 = 0x10;

/// The form of our own rows that this release writes: their first byte.
const ROW_FORM: u8 = 1;

/// Rows that change together: `Some` sets a row, `None` removes it. No key occurs twice.
pub(crate) type RowBatch = Vec<(Vec<u8>, Option<Bytes>)>;

/// Takes the rows of a new life in ascending order.
pub(crate) type RowSink<'a> = dyn FnMut(Vec<u8>, Bytes) -> Result<(), StateError> + 'a;

/// Reading rows, of the present or of a snapshot.
pub(crate) trait RowRead: Send + Sync {
    /// The value of a row.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError>;

    /// Visits the rows with `from <= key < to` in ascending order until the visitor breaks.
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) -> Result<(), StateError>;
}

/// The rows of one life of a group: from its creation or a snapshot install to the next install.
pub(crate) trait GroupRows: RowRead {
    /// Writes a batch, all of it or nothing even after a crash; batches survive in the order of their writing.
    fn write(&self, batch: RowBatch) -> Result<(), StateError>;

    /// Returns when every batch written so far survives a loss of power.
    fn sync(&self) -> Result<(), StateError>;

    /// What the engine merges by itself, whenever it likes: of each, the bytes that a merge may take beside what it
    /// reads.
    fn rooms_of_merges(&self) -> Vec<u64> {
        Vec::new()
    }

    /// The rows as they are now, whatever is written later.
    fn snapshot(&self) -> Box<dyn RowRead>;

    /// Makes a new life with the rows that `fill` puts in, durable when this returns, and deletes this one, which
    /// handles of it can still read. If `fill` fails, nothing has happened.
    fn replace(
        &self,
        fill: &mut dyn FnMut(&mut RowSink<'_>) -> Result<(), StateError>,
    ) -> Result<Arc<dyn GroupRows>, StateError>;

    /// The same rows without any segment of the feed, because those are not to be trusted. Their head stays.
    fn without_feed(&self) -> Result<Arc<dyn GroupRows>, StateError>;
}

/// Whether a row is of a segment of the feed, or says what is known of one.
pub(crate) fn is_of_feed(row_key: &[u8]) -> bool {
    matches!(row_key.first(), Some(&(SEGMENT_PREFIX | SEGMENT_FACTS_PREFIX)))
}

/// The keys of all rows of which [`is_of_feed`] is true lie from the first of these to before the second.
pub(crate) fn feed_keys() -> [Vec<u8>; 2] {
    [vec![SEGMENT_PREFIX], segment_facts_end()]
}

/// The key of a row of the machine.
pub(crate) fn table_key(key: &[u8]) -> Vec<u8> {
    let mut row_key = Vec::with_capacity(key.len() + 1);
    row_key.push(TABLE_PREFIX);
    row_key.extend_from_slice(key);
    row_key
}

/// The machine's own key in the key of its row.
pub(crate) fn key_of_table(row_key: &[u8]) -> &[u8] {
    row_key.get(1..).unwrap_or_default()
}

/// The key of a segment's changes.
pub(crate) fn segment_key(first_revision: u64) -> Vec<u8> {
    revision_key(SEGMENT_PREFIX, first_revision)
}

/// The key of what is known of a segment.
pub(crate) fn segment_facts_key(first_revision: u64) -> Vec<u8> {
    revision_key(SEGMENT_FACTS_PREFIX, first_revision)
}

/// The end of the keys of what is known of segments.
pub(crate) fn segment_facts_end() -> Vec<u8> {
    vec![SEGMENT_FACTS_PREFIX + 1]
}

/// The first revision in the key of what is known of a segment.
pub(crate) fn revision_of_key(row_key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(row_key.get(1..)?.try_into().ok()?))
}

/// The bytes of a row of ours.
pub(crate) fn encode_row(row: &impl Serialize) -> Bytes {
    let bytes = postcard::to_extend(row, vec![ROW_FORM]).expect("writing into memory cannot fail");
    bytes.into()
}

/// A row of ours from its bytes; anything else than exactly one is damage.
pub(crate) fn decode_row<T: DeserializeOwned>(group: GroupId, bytes: &[u8]) -> Result<T, StateError> {
    let damaged = StateError::damaged(group, "a row of the engine does not decode");
    match bytes.split_first() {
        Some((&ROW_FORM, rest)) => match postcard::take_from_bytes(rest) {
            Ok((row, [])) => Ok(row),
            _ => Err(damaged),
        },
        Some((&form, _)) => Err(StateError::UnknownFormat { found: u64::from(form) }),
        None => Err(damaged),
    }
}

/// The applied mark as a row.
#[derive(Serialize, Deserialize)]
struct MarkRow {
    index: u64,
    bytes: Bytes,
}

/// The bytes of the mark's row.
pub(crate) fn encode_mark(mark: &AppliedMark) -> Bytes {
    encode_row(&MarkRow {
        index: mark.index,
        bytes: mark.bytes.clone(),
    })
}

/// The mark in the bytes of its row.
pub(crate) fn decode_mark(group: GroupId, bytes: &[u8]) -> Result<AppliedMark, StateError> {
    let row: MarkRow = decode_row(group, bytes)?;
    Ok(AppliedMark {
        index: row.index,
        bytes: row.bytes,
    })
}

fn revision_key(prefix: u8, revision: u64) -> Vec<u8> {
    let mut row_key = Vec::with_capacity(1 + size_of::<u64>());
    row_key.push(prefix);
    row_key.extend_from_slice(&revision.to_be_bytes());
    row_key
}
