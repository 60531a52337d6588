//! What the tests of load share: a stream of frames whose two ends go their own ways, a disk that is slow, and a node
//! over a world of the test's choice.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure_api::v1::catalog_client::CatalogClient;
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::mux_client::MuxClient;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, ClientFrame, ServerFrame};
use tenure_node::config::HOME_GROUPS_DEV;
use tenure_node::{Node, NodeConfig};
use tenure_replica::Runtime;
use tenure_storage::disk::{Disk, DiskFile, DiskLock, OpenMode};
use tenure_storage::state::{DiskEngine, DiskOptions, StateEngine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::streams_door::hello;
use crate::support::{CACHE, TestNode};

const PATIENCE: Duration = Duration::from_secs(60);

/// The end of a stream on which frames are sent.
#[derive(Clone)]
pub(crate) struct Asking(mpsc::Sender<ClientFrame>);

/// The end of a stream on which answers come.
pub(crate) struct Answers(Streaming<ServerFrame>);

/// A stream over this connection, greeted.
pub(crate) async fn open(channel: Channel) -> (Asking, Answers) {
    let (frames, receiver) = mpsc::channel(64);
    let opened = MuxClient::new(channel).connect(ReceiverStream::new(receiver)).await;
    let answers = Answers(opened.expect("the stream opens").into_inner());
    let (asking, mut answers) = (Asking(frames), answers);
    assert!(asking.send(u64::MAX, Ask::Hello(hello())).await);
    let greeted = answers.next().await.expect("the hello is answered");
    assert!(matches!(greeted.body, Some(Reply::Hello(_))), "{greeted:?}");
    (asking, answers)
}

impl Asking {
    /// Sends a frame; false if the stream is over.
    pub(crate) async fn send(&self, id: u64, body: Ask) -> bool {
        let frame = ClientFrame {
            id,
            timeout_ms: 0,
            body: Some(body),
        };
        self.0.send(frame).await.is_ok()
    }
}

impl Answers {
    /// The next answer, or `None` when the stream is over.
    pub(crate) async fn next(&mut self) -> Option<ServerFrame> {
        let answer = tokio::time::timeout(PATIENCE, self.0.message()).await;
        answer.expect("an answer in time").ok().flatten()
    }
}

#[expect(clippy::disallowed_methods, reason = "the test is the outside world")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the test is the outside world")]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(task)
}

#[expect(clippy::disallowed_methods, reason = "the test is the outside world")]
pub(crate) async fn connect(node: &TestNode) -> TcpStream {
    TcpStream::connect(node.node.address()).await.expect("the node listens")
}

/// What the node answers to a GET.
pub(crate) async fn http_get(node: &TestNode, path: &str) -> String {
    let mut stream = connect(node).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the answer is read");
    answer
}

/// The value of a metric without labels.
pub(crate) async fn metric(node: &TestNode, name: &str) -> f64 {
    let metrics = http_get(node, "/metrics").await;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("{name} is missing in {metrics}"));
    value.parse().expect("a number")
}

/// A node of so many connections over this world, with one cache.
pub(crate) async fn start(connections_max: usize, runtime: Runtime) -> TestNode {
    let folder = TempDir::new().expect("a temporary folder");
    let config = NodeConfig {
        data_dir: folder.path().to_path_buf(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        advertise: None,
        join: Vec::new(),
        home_groups: HOME_GROUPS_DEV,
        connections_max,
        reserve_bytes: None,
        log_entries_kept: None,
        log_segment_bytes: None,
        insecure: false,
    };
    let open = Box::new(|folder: &std::path::Path| {
        let engine = DiskEngine::open(folder, DiskOptions::default())?;
        Ok(Arc::new(engine) as Arc<dyn StateEngine>)
    });
    let node = Node::start(config, runtime, open).await.expect("the node starts");
    let started = TestNode { node, folder };
    create_cache(&started, None).await;
    started
}

/// Creates the cache in a namespace, or in the default one.
pub(crate) async fn create_cache(node: &TestNode, namespace: Option<&str>) {
    let request = v1::CreateCacheRequest {
        name: CACHE.to_owned(),
        scope: namespace.map(scope),
        ..Default::default()
    };
    let mut catalog = CatalogClient::new(node.channel().await);
    catalog.create_cache(request).await.expect("the cache is created");
}

/// A namespace of the default tenant.
pub(crate) fn scope(namespace: &str) -> v1::Scope {
    v1::Scope {
        namespace: namespace.to_owned(),
        ..Default::default()
    }
}

/// A world whose log takes as long for every sync as is said later.
pub(crate) fn slow_world() -> (Runtime, Slowness) {
    let mut runtime = Runtime::system();
    let slowness = Slowness::default();
    runtime.disk = Arc::new(SlowDisk {
        inner: runtime.disk.clone(),
        slowness: slowness.clone(),
    });
    (runtime, slowness)
}

/// How long a sync takes.
#[derive(Clone, Default)]
pub(crate) struct Slowness(Arc<AtomicU64>);

impl Slowness {
    /// From now on a sync takes so long.
    pub(crate) fn set(&self, sync: Duration) {
        let millis = u64::try_from(sync.as_millis()).expect("a short time");
        self.0.store(millis, Ordering::Relaxed);
    }
}

struct SlowDisk {
    inner: Arc<dyn Disk>,
    slowness: Slowness,
}

struct SlowFile {
    inner: Box<dyn DiskFile>,
    slowness: Slowness,
}

impl Disk for SlowDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let inner = self.inner.open(path, mode)?;
        let slowness = self.slowness.clone();
        Ok(Box::new(SlowFile { inner, slowness }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.inner.free_space(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.inner.lock(path)
    }
}

impl DiskFile for SlowFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        wait_as_a_slow_disk(Duration::from_millis(self.slowness.0.load(Ordering::Relaxed)));
        self.inner.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.inner.set_length(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.inner.allocate(length)
    }
}

#[expect(clippy::disallowed_methods, reason = "a disk that is slow holds up its thread")]
fn wait_as_a_slow_disk(time: Duration) {
    std::thread::sleep(time);
}
