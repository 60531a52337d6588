//! Every row of a group's table, on one page. The first byte of a key is its kind; numbers are big-endian,
//! so that rows lie in the order of their numbers; names cannot hold the zero byte that ends them.
//!
//! | kind | key behind the kind | value |
//! |---|---|---|
//! | `T` | | cluster time so far |
//! | `R` | | blocks of revisions: [`crate::revision::Revisions`] |
//! | `C` | tenant 0 namespace 0 name 0 | [`CacheRecord`](crate::response::CacheRecord) |
//! | `I` | incarnation | the name of a cache that lives |
//! | `W` | incarnation | nothing: rows of a deleted cache or stream that are to be swept |
//! | `K` | incarnation, key | [`KeyRow`] |
//! | `A` | tenant 0 namespace 0 name 0 | [`StreamRecord`](crate::response::StreamRecord) |
//! | `H` | incarnation | [`HeadRow`]: what a stream is now |
//! | `E` | incarnation, offset | [`RecordRow`]: a record of a stream |
//! | `G` | incarnation, message id | [`MessageIdRow`] |
//! | `U` | incarnation, until, message id | nothing: the message ids of a stream in the order in which they end |
//! | `J` | incarnation, offset | the offset behind a gap that begins there, which a restore has left |
//! | `S` | session | [`SessionRow`] |
//! | `N` | nonce | the session that was opened with it |
//! | `L` | tenant 0 namespace 0 session | nothing: the sessions of a namespace |
//! | `O` | session, incarnation, key | nothing: what a session owns |
//! | `Q` | session, seq | [`ResultRow`]: a remembered request |
//! | `X` | one-shot id | [`OneShotRow`] |
//! | `c` | | system group: [`ClusterRow`] |
//! | `n` | node | system group: [`NodeRecord`](crate::command::NodeRecord) |
//! | `f` | folder | system group: the node of a folder |
//! | `d` | node | system group: nothing: a node that is drained |
//! | `l` | group | system group: the node that was chosen to lead a group |
//! | `s` | tenant 0 namespace 0 | system group: the home of a namespace |
//!
//! A value is a form byte and the fields in order (see [`crate::codec`]).

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command::StreamSettings;
use crate::ids::{
    Fingerprint, GroupId, Incarnation, Namespace, NodeId, Nonce, ObjectName, OneShotId, Secret, SessionId,
};
use crate::refusal::EndReason;
use crate::response::Response;
use crate::table::{Table, TableRead};
use crate::time::{Span, Timestamp};

/// The form of rows that this release writes.
const ROW_FORM: u8 = 1;
/// Most rows fit, so that their bytes grow no step by step.
const ROW_BYTES_USUAL: usize = 128;

/// A key of a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    /// Its value.
    pub value: Bytes,
    /// Revision of its last write.
    pub version: u64,
    /// Revision of its creation.
    pub created: u64,
    /// Its own end.
    pub deadline: Option<Timestamp>,
    /// The session that owns it.
    pub owner: Option<SessionId>,
}

/// The same row, read without copying the value: most of what looks at a key has no use for it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct KeyRowRef<'a> {
    /// Its value, in the row's bytes.
    pub(crate) value: &'a [u8],
    /// Revision of its last write.
    pub(crate) version: u64,
    /// Revision of its creation.
    pub(crate) created: u64,
    /// Its own end.
    pub(crate) deadline: Option<Timestamp>,
    /// The session that owns it.
    pub(crate) owner: Option<SessionId>,
}

/// What a stream is now. Everything that its bookkeeping needs is here, so that a step reads one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadRow {
    /// What it was created with.
    pub settings: StreamSettings,
    /// The first offset that can be read.
    pub first: u64,
    /// The offset that the next record gets.
    pub tail: u64,
    /// No record row lies below this offset. Those from here to `first` are gone for every reader and to be removed.
    pub swept: u64,
    /// Bytes of all records that were ever appended.
    pub bytes_written: u64,
    /// Bytes of those below `first`.
    pub bytes_gone: u64,
    /// Bytes of the record at `first`; nothing if there is none.
    pub first_bytes: u64,
    /// When the record at `first` was appended; of no meaning if there is none.
    pub first_time: Timestamp,
    /// The highest fencing token that was accepted.
    pub token: Option<u64>,
    /// Message ids that have a row.
    pub ids: u64,
    /// When the first of them ends.
    pub ids_until: Option<Timestamp>,
}

/// A record of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRow {
    /// What was appended.
    pub data: Bytes,
    /// Cluster time of its append.
    pub time: Timestamp,
    /// The fencing token that its append carried.
    pub token: Option<u64>,
    /// Revision of its append.
    pub revision: u64,
    /// Bytes of all records before it.
    pub bytes_before: u64,
}

/// The same row, read without copying the data.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct RecordRowRef<'a> {
    /// What was appended, in the row's bytes.
    pub(crate) data: &'a [u8],
    /// Cluster time of its append.
    pub(crate) time: Timestamp,
    _token: Option<u64>,
    _revision: u64,
    /// Bytes of all records before it.
    pub(crate) bytes_before: u64,
}

/// A message id of a stream. It is known until its end, whether its row is still there then or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageIdRow {
    /// The offset of the first record of its append.
    pub first: u64,
    /// How many records that appended.
    pub count: u64,
    /// When it ends.
    pub until: Timestamp,
}

/// A session, open or ended and still answering repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    /// Chosen by the client.
    pub nonce: Nonce,
    /// Known to its owner only.
    pub secret: Secret,
    /// Its TTL; without one it can own nothing.
    pub ttl: Option<Span>,
    /// While open: when it ends. When ended: when its results are forgotten.
    pub deadline: Timestamp,
    /// Shown wherever a holder is.
    pub label: String,
    /// Where it belongs.
    pub namespace: Namespace,
    /// How many keys it owns.
    pub owned: u64,
    /// Every seq below this one is acknowledged.
    pub acknowledged_below: u64,
    /// Acknowledged ranges above that, ascending, both ends inclusive, never touching.
    pub acknowledged: Vec<(u64, u64)>,
    /// Results kept, and their bytes.
    pub kept: u64,
    /// Bytes of the results kept.
    pub kept_bytes: u64,
    /// How it ended.
    pub ended: Option<Ended>,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Why.
    pub reason: EndReason,
    /// Revision of the end.
    pub revision: u64,
}

/// How a session ended that has lapsed and was not reached yet: it has no revision of its end so far.
pub(crate) const LAPSED: Ended = Ended {
    reason: EndReason::Expired,
    revision: 0,
};

/// A remembered request of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRow {
    /// Of the command.
    pub fingerprint: Fingerprint,
    /// The first result.
    pub response: Response,
}

/// A remembered request without a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneShotRow {
    /// When it is forgotten.
    pub not_after: Timestamp,
    /// Of the command.
    pub fingerprint: Fingerprint,
    /// The first result.
    pub response: Response,
}

/// What the system group knows of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRow {
    /// Its id.
    pub cluster: u128,
    /// Its number of home groups.
    pub home_groups: u32,
    /// Every revision below this one may have been handed out.
    pub floor: u64,
    /// The next node id.
    pub next_node: u64,
    /// How many namespaces are assigned.
    pub namespaces: u64,
}

/// Where a cache's key begins in the key of its row.
pub(crate) const KEY_AT: usize = 9;
/// Row key: cluster time.
pub(crate) const TIME: &[u8] = b"T";
/// Row key: blocks of revisions.
pub(crate) const REVISIONS: &[u8] = b"R";
/// Row key: the cluster.
pub(crate) const CLUSTER: &[u8] = b"c";

/// The caches of a namespace.
pub(crate) fn caches_of(namespace: &Namespace) -> Vec<u8> {
    named(b'C', namespace)
}

/// One cache.
pub(crate) fn cache(name: &ObjectName) -> Vec<u8> {
    let mut key = caches_of(&name.namespace);
    key.reserve_exact(name.name.len() + 1);
    key.extend_from_slice(name.name.as_bytes());
    key.push(0);
    key
}

/// A living incarnation.
pub(crate) fn live(incarnation: Incarnation) -> Vec<u8> {
    numbered(b'I', incarnation.0)
}

/// An incarnation to be swept.
pub(crate) fn sweep(incarnation: Incarnation) -> Vec<u8> {
    numbered(b'W', incarnation.0)
}

/// The keys of an incarnation.
pub(crate) fn keys_of(incarnation: Incarnation) -> Vec<u8> {
    numbered(b'K', incarnation.0)
}

/// One key.
pub(crate) fn key(incarnation: Incarnation, key: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(9 + key.len());
    row.push(b'K');
    row.extend_from_slice(&incarnation.0.to_be_bytes());
    row.extend_from_slice(key);
    row
}

/// The streams of a namespace.
pub(crate) fn streams_of(namespace: &Namespace) -> Vec<u8> {
    named(b'A', namespace)
}

/// One stream.
pub(crate) fn stream(name: &ObjectName) -> Vec<u8> {
    let mut key = streams_of(&name.namespace);
    key.reserve_exact(name.name.len() + 1);
    key.extend_from_slice(name.name.as_bytes());
    key.push(0);
    key
}

/// What a stream is now.
pub(crate) fn head(incarnation: Incarnation) -> Vec<u8> {
    numbered(b'H', incarnation.0)
}

/// The records of a stream.
pub(crate) fn records_of(incarnation: Incarnation) -> Vec<u8> {
    numbered(b'E', incarnation.0)
}

/// One record.
pub(crate) fn record(incarnation: Incarnation, offset: u64) -> Vec<u8> {
    let mut key = records_of(incarnation);
    key.extend_from_slice(&offset.to_be_bytes());
    key
}

/// The gaps of a stream.
pub(crate) fn gaps_of(incarnation: Incarnation) -> Vec<u8> {
    numbered(b'J', incarnation.0)
}

/// One gap.
pub(crate) fn gap(incarnation: Incarnation, start: u64) -> Vec<u8> {
    let mut key = gaps_of(incarnation);
    key.extend_from_slice(&start.to_be_bytes());
    key
}

/// The message ids of a stream.
pub(crate) fn message_ids_of(incarnation: Incarnation) -> Vec<u8> {
    numbered(b'G', incarnation.0)
}

/// One message id.
pub(crate) fn message_id(incarnation: Incarnation, id: &[u8]) -> Vec<u8> {
    let mut key = message_ids_of(incarnation);
    key.extend_from_slice(id);
    key
}

/// The message ids of a stream in the order in which they end.
pub(crate) fn id_ends_of(incarnation: Incarnation) -> Vec<u8> {
    numbered(b'U', incarnation.0)
}

/// One of them.
pub(crate) fn id_end(incarnation: Incarnation, until: Timestamp, id: &[u8]) -> Vec<u8> {
    let mut key = id_ends_of(incarnation);
    key.extend_from_slice(&until.0.to_be_bytes());
    key.extend_from_slice(id);
    key
}

/// A session.
pub(crate) fn session(id: SessionId) -> Vec<u8> {
    numbered(b'S', id.0)
}

/// A nonce.
pub(crate) fn nonce(nonce: Nonce) -> Vec<u8> {
    wide(b'N', nonce.0)
}

/// The sessions of a namespace.
pub(crate) fn sessions_of(namespace: &Namespace) -> Vec<u8> {
    named(b'L', namespace)
}

/// One session of a namespace.
pub(crate) fn session_of(namespace: &Namespace, id: SessionId) -> Vec<u8> {
    let mut key = sessions_of(namespace);
    key.extend_from_slice(&id.0.to_be_bytes());
    key
}

/// What a session owns.
pub(crate) fn owned_by(id: SessionId) -> Vec<u8> {
    numbered(b'O', id.0)
}

/// One thing that a session owns.
pub(crate) fn owned(id: SessionId, incarnation: Incarnation, key: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(17 + key.len());
    row.push(b'O');
    row.extend_from_slice(&id.0.to_be_bytes());
    row.extend_from_slice(&incarnation.0.to_be_bytes());
    row.extend_from_slice(key);
    row
}

/// The results of a session.
pub(crate) fn results_of(id: SessionId) -> Vec<u8> {
    numbered(b'Q', id.0)
}

/// One result of a session.
pub(crate) fn result(id: SessionId, seq: u64) -> Vec<u8> {
    let mut key = results_of(id);
    key.extend_from_slice(&seq.to_be_bytes());
    key
}

/// A one-shot request.
pub(crate) fn one_shot(id: OneShotId) -> Vec<u8> {
    wide(b'X', id.0)
}

/// A node.
pub(crate) fn node(id: NodeId) -> Vec<u8> {
    numbered(b'n', id.0)
}

/// A node that is drained.
pub(crate) fn drained(id: NodeId) -> Vec<u8> {
    numbered(b'd', id.0)
}

/// The leader that was chosen for a group.
pub(crate) fn chosen_leader(group: GroupId) -> Vec<u8> {
    numbered(b'l', u64::from(group.0))
}

/// A node's folder. It stays when the node is removed, so that the folder never comes back.
pub(crate) fn folder(folder: u128) -> Vec<u8> {
    wide(b'f', folder)
}

/// The home of a namespace.
pub(crate) fn home(namespace: &Namespace) -> Vec<u8> {
    named(b's', namespace)
}

/// The number in a key that is a kind and a number, or that begins so.
pub(crate) fn number_in(key: &[u8]) -> u64 {
    number_at(key, 1)
}

/// The number at a place of a key.
pub(crate) fn number_at(key: &[u8], at: usize) -> u64 {
    let bytes = key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    u64::from_be_bytes(bytes.expect("the row key holds a number here, as this page says"))
}

/// The 128-bit number behind the kind.
pub(crate) fn wide_in(key: &[u8]) -> u128 {
    let bytes = key.get(1..17).and_then(|bytes| bytes.try_into().ok());
    u128::from_be_bytes(bytes.expect("the row key holds a wide number here, as this page says"))
}

/// Reads a row. Panics if the bytes are not what this machine wrote: the group must stop then, since going
/// on would spread the damage.
pub(crate) fn read<T: DeserializeOwned>(table: &(impl TableRead + ?Sized), key: &[u8]) -> Option<T> {
    table.get(key).map(|bytes| decode(key, &bytes))
}

/// Decodes a row's value; see [`read`].
pub(crate) fn decode<'a, T: Deserialize<'a>>(key: &[u8], bytes: &'a [u8]) -> T {
    try_decode(bytes).unwrap_or_else(|| panic!("the row {} is damaged", key.escape_ascii()))
}

/// Decodes a row's value that came from outside; nothing if it is none.
pub(crate) fn try_decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (row, rest) = match bytes.split_first() {
        Some((&ROW_FORM, body)) => postcard::take_from_bytes(body).ok()?,
        _ => return None,
    };
    let rest: &[u8] = rest;
    rest.is_empty().then_some(row)
}

/// The value of a row.
pub(crate) fn encode<T: Serialize>(row: &T) -> Bytes {
    let bytes = postcard::to_extend(row, vec![ROW_FORM]).expect("plain data always encodes");
    Bytes::from(bytes)
}

/// Writes a row, and returns the length of its value in bytes.
pub(crate) fn write<T: Serialize>(table: &mut (impl Table + ?Sized), key: Vec<u8>, row: &T) -> usize {
    let mut bytes = Vec::with_capacity(ROW_BYTES_USUAL);
    bytes.push(ROW_FORM);
    let bytes = postcard::to_extend(row, bytes).expect("plain data always encodes");
    let len = bytes.len();
    // Rows are kept for long: without the room that is left.
    table.put(key, Bytes::from(bytes.into_boxed_slice()));
    len
}

fn numbered(kind: u8, number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(kind);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn wide(kind: u8, number: u128) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(kind);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn named(kind: u8, namespace: &Namespace) -> Vec<u8> {
    let mut key = Vec::with_capacity(3 + namespace.tenant.len() + namespace.name.len());
    key.push(kind);
    key.extend_from_slice(namespace.tenant.as_bytes());
    key.push(0);
    key.extend_from_slice(namespace.name.as_bytes());
    key.push(0);
    key
}

#[cfg(test)]
mod tests;
