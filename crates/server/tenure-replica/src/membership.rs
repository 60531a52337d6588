//! Who has a replica of a group, and who votes.
//!
//! A change is asked of the leader. What is refused was not done; what ends in *unknown* may have been, and asking again is
//! safe: it goes on from wherever the membership is, and finishes a change that was left half way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::raft::ClientWriteResponse;

use tenure_core::ids::NodeId;

use crate::error::{Outcome, Unavailable};
use crate::leadership::{self, Role};
use crate::network::Peers;
use crate::raft_types::{Raft, TypeConfig, in_scope};
use crate::replica::{Replica, Running};
use crate::shared::Shared;

/// How long a change of the membership may take.
const CHANGED_WITHIN: Duration = Duration::from_secs(10);
/// How long the transfer of a leadership may take.
const TRANSFERRED_WITHIN: Duration = Duration::from_secs(3);
/// Whom the leadership goes to lacks at most so many entries.
const TRANSFER_LAG_MAX: u64 = 64;
/// A voter that lacks at most so many entries counts as one that follows.
const FOLLOWS_LAG_MAX: u64 = 256;
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A change of the membership or of the leadership that was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The group did not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// It cannot be made as things are. Nothing was changed.
    #[error("{why}")]
    Refused {
        /// Why, and what to do about it.
        why: Arc<str>,
    },
}

impl MembershipError {
    /// What became of the change.
    pub fn outcome(&self) -> Outcome {
        match self {
            MembershipError::Unavailable(unavailable) => unavailable.outcome(),
            MembershipError::Refused { .. } => Outcome::NotApplied,
        }
    }
}

/// Who has a replica, as this one knows it.
pub(crate) struct Members {
    pub(crate) voters: BTreeSet<NodeId>,
    pub(crate) learners: BTreeSet<NodeId>,
    pub(crate) joint: bool,
    pub(crate) replicated: BTreeMap<NodeId, Option<u64>>,
}

/// Who has a replica, and on a leader how far each is.
pub(crate) fn members(raft: &Raft) -> Members {
    let replicated = {
        let data = raft.data_metrics();
        let data = data.borrow_watched();
        let peers = data.replication.iter().flatten();
        peers.map(|(node, id)| (NodeId(*node), id.map(|id| id.index))).collect()
    };
    let server = raft.server_metrics();
    let server = server.borrow_watched();
    let membership = server.membership_config.membership();
    Members {
        voters: membership.voter_ids().map(NodeId).collect(),
        learners: membership.learner_ids().map(NodeId).collect(),
        joint: membership.get_joint_config().len() > 1,
        replicated,
    }
}

impl Replica {
    /// Lets a node have a replica, without a vote. Returns when that is so; the replica then catches up by itself. To be
    /// asked of the leader.
    ///
    /// # Errors
    /// [`MembershipError`], whose outcome says whether it may have been done.
    pub async fn add_learner(&self, node: NodeId) -> Result<(), MembershipError> {
        let Running { shared, raft, .. } = &*self.running;
        let known = members(raft);
        if known.voters.contains(&node) || known.learners.contains(&node) {
            self.leads()?;
            return Ok(());
        }
        let adding = in_scope(shared.next_seed(), raft.add_learner(node.0, (), false));
        self.changed(tokio::time::timeout(CHANGED_WITHIN, adding).await)
    }

    /// Makes these nodes the voters, all in one change. Each must have a replica that has begun to follow. Voters that are
    /// not among them keep their replica, without a vote. If a change was left half way, this one finishes it first. To be
    /// asked of the leader, which must be one of them.
    ///
    /// # Errors
    /// [`MembershipError`], whose outcome says whether it may have been done, half or whole.
    pub async fn set_voters(&self, voters: BTreeSet<NodeId>) -> Result<(), MembershipError> {
        let Running { shared, raft, .. } = &*self.running;
        self.leads()?;
        if !voters.contains(&shared.node) {
            return Err(refused(
                "the leader stays a voter: transfer the leadership first".to_owned(),
            ));
        }
        let known = members(raft);
        for voter in &voters {
            if known.voters.contains(voter) {
                continue;
            }
            if !known.learners.contains(voter) {
                return Err(refused(format!("node {} has no replica: add it first", voter.0)));
            }
            if known.replicated.get(voter).is_none_or(Option::is_none) {
                return Err(refused(format!(
                    "the replica of node {} does not follow yet: wait until it does",
                    voter.0
                )));
            }
        }
        if known.voters == voters && !known.joint {
            return Ok(());
        }
        let members = ChangeMembers::ReplaceAllVoters(voters.iter().map(|voter| voter.0).collect());
        self.change(members, true).await
    }

    /// Takes a node's replica out of the group, whether it votes or not. To be asked of the leader, which cannot remove
    /// itself.
    ///
    /// # Errors
    /// [`MembershipError`], whose outcome says whether it may have been done, half or whole.
    pub async fn remove(&self, node: NodeId) -> Result<(), MembershipError> {
        let Running { shared, raft, .. } = &*self.running;
        self.leads()?;
        if node == shared.node {
            return Err(refused(
                "the leader cannot be removed: transfer the leadership first".to_owned(),
            ));
        }
        let known = members(raft);
        let nodes = BTreeSet::from([node.0]);
        if known.voters.contains(&node) {
            return self.change(ChangeMembers::RemoveVoters(nodes), false).await;
        }
        if known.learners.contains(&node) {
            return self.change(ChangeMembers::RemoveNodes(nodes), false).await;
        }
        Ok(())
    }

    /// Hands the leadership to another voter, if that follows closely and can be reached: to one that cannot, the group
    /// would be without a leader until an election. Returns when this node does not lead any more.
    ///
    /// # Errors
    /// [`MembershipError`]. Whoever leads then, nothing is lost.
    pub async fn transfer_leadership(&self, to: NodeId) -> Result<(), MembershipError> {
        let Running {
            shared, raft, peers, ..
        } = &*self.running;
        transfer(shared, raft, peers.as_ref(), to).await
    }

    fn leads(&self) -> Result<(), MembershipError> {
        let Running { shared, raft, .. } = &*self.running;
        leads(shared, raft)
    }

    async fn change(&self, members: ChangeMembers<u64, ()>, retain: bool) -> Result<(), MembershipError> {
        let Running { shared, raft, .. } = &*self.running;
        let before = *raft.server_metrics().borrow_watched().membership_config.log_id();
        let changing = in_scope(shared.next_seed(), raft.change_membership(members, retain));
        let changed = self.changed(tokio::time::timeout(CHANGED_WITHIN, changing).await);
        let now = *raft.server_metrics().borrow_watched().membership_config.log_id();
        match changed {
            // The first of two steps was made before the second was refused.
            Err(error) if error.outcome() == Outcome::NotApplied && now != before => {
                Err(Unavailable::LeadershipLost.into())
            }
            changed => changed,
        }
    }

    fn changed(&self, changed: Result<Written, tokio::time::error::Elapsed>) -> Result<(), MembershipError> {
        let shared = &self.running.shared;
        match changed {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::APIError(error))) => Err(match error {
                ClientWriteError::ForwardToLeader(forward) => match forward.leader_id {
                    Some(leader) if leader != shared.node.0 => leadership::refusal(Role::Follows(NodeId(leader))),
                    _ => Unavailable::NoLeader,
                }
                .into(),
                ClientWriteError::LogEntryDiscarded(_) => Unavailable::LeadershipLost.into(),
                error => refused(error.to_string()),
            }),
            Ok(Err(RaftError::Fatal(fatal))) => {
                leadership::library_stopped(shared, &fatal);
                Err(shared.stopped_error(true).into())
            }
            Err(_) => Err(Unavailable::QuorumTimeout.into()),
        }
    }
}

/// See [`Replica::transfer_leadership`].
pub(crate) async fn transfer(
    shared: &Arc<Shared>,
    raft: &Raft,
    peers: Option<&Peers>,
    to: NodeId,
) -> Result<(), MembershipError> {
    leads(shared, raft)?;
    if to == shared.node {
        return Ok(());
    }
    let known = members(raft);
    if !known.voters.contains(&to) {
        return Err(refused(format!("node {} is not a voter of the group", to.0)));
    }
    if !peers.is_some_and(|peers| peers.is_connected(to)) {
        return Err(refused(format!("node {} cannot be reached", to.0)));
    }
    let last = raft.metrics().borrow_watched().last_log_index;
    let replicated = known.replicated.get(&to).copied().flatten();
    if replicated.map(|index| index.saturating_add(TRANSFER_LAG_MAX)) < last {
        return Err(refused(format!("node {} is too far behind", to.0)));
    }
    let asked = in_scope(shared.next_seed(), raft.trigger().transfer_leader(to.0)).await;
    if let Err(fatal) = asked {
        leadership::library_stopped(shared, &fatal);
        return Err(shared.stopped_error(false).into());
    }
    let over = async {
        while matches!(leadership::role(raft, shared), Role::Leads(_) | Role::Begins) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let over = tokio::time::timeout(TRANSFERRED_WITHIN, over).await;
    over.map_err(|_| refused(format!("node {} has not taken the leadership in time", to.0)))
}

/// Whether the voters of a group that are left without a node, and follow closely, are a majority.
///
/// # Errors
/// [`MembershipError`]: this node does not lead, or they are none. Nothing was changed.
pub(crate) fn may_lose(
    shared: &Arc<Shared>,
    raft: &Raft,
    peers: Option<&Peers>,
    node: NodeId,
) -> Result<(), MembershipError> {
    leads(shared, raft)?;
    let known = members(raft);
    if !known.voters.contains(&node) {
        return Ok(());
    }
    let group = shared.group.0;
    if known.joint {
        return Err(refused(format!(
            "the voters of group {group} are being changed: ask again in a moment"
        )));
    }
    let last = raft.metrics().borrow_watched().last_log_index;
    let follows = |voter: &NodeId| {
        let replicated = known.replicated.get(voter).copied().flatten();
        replicated.map(|index| index.saturating_add(FOLLOWS_LAG_MAX)) >= last
            && peers.is_some_and(|peers| peers.is_connected(*voter))
    };
    let others = known.voters.iter().filter(|voter| **voter != node);
    let left = others.filter(|voter| **voter == shared.node || follows(voter)).count();
    let majority = known.voters.len() / 2 + 1;
    if left >= majority {
        return Ok(());
    }
    let node = node.0;
    Err(refused(match known.voters.len() {
        1 => format!("only node {node} votes in group {group}: drain it first, with another node there"),
        voters => format!(
            "without node {node} only {left} of the {voters} voters of group {group} could be reached, and a majority is \
             {majority}"
        ),
    }))
}

fn leads(shared: &Arc<Shared>, raft: &Raft) -> Result<(), MembershipError> {
    if shared.stopped().is_some() {
        return Err(shared.stopped_error(false).into());
    }
    match leadership::role(raft, shared) {
        Role::Leads(_) => Ok(()),
        role => Err(leadership::refusal(role).into()),
    }
}

type Written = Result<ClientWriteResponse<TypeConfig>, RaftError<TypeConfig, ClientWriteError<TypeConfig>>>;

fn refused(why: String) -> MembershipError {
    MembershipError::Refused { why: why.into() }
}
