//! The order in which everything starts and stops, and the only place that starts long tasks.
//!
//! Start: the folder and its lock, the address, the identity, the log, the state, the groups, the founding or the other
//! nodes, and only then requests. Stop: what the node leads is handed to others, no new requests, those under way are
//! answered, the groups write what they have, the log closes, the lock goes.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, Revision};
use tenure_core::time::{Span, Timestamp};
use tenure_replica::runtime::{Listener, TaskHandle};
use tenure_replica::{EffectSink, EntrySize, Lane, OpenError as ReplicaError, Runtime};
use tenure_storage::error::OpenError;
use tenure_storage::layout::DataDir;
use tenure_storage::log::{Log, LogOptions};
use tenure_storage::state::{StateEngine, StateError};
use tokio::sync::watch;

use self::opening::{Opening, wait_for_groups};
use crate::cluster::standing::Standing;
use crate::cluster::{self, book, driver};
use crate::config::{ConfigError, NodeConfig};
use crate::front::seats::Seats;
use crate::front::{http, listen, native};
use crate::notify::WatchHub;
use crate::observe::Metrics;
use crate::service::Service;
use crate::space::{self, Holders, Space};

mod opening;

/// How long a node may take to know its leader and to have applied its log.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a stop waits for what is under way. It is over much sooner unless a client holds it up.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// The folder is fresh and no node let it into a cluster.
    #[error("{why}")]
    Join {
        /// What they said.
        why: String,
    },
    /// The node was removed from its cluster, and changes nothing there any more.
    #[error("node {node} was removed from the cluster, for good")]
    Removed {
        /// The node.
        node: u64,
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
        // The address is taken first, so that a wrong one is noticed at once, and others can be told of it.
        let (listener, address) = listen_at(config.listen, &runtime).await?;
        let advertised = config.advertise.clone().unwrap_or_else(|| address.to_string());
        let standing = Standing::of(&folder, &config.join, &advertised, &runtime).await?;
        let (failed_sender, failed) = watch::channel(None);
        let hub = Arc::new(WatchHub::default());
        let log = open_log(
            &folder,
            (&config, standing.is_fresh),
            &runtime,
            &hub,
            failed_sender.clone(),
        )?;
        if standing.is_fresh {
            // Written once the log is there: from then on a log that is gone is noticed.
            folder.write_identity(&standing.identity)?;
        }
        let (lane, engine) = open_engine(&folder, &runtime, open_state).await?;
        let space = look_at_space(&config, &runtime)?;
        let identity = standing.at(advertised, &runtime)?;
        let opening = Opening {
            standing: &standing,
            failed: failed.clone(),
            identity: &identity,
            log: &log,
            engine: &engine,
            sink: Arc::new(Told {
                hub: hub.clone(),
                failed: failed_sender,
            }),
            runtime: &runtime,
            log_entries_kept: config.log_entries_kept,
        };
        let (groups, home_groups) = opening.groups(config.home_groups).await?;
        let holders = Holders {
            log: log.clone(),
            engine: engine.clone(),
            replicas: groups.running.values().map(|group| group.replica.clone()).collect(),
            lane,
        };
        let metrics = Metrics::new(groups.running.keys().map(|group| group.0));
        let service = Service::new(runtime, identity, groups, space, hub, metrics, log.clone());
        let founds = standing.founds().then_some(home_groups);
        cluster::found_alone(&service, founds)
            .await
            .map_err(|error| StartError::NotReady { why: error.to_string() })?;
        let (mut tasks, open) = come_up(&service, listener, &config, home_groups, failed.clone()).await?;
        let looking = space::keep_looking(service.space().clone(), engine);
        tasks.push(service.runtime().tasks.spawn("space", Box::pin(looking)));
        let giving_back = space::keep_giving_back(service.space().clone(), holders);
        tasks.push(service.runtime().tasks.spawn("give-back", Box::pin(giving_back)));
        tracing::info!(%address, home_groups, node = service.identity().node.0, "the node serves");
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

    /// Completes when this node was removed from the cluster: the process is to stop it and to end.
    pub async fn removed(&self) {
        self.service.identity().peers.removed().await;
    }

    /// The node's id.
    pub fn id(&self) -> u64 {
        self.service.identity().node.0
    }

    /// Stops: nothing that was acknowledged is lost, what the node leads is handed to other nodes, and what is under way is
    /// answered first, for at most five seconds.
    pub async fn stop(mut self) {
        let (listening, others) = self.tasks.split_first().expect("the node listens");
        for task in others {
            task.abort();
        }
        driver::hand_over(&self.service).await;
        self.service.begin_stopping();
        let drained = self.open.wait_for(|open| *open == 0);
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            tracing::warn!("connections were still open when the node stopped");
        }
        listening.abort();
        join_all(self.service.groups().map(|group| group.replica.shutdown())).await;
        self.service.identity().peers.set_doorkeeper(None);
        self.service.cut_off();
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

/// Takes the address.
async fn listen_at(address: SocketAddr, runtime: &Runtime) -> Result<(Box<dyn Listener>, SocketAddr), StartError> {
    let refused = |error| StartError::Listen { address, error };
    let listener = runtime.network.listen(address).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok((listener, address))
}

/// Lets other nodes reach this one, waits until it is a member of every group that has caught
/// up, and begins to take requests. Returns the long tasks, that which listens first, and the number of open connections.
async fn come_up(
    service: &Service,
    listener: Box<dyn Listener>,
    config: &NodeConfig,
    home_groups: u32,
    failed: watch::Receiver<Option<String>>,
) -> Result<(Vec<TaskHandle>, watch::Receiver<usize>), StartError> {
    // What this node's replica says of the others is newer than what it was told when it was let in.
    book::note(service);
    let peers = &service.identity().peers;
    peers.set_doorkeeper(Some(Arc::new(book::Door::new(service, home_groups))));
    let (tasks, open) = open_doors(listener, service, config.connections_max);
    if let Err(error) = wait_for_groups(service, failed).await {
        for task in &tasks {
            task.abort();
        }
        return Err(error);
    }
    service.begin_serving();
    Ok((tasks, open))
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
    let seats = Seats::new(connections_max, open_sender);
    let listening = listen::serve(listener, router, service.clone(), seats);
    let started = vec![
        tasks.spawn("listen", Box::pin(listening)),
        tasks.spawn("revisions", Box::pin(cluster::keep_in_revisions(service.clone()))),
        tasks.spawn("book", Box::pin(book::keep(service.clone()))),
        tasks.spawn("placement", Box::pin(driver::drive(service.clone()))),
    ];
    (started, open)
}

/// Opens the log. One that is gone although the node was here before took votes with it, so it is not made anew.
fn open_log(
    folder: &DataDir,
    (config, fresh): (&NodeConfig, bool),
    runtime: &Runtime,
    hub: &Arc<WatchHub>,
    failed: watch::Sender<Option<String>>,
) -> Result<Log, StartError> {
    let (clock, hub) = (runtime.clock.clone(), hub.clone());
    let defaults = LogOptions::default();
    let options = LogOptions {
        segment_bytes: config.log_segment_bytes.unwrap_or(defaults.segment_bytes),
        create: fresh,
        salt: runtime.random.next_u64(),
        clock: Arc::new(move || clock.now()),
        on_sync: Arc::new(move |cost| hub.observed().note_sync(cost)),
        on_failure: Arc::new(move |failure| {
            tracing::error!(%failure, "the log has failed: the node stops");
            failed.send_replace(Some(failure.to_string()));
        }),
        ..defaults
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
