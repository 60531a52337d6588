//! Who should have a replica of a group, who should vote in it and who should lead it: a pure function of what the
//! group's leader knows.
//!
//! Every node has a replica of every group. With fewer than three nodes one of them votes: two voters would be stopped by
//! the loss of either. With three or more, three vote, in the system group five if there are five. Of more nodes than
//! voters, those of a home group are chosen by a number that each pair of group and node has, so that groups spread and a
//! node that comes or goes moves few of them. The leaders spread over the voters by the number of the group, unless an
//! operator has chosen one.
//!
//! A node that is drained leads only where no other can, and votes only where too few others follow: three of three nodes
//! go on voting. Where it votes alone and one other node follows, that one takes its place; for that moment both vote.
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
    /// Those of them that are drained.
    pub draining: BTreeSet<NodeId>,
    /// The leader that an operator has chosen.
    pub chosen: Option<NodeId>,
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
    if let Some(next) = successor(view, &wanted) {
        return Some(Move::Transfer(next));
    }
    let target = target(view, &wanted);
    if target != view.voters {
        return Some(Move::SetVoters(target));
    }
    if let Some(gone) = view.learners.iter().find(|node| !view.nodes.contains(node)) {
        return Some(Move::Remove(*gone));
    }
    let preferred = preferred_leader(view)?;
    let others = view.voters.iter().filter(|voter| **voter != view.leader);
    let all_follow = others.clone().all(|voter| view.following.contains(voter));
    (preferred != view.leader && all_follow).then_some(Move::Transfer(preferred))
}

/// Who should vote.
pub fn wanted_voters(view: &GroupView) -> BTreeSet<NodeId> {
    let counts = |node: &NodeId| *node == view.leader || view.voters.contains(node) || view.following.contains(node);
    let mut eligible: Vec<NodeId> = view.nodes.iter().copied().filter(counts).collect();
    let able = |node: &NodeId| !view.draining.contains(node);
    if eligible.len() < VOTERS {
        // The leader, if it may be: nothing has to move then.
        eligible.sort_by_key(|node| (!able(node), *node != view.leader, *node));
        return eligible.into_iter().take(1).collect();
    }
    let able_count = eligible.iter().copied().filter(able).count();
    let voters = match view.group {
        GroupId::SYSTEM if able_count >= SYSTEM_VOTERS => SYSTEM_VOTERS,
        _ => VOTERS,
    };
    eligible.sort_by_key(|node| {
        let weight = match view.group {
            GroupId::SYSTEM => 0,
            group => weight(group, *node),
        };
        (!able(node), weight, *node)
    });
    eligible.into_iter().take(voters).collect()
}

/// Whether a drained node has to vote on, because too few others are there.
pub fn is_needed(nodes: &BTreeSet<NodeId>, draining: &BTreeSet<NodeId>) -> bool {
    let able = nodes.difference(draining).count();
    able == 0 || (able < VOTERS && nodes.len() >= VOTERS)
}

/// Who of the voters should lead: the one that was chosen, else one that the number of the group says.
pub fn preferred_leader(view: &GroupView) -> Option<NodeId> {
    let able: Vec<NodeId> = view.voters.difference(&view.draining).copied().collect();
    if let Some(chosen) = view.chosen.filter(|chosen| able.contains(chosen)) {
        return Some(chosen);
    }
    let voters = match able.is_empty() {
        true => view.voters.iter().copied().collect(),
        false => able,
    };
    let place = usize::try_from(view.group.0).ok()?.checked_rem(voters.len())?;
    voters.get(place).copied()
}

/// Who leads in the place of a leader that should not vote, or should not lead.
fn successor(view: &GroupView, wanted: &BTreeSet<NodeId>) -> Option<NodeId> {
    let leaves = !wanted.contains(&view.leader);
    let is_drained = view.draining.contains(&view.leader);
    let other = |node: &NodeId| *node != view.leader && (leaves || !view.draining.contains(node));
    let heirs: Vec<NodeId> = view.voters.intersection(wanted).copied().filter(other).collect();
    let reached = heirs.iter().find(|heir| view.following.contains(heir)).copied();
    match (leaves, is_drained) {
        // One that cannot be reached now may be later.
        (true, _) => reached.or(heirs.first().copied()),
        (false, true) => reached,
        (false, false) => None,
    }
}

/// The voters of the next change. The leader is one of them: it makes the change.
fn target(view: &GroupView, wanted: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
    if wanted.contains(&view.leader) || wanted.len() <= 1 {
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
