//! A group that has lost its majority for good goes on from the one replica that is left, while no node runs.
//!
//! Consensus knows no such step, so it is made beneath it: the replica gets a new beginning. Whatever its log holds is
//! applied, the rows that come of it are written in one step together with a mark that says that this node alone votes, and
//! the log begins behind that mark. It stands [`TERMS`] terms and [`ENTRIES`] entries ahead, so that nothing that the lost
//! majority can have had, or a part of it could still write, comes near: every other replica of the group, whatever is in
//! it, is behind and gets the whole state when it is let in.
//!
//! A crash leaves the group as it was or as it is to be. First the vote is raised, which by itself changes nothing; then
//! the state is flipped, whole; the log that it leaves behind is what a crash after any snapshot leaves, and the next start
//! drops it.

use std::collections::BTreeSet;
use std::sync::mpsc;

use bytes::Bytes;

use tenure_core::ids::{GroupId, NodeId, Revision};
use tenure_core::query::{Found, Query};
use tenure_core::snapshot::ImportError;
use tenure_core::table::Table;
use tenure_storage::error::LogFailed;
use tenure_storage::log::Done;
use tenure_storage::state::{AppliedMark, Image, StateError};

use crate::apply::Answerable;
use crate::error::OpenError;
use crate::raft_types::{self, AppliedState, Membership, StoredMembership, Vote};
use crate::replica::{Parts, ReplicaOptions, assemble};

/// So many terms ahead the group goes on. A part of the lost nodes that comes back would hold elections for decades before
/// it came so far.
const TERMS: u64 = 1 << 32;
/// So many entries ahead.
const ENTRIES: u64 = 1 << 32;
/// Bytes of entries that are read at once.
const READ_BYTES: usize = 4 << 20;

/// A group on a node that does not run.
pub struct OfflineReplica {
    options: ReplicaOptions,
    parts: Parts,
    view: OfflineView,
}

/// What was found of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfflineView {
    /// The group.
    pub group: GroupId,
    /// The last entry of its log, or what its state was made from if that is ahead; none if it has neither.
    pub last_index: Option<u64>,
    /// The term of that entry.
    pub last_term: u64,
    /// The highest term that the node has seen.
    pub term: u64,
    /// The last entry that its state had applied on the disk.
    pub applied_index: Option<u64>,
    /// Entries behind that, which nobody here knows to be committed or not: they are kept.
    pub not_applied: u64,
    /// Who votes; while that changes, who votes before or after.
    pub voters: BTreeSet<NodeId>,
    /// Who has a replica and no vote.
    pub learners: BTreeSet<NodeId>,
    /// Whether this node alone votes, so that there is nobody to be without.
    pub is_alone: bool,
}

/// A group was not recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// Its log and its state cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its log could not be written. The group is as it was, or its vote is raised.
    #[error(transparent)]
    Log(#[from] LogFailed),
    /// Its state could not be read or written: it is as it was, or recovered.
    #[error(transparent)]
    State(#[from] StateError),
    /// Terms or entries cannot go on any further.
    #[error("group {group}: its terms or entries are too high to go on")]
    TooHigh {
        /// The group.
        group: GroupId,
    },
}

impl OfflineReplica {
    /// Opens a group as it was left and applies in memory what its log holds. Nothing is written.
    ///
    /// # Errors
    /// [`OpenError`]: something of it is not as it was written.
    pub fn open(mut options: ReplicaOptions) -> Result<OfflineReplica, OpenError> {
        options.peers = None;
        let group = options.group;
        let damaged = |what: String| OpenError::Damaged { group, what };
        let parts = assemble(&options)?;
        let log = options.log.state();
        let form = |error: raft_types::FormError| damaged(error.to_string());
        let before = parts.applier.applied();
        let mut last = before.last;
        if let Some((index, bytes)) = &log.last {
            let id = raft_types::log_id(raft_types::decode_term(bytes).map_err(form)?, *index);
            last = last.max(Some(id));
        }
        let vote = log.vote.map(|bytes| raft_types::decode_vote(&bytes)).transpose();
        let vote = vote.map_err(form)?.map_or(0, |vote| vote.leader_id.term);
        let from = before
            .last
            .map_or(0, |id| id.index + 1)
            .max(log.first_index.unwrap_or(0));
        let end = log.last.map_or(0, |(index, _)| index + 1);
        replay(&options, &parts, from, end)?;
        let membership = parts.applier.applied().membership;
        let membership = membership.membership();
        let configurations = membership.get_joint_config();
        let view = OfflineView {
            group,
            last_index: last.map(|id| id.index),
            last_term: last.map_or(0, |id| id.leader_id.term),
            term: vote.max(last.map_or(0, |id| id.leader_id.term)),
            applied_index: before.last.map(|id| id.index),
            not_applied: end.saturating_sub(from),
            voters: membership.voter_ids().map(NodeId).collect(),
            learners: membership.learner_ids().map(NodeId).collect(),
            is_alone: matches!(&configurations[..], [only] if only.iter().eq([&options.node.0])),
        };
        Ok(OfflineReplica { options, parts, view })
    }

    /// What was found.
    pub fn view(&self) -> &OfflineView {
        &self.view
    }

    /// Reads what comes of all that the log holds.
    ///
    /// # Errors
    /// [`OpenError::Stopped`]: a row of it cannot be read.
    pub fn query(&self, query: &Query) -> Result<Found, OpenError> {
        let found = self.parts.applier.query(query).map(|(found, ..)| found);
        found.ok_or_else(|| stopped(&self.options, &self.parts))
    }

    /// All rows that come of what the log holds.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn rows(&self) -> Result<Image, StateError> {
        self.options.state.image()
    }

    /// Gives the group these rows and this node as its only voter. They are durable when this returns. Changes begin anew
    /// behind the revision. Blocks.
    ///
    /// # Errors
    /// [`RecoverError`]; doing it again is safe, and so is a start.
    pub fn recover(
        &self,
        rows: impl FnOnce(&mut dyn Table) -> Result<(), ImportError>,
        behind: Revision,
    ) -> Result<(), RecoverError> {
        let OfflineView {
            group,
            term,
            last_index,
            ..
        } = self.view;
        let ahead = |from: u64, by: u64| from.checked_add(by).ok_or(RecoverError::TooHigh { group });
        let id = raft_types::log_id(ahead(term, TERMS)?, ahead(last_index.unwrap_or(0), ENTRIES)?);
        // No entry of a lower term may ever follow the mark, so before there is one no lower term is possible here.
        let vote = Vote::new(id.leader_id.term, self.options.node.0);
        let log = &self.options.log;
        durably(|done| log.save_vote(raft_types::encode_vote(&vote), done))?;
        let own = self.options.node.0;
        let membership = Membership::new_with_defaults(vec![BTreeSet::from([own])], [own]);
        let applied = AppliedState {
            last: Some(id),
            membership: StoredMembership::new(Some(id), membership),
        };
        let mark = AppliedMark {
            index: id.index,
            bytes: raft_types::encode_applied(&applied),
        };
        self.options.state.install(rows, mark, behind)?;
        let purged = raft_types::encode_log_id(Some(id));
        Ok(durably(|done| log.purge(id.index, purged, done))?)
    }
}

/// Applies these entries in memory.
fn replay(options: &ReplicaOptions, parts: &Parts, from: u64, end: u64) -> Result<(), OpenError> {
    let group = options.group;
    let damaged = |what: String| OpenError::Damaged { group, what };
    let mut next = from;
    while next < end {
        let read = options.log.read(next..end, READ_BYTES);
        let read = read.map_err(|failed| damaged(failed.to_string()))?;
        let entries: Result<Vec<Answerable>, _> = read
            .iter()
            .map(|(index, bytes): &(u64, Bytes)| raft_types::decode_entry(*index, bytes).map(|entry| (entry, None)))
            .collect();
        let entries = entries.map_err(|error| damaged(error.to_string()))?;
        let Some((last, _)) = entries.last() else {
            return Err(damaged(format!("entry {next} is missing")));
        };
        next = last.log_id.index + 1;
        // What was committed does not matter any more: the only replica left says what was.
        parts.applier.apply_all(entries).map_err(|_| stopped(options, parts))?;
    }
    Ok(())
}

fn stopped(options: &ReplicaOptions, parts: &Parts) -> OpenError {
    OpenError::Stopped {
        group: options.group,
        why: parts.shared.stopped().unwrap_or_else(|| "it cannot be read".into()),
    }
}

/// Asks something of the log and waits until it is durable.
fn durably(ask: impl FnOnce(Done)) -> Result<(), LogFailed> {
    let (sender, receiver) = mpsc::channel();
    ask(Box::new(move |done| {
        // Whoever asked waits.
        let _ = sender.send(done);
    }));
    receiver.recv().unwrap_or(Err(LogFailed::WriterGone))
}
