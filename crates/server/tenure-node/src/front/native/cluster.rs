//! The cluster as a client sees it: hello, status, namespaces, tenants.

use std::collections::BTreeSet;

use futures_util::stream::{self, Stream};
use tenure_api::limits::PROTOCOL;
use tenure_api::v1::{self, WireError};
use tenure_core::ids::{GroupId, Namespace, NodeId};
use tenure_core::query::{Found, Query};

use super::error::of_service;
use super::handler::Call;
use super::{decode, encode};
use crate::cluster::book::address_of;
use crate::service::{Read, Reading, Service, unexpected};

/// Says who this is, and where and at what time the namespace is at home.
pub(super) async fn hello(call: &Call<'_>, request: v1::HelloRequest) -> Result<v1::HelloReply, WireError> {
    let service = call.service;
    let identity = service.identity();
    if !request.cluster_id.is_empty() {
        let asked = decode::identity("cluster_id", &request.cluster_id)?;
        if asked != identity.cluster {
            let (asked, actual) = (format!("{asked:032x}"), format!("{:032x}", identity.cluster));
            return Err(WireError::wrong_cluster("cluster", asked, actual));
        }
    }
    decode::label(request.client)?;
    if request.protocol < PROTOCOL {
        let rule = format!("the newest that the client speaks, from {PROTOCOL}");
        return Err(WireError::invalid("protocol", rule));
    }
    let namespace = decode::namespace(request.scope.as_ref())?;
    let deadline = call.deadline(request.timeout_ms);
    let home = match request.create_namespace {
        true => Some(service.make_home(&namespace, deadline).await.map_err(of_service)?),
        false => service.find_home(&namespace, deadline).await.map_err(of_service)?,
    };
    let mut reply = v1::HelloReply {
        cluster_id: encode::identity(identity.cluster),
        node_id: identity.node.0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL,
        endpoints: endpoints(service),
        ..v1::HelloReply::default()
    };
    if let Some(home) = home {
        let (time, revision) = service.read_point(home, deadline).await.map_err(of_service)?;
        reply.namespace_exists = true;
        reply.home_group = home.0;
        reply.time_us = time.0;
        reply.revision = revision.0;
        reply.leaders = leader_hint(service, home).into_iter().collect();
    }
    Ok(reply)
}

/// Where the nodes are reached, this one first.
fn endpoints(service: &Service) -> Vec<String> {
    let own = service.identity().address.clone();
    std::iter::once(own).chain(other_endpoints(service)).collect()
}

/// Where the other nodes are reached.
pub(super) fn other_endpoints(service: &Service) -> Vec<String> {
    let others = service.identity().peers.known().into_values();
    others.map(|record| record.address).collect()
}

/// Each time that another node leads this group than was told before, who it is: what clients go by. Without a group it
/// ends at once.
pub(super) fn leaders(service: &Service, home: Option<Home>) -> impl Stream<Item = v1::LeaderHint> + use<'_> {
    stream::unfold(home, move |home| async move {
        let Home { group, mut told } = home?;
        let replica = &service.group(group).ok()?.replica;
        loop {
            let leader = replica.next_leader(told).await?;
            told = Some(leader);
            if let Some(hint) = hint(service, group, leader) {
                return Some((hint, Some(Home { group, told })));
            }
        }
    })
}

/// Where a stream's namespace lives, and who was said to lead there in which term.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    group: GroupId,
    told: Option<(NodeId, u64)>,
}

impl Home {
    /// What this answer to a hello says of it, if the namespace exists.
    pub(super) fn of(hello: &v1::HelloReply) -> Option<Home> {
        let leader = hello.leaders.iter().find(|hint| hint.group == hello.home_group);
        hello.namespace_exists.then(|| Home {
            group: GroupId(hello.home_group),
            told: leader.map(|hint| (NodeId(hint.node_id), hint.term)),
        })
    }
}

/// Who leads a group, if this node knows that.
pub(super) fn leader_hint(service: &Service, group: GroupId) -> Option<v1::LeaderHint> {
    let leader = service.group(group).ok()?.replica.leader()?;
    hint(service, group, leader)
}

fn hint(service: &Service, group: GroupId, (leader, term): (NodeId, u64)) -> Option<v1::LeaderHint> {
    Some(v1::LeaderHint {
        group: group.0,
        node_id: leader.0,
        address: address_of(service, leader)?,
        term,
    })
}

/// What this node knows right now, without asking a majority.
pub(super) fn status(call: &Call<'_>, _request: v1::StatusRequest) -> Result<v1::StatusReply, WireError> {
    let service = call.service;
    let identity = service.identity();
    let mut reply = v1::StatusReply {
        cluster_id: encode::identity(identity.cluster),
        node_id: identity.node.0,
        address: identity.address.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        home_groups: u32::try_from((service.groups().count() + service.stopped_groups().count()).saturating_sub(1))
            .unwrap_or(u32::MAX),
        ..v1::StatusReply::default()
    };
    for group in service.groups() {
        let status = group.replica.status();
        reply.groups.push(v1::GroupInfo {
            group: group.id.0,
            leader: status.leader.map(|leader| leader.0),
            term: status.term,
            last_index: status.last_index.unwrap_or(0),
            applied_index: status.applied_index.unwrap_or(0),
            revision: status.revision.0,
            time_us: status.time.0,
            voters: status.voters.iter().map(|node| node.0).collect(),
            learners: status.learners.iter().map(|node| node.0).collect(),
            stopped_reason: status.stopped.map(|why| why.to_string()).unwrap_or_default(),
        });
    }
    for (group, why) in service.stopped_groups() {
        reply.groups.push(v1::GroupInfo {
            group: group.0,
            stopped_reason: why.to_string(),
            ..v1::GroupInfo::default()
        });
    }
    reply.groups.sort_by_key(|group| group.group);
    let system = service.group(GroupId::SYSTEM).map_err(of_service)?;
    if let Ok((Found::Nodes(view), ..)) = system.replica.query(&Query::Nodes) {
        reply.nodes = view
            .nodes
            .into_iter()
            .map(|node| v1::NodeInfo {
                id: node.id.0,
                address: node.address,
            })
            .collect();
    }
    match why_not_serving(service) {
        None => reply.serving = true,
        Some(why) => reply.not_serving_reason = why,
    }
    Ok(reply)
}

pub(super) async fn list_namespaces(
    call: &Call<'_>,
    request: v1::ListNamespacesRequest,
) -> Result<v1::ListNamespacesReply, WireError> {
    let (read, namespaces) = namespaces(call, request.timeout_ms).await?;
    let wanted = |namespace: &Namespace| request.tenant.is_empty() || namespace.tenant == request.tenant;
    let namespaces = namespaces
        .into_iter()
        .filter(|(namespace, _)| wanted(namespace))
        .map(|(namespace, home)| v1::NamespaceInfo {
            tenant: namespace.tenant,
            namespace: namespace.name,
            home_group: home.0,
        });
    Ok(v1::ListNamespacesReply {
        header: encode::header_of_read(GroupId::SYSTEM, &read),
        namespaces: namespaces.collect(),
    })
}

pub(super) async fn list_tenants(
    call: &Call<'_>,
    request: v1::ListTenantsRequest,
) -> Result<v1::ListTenantsReply, WireError> {
    let (read, namespaces) = namespaces(call, request.timeout_ms).await?;
    let tenants: BTreeSet<String> = namespaces.into_iter().map(|(namespace, _)| namespace.tenant).collect();
    let header = encode::header_of_read(GroupId::SYSTEM, &read);
    Ok(v1::ListTenantsReply {
        header,
        tenants: tenants.into_iter().collect(),
    })
}

async fn namespaces(call: &Call<'_>, timeout_ms: u64) -> Result<(Read, Vec<(Namespace, GroupId)>), WireError> {
    let deadline = call.deadline(timeout_ms);
    let read = call
        .service
        .query_into(
            GroupId::SYSTEM,
            &Query::Namespaces,
            Reading::Linearizable,
            deadline,
            Some(call.room),
        )
        .await
        .map_err(of_service)?;
    let Found::Namespaces(namespaces) = &read.found else {
        return Err(of_service(unexpected(&read.found)));
    };
    let namespaces = namespaces.clone();
    Ok((read, namespaces))
}

fn why_not_serving(service: &Service) -> Option<String> {
    if !service.is_serving() {
        return Some("the node does not take requests".to_owned());
    }
    let system = service.group(GroupId::SYSTEM).ok()?.replica.status();
    system
        .leader
        .is_none()
        .then(|| "the system group has no leader".to_owned())
}
