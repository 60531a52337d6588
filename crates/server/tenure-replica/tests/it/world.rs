//! Worlds for the tests: a virtual one without threads, whose clock is tokio's paused time, and the real one.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use tenure_core::command::{CacheSettings, Command, Guard, Origin, Request};
use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, Namespace, NodeId, Nonce, ObjectName, Revision, Secret, SessionRef};
use tenure_core::machine::GroupKind;
use tenure_core::query::{Found, KeyView, Query};
use tenure_core::response::{Answer, Done, Response};
use tenure_core::time::{Span, Timestamp};
use tenure_replica::runtime::{Clock, IoStream, Listener, Network, Random, TaskHandle, Tasks};
use tenure_replica::{EffectSink, Replica, ReplicaOptions, Runtime};
use tenure_storage::disk::RecordingDisk;
use tenure_storage::feed::FeedLimits;
use tenure_storage::log::{Log, LogOptions};
use tenure_storage::mem::MemEngine;
use tenure_storage::state::{DiskEngine, DiskOptions, StateEngine};

pub(crate) const GROUP: GroupId = GroupId(1);
const LIMIT: Duration = Duration::from_secs(30);

/// A node without threads: its log on a disk in memory, its state in memory, its time virtual.
pub(crate) struct VirtualNode {
    pub(crate) runtime: Runtime,
    pub(crate) disk: RecordingDisk,
    pub(crate) engine: MemEngine,
    pub(crate) sink: Arc<Recorder>,
}

impl VirtualNode {
    /// A node that has never run. To be made in a test with paused time.
    pub(crate) fn new() -> VirtualNode {
        let engine = MemEngine::with_crashes(FeedLimits::default());
        VirtualNode::over(RecordingDisk::new(), engine, virtual_clock())
    }

    fn over(disk: RecordingDisk, engine: MemEngine, clock: Arc<dyn Clock>) -> VirtualNode {
        let runtime = Runtime {
            clock,
            random: Arc::new(CountingRandom(AtomicU64::new(1))),
            tasks: Arc::new(InPlace),
            network: Arc::new(NoNetwork),
            disk: Arc::new(disk.clone()),
            seed: 7,
        };
        let sink = Arc::new(Recorder::over(runtime.clock.clone()));
        VirtualNode {
            runtime,
            disk,
            engine,
            sink,
        }
    }

    /// The options of its one group.
    pub(crate) fn options(&self) -> ReplicaOptions {
        let log = Log::open(
            self.runtime.disk.clone(),
            Path::new("/log"),
            LogOptions {
                segment_bytes: 1 << 20,
                ..LogOptions::default()
            },
            self.runtime.log_writer(),
        )
        .unwrap();
        let state = self.engine.group(GROUP).unwrap();
        ReplicaOptions::new(
            GROUP,
            GroupKind::Home,
            NodeId(1),
            (log.group(GROUP), state),
            self.runtime.clone(),
            self.sink.clone(),
        )
    }

    /// Opens the group and waits until it leads and has revisions and a cache.
    pub(crate) async fn start(&self) -> Replica {
        start(self.options()).await
    }

    /// The node as it is after this one was killed: what was not synced is kept or not as the numbers say.
    pub(crate) fn after_kill(&self, state_batches_kept: usize) -> VirtualNode {
        self.engine.crash(state_batches_kept);
        VirtualNode::over(self.disk.after_kill(), self.engine.clone(), self.runtime.clock.clone())
    }

    /// The node as it is after a power loss that keeps nothing of what was not synced.
    pub(crate) fn after_power_loss(&self) -> VirtualNode {
        self.engine.crash(0);
        VirtualNode::over(
            self.disk.after_power_loss(&mut |_| 0),
            self.engine.clone(),
            self.runtime.clock.clone(),
        )
    }
}

/// Opens a group, founds it if it is new, and waits until it leads and has revisions and a cache.
pub(crate) async fn start(options: ReplicaOptions) -> Replica {
    let replica = Replica::open(options).await.unwrap();
    replica.found().await.unwrap();
    replica.wait_until_ready(LIMIT).await.unwrap();
    if replica.status().wants_block {
        let taken = replica
            .propose(anonymous(Command::TakeBlock { first: 1 }), None)
            .await
            .unwrap();
        assert_eq!(taken.response, Response::Done(Done::BlockTaken { taken: true }));
        let create = Command::CreateCache {
            name: cache(),
            settings: CacheSettings { replication: 1 },
        };
        replica.propose(anonymous(create), None).await.unwrap();
    }
    replica
}

/// The options of a group of the real world, in a folder.
pub(crate) fn real_options(folder: &Path) -> (ReplicaOptions, Log) {
    let runtime = Runtime::system();
    let log_folder = folder.join("log");
    let log = Log::open(
        runtime.disk.clone(),
        &log_folder,
        LogOptions::default(),
        runtime.log_writer(),
    )
    .unwrap();
    let engine = DiskEngine::open(&folder.join("state"), DiskOptions::default()).unwrap();
    let state = engine.group(GROUP).unwrap();
    let sink = Arc::new(Recorder::over(runtime.clock.clone()));
    let options = ReplicaOptions::new(
        GROUP,
        GroupKind::Home,
        NodeId(1),
        (log.group(GROUP), state),
        runtime,
        sink,
    );
    (options, log)
}

pub(crate) fn namespace() -> Namespace {
    Namespace {
        tenant: "acme".into(),
        name: "prod".into(),
    }
}

pub(crate) fn cache() -> ObjectName {
    ObjectName {
        namespace: namespace(),
        name: "things".into(),
    }
}

pub(crate) fn anonymous(command: Command) -> Request {
    Request {
        origin: Origin::Anonymous,
        command,
    }
}

pub(crate) fn put(key: &str, value: &str) -> Request {
    put_for(key, value, None)
}

pub(crate) fn put_for(key: &str, value: &str, ttl: Option<Span>) -> Request {
    put_owned(key, value, ttl, None)
}

pub(crate) fn put_owned(key: &str, value: &str, ttl: Option<Span>, owner: Option<SessionRef>) -> Request {
    anonymous(Command::Put {
        cache: cache(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl,
        guard: None,
        owner,
    })
}

pub(crate) fn put_if_absent(key: &str, value: &str) -> Request {
    let mut request = put(key, value);
    if let Command::Put { guard, .. } = &mut request.command {
        *guard = Some(Guard::Absent);
    }
    request
}

pub(crate) async fn open_session(replica: &Replica, number: u128, ttl: Span) -> SessionRef {
    let open = Command::OpenSession {
        nonce: Nonce(number),
        secret: Secret(number),
        ttl: Some(ttl),
        label: String::new(),
        namespace: namespace(),
    };
    match replica.propose(anonymous(open), None).await.unwrap().response {
        Response::Done(Done::SessionOpened { id, secret, .. }) => SessionRef { id, secret },
        other => panic!("not opened: {other:?}"),
    }
}

/// The version that a put was given.
pub(crate) fn version(answer: &Answer) -> u64 {
    match &answer.response {
        Response::Done(Done::Put { version, .. }) => *version,
        other => panic!("not put: {other:?}"),
    }
}

pub(crate) fn get(replica: &Replica, key: &str) -> Option<KeyView> {
    let query = Query::Get {
        cache: cache(),
        key: Bytes::copy_from_slice(key.as_bytes()),
    };
    match replica.query(&query).unwrap().0 {
        Found::Key(found) => found,
        other => panic!("not a key: {other:?}"),
    }
}

/// Lets virtual time pass, as long as it says and without taking any: everything that is due meanwhile happens.
pub(crate) async fn wait_virtually(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Tokio's clock, which stands still in a test with paused time until nothing else can be done.
pub(crate) fn virtual_clock() -> Arc<dyn Clock> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the virtual clock that the tests hand in"
    )]
    let began = tokio::time::Instant::now();
    Arc::new(VirtualClock { began })
}

struct VirtualClock {
    began: tokio::time::Instant,
}

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        // Boot-time clocks do not begin at nought.
        Duration::from_secs(1_000) + self.began.elapsed()
    }
}

struct CountingRandom(AtomicU64);

impl Random for CountingRandom {
    fn fill(&self, buffer: &mut [u8]) {
        for byte in buffer {
            *byte = self.0.fetch_add(1, Ordering::Relaxed).to_le_bytes()[0];
        }
    }
}

/// Tasks of the test's own runtime, and no threads.
struct InPlace;

impl Tasks for InPlace {
    #[expect(clippy::disallowed_methods, reason = "these are the tasks that the tests hand in")]
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        let abort = tokio::spawn(task).abort_handle();
        TaskHandle::new(move || abort.abort())
    }

    fn spawn_thread(&self, _name: &str, _work: Box<dyn FnOnce() + Send>) -> io::Result<Option<JoinHandle<()>>> {
        Ok(None)
    }

    fn inline(&self) -> bool {
        true
    }
}

struct NoNetwork;

impl Network for NoNetwork {
    fn listen(&self, _address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn connect(&self, _address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn IoStream>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

/// What a sink was told, and when.
pub(crate) struct Recorder {
    clock: Arc<dyn Clock>,
    told: Mutex<Vec<(Duration, Told)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Effect(Effect),
    Reset(Revision),
    Stopped(String),
    NodeMustStop(String),
}

impl Recorder {
    pub(crate) fn over(clock: Arc<dyn Clock>) -> Recorder {
        Recorder {
            clock,
            told: Mutex::default(),
        }
    }

    fn note(&self, told: Told) {
        self.told.lock().unwrap().push((self.clock.now(), told));
    }

    pub(crate) fn all(&self) -> Vec<(Duration, Told)> {
        self.told.lock().unwrap().clone()
    }

    /// The keys that were removed, in order, and when that was told.
    pub(crate) fn removed(&self) -> Vec<(Duration, String)> {
        let told = self.all();
        told.into_iter()
            .filter_map(|(at, told)| match told {
                Told::Effect(Effect::Changed(change)) => match change.kind {
                    tenure_core::effect::ChangeKind::Removed { .. } => {
                        Some((at, String::from_utf8(change.key.to_vec()).unwrap()))
                    }
                    tenure_core::effect::ChangeKind::Put { .. } => None,
                },
                _ => None,
            })
            .collect()
    }
}

impl EffectSink for Recorder {
    fn applied(&self, _group: GroupId, effects: &[Effect], _revision: Revision, _time: Timestamp) {
        effects
            .iter()
            .cloned()
            .for_each(|effect| self.note(Told::Effect(effect)));
    }

    fn reset(&self, _group: GroupId, revision: Revision) {
        self.note(Told::Reset(revision));
    }

    fn stopped(&self, _group: GroupId, why: &str) {
        self.note(Told::Stopped(why.to_owned()));
    }

    fn node_must_stop(&self, why: &str) {
        self.note(Told::NodeMustStop(why.to_owned()));
    }
}
