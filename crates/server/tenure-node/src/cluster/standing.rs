//! Whose a folder is: a fresh one founds a cluster or is let into one, one in use goes on as it is.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;

use tenure_core::ids::NodeId;
use tenure_replica::{JoinAsked, Joined, PeerIdentity, PeerRecord, Peers, Runtime, join};
use tenure_storage::error::OpenError;
use tenure_storage::layout::{DataDir, Identity, JoinedNode, Joining};

use crate::node::StartError;
use crate::service;

/// How long a node asks to be let in.
const JOIN_WITHIN: Duration = Duration::from_secs(60);
/// The pause after an address was asked in vain.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// The node that founds a cluster.
const FIRST_NODE: u64 = 1;
/// Home groups of a cluster that is joined.
const HOME_GROUPS_MAX: u32 = crate::config::HOME_GROUPS_MAX;

/// Whose a folder is.
pub(crate) struct Standing {
    pub(crate) identity: Identity,
    /// The identity is not written yet.
    pub(crate) is_fresh: bool,
    /// What the node was told when it was let in; none if it founded its cluster.
    pub(crate) joined: Option<Joining>,
}

impl Standing {
    /// Reads whose a folder is. A fresh one becomes the first of a cluster, or asks to be let in.
    ///
    /// # Errors
    /// [`StartError`]: the folder cannot be used, or nobody let the node in.
    pub(crate) async fn of(
        folder: &DataDir,
        ask: &[String],
        address: &str,
        runtime: &Runtime,
    ) -> Result<Standing, StartError> {
        let joining = folder.read_joining()?;
        if let Some(identity) = folder.read_identity()? {
            if !ask.is_empty() {
                tracing::info!("--join is ignored: the folder belongs to a node already");
            }
            return Ok(Standing {
                identity,
                is_fresh: false,
                joined: joining,
            });
        }
        if folder.has_lost_identity()? {
            return Err(StartError::Folder(OpenError::IdentityMissing {
                folder: folder.path().to_owned(),
            }));
        }
        let random = &runtime.random;
        match (ask, joining) {
            ([], None) => Ok(Standing {
                identity: Identity {
                    cluster: random.next_u128(),
                    node: FIRST_NODE,
                    folder: random.next_u128(),
                },
                is_fresh: true,
                joined: None,
            }),
            ([], Some(_)) => Err(StartError::Join {
                why: "the folder was about to join a cluster: say which with --join, or set the folder aside"
                    .to_owned(),
            }),
            (ask, joining) => {
                let chosen = joining.map_or_else(|| random.next_u128(), |joining| joining.folder);
                be_let_in(folder, chosen, ask, address, runtime).await
            }
        }
    }

    /// Whether this node founds the groups if they are not founded yet.
    pub(crate) fn founds(&self) -> bool {
        self.joined.is_none()
    }

    /// The node that is reached here, and the way to the others as far as they are known from the folder.
    ///
    /// # Errors
    /// [`StartError`]: no thread could be started.
    pub(crate) fn at(&self, address: String, runtime: &Runtime) -> Result<service::Identity, StartError> {
        Ok(service::Identity {
            cluster: self.identity.cluster,
            node: NodeId(self.identity.node),
            folder: self.identity.folder,
            address,
            peers: self.peers(runtime)?,
        })
    }

    fn peers(&self, runtime: &Runtime) -> Result<Peers, StartError> {
        let Identity { cluster, node, folder } = self.identity;
        let node = NodeId(node);
        let identity = PeerIdentity { cluster, node, folder };
        let peers = Peers::new(identity, runtime.clone()).map_err(|error| StartError::NotReady {
            why: format!("no thread could be started: {error}"),
        })?;
        let told = self.joined.iter().flat_map(|joined| &joined.nodes);
        let nodes = told.map(|other| {
            let record = PeerRecord {
                address: other.address.clone(),
                folder: other.folder,
            };
            (NodeId(other.node), record)
        });
        peers.set_all(nodes.collect(), 0);
        Ok(peers)
    }
}

/// Asks the addresses in turn until one lets the node in, and writes down what it says.
async fn be_let_in(
    folder: &DataDir,
    chosen: u128,
    ask: &[String],
    address: &str,
    runtime: &Runtime,
) -> Result<Standing, StartError> {
    // Written before anybody is asked: a node that crashes in between asks again as the same one.
    folder.write_joining(&Joining {
        folder: chosen,
        home_groups: 0,
        nodes: Vec::new(),
    })?;
    let asked = JoinAsked {
        folder: chosen,
        address: address.to_owned(),
    };
    let joined = ask_all(ask, &asked, runtime).await?;
    let told = told(chosen, &joined).map_err(|why| StartError::Join { why })?;
    folder.write_joining(&told)?;
    tracing::info!(node = joined.node.0, "the node was let in");
    Ok(Standing {
        identity: Identity {
            cluster: joined.cluster,
            node: joined.node.0,
            folder: chosen,
        },
        is_fresh: true,
        joined: Some(told),
    })
}

/// Asks every address again and again, all at the same time: one that is silent holds nobody up.
async fn ask_all(ask: &[String], asked: &JoinAsked, runtime: &Runtime) -> Result<Joined, StartError> {
    let refusals = Mutex::new(BTreeMap::new());
    let asking = ask.iter().map(|node| {
        let refusals = &refusals;
        async move {
            loop {
                let why = match join(runtime, node.trim(), asked).await {
                    Ok(joined) => return joined,
                    Err(why) => why,
                };
                let before = lock(refusals).insert(node, why.clone());
                if before.as_ref() != Some(&why) {
                    tracing::info!(why, "not let in yet");
                }
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
        }
        .boxed()
    });
    match tokio::time::timeout(JOIN_WITHIN, select_all(asking)).await {
        Ok((joined, ..)) => Ok(joined),
        Err(_) => {
            let why = lock(&refusals).values().cloned().collect::<Vec<_>>().join("; ");
            Err(StartError::Join {
                why: format!("no node let this one in within {} s: {why}", JOIN_WITHIN.as_secs()),
            })
        }
    }
}

fn lock<'a, T>(mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was told, as it is written down.
///
/// # Errors
/// What cannot be true of it.
fn told(folder: u128, joined: &Joined) -> Result<Joining, String> {
    if !(1..=HOME_GROUPS_MAX).contains(&joined.home_groups) {
        return Err(format!("a cluster of {} home groups", joined.home_groups));
    }
    let is_plain = |address: &str| !address.contains(|c: char| c.is_whitespace() || c.is_control());
    if let Some(odd) = joined.nodes.values().find(|record| !is_plain(&record.address)) {
        return Err(format!("a node at {:?}", odd.address));
    }
    let nodes = joined.nodes.iter().map(|(node, record)| JoinedNode {
        node: node.0,
        folder: record.folder,
        address: record.address.clone(),
    });
    Ok(Joining {
        folder,
        home_groups: joined.home_groups,
        nodes: nodes.collect(),
    })
}
