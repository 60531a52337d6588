//! The order in which everything starts and stops, and the only place that starts long tasks.
//!
//! Start: the folder and its lock, the identity, the log, the state, the groups, the address, the founding, and only
//! then requests. Stop: no new requests, those under way are answered, the groups write what they have, the log
//! closes, the lock goes.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, NodeId, Revision};
use tenure_core::machine::GroupKind;
use tenure_core::query::{Found, Query};
use tenure_core::time::Timestamp;
use tenure_replica::runtime::{Listener, TaskHandle};
use tenure_replica::{EffectSink, OpenError as ReplicaError, Replica, ReplicaOptions, Runtime};
use tenure_storage::error::OpenError;
use tenure_storage::layout::{DataDir, Identity as FolderIdentity};
use tenure_storage::log::{Log, LogOptions};
use tenure_storage::state::{StateEngine, StateError};
use tokio::sync::watch;

use crate::cluster;
use crate::config::{ConfigError, NodeConfig};
use crate::front::{http, listen, native};
use crate::notify::WatchHub;
use crate::observe::Metrics;
use crate::service::{Group, Identity, Service};

/// How long a node may take to know its leader and to have applied its log.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a stop waits for what is under way. It is over much sooner unless a client holds it up.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The node of a cluster of one.
const FIRST_NODE: NodeId = NodeId(1);

/// A node that serves. Dropping it without [`Node::stop`] is like pulling the plug: nothing acknowledged is lost.
pub struct Node {
    service: Service,
    address: SocketAddr,
    log: Log,
    folder: Option<DataDir>,
    tasks: Vec<TaskHandle>,
    open: watch::Receiver<usize>,
    failed: watch::Receiver<Option<String>>,
}

/// A node could not start. Nothing was changed that another attempt would not find in order.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A group could not be opened.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the network said.
        error: io::Error,
    },
    /// The identity of the folder is not that of its state: a file was lost or put there from elsewhere.
    #[error(
        "the folder's state belongs to cluster {found:032x} and its IDENTITY names {named:032x}: put the right IDENTITY \
         back, or set this folder aside"
    )]
    OtherCluster {
        /// What the state says.
        found: u128,
        /// What the identity says.
        named: u128,
    },
    /// The node came up and could not be made ready.
    #[error("the node did not become ready: {why}")]
    NotReady {
        /// Why.
        why: String,
    },
}

/// How the state of the groups is kept: on disk in production, in memory in a simulation.
pub type OpenState = Box<dyn FnOnce(&DataDir) -> Result<Arc<dyn StateEngine>, StateError> + Send>;

impl Node {
    /// Starts a node and returns when it serves. `open_state` makes the engine of the groups' state.
    ///
    /// # Errors
    /// [`StartError`], with the remedy.
    pub async fn start(config: NodeConfig, runtime: Runtime, open_state: OpenState) -> Result<Node, StartError> {
        config.check()?;
        let folder = DataDir::open_on(runtime.disk.clone(), &config.data_dir)?;
        let (folder_identity, fresh) = identity_of(&folder, &runtime)?;
        let (failed_sender, failed) = watch::channel(None);
        let log = open_log(&folder, fresh, &runtime, failed_sender.clone())?;
        if fresh {
            // Written once the log is there: from then on a log that is gone is noticed.
            folder.write_identity(&folder_identity)?;
        }
        let engine = open_state(&folder)?;

        // The address is taken before the groups are opened, so that a wrong one is noticed at once.
        let refused = |error| StartError::Listen {
            address: config.listen,
            error,
        };
        let listener = runtime.network.listen(config.listen).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let identity = Identity {
            cluster: folder_identity.cluster,
            node: NodeId(folder_identity.node),
            address: config.advertise.clone().unwrap_or_else(|| address.to_string()),
        };

        let hub = Arc::new(WatchHub::default());
        let opening = Opening {
            identity: &identity,
            log: &log,
            engine: &engine,
            sink: Arc::new(Told {
                hub: hub.clone(),
                failed: failed_sender,
            }),
            runtime: &runtime,
        };
        let (groups, home_groups) = opening.groups(config.home_groups).await?;
        let metrics = Metrics::new(groups.keys().map(|group| group.0));
        let service = Service::new(runtime.clone(), identity, groups, hub, metrics, log.clone());
        cluster::found(&service, folder_identity.folder, home_groups)
            .await
            .map_err(|error| StartError::NotReady { why: error.to_string() })?;

        let (tasks, open) = open_doors(listener, &service, config.connections_max);
        service.begin_serving();
        tracing::info!(%address, home_groups, "the node serves");
        Ok(Node {
            service,
            address,
            log,
            folder: Some(folder),
            tasks,
            open,
            failed,
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The cluster that it belongs to.
    pub fn cluster_id(&self) -> u128 {
        self.service.identity().cluster
    }

    /// Completes with the reason when the node can go on no more, because its log has failed: the process is to end.
    /// Everything acknowledged is on the disk.
    pub async fn failed(&self) -> String {
        let mut failed = self.failed.clone();
        match failed.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            // The log is closed: it will not fail any more.
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops: nothing that was acknowledged is lost, and what is under way is answered first, for at most five
    /// seconds.
    pub async fn stop(mut self) {
        self.service.begin_stopping();
        let drained = self.open.wait_for(|open| *open == 0);
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            tracing::warn!("connections were still open when the node stopped");
        }
        for task in &self.tasks {
            task.abort();
        }
        for group in self.service.groups() {
            group.replica.shutdown().await;
        }
        self.log.close();
        drop(self.folder.take());
        tracing::info!("the node has stopped");
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Starts the long tasks of a node. Requests are refused until it serves.
fn open_doors(
    listener: Box<dyn Listener>,
    service: &Service,
    connections_max: usize,
) -> (Vec<TaskHandle>, watch::Receiver<usize>) {
    let (open_sender, open) = watch::channel(0);
    let router = native::routes(service)
        .into_axum_router()
        .merge(http::routes(service.clone()))
        .fallback(http::unknown);
    let tasks = &service.runtime().tasks;
    let listening = listen::serve(listener, router, service.clone(), open_sender, connections_max);
    let started = vec![
        tasks.spawn("listen", Box::pin(listening)),
        tasks.spawn("revisions", Box::pin(cluster::keep_in_revisions(service.clone()))),
    ];
    (started, open)
}

/// Who the folder belongs to, and whether it is fresh: a fresh folder founds a cluster.
fn identity_of(folder: &DataDir, runtime: &Runtime) -> Result<(FolderIdentity, bool), StartError> {
    if let Some(identity) = folder.read_identity()? {
        return Ok((identity, false));
    }
    let random = &runtime.random;
    let identity = FolderIdentity {
        cluster: random.next_u128(),
        node: FIRST_NODE.0,
        folder: random.next_u128(),
    };
    Ok((identity, true))
}

/// Opens the log. One that is gone although the node was here before took votes with it, so it is not made anew.
fn open_log(
    folder: &DataDir,
    fresh: bool,
    runtime: &Runtime,
    failed: watch::Sender<Option<String>>,
) -> Result<Log, StartError> {
    let clock = runtime.clock.clone();
    let options = LogOptions {
        create: fresh,
        salt: runtime.random.next_u64(),
        clock: Arc::new(move || clock.now()),
        on_failure: Arc::new(move |failure| {
            tracing::error!(%failure, "the log has failed: the node stops");
            failed.send_replace(Some(failure.to_string()));
        }),
        ..LogOptions::default()
    };
    Ok(Log::open(
        folder.disk().clone(),
        &folder.log_dir(),
        options,
        runtime.log_writer(),
    )?)
}

/// Hands on what the groups tell: to those who watch, and to the process when the node can go on no more.
struct Told {
    hub: Arc<WatchHub>,
    failed: watch::Sender<Option<String>>,
}

impl EffectSink for Told {
    fn applied(&self, group: GroupId, effects: &[Effect], revision: Revision, time: Timestamp) {
        self.hub.applied(group, effects, revision, time);
    }

    fn reset(&self, group: GroupId, revision: Revision) {
        self.hub.reset(group, revision);
    }

    fn stopped(&self, group: GroupId, why: &str) {
        self.hub.stopped(group, why);
    }

    fn node_must_stop(&self, why: &str) {
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert_with(|| why.to_owned());
            first
        });
    }
}

/// What the groups of a node share.
struct Opening<'a> {
    identity: &'a Identity,
    log: &'a Log,
    engine: &'a Arc<dyn StateEngine>,
    sink: Arc<dyn EffectSink>,
    runtime: &'a Runtime,
}

impl Opening<'_> {
    /// Opens a group and returns when it leads.
    async fn group(&self, id: GroupId, kind: GroupKind) -> Result<Group, StartError> {
        let state = self.engine.group(id)?;
        let parts = (self.log.group(id), state.clone());
        let options = ReplicaOptions::new(
            id,
            kind,
            self.identity.node,
            parts,
            self.runtime.clone(),
            self.sink.clone(),
        );
        let replica = Replica::open(options).await?;
        let not_ready = |error: tenure_replica::Unavailable| StartError::NotReady {
            why: format!("group {id}: {error}"),
        };
        replica.found().await.map_err(not_ready)?;
        replica.wait_until_ready(READY_TIMEOUT).await.map_err(not_ready)?;
        Ok(Group { id, replica, state })
    }

    /// Opens the system group, which knows how many home groups there are, and then those.
    async fn groups(&self, home_groups_asked: u32) -> Result<(BTreeMap<GroupId, Group>, u32), StartError> {
        let system = self.group(GroupId::SYSTEM, GroupKind::System).await?;
        let home_groups = match system.replica.query(&Query::Cluster) {
            Ok((Found::Cluster(Some(cluster)), ..)) if cluster.cluster == self.identity.cluster => cluster.home_groups,
            Ok((Found::Cluster(Some(cluster)), ..)) => {
                return Err(StartError::OtherCluster {
                    found: cluster.cluster,
                    named: self.identity.cluster,
                });
            }
            Ok(_) => home_groups_asked,
            Err(error) => return Err(StartError::NotReady { why: error.to_string() }),
        };
        let mut groups = BTreeMap::from([(GroupId::SYSTEM, system)]);
        for home in (1..=home_groups).map(GroupId) {
            groups.insert(home, self.group(home, GroupKind::Home).await?);
        }
        Ok((groups, home_groups))
    }
}
