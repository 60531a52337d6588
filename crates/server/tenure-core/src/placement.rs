//! Who should have a replica of a group, who should vote in it and who should lead it: a pure function of what the
//! group's leader knows.
//!
//! Every node has a replica of every group. With fewer than three nodes one of them votes: two voters would be stopped by
//! the loss of either. With three or more, three vote, in the system group five if there are five. Of more nodes than
//! voters, those of a home group are chosen by a number that each pair of group and node has, so that groups spread and a
//! node that comes or goes moves few of them. The leaders spread over the voters by the number of the group.
//!
//! Only a node that follows closely is ever made a voter. A voter that is gone stays one until an operator removes it:
//! whether it is gone for good, nobody here can know.

use std::collections::BTreeSet;

use crate::ids::{GroupId, NodeId};

/// Voters of a group, as soon as so many nodes follow.
pub const VOTERS: usize = 3;
/// Voters of the system group, as soon as so many nodes follow.
pub const SYSTEM_VOTERS: usize = 5;

const _: () = assert!(VOTERS % 2 == 1 && SYSTEM_VOTERS % 2 == 1 && VOTERS <= SYSTEM_VOTERS);

/// A group as its leader knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Which group.
    pub group: GroupId,
    /// Its leader.
    pub leader: NodeId,
    /// The nodes of the cluster.
    pub nodes: BTreeSet<NodeId>,
    /// Who votes; while that changes, who votes before or after.
    pub voters: BTreeSet<NodeId>,
    /// Who has a replica and no vote.
    pub learners: BTreeSet<NodeId>,
    /// Whether the membership is in the middle of a change.
    pub joint: bool,
    /// The other nodes whose replicas can be reached and are close behind.
    pub following: BTreeSet<NodeId>,
}

/// What the leader of a group should do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Give this node a replica.
    AddLearner(NodeId),
    /// Make these the voters, in one change.
    SetVoters(BTreeSet<NodeId>),
    /// Hand the leadership to this voter.
    Transfer(NodeId),
    /// Take the replica from this node, which is no node of the cluster any more.
    Remove(NodeId),
}

/// The next step towards where the group should be; none if it is there, or nothing can be done now.
pub fn next_move(view: &GroupView) -> Option<Move> {
    let wanted = wanted_voters(view);
    if view.joint {
        return Some(Move::SetVoters(target(view, &wanted)));
    }
    let is_member = |node: &NodeId| view.voters.contains(node) || view.learners.contains(node);
    if let Some(missing) = view.nodes.iter().find(|node| !is_member(node)) {
        return Some(Move::AddLearner(*missing));
    }
    if !wanted.contains(&view.leader)
        && let Some(next) = view.voters.intersection(&wanted).next()
    {
        // One that cannot be reached now may be later.
        let reached = view
            .voters
            .iter()
            .find(|voter| wanted.contains(voter) && view.following.contains(voter));
        return Some(Move::Transfer(*reached.unwrap_or(next)));
    }
    let target = target(view, &wanted);
    if target != view.voters {
        return Some(Move::SetVoters(target));
    }
    if let Some(gone) = view.learners.iter().find(|node| !view.nodes.contains(node)) {
        return Some(Move::Remove(*gone));
    }
    let preferred = preferred_leader(view.group, &view.voters)?;
    let others = view.voters.iter().filter(|voter| **voter != view.leader);
    let all_follow = others.clone().all(|voter| view.following.contains(voter));
    (preferred != view.leader && all_follow).then_some(Move::Transfer(preferred))
}

/// Who should vote.
pub fn wanted_voters(view: &GroupView) -> BTreeSet<NodeId> {
    let counts = |node: &NodeId| *node == view.leader || view.voters.contains(node) || view.following.contains(node);
    let mut eligible: Vec<NodeId> = view.nodes.iter().copied().filter(counts).collect();
    if eligible.len() < VOTERS {
        let one = if eligible.contains(&view.leader) {
            Some(view.leader)
        } else {
            eligible.first().copied()
        };
        return one.into_iter().collect();
    }
    let voters = if view.group == GroupId::SYSTEM && eligible.len() >= SYSTEM_VOTERS {
        SYSTEM_VOTERS
    } else {
        VOTERS
    };
    if view.group != GroupId::SYSTEM {
        eligible.sort_by_key(|node| (weight(view.group, *node), *node));
    }
    eligible.into_iter().take(voters).collect()
}

/// Who of the voters should lead.
pub fn preferred_leader(group: GroupId, voters: &BTreeSet<NodeId>) -> Option<NodeId> {
    let place = usize::try_from(group.0).ok()?.checked_rem(voters.len())?;
    voters.iter().nth(place).copied()
}

/// The voters of the next change. The leader is one of them: it makes the change.
fn target(view: &GroupView, wanted: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
    if wanted.contains(&view.leader) || wanted.is_empty() {
        let mut target = wanted.clone();
        target.insert(view.leader);
        return target;
    }
    // As many as are wanted, so that their number stays odd.
    let others = wanted.iter().copied().take(wanted.len() - 1);
    others.chain([view.leader]).collect()
}

/// The number of a pair of group and node: the lowest ones vote.
fn weight(group: GroupId, node: NodeId) -> u64 {
    let mut mixed = (u64::from(group.0) << 32) ^ node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
