//! The members of the cluster as an operator asks for them.

use std::collections::BTreeSet;

use tenure_api::v1::{self, WireError};
use tenure_core::ids::{GroupId, NodeId};
use tenure_core::placement::is_needed;
use tonic::{Request, Response, Status};

use super::error::of_service;
use super::handler::Call;
use crate::cluster::operator::{self, GroupSeen, OperatorError};
use crate::front::answers::Room;
use crate::service::Service;

/// The service of members.
pub(super) struct Members {
    service: Service,
}

impl Members {
    pub(super) fn new(service: Service) -> Members {
        Members { service }
    }

    /// Answers one call, which counts like every other.
    async fn answer<Q, A>(
        &self,
        request: Request<Q>,
        answer: impl AsyncFnOnce(&Call<'_>, Q) -> Result<A, OperatorError>,
    ) -> Result<Response<A>, Status> {
        let room = Room::of(request.extensions());
        let call = Call {
            service: &self.service,
            timeout_ms: 0,
            room: &room,
        };
        let metrics = self.service.metrics();
        metrics.requests.increment(1);
        let answered = match self.service.is_serving() {
            true => answer(&call, request.into_inner()).await.map_err(of_operator),
            false => Err(WireError::unavailable("the node does not take requests")),
        };
        answered.map(Response::new).map_err(|error| {
            metrics.errors.increment(1);
            Status::from(error)
        })
    }
}

#[tonic::async_trait]
impl v1::membership_server::Membership for Members {
    async fn list_nodes(&self, request: Request<v1::ListNodesRequest>) -> Result<Response<v1::ListNodesReply>, Status> {
        self.answer(request, async |call, request| list_nodes(call, &request).await)
            .await
    }

    async fn list_groups(
        &self,
        request: Request<v1::ListGroupsRequest>,
    ) -> Result<Response<v1::ListGroupsReply>, Status> {
        self.answer(request, async |call, request| list_groups(call, &request).await)
            .await
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::MembershipReply>, Status> {
        self.answer(request, async |call, request| {
            let (group, node) = (GroupId(request.group), NodeId(request.node));
            let deadline = call.deadline(request.timeout_ms);
            verdict(operator::transfer(call.service, group, node, deadline).await)
        })
        .await
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::MembershipReply>, Status> {
        self.answer(request, async |call, request| {
            let deadline = call.deadline(request.timeout_ms);
            let node = NodeId(request.node);
            verdict(operator::drain(call.service, node, !request.undo, deadline).await)
        })
        .await
    }

    async fn remove_node(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::MembershipReply>, Status> {
        self.answer(request, async |call, request| {
            let deadline = call.deadline(request.timeout_ms);
            verdict(operator::remove(call.service, NodeId(request.node), deadline).await)
        })
        .await
    }
}

async fn list_nodes(call: &Call<'_>, request: &v1::ListNodesRequest) -> Result<v1::ListNodesReply, OperatorError> {
    let deadline = call.deadline(request.timeout_ms);
    let service = call.service;
    let view = operator::nodes(service, deadline).await?;
    let groups = operator::groups(service, deadline).await;
    let all: BTreeSet<NodeId> = view.nodes.iter().map(|node| node.id).collect();
    let identity = service.identity();
    let has_to_vote = is_needed(&all, &view.draining);
    let nobody_else = all.is_subset(&view.draining);
    let nodes = view.nodes.iter().map(|node| {
        let leads = groups
            .iter()
            .filter(|group| group.status.leader == Some(node.id))
            .count();
        let votes = groups
            .iter()
            .filter(|group| group.status.voters.contains(&node.id))
            .count();
        v1::NodeState {
            id: node.id.0,
            address: node.address.clone(),
            connected: node.id == identity.node || identity.peers.is_connected(node.id),
            drained: view.draining.contains(&node.id),
            spare: (leads == 0 || nobody_else) && (votes == 0 || has_to_vote),
            leads: u32::try_from(leads).unwrap_or(u32::MAX),
            votes: u32::try_from(votes).unwrap_or(u32::MAX),
            behind: behind(&groups, node.id),
        }
    });
    Ok(v1::ListNodesReply { nodes: nodes.collect() })
}

/// How many entries the replica of a node lacks that lacks the most; none if that is not known of every group.
fn behind(groups: &[GroupSeen], node: NodeId) -> Option<u64> {
    let of_group = |group: &GroupSeen| {
        let progress = group.progress.as_ref()?;
        if group.status.leader == Some(node) {
            return Some(0);
        }
        let acknowledged = progress.replicas.get(&node).and_then(|replica| replica.index);
        Some(progress.last_index.saturating_sub(acknowledged.unwrap_or(0)))
    };
    groups
        .iter()
        .map(of_group)
        .try_fold(0, |most, behind| Some(most.max(behind?)))
}

async fn list_groups(call: &Call<'_>, request: &v1::ListGroupsRequest) -> Result<v1::ListGroupsReply, OperatorError> {
    let deadline = call.deadline(request.timeout_ms);
    let service = call.service;
    let view = operator::nodes(service, deadline).await?;
    let seen = operator::groups(service, deadline).await;
    let running = seen.into_iter().map(|seen| {
        let chosen = view.leaders.get(&seen.group);
        group_state(seen, chosen)
    });
    let stopped = service.stopped_groups().map(|(group, why)| v1::GroupState {
        group: group.0,
        stopped_reason: why.to_string(),
        ..v1::GroupState::default()
    });
    let mut groups: Vec<_> = running.chain(stopped).collect();
    groups.sort_by_key(|group| group.group);
    Ok(v1::ListGroupsReply { groups })
}

fn group_state(seen: GroupSeen, chosen: Option<&NodeId>) -> v1::GroupState {
    let GroupSeen {
        group,
        status,
        progress,
    } = seen;
    let ids = |nodes: &BTreeSet<NodeId>| nodes.iter().map(|node| node.0).collect();
    let last_index = progress.as_ref().map(|progress| progress.last_index);
    let replicas = progress.iter().flat_map(|progress| {
        let last = progress.last_index;
        progress.replicas.iter().map(move |(node, replica)| v1::ReplicaState {
            node: node.0,
            behind: replica.index.map(|index| last.saturating_sub(index)),
            connected: replica.connected,
        })
    });
    v1::GroupState {
        group: group.0,
        leader: status.leader.map(|leader| leader.0),
        chosen_leader: chosen.map(|node| node.0),
        term: status.term,
        last_index: last_index.or(status.last_index).unwrap_or(0),
        voters: ids(&status.voters),
        learners: ids(&status.learners),
        changing: status.joint,
        replicas: replicas.collect(),
        stopped_reason: status.stopped.map(|why| why.to_string()).unwrap_or_default(),
    }
}

/// A verdict is a normal answer.
fn verdict(done: Result<(), OperatorError>) -> Result<v1::MembershipReply, OperatorError> {
    let refused = match done {
        Ok(()) => String::new(),
        Err(OperatorError::Refused(why)) => why,
        Err(error) => return Err(error),
    };
    Ok(v1::MembershipReply { refused })
}

fn of_operator(error: OperatorError) -> WireError {
    match error {
        OperatorError::Service(error) => of_service(error),
        OperatorError::Refused(why) => WireError::internal(format!("a read was refused: {why}")),
    }
}
