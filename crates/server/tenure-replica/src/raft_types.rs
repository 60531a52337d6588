//! The consensus library's types as this crate instantiates them, and the bytes of what goes to disk.
//!
//! Nothing outside this crate names a type of the library, and none of its own serialized forms is ever
//! stored: they change between its releases. Every form here begins with a version byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;

use bytes::{BufMut, Bytes, BytesMut};
use openraft::alias::{
    CommittedLeaderIdOf, EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf, WatchReceiverOf,
};
use openraft::impls::{BoxedErrorSource, InlineBatch, leader_id_std};
use openraft::raft::responder::Responder;
use openraft::{EntryPayload, OptionalSend, RaftTypeConfig};
use serde::{Deserialize, Serialize};

use tenure_core::response::{Answer, KeptAlive};
use tenure_core::time::Timestamp;

/// The library's runtime: tokio, and in a simulation with a seed.
#[cfg(not(feature = "deterministic"))]
pub(crate) type RaftRuntime = openraft_rt_tokio::TokioRuntime;
/// The library's runtime: tokio, and in a simulation with a seed.
#[cfg(feature = "deterministic")]
pub(crate) type RaftRuntime = openraft_rt::deterministic_rng::DeterministicRng<openraft_rt_tokio::TokioRuntime>;

/// A node as the library sees it.
pub(crate) type NodeNumber = u64;
/// An entry of the log.
pub(crate) type LogEntry = EntryOf<TypeConfig>;
/// Term and index of an entry.
pub(crate) type LogId = LogIdOf<TypeConfig>;
/// A vote.
pub(crate) type Vote = VoteOf<TypeConfig>;
/// The voters and learners.
pub(crate) type Membership = openraft::Membership<NodeNumber, ()>;
/// The voters and learners, and the entry that made them so.
pub(crate) type StoredMembership = StoredMembershipOf<TypeConfig>;
/// What a snapshot holds.
pub(crate) type SnapshotMeta = SnapshotMetaOf<TypeConfig>;
/// A snapshot.
pub(crate) type Snapshot = SnapshotOf<TypeConfig, crate::snapshot_adapter::SnapshotData>;
/// What one group's consensus says of itself.
pub(crate) type Metrics = WatchReceiverOf<TypeConfig, openraft::RaftMetrics<TypeConfig>>;
/// One group's consensus.
pub(crate) type Raft = openraft::Raft<TypeConfig, crate::machine_adapter::MachineAdapter>;

/// Standard Raft: one leader a term, so a log id is a term and an index. Membership holds node ids only;
/// addresses are rows of the system group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeConfig;

impl RaftTypeConfig for TypeConfig {
    type D = EntryData;
    type R = EntryAnswers;
    type NodeId = NodeNumber;
    type Node = ();
    type Term = u64;
    type LeaderId = leader_id_std::LeaderId<u64, NodeNumber>;
    type Vote = openraft::Vote<Self::LeaderId>;
    type Payload = EntryPayload<Self::D, Self::NodeId, Self::Node>;
    type Entry = openraft::Entry<CommittedLeaderIdOf<Self>, Self::Payload>;
    type AsyncRuntime = RaftRuntime;
    type Responder<T>
        = Reply<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

/// One entry of the machine as bytes, with its stamp in front so that the log can be asked for it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryData {
    /// Cluster time as the leader stamped it.
    pub(crate) stamp: Timestamp,
    /// The entry, encoded by the core.
    pub(crate) bytes: Bytes,
}

impl fmt::Debug for EntryData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for EntryData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes stamped {}", self.bytes.len(), self.stamp.0)
    }
}

/// What an entry answered, to whoever proposed it on this node. It never leaves the process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct EntryAnswers {
    /// One for each keep-alive, in order.
    #[serde(skip)]
    pub(crate) kept_alive: Vec<KeptAlive>,
    /// One for each request, in order.
    #[serde(skip)]
    pub(crate) answers: Vec<Answer>,
    /// Cluster time after the entry.
    #[serde(skip)]
    pub(crate) time: Timestamp,
}

/// Takes the result of a proposal, where it is applied: on the thread of the apply, without another hop.
pub(crate) struct Reply<T> {
    complete: Option<Box<dyn FnOnce(Option<T>) + Send>>,
}

impl<T> Reply<T> {
    /// `complete` is called exactly once: with the result, or with `None` if the library dropped the
    /// proposal without one.
    pub(crate) fn new(complete: impl FnOnce(Option<T>) + Send + 'static) -> Reply<T> {
        Reply {
            complete: Some(Box::new(complete)),
        }
    }
}

impl<T: OptionalSend + 'static> Responder<TypeConfig, T> for Reply<T> {
    fn on_complete(mut self, result: T) {
        if let Some(complete) = self.complete.take() {
            complete(Some(result));
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(complete) = self.complete.take() {
            complete(None);
        }
    }
}

/// Runs a call into the consensus library. Where its runtime is deterministic, its randomness comes from
/// this seed; each call has its own.
#[cfg(feature = "deterministic")]
pub(crate) fn in_scope<F: Future>(seed: u64, call: F) -> impl Future<Output = F::Output> {
    RaftRuntime::scope(seed, call)
}

/// Runs a call into the consensus library. Where its runtime is deterministic, its randomness comes from
/// this seed; each call has its own.
#[cfg(not(feature = "deterministic"))]
pub(crate) fn in_scope<F: Future>(_seed: u64, call: F) -> impl Future<Output = F::Output> {
    call
}

/// Stored bytes that this release does not understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes do not decode as {what}")]
pub(crate) struct FormError {
    what: &'static str,
}

/// The form of everything below that this release writes.
const FORM: u8 = 1;
const KIND_BLANK: u8 = 0;
const KIND_NORMAL: u8 = 1;
const KIND_MEMBERSHIP: u8 = 2;
/// Configurations of a membership: one, or two while it changes.
const CONFIGURATIONS_MAX: u32 = 8;
/// Nodes of a membership.
const MEMBERS_MAX: u32 = 1_024;

/// The bytes of an entry as the log keeps them. The index is the log's own.
pub(crate) fn encode_entry(entry: &LogEntry) -> Bytes {
    let mut bytes = BytesMut::with_capacity(match &entry.payload {
        EntryPayload::Normal(data) => 18 + data.bytes.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 64,
    });
    bytes.put_u8(FORM);
    bytes.put_u8(match &entry.payload {
        EntryPayload::Blank => KIND_BLANK,
        EntryPayload::Normal(_) => KIND_NORMAL,
        EntryPayload::Membership(_) => KIND_MEMBERSHIP,
    });
    bytes.put_u64_le(entry.log_id.leader_id.term);
    match &entry.payload {
        EntryPayload::Blank => {}
        EntryPayload::Normal(data) => {
            bytes.put_u64_le(data.stamp.0);
            bytes.put_slice(&data.bytes);
        }
        EntryPayload::Membership(membership) => put_membership(&mut bytes, membership),
    }
    bytes.freeze()
}

/// The entry at this index of the log. Never panics, whatever the bytes are.
///
/// # Errors
/// [`FormError`] if they are not exactly one entry.
pub(crate) fn decode_entry(index: u64, bytes: &Bytes) -> Result<LogEntry, FormError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        what: "a log entry",
    };
    reader.form()?;
    let kind = reader.u8()?;
    let term = reader.u64()?;
    let payload = match kind {
        KIND_BLANK => EntryPayload::Blank,
        KIND_NORMAL => {
            let stamp = Timestamp(reader.u64()?);
            EntryPayload::Normal(EntryData {
                stamp,
                bytes: reader.rest(),
            })
        }
        KIND_MEMBERSHIP => EntryPayload::Membership(reader.membership()?),
        _ => return Err(reader.error()),
    };
    reader.end()?;
    Ok(openraft::Entry {
        log_id: log_id(term, index),
        payload,
    })
}

/// The term of the entry with these bytes.
///
/// # Errors
/// [`FormError`] if they are not an entry.
pub(crate) fn decode_term(bytes: &Bytes) -> Result<u64, FormError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        what: "a log entry",
    };
    reader.form()?;
    reader.u8()?;
    reader.u64()
}

/// The stamp of the entry with these bytes, or `None` if it carries none.
///
/// # Errors
/// [`FormError`] if they are not an entry.
pub(crate) fn decode_stamp(bytes: &Bytes) -> Result<Option<Timestamp>, FormError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        what: "a log entry",
    };
    reader.form()?;
    if reader.u8()? != KIND_NORMAL {
        return Ok(None);
    }
    reader.u64()?;
    reader.u64().map(|stamp| Some(Timestamp(stamp)))
}

/// The bytes of a vote.
pub(crate) fn encode_vote(vote: &Vote) -> Bytes {
    let mut bytes = BytesMut::with_capacity(18);
    bytes.put_u8(FORM);
    bytes.put_u64_le(vote.leader_id.term);
    bytes.put_u64_le(vote.leader_id.voted_for);
    bytes.put_u8(u8::from(vote.committed));
    bytes.freeze()
}

/// The vote with these bytes.
///
/// # Errors
/// [`FormError`] if they are not exactly one vote.
pub(crate) fn decode_vote(bytes: &Bytes) -> Result<Vote, FormError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        what: "a vote",
    };
    reader.form()?;
    let leader_id = leader_id_std::LeaderId {
        term: reader.u64()?,
        voted_for: reader.u64()?,
    };
    let committed = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(reader.error()),
    };
    reader.end()?;
    Ok(Vote { leader_id, committed })
}

/// The bytes of a log id, or of none.
pub(crate) fn encode_log_id(id: Option<LogId>) -> Bytes {
    let mut bytes = BytesMut::with_capacity(18);
    bytes.put_u8(FORM);
    put_log_id(&mut bytes, id);
    bytes.freeze()
}

/// The log id with these bytes.
///
/// # Errors
/// [`FormError`] if they are not exactly one log id.
pub(crate) fn decode_log_id(bytes: &Bytes) -> Result<Option<LogId>, FormError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        what: "a log id",
    };
    reader.form()?;
    let id = reader.log_id()?;
    reader.end()?;
    Ok(id)
}

/// What the state was applied up to, and the membership as of then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppliedState {
    /// The last applied entry.
    pub(crate) last: Option<LogId>,
    /// The last applied membership.
    pub(crate) membership: StoredMembership,
}

/// The bytes of what the state was applied up to.
pub(crate) fn encode_applied(applied: &AppliedState) -> Bytes {
    let mut bytes = BytesMut::with_capacity(64);
    bytes.put_u8(FORM);
    put_log_id(&mut bytes, applied.last);
    put_log_id(&mut bytes, *applied.membership.log_id());
    put_membership(&mut bytes, applied.membership.membership());
    bytes.freeze()
}

/// What the state was applied up to.
///
/// # Errors
/// [`FormError`] if the bytes are not that.
pub(crate) fn decode_applied(bytes: &Bytes) -> Result<AppliedState, FormError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        what: "an applied mark",
    };
    reader.form()?;
    let last = reader.log_id()?;
    let membership_id = reader.log_id()?;
    let membership = reader.membership()?;
    reader.end()?;
    Ok(AppliedState {
        last,
        membership: StoredMembership::new(membership_id, membership),
    })
}

/// A log id of this term and index.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

fn put_log_id(bytes: &mut BytesMut, id: Option<LogId>) {
    match id {
        None => bytes.put_u8(0),
        Some(id) => {
            bytes.put_u8(1);
            bytes.put_u64_le(id.leader_id.term);
            bytes.put_u64_le(id.index);
        }
    }
}

fn put_membership(bytes: &mut BytesMut, membership: &Membership) {
    let configurations = membership.get_joint_config();
    put_count(bytes, configurations.len());
    for configuration in configurations {
        put_count(bytes, configuration.len());
        for node in configuration {
            bytes.put_u64_le(*node);
        }
    }
    put_count(bytes, membership.nodes().count());
    for (node, ()) in membership.nodes() {
        bytes.put_u64_le(*node);
    }
}

fn put_count(bytes: &mut BytesMut, count: usize) {
    bytes.put_u32_le(u32::try_from(count).expect("a membership has at most a thousand members"));
}

/// Reads a form from its front.
struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
    what: &'static str,
}

impl Reader<'_> {
    fn error(&self) -> FormError {
        FormError { what: self.what }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FormError> {
        let taken = self.bytes.get(self.at..self.at + N).ok_or(self.error())?;
        self.at += N;
        Ok(taken.try_into().expect("the slice has the length that was asked for"))
    }

    fn form(&mut self) -> Result<(), FormError> {
        if self.u8()? == FORM { Ok(()) } else { Err(self.error()) }
    }

    fn u8(&mut self) -> Result<u8, FormError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u64(&mut self) -> Result<u64, FormError> {
        self.take().map(u64::from_le_bytes)
    }

    fn count(&mut self, max: u32) -> Result<u32, FormError> {
        let count = self.take().map(u32::from_le_bytes)?;
        if count <= max { Ok(count) } else { Err(self.error()) }
    }

    fn log_id(&mut self) -> Result<Option<LogId>, FormError> {
        match self.u8()? {
            0 => Ok(None),
            1 => {
                let term = self.u64()?;
                Ok(Some(log_id(term, self.u64()?)))
            }
            _ => Err(self.error()),
        }
    }

    fn nodes(&mut self) -> Result<BTreeSet<NodeNumber>, FormError> {
        let count = self.count(MEMBERS_MAX)?;
        (0..count).map(|_| self.u64()).collect()
    }

    fn membership(&mut self) -> Result<Membership, FormError> {
        let count = self.count(CONFIGURATIONS_MAX)?;
        let configurations = (0..count).map(|_| self.nodes()).collect::<Result<Vec<_>, _>>()?;
        let nodes = self.nodes()?;
        let known: BTreeMap<NodeNumber, ()> = nodes.into_iter().map(|node| (node, ())).collect();
        if configurations.iter().flatten().any(|voter| !known.contains_key(voter)) {
            return Err(self.error());
        }
        Ok(Membership::new_with_defaults(configurations, known.into_keys()))
    }

    fn rest(&mut self) -> Bytes {
        let rest = self.bytes.slice(self.at..);
        self.at = self.bytes.len();
        rest
    }

    fn end(&self) -> Result<(), FormError> {
        if self.at == self.bytes.len() {
            Ok(())
        } else {
            Err(self.error())
        }
    }
}

#[cfg(test)]
mod tests;
