//! Who leads a group, as this node knows it.

use std::sync::Arc;
use std::time::Duration;

use openraft::Instant;
use openraft::async_runtime::WatchReceiver;

use tenure_core::ids::NodeId;

use crate::error::Unavailable;
use crate::raft_types::{Metrics, Raft};
use crate::shared::Shared;

/// What this node is to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It leads in this term, and its own first entry is applied: it may stamp.
    Leads(u64),
    /// It leads, and its own first entry is not applied yet.
    Begins,
    /// Another node leads.
    Follows(NodeId),
    /// Nobody is known to lead.
    Waits,
}

/// What this node is to the group now.
pub(crate) fn role(raft: &Raft, shared: &Shared) -> Role {
    // The library has ended, or ends now, and goes on saying what it said last.
    if shared.progress.borrow().stopped.is_some() {
        return Role::Waits;
    }
    let server = raft.server_metrics();
    let server = server.borrow_watched();
    // A restarted leader still has its vote, and leads nothing until it is elected again.
    if server.state.is_leader() && server.vote.committed && server.vote.leader_id.voted_for == shared.node.0 {
        let term = server.vote.leader_id.term;
        let applied = shared.progress.borrow().applied;
        return if applied.is_some_and(|id| id.leader_id.term == term) {
            Role::Leads(term)
        } else {
            Role::Begins
        };
    }
    match server.current_leader {
        Some(leader) if leader != shared.node.0 => Role::Follows(NodeId(leader)),
        _ => Role::Waits,
    }
}

/// Whether this node leads a group that no other node has: then nobody waits for a heartbeat and nobody else can be
/// elected, so the library needs no ticks.
pub(crate) fn is_alone(raft: &Raft, role: Role) -> bool {
    let server = raft.server_metrics();
    let server = server.borrow_watched();
    matches!(role, Role::Leads(_)) && server.membership_config.membership().nodes().count() == 1
}

/// How long ago at most a majority heard this node, which leads: what others had acknowledged by then it knows. In a group
/// that no other node votes in there are no others. `None`: no majority has since it leads.
pub(crate) fn unconfirmed_for(metrics: &Metrics) -> Option<Duration> {
    let metrics = metrics.borrow_watched();
    if metrics.membership_config.membership().voter_ids().count() == 1 {
        return Some(Duration::ZERO);
    }
    metrics
        .last_quorum_acked
        .as_ref()
        .map(|acknowledged| acknowledged.elapsed())
}

/// The error of a request that this node cannot serve in its role.
pub(crate) fn refusal(role: Role) -> Unavailable {
    match role {
        Role::Follows(leader) => Unavailable::NotLeader { leader: Some(leader) },
        Role::Leads(_) | Role::Begins | Role::Waits => Unavailable::NoLeader,
    }
}

/// Stops the group because the consensus library has stopped, unless it was stopped before.
pub(crate) fn library_stopped(shared: &Arc<Shared>, why: &dyn std::fmt::Display) {
    shared.stop(&format!("consensus has stopped: {why}"), crate::shared::Told::Node);
}
