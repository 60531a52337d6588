//! What changed, for whoever watches. Effects are computed on every replica; the outcome itself is state,
//! effects only wake those who wait.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{Incarnation, SessionId};
use crate::refusal::EndReason;
use crate::time::Span;

/// One consequence of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A key changed. These, in order, are the change feed.
    Changed(Change),
    /// A session ended.
    SessionEnded {
        /// Which one.
        session: SessionId,
        /// Why.
        reason: EndReason,
        /// Revision of its end.
        revision: u64,
    },
    /// A cache or stream was deleted: whoever watches it is told the end.
    ObjectDeleted {
        /// Its last life.
        incarnation: Incarnation,
        /// Revision of the deletion.
        revision: u64,
    },
    /// A stream has new records: a wake-up for those who follow it. Records are read from the table and are not in
    /// the change feed.
    Appended {
        /// The stream's life.
        incarnation: Incarnation,
        /// The offset that its next record gets.
        tail: u64,
        /// Revision of the append.
        revision: u64,
    },
}

/// A change of one key, as the feed keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The revision that the change consumed; changes of one step share it.
    pub revision: u64,
    /// The cache's life.
    pub incarnation: Incarnation,
    /// The key.
    pub key: Bytes,
    /// What happened to it.
    pub kind: ChangeKind,
    /// The version before, if there was one.
    pub previous_version: Option<u64>,
}

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// It was written; its version is the change's revision.
    Put {
        /// The new value.
        value: Bytes,
        /// Revision of its creation, equal to the change's revision if this write created it.
        created: u64,
        /// The session that owns it.
        owner: Option<SessionId>,
        /// Its own TTL.
        ttl: Option<Span>,
    },
    /// It is gone.
    Removed {
        /// Why.
        reason: EndReason,
    },
}
