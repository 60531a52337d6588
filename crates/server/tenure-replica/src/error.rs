//! Why a group did not answer, and what that says about the request.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::ids::NodeId;

/// What is known of a request that got no answer of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not applied and never will be.
    NotApplied,
    /// It may have been applied, or may yet be.
    Unknown,
}

/// A group did not answer. [`outcome`](Unavailable::outcome) says what became of the request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Another node leads the group: ask there. Not applied.
    #[error("this node does not lead the group{}", at(*leader))]
    NotLeader {
        /// Who leads, if that is known.
        leader: Option<NodeId>,
    },
    /// Nobody is known to lead the group; an election may be under way. Not applied.
    #[error("the group has no leader")]
    NoLeader,
    /// The deadline passed before the request was proposed. Not applied.
    #[error("the deadline passed before the request was proposed")]
    Deadline,
    /// Too much is waiting. Not applied.
    #[error("too much is waiting: try again in {retry_after:?}")]
    Overloaded {
        /// When to come back.
        retry_after: Duration,
    },
    /// The request was proposed, and the leadership ended before it was committed. Unknown.
    #[error("the leadership ended before the request was committed")]
    LeadershipLost,
    /// The request was proposed, and the deadline passed before a majority had it and it was applied. Unknown.
    #[error("no majority in time")]
    QuorumTimeout,
    /// The group has stopped on this node. Unknown if the request was proposed.
    #[error("the group has stopped: {why}")]
    Stopped {
        /// Why.
        why: Arc<str>,
        /// Whether the request had been proposed.
        proposed: bool,
    },
    /// The consensus library gave an answer that it should not give. Unknown.
    #[error("internal: {0}")]
    Internal(Arc<str>),
}

impl Unavailable {
    /// What became of the request.
    pub fn outcome(&self) -> Outcome {
        match self {
            Unavailable::NotLeader { .. }
            | Unavailable::NoLeader
            | Unavailable::Deadline
            | Unavailable::Overloaded { .. }
            | Unavailable::Stopped { proposed: false, .. } => Outcome::NotApplied,
            Unavailable::LeadershipLost
            | Unavailable::QuorumTimeout
            | Unavailable::Stopped { proposed: true, .. }
            | Unavailable::Internal(_) => Outcome::Unknown,
        }
    }
}

/// A group that could not be opened. Nothing was changed that matters: opening it again is safe.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The log's or state's bytes are not what this release writes.
    #[error("group {group}: {what}")]
    Damaged {
        /// Which group.
        group: tenure_core::ids::GroupId,
        /// What is wrong.
        what: String,
    },
    /// The log was purged of entries that the state has not applied: the state was lost, or replaced by an older
    /// one. Serving from here would forget what was acknowledged.
    #[error(
        "group {group}: its state was lost or is older than its log can replay: {}, and the log is purged up to entry \
         {purged}; restore the folder from a copy, or set it aside, which on a cluster of one loses everything in it",
        upto(*applied)
    )]
    StateBehindLog {
        /// Which group.
        group: tenure_core::ids::GroupId,
        /// The last entry that the state has applied.
        applied: Option<u64>,
        /// The last entry that the log was purged of.
        purged: u64,
    },
    /// An entry could not be applied again, or a row could not be read, while the group was opened.
    #[error("group {group}: {why}")]
    Stopped {
        /// Which group.
        group: tenure_core::ids::GroupId,
        /// Why it stopped.
        why: Arc<str>,
    },
    /// The consensus library refused to start.
    #[error("group {group}: {why}")]
    Consensus {
        /// Which group.
        group: tenure_core::ids::GroupId,
        /// Why.
        why: String,
    },
    /// A thread could not be started.
    #[error("group {group}: no thread: {why}")]
    Thread {
        /// Which group.
        group: tenure_core::ids::GroupId,
        /// What the system said.
        why: String,
    },
}

impl OpenError {
    /// Whether only this group cannot be served, so that a node may serve the others. Whoever must stop the node as
    /// well has told it by then.
    pub fn is_of_the_group(&self) -> bool {
        match self {
            OpenError::Damaged { .. } | OpenError::StateBehindLog { .. } | OpenError::Stopped { .. } => true,
            OpenError::Consensus { .. } | OpenError::Thread { .. } => false,
        }
    }
}

fn upto(applied: Option<u64>) -> String {
    match applied {
        None => "the state has applied nothing".to_owned(),
        Some(index) => format!("the state has applied up to entry {index}"),
    }
}

fn at(leader: Option<NodeId>) -> String {
    leader
        .map(|leader| format!(", node {} does", leader.0))
        .unwrap_or_default()
}
