//! Every mutation as data, and the entry that carries many of them.
//!
//! What could differ between replicas (time, ids, secrets) is a field here, chosen before the proposal.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{
    Fingerprint, GroupId, Namespace, NodeId, Nonce, ObjectName, OneShotId, Secret, SessionId, SessionRef,
};
use crate::time::{Span, Timestamp};

mod form;

/// One entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Cluster time as the leader stamped it.
    pub stamp: Timestamp,
    /// Keep-alives, which come before the time of this entry ends anything.
    pub keep_alives: Vec<SessionRef>,
    /// The commands, in order.
    pub requests: Vec<Request>,
}

/// A command with the identity under which its result is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Who asks, under which number.
    pub origin: Origin,
    /// What is asked.
    pub command: Command,
}

/// The identity of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// None: it runs once per attempt.
    Anonymous,
    /// A single call without a session, remembered until `not_after`.
    OneShot {
        /// Chosen by the caller.
        id: OneShotId,
        /// Later than this it is refused as too late.
        not_after: Timestamp,
        /// Of the command.
        fingerprint: Fingerprint,
    },
    /// A numbered request of a session.
    Session {
        /// The requester.
        session: SessionRef,
        /// Its number for this request, from 1.
        seq: u64,
        /// Which earlier results the requester needs no more.
        acknowledged: Acknowledged,
        /// Of the command.
        fingerprint: Fingerprint,
    },
}

/// Seqs whose results the requester has seen, or has given up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Every seq below this one.
    pub below: u64,
    /// Single seqs above it.
    pub also: Vec<u64>,
}

/// Every mutation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Opens a session, or finds the one that was opened with this nonce.
    OpenSession {
        /// Chosen by the client.
        nonce: Nonce,
        /// Chosen by the node that proposes; a repeat returns the first.
        secret: Secret,
        /// Without one the session can own nothing and is only an identity.
        ttl: Option<Span>,
        /// Shown wherever a holder is.
        label: String,
        /// Where it belongs, for listings.
        namespace: Namespace,
    },
    /// Ends a session and removes what it owns in one step.
    CloseSession {
        /// Which one.
        session: SessionId,
        /// Proof of the right; `None` is the forced close.
        secret: Option<Secret>,
    },
    /// Takes note of acknowledged results and does nothing else.
    Acknowledge {
        /// Whose results.
        session: SessionRef,
        /// Which ones.
        acknowledged: Acknowledged,
    },
    /// Creates a cache; the same settings again succeed.
    CreateCache {
        /// Its name.
        name: ObjectName,
        /// Its settings.
        settings: CacheSettings,
    },
    /// Deletes a cache; its rows are swept afterwards in bounded steps.
    DeleteCache {
        /// Its name.
        name: ObjectName,
    },
    /// Writes a key.
    Put {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
        /// Its own TTL; without one it stays until it is deleted or its session ends.
        ttl: Option<Span>,
        /// What must hold.
        guard: Option<Guard>,
        /// The session that owns the key from now on.
        owner: Option<SessionRef>,
    },
    /// Deletes a key.
    Delete {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
        /// What must hold.
        guard: Option<Guard>,
    },
    /// Renews the TTL of a key: no revision, no event, no remembered result.
    Touch {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
        /// Counted from the stamp of the entry.
        ttl: Span,
        /// What must hold.
        guard: Option<Guard>,
    },
    /// Home group: takes a block of revisions that the system group reserved for it. Ignored unless it
    /// lies above every block taken before.
    TakeBlock {
        /// The first revision of the block.
        first: u64,
    },
    /// System group: a command about the cluster itself.
    System(SystemCommand),
    /// Adds to a counter: a key whose value is the decimal text of a 64-bit number with a sign.
    Add {
        /// In which cache.
        cache: ObjectName,
        /// The key. One that does not exist counts as 0 and is created.
        key: Bytes,
        /// What is added.
        delta: i64,
        /// The TTL of a counter that this creates; one that exists keeps its own, and its owner.
        ttl: Option<Span>,
    },
    /// Deletes the keys that begin with a prefix, in order: one step, bounded by
    /// [`PREFIX_DELETED_MAX`](crate::limits::PREFIX_DELETED_MAX) and
    /// [`PREFIX_DELETED_BYTES_MAX`](crate::limits::PREFIX_DELETED_BYTES_MAX).
    DeletePrefix {
        /// In which cache.
        cache: ObjectName,
        /// What the keys begin with; empty: every key.
        prefix: Bytes,
    },
    /// Runs one branch of a transaction, all of it or nothing.
    Txn(Txn),
    /// Creates a stream; the same settings again succeed.
    CreateStream {
        /// Its name. Streams and caches have names of their own.
        name: ObjectName,
        /// Its settings.
        settings: StreamSettings,
    },
    /// Deletes a stream; its rows are swept afterwards in bounded steps.
    DeleteStream {
        /// Its name.
        name: ObjectName,
    },
    /// Appends records to a stream, all or none.
    Append {
        /// Which stream.
        stream: ObjectName,
        /// What is appended, and what must hold.
        append: Append,
    },
    /// Removes the records of a stream before an offset. Its message ids stay known.
    TrimStream {
        /// Which stream.
        stream: ObjectName,
        /// The records before this offset go; above the tail it means all of them.
        before: u64,
    },
}

/// Several objects of a group in one step: `then` if all guards hold, else `otherwise`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Txn {
    /// What must hold for `then` to run.
    pub guards: Vec<TxnGuard>,
    /// What is done then, in order: each operation sees those before it.
    pub then: Vec<Operation>,
    /// What is done otherwise.
    pub otherwise: Vec<Operation>,
}

/// A guard of a transaction. One that does not hold is no refusal: it chooses the branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TxnGuard {
    /// A key fulfils a condition.
    Key {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
        /// What must hold.
        guard: Guard,
    },
    /// A counter lies within bounds. A key that does not exist counts as 0; another value is a wrong type.
    Counter {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
        /// At least this.
        min: Option<i64>,
        /// At most this.
        max: Option<i64>,
    },
    /// The next record of a stream would get this offset.
    StreamTail {
        /// Which stream.
        stream: ObjectName,
        /// The offset.
        tail: u64,
    },
    /// A session lives.
    SessionAlive {
        /// Which one.
        session: SessionId,
    },
}

/// An operation of a transaction. In one branch a key is written at most once, and a stream appended to at most once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Writes a key.
    Put {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
        /// Its own TTL.
        ttl: Option<Span>,
        /// The session that owns the key from now on.
        owner: Option<SessionRef>,
    },
    /// Deletes a key.
    Delete {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
    },
    /// Adds to a counter; see [`Command::Add`].
    Add {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
        /// What is added.
        delta: i64,
        /// The TTL of a counter that this creates.
        ttl: Option<Span>,
    },
    /// Appends to a stream.
    Append {
        /// Which stream.
        stream: ObjectName,
        /// What is appended, and what must hold.
        append: Append,
    },
    /// Reads a key.
    Get {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
    },
}

/// What is appended to a stream, and what must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Append {
    /// The records, in order. None together with a token is a seal: it only raises the stream's token.
    pub records: Vec<Bytes>,
    /// The offset that the first record must get.
    pub expected: Option<u64>,
    /// The writer's fencing token, from 1 to `i64::MAX`: at least the highest that was accepted.
    pub token: Option<u64>,
    /// A name of this append: within the stream's window from its first acceptance on, an append of the same name
    /// appends nothing and is answered like the first, whatever it carries.
    pub message_id: Option<Bytes>,
}

/// What a stream was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSettings {
    /// How long records are kept at least; `None`: without end.
    pub retention: Option<Span>,
    /// How many bytes of records are kept at least; `None`: all.
    pub retention_bytes: Option<u64>,
    /// Whether appends need a fencing token.
    pub fence: FenceMode,
    /// How long a message id is known, counted from its first acceptance; nothing: ids are not taken.
    pub dedup_window: Span,
    /// How many copies are wished for.
    pub replication: u32,
}

/// Whether the appends of a stream need a fencing token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FenceMode {
    /// One without a token is not checked.
    #[default]
    Optional,
    /// One without a token is invalid.
    Mandatory,
}

/// A command of the system group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SystemCommand {
    /// Founds the cluster; founding it again with the same identity changes nothing.
    Found {
        /// 128 random bits that name the cluster.
        cluster: u128,
        /// How many home groups there are, for good.
        home_groups: u32,
    },
    /// Lets a node in, or records its new address. One folder gets one id.
    AddNode {
        /// 128 random bits that name the node's folder.
        folder: u128,
        /// Where it is reached.
        address: String,
    },
    /// Assigns a namespace to a home group on first use; it stays there.
    AssignNamespace {
        /// Which one.
        namespace: Namespace,
    },
    /// Reserves a block of revisions, raising the floor.
    ReserveBlock,
    /// Takes a node out of the cluster for good: neither its id nor its folder ever comes back.
    RemoveNode {
        /// Which one.
        node: NodeId,
        /// How many nodes there were when it was found that the others can do without it. If there are not so many any
        /// more, that may not be so any more either.
        of: u64,
    },
    /// Says whether a node is to lead and to vote only where no other can.
    DrainNode {
        /// Which one.
        node: NodeId,
        /// Whether it is, or is not any more.
        draining: bool,
    },
    /// Chooses who leads a group whenever it can, in the place of the one chosen before.
    ChooseLeader {
        /// Which group.
        group: GroupId,
        /// Which node.
        node: NodeId,
    },
    /// Reserves a block of revisions that begins no lower than this, raising the floor: for a group that was recovered, whose
    /// revisions go on above a floor of its own.
    ReserveBlockFrom {
        /// The lowest first revision.
        at_least: u64,
    },
}

/// What a cache was created with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSettings {
    /// How many copies are wished for.
    pub replication: u32,
}

/// What must hold for a write to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guard {
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present,
    /// Its last write had this version.
    Version(u64),
    /// It has this value.
    Value(Bytes),
    /// It was created at this revision, its fencing token, and has existed since.
    Created(u64),
}

/// A node as the system group knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its id.
    pub id: NodeId,
    /// Its folder.
    pub folder: u128,
    /// Where it is reached.
    pub address: String,
}
