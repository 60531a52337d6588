//! How a node with an empty folder is let into the cluster: it asks any node, and the layer above answers.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::BoxFuture;

use tenure_core::ids::NodeId;
use tenure_core::limits::NODES_MAX;

use super::wire::peer;
use super::{PROTOCOL, PeerRecord, link};
use crate::runtime::Runtime;

/// How long asking to be let in may take.
const JOIN_WITHIN: Duration = Duration::from_secs(15);
/// Bytes of an address.
const ADDRESS_BYTES_MAX: usize = 512;

/// A node that wants to be let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinAsked {
    /// Its folder: asking again with the same one is answered the same.
    pub folder: u128,
    /// Where others reach it: `HOST:PORT`.
    pub address: String,
}

/// What a node that was let in is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The cluster.
    pub cluster: u128,
    /// The node's id.
    pub node: NodeId,
    /// How many home groups the cluster has.
    pub home_groups: u32,
    /// Every node, the new one among them.
    pub nodes: BTreeMap<NodeId, PeerRecord>,
}

/// Who lets nodes in.
pub trait Doorkeeper: Send + Sync {
    /// Lets a node in, or says why not. Idempotent by the folder.
    fn let_in(&self, asked: JoinAsked) -> BoxFuture<'_, Result<Joined, String>>;
}

/// Asks the node at this address to be let in.
///
/// # Errors
/// Why not. It may have been let in nevertheless: asking again with the same folder is safe.
pub async fn join(runtime: &Runtime, address: &str, asked: &JoinAsked) -> Result<Joined, String> {
    let asking = async {
        let mut client = link::connect(runtime, address).await?;
        let request = peer::JoinRequest {
            protocol: PROTOCOL,
            folder: asked.folder.to_be_bytes().to_vec().into(),
            address: asked.address.clone(),
        };
        let joined = client.join(request).await;
        let joined = joined.map_err(|status| format!("{address}: {}", status.message()))?;
        to_joined(&joined.into_inner()).ok_or_else(|| format!("{address}: an answer that cannot be read"))
    };
    match tokio::time::timeout(JOIN_WITHIN, asking).await {
        Ok(joined) => joined,
        Err(_) => Err(format!("{address}: no answer in time")),
    }
}

/// What a request asks for.
///
/// # Errors
/// What is wrong with it.
pub(super) fn to_asked(request: &peer::JoinRequest) -> Result<JoinAsked, String> {
    if request.protocol != PROTOCOL {
        return Err(format!(
            "protocol: this node speaks {PROTOCOL} and not {}",
            request.protocol
        ));
    }
    let folder = to_u128(&request.folder).ok_or("folder: 16 bytes")?;
    if request.address.is_empty() || request.address.len() > ADDRESS_BYTES_MAX {
        return Err(format!("address: 1 to {ADDRESS_BYTES_MAX} bytes"));
    }
    Ok(JoinAsked {
        folder,
        address: request.address.clone(),
    })
}

pub(super) fn from_joined(joined: &Joined) -> peer::JoinReply {
    let nodes = joined.nodes.iter().map(|(node, record)| peer::NodeAddress {
        node: node.0,
        address: record.address.clone(),
        folder: record
            .folder
            .map(|folder| folder.to_be_bytes().to_vec().into())
            .unwrap_or_default(),
    });
    peer::JoinReply {
        cluster: joined.cluster.to_be_bytes().to_vec().into(),
        node: joined.node.0,
        home_groups: joined.home_groups,
        nodes: nodes.collect(),
    }
}

fn to_joined(reply: &peer::JoinReply) -> Option<Joined> {
    if reply.nodes.len() > NODES_MAX {
        return None;
    }
    let nodes = reply.nodes.iter().map(|node| {
        let record = PeerRecord {
            address: node.address.clone(),
            folder: to_u128(&node.folder),
        };
        (NodeId(node.node), record)
    });
    Some(Joined {
        cluster: to_u128(&reply.cluster)?,
        node: NodeId(reply.node),
        home_groups: reply.home_groups,
        nodes: nodes.collect(),
    })
}

fn to_u128(bytes: &[u8]) -> Option<u128> {
    bytes.try_into().ok().map(u128::from_be_bytes)
}
