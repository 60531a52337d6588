//! What each command returns.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::command::{CacheSettings, StreamSettings};
use crate::ids::{GroupId, Incarnation, NodeId, ObjectName, Revision, Secret, SessionId};
use crate::refusal::{Failure, Refusal};
use crate::time::{Span, Timestamp};

/// The answer to one request of an entry, computed at the stamp of that entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What came of it. For a repeat it is the first result.
    pub response: Response,
    /// Whether the result was remembered from an earlier attempt.
    pub repeated: bool,
    /// How long the claim lives, as of this entry's stamp and never from memory: the earlier of its own
    /// end and its session's; `Span(0)` if it is no longer there.
    pub remaining: Option<Span>,
    /// The group's revision after this request.
    pub revision: Revision,
    /// The stamp.
    pub time: Timestamp,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// It was done.
    Done(Done),
    /// A verdict: nothing changed.
    Refused(Refusal),
    /// It was not applied, or that is not known; see [`Failure::is_unknown`].
    Failed(Failure),
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// The session that is open under this nonce.
    SessionOpened {
        /// Its id.
        id: SessionId,
        /// Its secret.
        secret: Secret,
        /// Its TTL.
        ttl: Option<Span>,
    },
    /// The session has ended; `removed` is what it owned.
    SessionClosed {
        /// Revision of the end.
        revision: u64,
        /// Keys removed with it, in the same step.
        removed: u64,
    },
    /// Acknowledgements were noted.
    Acknowledged,
    /// The cache exists with these settings.
    CacheCreated {
        /// Its record.
        record: CacheRecord,
        /// Whether it existed before.
        existed: bool,
    },
    /// The cache is gone.
    CacheDeleted {
        /// Revision of the deletion.
        revision: u64,
    },
    /// The key was written.
    Put {
        /// Revision of this write.
        version: u64,
        /// Revision of the key's creation, its fencing token.
        created: u64,
    },
    /// The key is not there.
    Deleted {
        /// Revision of the removal and the version that was removed; `None` if there was no key.
        removed: Option<Removed>,
    },
    /// The key's TTL was renewed.
    Touched {
        /// Revision of its last write, unchanged.
        version: u64,
        /// Its fencing token, unchanged.
        created: u64,
    },
    /// The block was taken, or ignored.
    BlockTaken {
        /// Whether it was taken.
        taken: bool,
    },
    /// What the system group did.
    System(SystemDone),
    /// The counter was changed.
    Added {
        /// What it holds now.
        sum: i64,
        /// Revision of this write.
        version: u64,
        /// Revision of its creation.
        created: u64,
    },
    /// One step of a deletion by prefix was done.
    PrefixDeleted {
        /// The revision that the removals share; `None` if there were none.
        revision: Option<u64>,
        /// How many keys it removed. Those that had lapsed and ended on the way do not count.
        removed: u64,
        /// Whether there may be more, for a further step.
        more: bool,
    },
    /// One branch of a transaction was run.
    Txn {
        /// Whether it was `then`.
        applied: bool,
        /// If not: the place of the first guard that did not hold, from 0.
        failed_guard: Option<u32>,
        /// The revision that all changes share; `None` if nothing changed.
        revision: Option<u64>,
        /// One for each operation of the branch, in order.
        results: Vec<OperationResult>,
    },
    /// The stream exists with these settings.
    StreamCreated {
        /// Its record.
        record: StreamRecord,
        /// Whether it existed before.
        existed: bool,
    },
    /// The stream is gone.
    StreamDeleted {
        /// Revision of the deletion.
        revision: u64,
    },
    /// The records are in the stream.
    Appended(Appended),
    /// The records before an offset are gone.
    StreamTrimmed {
        /// The first offset that can be read.
        first: u64,
    },
}

/// Where records are in their stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    /// The offset of the first; for a seal the tail.
    pub first: u64,
    /// How many there are, at consecutive offsets; 0 for a seal.
    pub count: u64,
    /// Whether nothing was appended, because the message id was known: then these are the offsets of the first append.
    pub duplicate: bool,
}

/// What one operation of a transaction did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationResult {
    /// The key was written.
    Put {
        /// Revision of this write.
        version: u64,
        /// Revision of the key's creation, its fencing token.
        created: u64,
    },
    /// The key is not there.
    Deleted {
        /// The removal; `None` if there was no key.
        removed: Option<Removed>,
    },
    /// The counter was changed.
    Added {
        /// What it holds now.
        sum: i64,
        /// Revision of this write.
        version: u64,
        /// Revision of its creation.
        created: u64,
    },
    /// The records are in the stream.
    Appended(Appended),
    /// The key as it is at this point of the branch, or nothing.
    Got(Option<KeyFound>),
}

/// A key as a transaction read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFound {
    /// Its value.
    pub value: Bytes,
    /// Revision of its last write.
    pub version: u64,
    /// Revision of its creation, its fencing token.
    pub created: u64,
    /// The session that owns it.
    pub owner: Option<SessionId>,
}

/// A stream as its home group knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRecord {
    /// Its name.
    pub name: ObjectName,
    /// Its settings.
    pub settings: StreamSettings,
    /// Its life: the revision of its creation.
    pub incarnation: Incarnation,
}

/// A removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Revision of the removal.
    pub revision: u64,
    /// The version that was removed.
    pub version: u64,
}

/// What the system group did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SystemDone {
    /// The cluster has this identity.
    Founded {
        /// Its id.
        cluster: u128,
        /// Its number of home groups.
        home_groups: u32,
    },
    /// The node has this id.
    NodeAdded {
        /// Its id.
        id: NodeId,
    },
    /// The namespace lives in this home group.
    NamespaceAssigned {
        /// Its home.
        home: GroupId,
    },
    /// The block is reserved.
    BlockReserved {
        /// Its first revision.
        first: u64,
    },
    /// The node is not in the cluster any more.
    NodeRemoved,
    /// The node is drained, or is not any more, as asked.
    NodeMarked,
    /// This leader is chosen.
    LeaderChosen,
}

/// A cache as its home group knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheRecord {
    /// Its name.
    pub name: ObjectName,
    /// Its settings.
    pub settings: CacheSettings,
    /// Its life: the revision of its creation.
    pub incarnation: Incarnation,
}

/// The answer to one keep-alive of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeptAlive {
    /// The session lives on for so long from the stamp of the entry.
    Renewed {
        /// Which session.
        session: SessionId,
        /// Counted from the stamp; nothing for a session without a TTL.
        remaining: Option<Span>,
    },
    /// The session has ended.
    Ended {
        /// Which session.
        session: SessionId,
        /// Why.
        reason: crate::refusal::EndReason,
        /// Revision of its end; 0 if it has lapsed and its end is still to come.
        revision: u64,
    },
    /// No such session, or not with this secret.
    Unknown {
        /// Which session.
        session: SessionId,
    },
}
