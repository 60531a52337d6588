//! The messages between nodes, as generated, and what they are to the consensus library.

use std::time::Duration;

use openraft::EntryPayload;
use openraft::impls::leader_id_std;

use tenure_core::ids::NodeId;

use crate::error::Unavailable;
use crate::raft_types::{self, FormError, LogEntry, LogId, Vote};

/// The generated messages and service.
#[allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is not written by our rules, and which of them it breaks depends on the generator"
)]
pub(crate) mod peer {
    include!("../generated/tenure.peer.v1.rs");
}

/// A request of the library is sent up to so many bytes of entries, or with one larger entry.
const APPEND_BYTES_MAX: usize = 4 << 20;
/// Entries of one append.
const APPEND_ENTRIES_MAX: usize = 1_024;

pub(super) fn ballot(vote: &Vote) -> peer::Ballot {
    peer::Ballot {
        term: vote.leader_id.term,
        voted_for: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub(super) fn vote(ballot: Option<&peer::Ballot>) -> Result<Vote, Malformed> {
    let ballot = ballot.ok_or(Malformed("a message without its vote"))?;
    Ok(Vote {
        leader_id: leader_id_std::LeaderId {
            term: ballot.term,
            voted_for: ballot.voted_for,
        },
        committed: ballot.committed,
    })
}

pub(super) fn from_log_id(id: LogId) -> peer::LogId {
    peer::LogId {
        term: id.leader_id.term,
        index: id.index,
    }
}

pub(super) fn to_log_id(id: &peer::LogId) -> LogId {
    raft_types::log_id(id.term, id.index)
}

/// The bytes of as many of these entries as one message takes, at least of the first.
pub(super) fn from_entries(entries: &[LogEntry]) -> Vec<bytes::Bytes> {
    let mut encoded = Vec::new();
    let mut sum = 0;
    for entry in entries.iter().take(APPEND_ENTRIES_MAX) {
        let about = match &entry.payload {
            EntryPayload::Normal(data) => data.bytes.len(),
            EntryPayload::Blank | EntryPayload::Membership(_) => 0,
        };
        if !encoded.is_empty() && sum + about > APPEND_BYTES_MAX {
            break;
        }
        let bytes = raft_types::encode_entry(entry);
        sum += bytes.len();
        encoded.push(bytes);
    }
    encoded
}

pub(super) fn to_entries(first_index: u64, entries: &[bytes::Bytes]) -> Result<Vec<LogEntry>, Malformed> {
    if entries.len() > APPEND_ENTRIES_MAX || first_index.checked_add(APPEND_ENTRIES_MAX as u64).is_none() {
        return Err(Malformed("an append of too many entries"));
    }
    let decoded = (first_index..)
        .zip(entries)
        .map(|(index, bytes)| raft_types::decode_entry(index, bytes));
    decoded
        .collect::<Result<_, FormError>>()
        .map_err(|_| Malformed("an append with a malformed entry"))
}

/// A message of a peer that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Why a request got no answer of the machine, for the node that handed it on.
pub(crate) fn to_refused(error: &Unavailable) -> peer::Refused {
    let (reason, leader, retry_after) = match error {
        Unavailable::NotLeader { leader } => (peer::Reason::NotLeader, *leader, None),
        Unavailable::NoLeader => (peer::Reason::NoLeader, None, None),
        Unavailable::Deadline => (peer::Reason::Deadline, None, None),
        Unavailable::Overloaded { retry_after } => (peer::Reason::Overloaded, None, Some(*retry_after)),
        Unavailable::LeadershipLost => (peer::Reason::LeadershipLost, None, None),
        Unavailable::QuorumTimeout => (peer::Reason::QuorumTimeout, None, None),
        Unavailable::Stopped { proposed: false, .. } => (peer::Reason::StoppedBefore, None, None),
        Unavailable::Stopped { proposed: true, .. } => (peer::Reason::StoppedAfter, None, None),
        Unavailable::Internal(_) => (peer::Reason::Internal, None, None),
    };
    let why = match error {
        Unavailable::Stopped { why, .. } | Unavailable::Internal(why) => why.to_string(),
        _ => String::new(),
    };
    peer::Refused {
        reason: reason.into(),
        why,
        leader: leader.map_or(0, |leader| leader.0),
        retry_after_us: retry_after.map_or(0, |after| u64::try_from(after.as_micros()).unwrap_or(u64::MAX)),
    }
}

/// Why a request got no answer of the machine, as the leader said.
pub(crate) fn to_unavailable(refused: &peer::Refused) -> Unavailable {
    let why = || refused.why.as_str().into();
    match refused.reason() {
        peer::Reason::NotLeader => Unavailable::NotLeader {
            leader: (refused.leader != 0).then_some(NodeId(refused.leader)),
        },
        peer::Reason::NoLeader => Unavailable::NoLeader,
        peer::Reason::Deadline => Unavailable::Deadline,
        peer::Reason::Overloaded => Unavailable::Overloaded {
            retry_after: Duration::from_micros(refused.retry_after_us),
        },
        peer::Reason::LeadershipLost => Unavailable::LeadershipLost,
        peer::Reason::QuorumTimeout => Unavailable::QuorumTimeout,
        peer::Reason::StoppedBefore => Unavailable::Stopped {
            why: why(),
            proposed: false,
        },
        peer::Reason::StoppedAfter => Unavailable::Stopped {
            why: why(),
            proposed: true,
        },
        peer::Reason::Internal | peer::Reason::Unspecified => Unavailable::Internal(why()),
    }
}

#[cfg(test)]
mod tests;
