//! The address book: where the nodes are, as the system group says, and letting nodes in.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_core::command::{NodeRecord, SystemCommand};
use tenure_core::ids::{GroupId, NodeId};
use tenure_core::query::{Found, NodesView, Query};
use tenure_core::response::SystemDone;
use tenure_replica::{Doorkeeper, JoinAsked, Joined, PeerRecord, Peers, join};

use super::STEP_TIMEOUT;
use crate::service::{Reading, Service, ServiceError, WeakService, unexpected};

/// How often the state of the system group is looked at for whether it has moved.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// At every so manieth look a stream is opened to every node that has none.
const REACH_AT_LOOK: u64 = 10;
/// How long nothing is tried again that has failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Keeps the address book as the applied state of the system group says, and the own address there as it is, for as long
/// as the node lives. Keeps a stream to every other node too, so that each knows of the others whether they are there.
pub(crate) async fn keep(service: Service) {
    let mut seen = None;
    for look in 0_u64.. {
        let applied = applied(&service);
        if applied != seen {
            seen = applied;
            if let Some(nodes) = note(&service) {
                keep_own_address(&service, &nodes).await;
            }
        }
        if look % REACH_AT_LOOK == 0 {
            service.identity().peers.reach_all();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Notes what this node's replica of the system group says of nodes. None: it says nothing yet.
pub(crate) fn note(service: &Service) -> Option<Vec<NodeRecord>> {
    let view = local(service)?;
    set(&service.identity().peers, &view);
    Some(view.nodes)
}

/// What this node's replica of the system group says of nodes. None: it says nothing yet.
pub(crate) fn local(service: &Service) -> Option<NodesView> {
    let system = service.group(GroupId::SYSTEM).ok()?;
    match system.replica.query(&Query::Nodes) {
        Ok((Found::Nodes(view), ..)) if !view.nodes.is_empty() => Some(view),
        _ => None,
    }
}

/// Notes all that is known of nodes.
pub(crate) fn set(peers: &Peers, view: &NodesView) {
    let records = view.nodes.iter().map(|node| (node.id, record(node)));
    peers.set_all(records.collect(), view.next);
}

fn applied(service: &Service) -> Option<u64> {
    service.group(GroupId::SYSTEM).ok()?.replica.status().applied_index
}

/// Tells the system group if this node is reached elsewhere than it says.
async fn keep_own_address(service: &Service, nodes: &[NodeRecord]) {
    let identity = service.identity();
    let own = nodes.iter().find(|node| node.id == identity.node);
    let Some(own) = own.filter(|own| own.folder == identity.folder && own.address != identity.address) else {
        return;
    };
    loop {
        let command = SystemCommand::AddNode {
            folder: own.folder,
            address: identity.address.clone(),
        };
        let changed = match service.system(command, service.now() + STEP_TIMEOUT).await {
            Ok(_) => Ok(()),
            // Who leads may have changed while this node was away, and looks for it where it was.
            Err(error) => tell_others(service, own).await.map_err(|()| error),
        };
        match changed {
            Ok(()) => return tracing::info!(address = identity.address, "the address of this node was changed"),
            Err(error) => tracing::warn!(%error, "the address of this node was not changed, trying again"),
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// Has one of the other nodes tell the system group where this one is reached: they let it in as the node that it is.
async fn tell_others(service: &Service, own: &NodeRecord) -> Result<(), ()> {
    let identity = service.identity();
    let asked = JoinAsked {
        folder: own.folder,
        address: identity.address.clone(),
    };
    let known = identity.peers.known().into_iter();
    // One to which there is a stream is a node of this cluster. Another one would let this node into its own.
    for (_, other) in known.filter(|(node, _)| identity.peers.is_connected(*node)) {
        match join(service.runtime(), &other.address, &asked).await {
            Ok(_) => return Ok(()),
            Err(why) => tracing::debug!(why, "a node was not told where this one is"),
        }
    }
    Err(())
}

/// Lets nodes in.
pub(crate) struct Door {
    service: WeakService,
    home_groups: u32,
}

impl Door {
    pub(crate) fn new(service: &Service, home_groups: u32) -> Door {
        Door {
            service: service.downgrade(),
            home_groups,
        }
    }

    async fn add(&self, asked: JoinAsked) -> Result<Joined, String> {
        let service = self.service.upgrade().ok_or("the node is stopping")?;
        if !service.is_serving() {
            return Err("the node is not ready yet".to_owned());
        }
        if asked.address.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("address: no white space".to_owned());
        }
        let said = |error: ServiceError| error.to_string();
        let deadline = service.now() + STEP_TIMEOUT;
        let command = SystemCommand::AddNode {
            folder: asked.folder,
            address: asked.address,
        };
        let SystemDone::NodeAdded { id } = service.system(command, deadline).await.map_err(said)? else {
            return Err("the system group gave another answer".to_owned());
        };
        let NodesView { nodes, .. } = nodes(&service, deadline).await.map_err(said)?;
        tracing::info!(node = id.0, "a node is let in");
        Ok(Joined {
            cluster: service.identity().cluster,
            node: id,
            home_groups: self.home_groups,
            nodes: nodes
                .iter()
                .map(|node| (node.id, record(node)))
                .collect::<BTreeMap<_, _>>(),
        })
    }
}

impl Doorkeeper for Door {
    fn let_in(&self, asked: JoinAsked) -> BoxFuture<'_, Result<Joined, String>> {
        self.add(asked).boxed()
    }
}

/// The nodes of the cluster as of now.
///
/// # Errors
/// [`ServiceError`]: the system group did not answer.
pub(crate) async fn nodes(service: &Service, deadline: Duration) -> Result<NodesView, ServiceError> {
    let read = service
        .query(GroupId::SYSTEM, &Query::Nodes, Reading::Linearizable, deadline)
        .await?;
    match read.found {
        Found::Nodes(view) => Ok(view),
        other => Err(unexpected(&other)),
    }
}

/// Where a node is reached, if that is known here.
pub(crate) fn address_of(service: &Service, node: NodeId) -> Option<String> {
    let identity = service.identity();
    if node == identity.node {
        return Some(identity.address.clone());
    }
    identity.peers.known().get(&node).map(|record| record.address.clone())
}

fn record(node: &NodeRecord) -> PeerRecord {
    PeerRecord {
        address: node.address.clone(),
        folder: Some(node.folder),
    }
}
