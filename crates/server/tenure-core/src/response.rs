//! What each command returns.

use serde::{Deserialize, Serialize};

use crate::command::CacheSettings;
use crate::ids::{GroupId, Incarnation, NodeId, ObjectName, Revision, Secret, SessionId};
use crate::refusal::{Failure, Refusal};
use crate::time::{Span, Timestamp};

/// The answer to one request of an entry, computed at the stamp of that entry.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
