//! Makes each group that this node leads what [`tenure_core::placement`] says, one step at a time, and hands leaderships
//! over before the node stops.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use tenure_core::ids::{GroupId, NodeId};
use tenure_core::placement::{GroupView, Move, next_move};
use tenure_core::query::NodesView;
use tenure_replica::{MembershipError, Replica, ReplicaStatus};

use super::book;
use crate::service::{Group, Service};

/// How often the groups are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long the nodes of the cluster are asked for.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// Groups that are worked on at a time.
const GROUPS_AT_A_TIME: usize = 16;
/// A replica that lacks at most so many entries follows closely.
const LAG_MAX: u64 = 256;
/// How long somebody else must have been the better leader before the leadership is handed over.
const BETTER_FOR: Duration = Duration::from_secs(1);
/// How long a group is left alone after a step that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long leaderships are handed over before a stop.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(2);

/// What is remembered of a group between two looks.
#[derive(Clone, Copy, Default)]
struct Memory {
    /// Who would lead better, and since when.
    better: Option<(NodeId, Duration)>,
    /// Until when it is left alone.
    rests_until: Duration,
}

/// Drives the groups that this node leads for as long as the node lives.
pub(crate) async fn drive(service: Service) {
    let mut memories: BTreeMap<GroupId, Memory> = BTreeMap::new();
    let mut was_alone = false;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // A node without others has nothing to do, once what those have left behind that were removed is gone.
        let is_alone = service.identity().peers.known().is_empty();
        if is_alone && was_alone {
            continue;
        }
        let Some(known) = book::local(&service) else { continue };
        let now = service.now();
        let mut steps = Vec::new();
        for group in service.groups() {
            let memory = memories.entry(group.id).or_default();
            let step = view(&service, group, &known).and_then(|view| next_move(&view));
            if now >= memory.rests_until && is_due(memory, step.as_ref(), now) {
                steps.push(group.clone());
            }
        }
        was_alone = is_alone && steps.is_empty() && service.groups().all(|group| leads_alone(&service, group));
        let service = &service;
        let done = stream::iter(steps).map(|group| async move { (group.id, step(service, &group).await) });
        let done: Vec<_> = done.buffer_unordered(GROUPS_AT_A_TIME).collect().await;
        for (group, done) in done {
            if !done {
                memories.entry(group).or_default().rests_until = service.now() + AGAIN_AFTER;
            }
        }
    }
}

/// Whether this node leads a group of which no other has a replica.
fn leads_alone(service: &Service, group: &Group) -> bool {
    let status = group.replica.status();
    let own = BTreeSet::from([service.identity().node]);
    status.stopped.is_some() || (status.leads && status.voters == own && status.learners.is_empty())
}

/// Whether a step is to be made now. One that only hands the leadership over waits: the other may be gone in a moment.
fn is_due(memory: &mut Memory, step: Option<&Move>, now: Duration) -> bool {
    let Some(Move::Transfer(to)) = step else {
        memory.better = None;
        return step.is_some();
    };
    match memory.better {
        Some((better, since)) if better == *to => now.saturating_sub(since) >= BETTER_FOR,
        _ => {
            memory.better = Some((*to, now));
            false
        }
    }
}

/// Makes the next step of a group, if this node leads it and the cluster as of now still asks for one.
async fn step(service: &Service, group: &Group) -> bool {
    // What this node has applied of the system group may be old, and would take nodes for removed that were just added.
    let nodes = match book::nodes(service, service.now() + ASK_WITHIN).await {
        Ok(nodes) => nodes,
        Err(error) => {
            tracing::debug!(group = %group.id, %error, "the nodes of the cluster are not known");
            return false;
        }
    };
    book::set(&service.identity().peers, &nodes);
    let Some(step) = view(service, group, &nodes).and_then(|view| next_move(&view)) else {
        return true;
    };
    match make(&group.replica, &step).await {
        Ok(()) => {
            tracing::info!(group = %group.id, ?step, "a step of the placement is made");
            true
        }
        Err(error) => {
            tracing::info!(group = %group.id, ?step, %error, "a step of the placement was not made, trying again");
            false
        }
    }
}

async fn make(replica: &Replica, step: &Move) -> Result<(), MembershipError> {
    match step {
        Move::AddLearner(node) => replica.add_learner(*node).await,
        Move::SetVoters(voters) => replica.set_voters(voters.clone()).await,
        Move::Transfer(node) => replica.transfer_leadership(*node).await,
        Move::Remove(node) => replica.remove(*node).await,
    }
}

/// A group as this node knows it, if it leads it.
fn view(service: &Service, group: &Group, nodes: &NodesView) -> Option<GroupView> {
    let status = group.replica.status();
    if !status.leads {
        return None;
    }
    let following = following(service, &status);
    Some(GroupView {
        group: group.id,
        leader: service.identity().node,
        nodes: nodes.nodes.iter().map(|node| node.id).collect(),
        draining: nodes.draining.clone(),
        chosen: nodes.leaders.get(&group.id).copied(),
        voters: status.voters,
        learners: status.learners,
        joint: status.joint,
        following,
    })
}

/// The other nodes whose replicas are close behind and can be reached.
fn following(service: &Service, status: &ReplicaStatus) -> BTreeSet<NodeId> {
    let identity = service.identity();
    let last = status.last_index.unwrap_or(0);
    let close = status.replicated.iter().filter(|(_, replicated)| {
        let replicated: Option<u64> = **replicated;
        replicated.is_some_and(|index| index.saturating_add(LAG_MAX) >= last)
    });
    let reached = close.map(|(node, _)| *node).filter(|node| *node != identity.node);
    reached.filter(|node| identity.peers.is_connected(*node)).collect()
}

/// Hands every leadership to another voter that follows closely, so that nobody waits for an election. What cannot be
/// handed over in a short time is left to one.
pub(crate) async fn hand_over(service: &Service) {
    let draining = book::local(service).map(|view| view.draining).unwrap_or_default();
    let handing = service.groups().filter_map(|group| {
        let status = group.replica.status();
        let following = following(service, &status);
        let heirs = status.voters.intersection(&following).copied();
        let heir = heirs.min_by_key(|heir| draining.contains(heir));
        heir.filter(|_| status.leads).map(|heir| (group.clone(), heir))
    });
    let all =
        stream::iter(handing.collect::<Vec<_>>()).for_each_concurrent(GROUPS_AT_A_TIME, |(group, heir)| async move {
            match group.replica.transfer_leadership(heir).await {
                Ok(()) => tracing::info!(group = %group.id, to = heir.0, "the leadership was handed over"),
                Err(error) => tracing::info!(group = %group.id, %error, "the leadership was not handed over"),
            }
        });
    if tokio::time::timeout(HAND_OVER_WITHIN, all).await.is_err() {
        tracing::info!("not every leadership was handed over in time");
    }
}
