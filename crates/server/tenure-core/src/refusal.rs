//! Why nothing was done: verdicts that say what stood in the way, and failures that apply itself decides.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ObjectName, SessionId};
use crate::response::{CacheRecord, StreamRecord};
use crate::time::Span;

/// A verdict: nothing changed, and what stood in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// A guard did not hold. `None`: there is no such key.
    ConditionFailed(Option<KeyFacts>),
    /// An object of this name exists with other settings.
    ExistsOtherwise(CacheRecord),
    /// The stream's next record gets another offset.
    WrongTail {
        /// That one.
        tail: u64,
    },
    /// A higher fencing token was accepted before.
    StaleToken {
        /// The highest.
        current: u64,
    },
    /// A stream of this name exists with other settings.
    StreamExistsOtherwise(StreamRecord),
}

/// What is known of the key that stood in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFacts {
    /// Revision of its last write.
    pub version: u64,
    /// Revision of its creation, its fencing token.
    pub created: u64,
    /// The session that owns it.
    pub holder: Option<SessionId>,
    /// How long it lives if nobody renews it: the earlier of its own end and its session's.
    pub remaining: Option<Span>,
    /// Its value, if that is not longer than a refusal may quote.
    pub value: Option<Bytes>,
    /// Bytes of its value.
    pub value_len: u64,
}

/// An error that apply decides. All but those named in [`Failure::is_unknown`] prove that the request was
/// not applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Failure {
    /// The requester's or owner's session has ended; no attempt of this request was or will be run.
    #[error("session {session} ended ({reason:?}) at revision {revision}")]
    SessionExpired {
        /// Which session.
        session: SessionId,
        /// Why it ended.
        reason: EndReason,
        /// The revision of its end.
        revision: u64,
    },
    /// No session of this id is known (any more).
    #[error("session {session} is not known")]
    SessionUnknown {
        /// Which session.
        session: SessionId,
    },
    /// The secret is not the session's.
    #[error("the secret is not that of session {session}")]
    WrongSecret {
        /// Which session.
        session: SessionId,
    },
    /// The result was acknowledged and is gone.
    #[error("the result of request {seq} was acknowledged and is forgotten")]
    RequestForgotten {
        /// Which request.
        seq: u64,
    },
    /// The one-shot request came after its `not_after`.
    #[error("the request came after its not_after")]
    TooLate,
    /// The number or id was used for another command.
    #[error("the request number was used for another command")]
    RequestReused,
    /// The session's window of remembered results is full.
    #[error("{seqs} results of {bytes} bytes are kept and none is acknowledged")]
    WindowFull {
        /// Results kept.
        seqs: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// There is no such thing.
    #[error("{what} does not exist")]
    NotFound {
        /// What was looked for.
        what: Missing,
    },
    /// A field breaks a rule that only apply can judge.
    #[error("{field}: {rule}")]
    Invalid {
        /// Which field.
        field: String,
        /// Which rule.
        rule: String,
    },
    /// A bound is reached.
    #[error("limit {which}: at most {value}")]
    Limit {
        /// Which bound.
        which: String,
        /// Its value.
        value: u64,
    },
    /// Too much is remembered or no revisions are at hand; it may go through later.
    #[error("{what}: try again in {retry_after}")]
    Overloaded {
        /// What is short.
        what: String,
        /// When to come back.
        retry_after: Span,
    },
    /// The command does not belong to this group.
    #[error("the command does not belong to this group")]
    WrongGroup,
    /// The key is not of the kind that the command is for.
    #[error("the key is a {is}")]
    WrongType {
        /// What it is.
        is: String,
    },
}

/// What does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Missing {
    /// A cache.
    Cache(ObjectName),
    /// A key.
    Key(Bytes),
    /// A session.
    Session(SessionId),
    /// A stream.
    Stream(ObjectName),
    /// A node.
    Node(NodeId),
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Missing::Cache(name) => write!(f, "cache {name}"),
            Missing::Session(session) => write!(f, "session {session}"),
            Missing::Key(key) => write!(f, "key {}", key.escape_ascii()),
            Missing::Stream(name) => write!(f, "stream {name}"),
            Missing::Node(node) => write!(f, "node {}", node.0),
        }
    }
}

impl Failure {
    /// A field breaks a rule.
    pub(crate) fn invalid(field: &str, rule: impl Into<String>) -> Failure {
        Failure::Invalid {
            field: field.to_owned(),
            rule: rule.into(),
        }
    }

    /// Nothing, if so many are within a bound.
    pub(crate) fn unless_within(which: &str, is: usize, at_most: usize) -> Result<(), Failure> {
        if is <= at_most {
            return Ok(());
        }
        Err(Failure::Limit {
            which: which.to_owned(),
            value: at_most as u64,
        })
    }

    /// Whether an earlier attempt of the same request may have been applied.
    pub fn is_unknown(&self) -> bool {
        match self {
            Failure::SessionUnknown { .. } | Failure::RequestForgotten { .. } | Failure::TooLate => true,
            Failure::SessionExpired { .. }
            | Failure::WrongSecret { .. }
            | Failure::RequestReused
            | Failure::WindowFull { .. }
            | Failure::NotFound { .. }
            | Failure::Invalid { .. }
            | Failure::Limit { .. }
            | Failure::Overloaded { .. }
            | Failure::WrongGroup
            | Failure::WrongType { .. } => false,
        }
    }
}

/// What ends a step before anything was done: a verdict or a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// A verdict.
    Refused(Box<Refusal>),
    /// A failure.
    Failed(Failure),
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Halt {
        Halt::Refused(Box::new(refusal))
    }
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Halt {
        Halt::Failed(failure)
    }
}

/// Why something ended or changed, in events and histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EndReason {
    /// A delete.
    Delete,
    /// Its own TTL ended.
    Expired,
    /// The TTL of its session ended.
    Session,
    /// Its session was closed.
    Closed,
    /// Somebody closed the session by force.
    Forced,
    /// Its cache or stream was deleted.
    ObjectDeleted,
}
