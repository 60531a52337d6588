//! Several nodes in one process, over real loopback connections that can be cut, with disks whose syncs can be held.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;

use tenure_core::command::{CacheSettings, Command};
use tenure_core::ids::NodeId;
use tenure_core::machine::GroupKind;
use tenure_replica::runtime::{IoStream, Listener, Network, TaskHandle};
use tenure_replica::{PeerIdentity, PeerRecord, Peers, PurgeLimits, Replica, ReplicaOptions, Runtime};
use tenure_storage::disk::{Disk, DiskFile, DiskLock, OpenMode, RecordingDisk};
use tenure_storage::feed::FeedLimits;
use tenure_storage::log::{GroupLog, Log, LogOptions};
use tenure_storage::mem::MemEngine;
use tenure_storage::state::{GroupState, StateEngine};

use crate::switches::{Gate, Switches};
use crate::world::{GROUP, Recorder, anonymous, cache};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
const CLUSTER: u128 = 77;

/// Nodes with one group.
pub(crate) struct Cluster {
    pub(crate) switches: Arc<Switches>,
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) purge: PurgeLimits,
}

/// One of them.
pub(crate) struct Node {
    id: NodeId,
    runtime: Runtime,
    pub(crate) disk: HeldDisk,
    pub(crate) engine: MemEngine,
    pub(crate) peers: Peers,
    server: TaskHandle,
    pub(crate) sink: Arc<Recorder>,
    log: Option<GroupLog>,
    state: Option<GroupState>,
    replica: Option<Replica>,
}

impl Cluster {
    /// So many nodes, all of them voters, with revisions and a cache.
    pub(crate) async fn start(count: u64) -> Cluster {
        let cluster = Cluster::founded(count, PurgeLimits::default()).await;
        cluster.take_in(1, 2..=count).await;
        cluster
    }

    /// So many nodes, of which only the first has the group as a voter; the others wait to be added.
    pub(crate) async fn founded(count: u64, purge: PurgeLimits) -> Cluster {
        let mut cluster = Cluster {
            switches: Arc::default(),
            nodes: BTreeMap::new(),
            purge,
        };
        for id in 1..=count {
            cluster
                .add(id, RecordingDisk::new(), MemEngine::with_crashes(FeedLimits::default()))
                .await;
        }
        let first = cluster.replica(1);
        first.found().await.unwrap();
        first.wait_until_ready(LIMIT).await.unwrap();
        let take = Command::TakeBlock { first: 1 };
        first.propose(anonymous(take), None).await.unwrap();
        let create = Command::CreateCache {
            name: cache(),
            settings: CacheSettings { replication: 1 },
        };
        first.propose(anonymous(create), None).await.unwrap();
        cluster
    }

    /// Adds nodes as learners and makes them voters in one change, beside those that are.
    pub(crate) async fn take_in(&self, leader: u64, nodes: impl IntoIterator<Item = u64>) {
        let leads = self.replica(leader);
        let mut voters = leads.status().voters;
        for id in nodes {
            leads.add_learner(NodeId(id)).await.unwrap();
            voters.insert(NodeId(id));
        }
        let caught_up = || {
            let status = leads.status();
            voters.iter().all(|voter| {
                *voter == NodeId(leader) || status.replicated.get(voter).copied().flatten() == status.last_index
            })
        };
        eventually("the learners follow", caught_up).await;
        leads.set_voters(voters.clone()).await.unwrap();
        let status = leads.status();
        assert_eq!((status.voters, status.joint), (voters, false));
    }

    /// Opens a node over what its disk and its engine hold.
    pub(crate) async fn add(&mut self, id: u64, disk: RecordingDisk, engine: MemEngine) {
        let real = Runtime::system();
        let disk = HeldDisk::over(disk);
        let runtime = Runtime {
            network: Arc::new(SwitchedNetwork {
                from: id,
                switches: self.switches.clone(),
                real: real.network.clone(),
            }),
            disk: Arc::new(disk.clone()),
            seed: id,
            ..real
        };
        let identity = PeerIdentity {
            cluster: CLUSTER,
            node: NodeId(id),
            folder: u128::from(id) << 64,
        };
        let peers = Peers::new(identity, runtime.clone()).unwrap();
        let listener = runtime.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        self.switches.place(id, address);
        let record = |address: SocketAddr, id: u64| PeerRecord {
            address: address.to_string(),
            folder: Some(u128::from(id) << 64),
        };
        for (other, node) in &self.nodes {
            node.peers.set(NodeId(id), record(address, id));
            peers.set(NodeId(*other), record(self.switches.address(*other), *other));
        }
        let server = runtime
            .tasks
            .spawn("test server", Box::pin(serve(listener, peers.clone())));
        let sink = Arc::new(Recorder::over(runtime.clock.clone()));
        let mut node = Node {
            id: NodeId(id),
            runtime,
            disk,
            engine,
            peers,
            server,
            sink,
            log: None,
            state: None,
            replica: None,
        };
        node.open(self.purge).await;
        self.nodes.insert(id, node);
    }

    pub(crate) fn replica(&self, id: u64) -> Replica {
        self.nodes[&id].replica.clone().unwrap()
    }

    /// The time of a node's own clock.
    pub(crate) fn now(&self, id: u64) -> Duration {
        self.nodes[&id].runtime.clock.now()
    }

    /// Who leads, once a node among these knows that it does.
    pub(crate) async fn eventually_leads(&self, among: &[u64]) -> u64 {
        let leads = || among.iter().copied().find(|id| self.replica(*id).status().leads);
        eventually("one leads", || leads().is_some()).await;
        leads().unwrap()
    }

    /// Ends a node as a kill does, without a word. What it leaves: its disk as far as it was synced, and its state.
    pub(crate) fn kill(&mut self, id: u64) -> (RecordingDisk, MemEngine) {
        let mut node = self.nodes.remove(&id).unwrap();
        node.server.abort();
        let left = node.disk.recording.after_power_loss(&mut |_| 0);
        node.replica = None;
        node.engine.crash(0);
        node.disk.release();
        self.switches.cut_off(id);
        (left, node.engine.clone())
    }

    /// Starts a node that was killed.
    pub(crate) async fn restart(&mut self, id: u64, (disk, engine): (RecordingDisk, MemEngine)) {
        self.switches.heal();
        self.add(id, disk, engine).await;
    }

    /// Waits until these replicas have applied the same, and have the same log and state.
    pub(crate) async fn eventually_equal(&self, ids: &[u64]) {
        let applied = || {
            let statuses = ids.iter().map(|id| self.replica(*id).status());
            let reached: BTreeSet<_> = statuses
                .map(|status| (status.applied_index, status.last_index, status.term))
                .collect();
            reached.len() == 1 && reached.iter().all(|(applied, last, _)| applied == last)
        };
        eventually("all have applied the same", applied).await;
        let nodes: Vec<&Node> = ids.iter().map(|id| &self.nodes[id]).collect();
        let same_log = || {
            let first = nodes.iter().map(|node| node.first_index()).max().unwrap();
            let logs: BTreeSet<_> = nodes.iter().map(|node| node.entries(first)).collect();
            logs.len() == 1
        };
        eventually("all have the same log", same_log).await;
        let same_state = || nodes.iter().map(|node| node.rows()).collect::<BTreeSet<_>>().len() == 1;
        eventually("all have the same state", same_state).await;
    }
}

impl Node {
    async fn open(&mut self, purge: PurgeLimits) {
        let log = Log::open(
            self.runtime.disk.clone(),
            Path::new("/log"),
            LogOptions {
                segment_bytes: 1 << 20,
                ..LogOptions::default()
            },
            self.runtime.log_writer(),
        )
        .unwrap()
        .group(GROUP);
        let state = self.engine.group(GROUP).unwrap();
        let mut options = ReplicaOptions::new(
            GROUP,
            GroupKind::Home,
            self.id,
            (log.clone(), state.clone()),
            self.runtime.clone(),
            self.sink.clone(),
        );
        options.peers = Some(self.peers.clone());
        options.purge = purge;
        self.replica = Some(Replica::open(options).await.unwrap());
        (self.log, self.state) = (Some(log), Some(state));
    }

    fn first_index(&self) -> u64 {
        let log = self.log.as_ref().unwrap().state();
        // A log that a snapshot has emptied goes on behind it.
        let behind = log.purged.map_or(0, |(purged, _)| purged + 1);
        log.first_index.unwrap_or(behind)
    }

    /// The log from an entry on.
    fn entries(&self, first: u64) -> Vec<(u64, bytes::Bytes)> {
        let log = self.log.as_ref().unwrap();
        let Some((last, _)) = log.state().last else {
            return Vec::new();
        };
        log.read(first..last + 1, usize::MAX).unwrap()
    }

    /// The whole state.
    fn rows(&self) -> Vec<u8> {
        let image = self.state.as_ref().unwrap().image().unwrap();
        let mut rows = Vec::new();
        let exported = tenure_core::snapshot::export(&image, &mut |part| {
            rows.extend_from_slice(part);
            Ok::<(), std::convert::Infallible>(())
        });
        exported.unwrap();
        rows
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.server.abort();
        self.disk.release();
    }
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    let waited = tokio::time::timeout(LIMIT, waited).await;
    assert!(waited.is_ok(), "in vain: {what}");
}

/// Serves connections until it is aborted, and all of them end with it.
async fn serve(listener: Box<dyn Listener>, peers: Peers) {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let service = TowerToHyperService::new(peers.service());
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                connections.push(server.serve_connection(TokioIo::new(stream), service));
            }
            Some(_ended) = connections.next() => {}
        }
    }
}

/// The network of one node: real connections, each through the gate to its target.
struct SwitchedNetwork {
    from: u64,
    switches: Arc<Switches>,
    real: Arc<dyn Network>,
}

impl Network for SwitchedNetwork {
    fn listen(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        self.real.listen(address)
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn IoStream>>> {
        Box::pin(async move {
            let gate: Arc<Gate> = self.switches.gate(self.from, address);
            if gate.is_cut() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let stream = self.real.connect(address).await?;
            Ok(gate.through(stream))
        })
    }
}

/// A disk in memory whose syncs can be held.
#[derive(Clone)]
pub(crate) struct HeldDisk {
    pub(crate) recording: RecordingDisk,
    held: Arc<(Mutex<bool>, Condvar)>,
}

impl HeldDisk {
    fn over(recording: RecordingDisk) -> HeldDisk {
        HeldDisk {
            recording,
            held: Arc::default(),
        }
    }

    /// From now on no sync ends.
    pub(crate) fn hold(&self) {
        *self.held.0.lock().unwrap() = true;
    }

    pub(crate) fn release(&self) {
        *self.held.0.lock().unwrap() = false;
        self.held.1.notify_all();
    }
}

impl Disk for HeldDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.recording.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.recording.create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let file = self.recording.open(path, mode)?;
        Ok(Box::new(HeldFile {
            file,
            held: self.held.clone(),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.recording.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.recording.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.recording.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.recording.exists(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.recording.free_space(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.recording.lock(path)
    }
}

struct HeldFile {
    file: Box<dyn DiskFile>,
    held: Arc<(Mutex<bool>, Condvar)>,
}

impl DiskFile for HeldFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let (held, changed) = &*self.held;
        drop(changed.wait_while(held.lock().unwrap(), |held| *held).unwrap());
        self.file.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.file.allocate(length)
    }
}
