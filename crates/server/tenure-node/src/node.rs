//! The order in which everything starts and stops, and the only place that starts long tasks.
//!
//! Start: the folder and its lock, the identity, the log, the state, the groups, the address, the founding, and only
//! then requests. Stop: no new requests, those under way are answered, the groups write what they have, the log
//! closes, the lock goes.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, NodeId, Revision};
use tenure_core::machine::GroupKind;
use tenure_core::query::{Found, Query};
use tenure_core::time::{Span, Timestamp};
use tenure_replica::runtime::{Listener, TaskHandle};
use tenure_replica::{
    EffectSink, EntrySize, Lane, OpenError as ReplicaError, Replica, ReplicaOptions, Runtime, Unavailable,
};
use tenure_storage::error::OpenError;
use tenure_storage::layout::{DataDir, Identity as FolderIdentity};
use tenure_storage::log::{Log, LogOptions};
use tenure_storage::state::{StateEngine, StateError, Stops};
use tokio::sync::watch;

use crate::cluster;
use crate::config::{ConfigError, NodeConfig};
use crate::front::{http, listen, native};
use crate::notify::WatchHub;
use crate::observe::Metrics;
use crate::service::{Group, Groups, Identity, Service};
use crate::space::{self, Holders, Space};

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
    /// The system group, which knows what the cluster is made of, cannot be served. Of a home group only that group
    /// stops, and the node starts without it.
    #[error("the system group cannot be served, and no other can without it: {why}")]
    SystemStopped {
        /// Why.
        why: Arc<str>,
    },
    /// The node came up and could not be made ready.
    #[error("the node did not become ready: {why}")]
    NotReady {
        /// Why.
        why: String,
    },
}

/// How the state of the groups is kept, in that folder: on disk in production, in memory in a simulation.
pub type OpenState = Box<dyn FnOnce(&Path) -> Result<Arc<dyn StateEngine>, StateError> + Send>;

impl Node {
    /// Starts a node and returns when it serves. `open_state` makes the engine of the groups' state, on
    /// a thread that gives way to others.
    ///
    /// # Errors
    /// [`StartError`], with the remedy.
    pub async fn start(config: NodeConfig, runtime: Runtime, open_state: OpenState) -> Result<Node, StartError> {
        config.check()?;
        let folder = DataDir::open_on(runtime.disk.clone(), &config.data_dir)?;
        let (folder_identity, fresh) = identity_of(&folder, &runtime)?;
        let (failed_sender, failed) = watch::channel(None);
        let hub = Arc::new(WatchHub::default());
        let log = open_log(&folder, fresh, &runtime, &hub, failed_sender.clone())?;
        if fresh {
            // Written once the log is there: from then on a log that is gone is noticed.
            folder.write_identity(&folder_identity)?;
        }
        let (lane, engine) = open_engine(&folder, &runtime, open_state).await?;
        let space = look_at_space(&config, &runtime)?;

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

        let opening = Opening {
            failed: failed.clone(),
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
        let holders = Holders {
            log: log.clone(),
            engine: engine.clone(),
            replicas: groups.running.values().map(|group| group.replica.clone()).collect(),
            lane,
        };
        let metrics = Metrics::new(groups.running.keys().map(|group| group.0));
        let service = Service::new(runtime.clone(), identity, groups, space, hub, metrics, log.clone());
        cluster::found(&service, folder_identity.folder, home_groups)
            .await
            .map_err(|error| StartError::NotReady { why: error.to_string() })?;

        let (mut tasks, open) = open_doors(listener, &service, config.connections_max);
        let looking = space::keep_looking(service.space().clone(), engine);
        tasks.push(service.runtime().tasks.spawn("space", Box::pin(looking)));
        let giving_back = space::keep_giving_back(service.space().clone(), holders);
        tasks.push(service.runtime().tasks.spawn("give-back", Box::pin(giving_back)));
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
    /// What was acknowledged was synced to the disk before.
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
    if folder.has_lost_identity()? {
        return Err(StartError::Folder(OpenError::IdentityMissing {
            folder: folder.path().to_owned(),
        }));
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
    hub: &Arc<WatchHub>,
    failed: watch::Sender<Option<String>>,
) -> Result<Log, StartError> {
    let (clock, hub) = (runtime.clock.clone(), hub.clone());
    let options = LogOptions {
        create: fresh,
        salt: runtime.random.next_u64(),
        clock: Arc::new(move || clock.now()),
        on_sync: Arc::new(move |cost| hub.observed().note_sync(cost)),
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

/// Opens the state, and returns the thread on which the engine works at the start and where room is short. The threads
/// with which the engine writes and merges files come from that one's and give way as it does.
async fn open_engine(
    folder: &DataDir,
    runtime: &Runtime,
    open_state: OpenState,
) -> Result<(Lane, Arc<dyn StateEngine>), StartError> {
    let lane = Lane::start_in_background(&*runtime.tasks, "state").map_err(|error| StartError::NotReady {
        why: format!("no thread could be started: {error}"),
    })?;
    let state = folder.state_dir();
    let opened = lane.run(move || open_state(&state)).await;
    let engine = opened.map_err(|lost| StartError::NotReady { why: lost.to_string() })??;
    Ok((lane, engine))
}

/// How much room there is on the disk of the folder.
fn look_at_space(config: &NodeConfig, runtime: &Runtime) -> Result<Arc<Space>, StartError> {
    let space = Space::open(runtime.disk.clone(), &config.data_dir, config.reserve_bytes);
    let failed = |source| OpenError::Io {
        action: "look at the room of",
        path: config.data_dir.clone(),
        source,
    };
    Ok(space.map(Arc::new).map_err(failed)?)
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

    fn proposed(&self, group: GroupId, size: EntrySize) {
        self.hub.proposed(group, size);
    }

    fn ended_late(&self, group: GroupId, late: Span) {
        self.hub.ended_late(group, late);
    }

    fn reset(&self, group: GroupId, revision: Revision) {
        self.hub.reset(group, revision);
    }

    fn stopped(&self, group: GroupId, why: &str) {
        tracing::error!(%group, why, "the group has stopped");
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
    failed: watch::Receiver<Option<String>>,
    identity: &'a Identity,
    log: &'a Log,
    engine: &'a Arc<dyn StateEngine>,
    sink: Arc<dyn EffectSink>,
    runtime: &'a Runtime,
}

impl Opening<'_> {
    /// Opens a group and returns when it leads, or why it cannot be served on this node.
    async fn group(&self, id: GroupId, kind: GroupKind) -> Result<Result<Group, Arc<str>>, StartError> {
        let state = match self.engine.group(id) {
            Ok(state) => state,
            Err(error) if error.stops() == Stops::Group(id) => return Ok(Err(without(id, &error))),
            Err(error) => return Err(error.into()),
        };
        let parts = (self.log.group(id), state.clone());
        let options = ReplicaOptions::new(
            id,
            kind,
            self.identity.node,
            parts,
            self.runtime.clone(),
            self.sink.clone(),
        );
        let replica = match Replica::open(options).await {
            Ok(replica) => replica,
            Err(error) if error.is_of_the_group() => {
                self.check_node()?;
                return Ok(Err(without(id, &error)));
            }
            Err(error) => return Err(error.into()),
        };
        let ready = match replica.found().await {
            Ok(()) => replica.wait_until_ready(READY_TIMEOUT).await,
            Err(error) => Err(error),
        };
        self.check_node()?;
        match ready {
            // One that has stopped says so itself whenever it is asked.
            Ok(()) | Err(Unavailable::Stopped { .. }) => Ok(Ok(Group { id, replica, state })),
            Err(error) => Err(StartError::NotReady {
                why: format!("group {id}: {error}"),
            }),
        }
    }

    /// Whether the log or the state as a whole still works.
    fn check_node(&self) -> Result<(), StartError> {
        match &*self.failed.borrow() {
            None => Ok(()),
            Some(why) => Err(StartError::NotReady { why: why.clone() }),
        }
    }

    /// Opens the system group, which knows how many home groups there are, and then those. A home group that cannot be
    /// served is left out.
    async fn groups(&self, home_groups_asked: u32) -> Result<(Groups, u32), StartError> {
        let stopped = |why| StartError::SystemStopped { why };
        let system = self.group(GroupId::SYSTEM, GroupKind::System).await?.map_err(stopped)?;
        let home_groups = match system.replica.query(&Query::Cluster) {
            Ok((Found::Cluster(Some(cluster)), ..)) if cluster.cluster == self.identity.cluster => cluster.home_groups,
            Ok((Found::Cluster(Some(cluster)), ..)) => {
                return Err(StartError::OtherCluster {
                    found: cluster.cluster,
                    named: self.identity.cluster,
                });
            }
            Ok(_) => home_groups_asked,
            Err(Unavailable::Stopped { why, .. }) => return Err(stopped(why)),
            Err(error) => return Err(StartError::NotReady { why: error.to_string() }),
        };
        let mut groups = Groups {
            running: BTreeMap::from([(GroupId::SYSTEM, system)]),
            stopped: BTreeMap::new(),
        };
        for id in (1..=home_groups).map(GroupId) {
            match self.group(id, GroupKind::Home).await? {
                Ok(group) => {
                    groups.running.insert(id, group);
                }
                Err(why) => {
                    groups.stopped.insert(id, why);
                }
            }
        }
        Ok((groups, home_groups))
    }
}

/// The reason of a group that is left out. Watchers and requests are told it, and the log once.
fn without(group: GroupId, why: &dyn fmt::Display) -> Arc<str> {
    let why = why.to_string();
    tracing::error!(%group, why, "the group cannot be served; the node goes on without it");
    Arc::from(why)
}
