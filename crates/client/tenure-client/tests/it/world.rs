//! A world in memory: a clock over virtual time, tasks of the test, and a network of fake nodes.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tenure_client::runtime::{
    ClientRuntime, Clock, Instants, IoStream, KeepAliveOn, Network, Random, TaskHandle, Tasks,
};
use tenure_client::{Client, ClientBuilder};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::fake::{Cluster, serve};

/// Bytes that one side may write before the other reads.
const PIPE_BYTES: usize = 1 << 20;

/// A clock over tokio's time, which a test can move apart from it.
pub(crate) struct TestClock {
    start: tokio::time::Instant,
    suspended_us: AtomicU64,
}

impl TestClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is handed in")]
    pub(crate) fn new() -> Arc<TestClock> {
        Arc::new(TestClock {
            start: tokio::time::Instant::now(),
            suspended_us: AtomicU64::new(0),
        })
    }

    /// The machine was suspended for this long.
    pub(crate) fn suspend(&self, time: Duration) {
        self.suspended_us
            .fetch_add(u64::try_from(time.as_micros()).unwrap(), Ordering::Relaxed);
    }

    /// Virtual time since the beginning of the test.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is handed in")]
    pub(crate) fn elapsed(&self) -> Duration {
        tokio::time::Instant::now() - self.start
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instants {
        let monotonic = Duration::from_secs(1_000) + self.elapsed();
        let boot = monotonic + Duration::from_micros(self.suspended_us.load(Ordering::Relaxed));
        Instants { boot, monotonic }
    }
}

/// Bits that are the same in every run.
#[derive(Default)]
struct Counting {
    next: AtomicU64,
}

impl Random for Counting {
    fn fill(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let number = self
                .next
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

/// Tasks of the runtime that the test runs on.
pub(crate) struct TestTasks;

impl Tasks for TestTasks {
    #[expect(clippy::disallowed_methods, reason = "this is the runtime that is handed in")]
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        let abort = tokio::spawn(task).abort_handle();
        TaskHandle::new(move || abort.abort())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the runtime that is handed in")]
    fn spawn_thread(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
    }
}

/// How an endpoint meets a new connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Open,
    Refuses,
    /// It never answers.
    Silent,
}

struct Place {
    door: Door,
    connections: u64,
    incoming: mpsc::Sender<io::Result<DuplexStream>>,
}

/// The fake nodes by endpoint.
#[derive(Clone, Default)]
pub(crate) struct TestNetwork {
    places: Arc<Mutex<BTreeMap<String, Place>>>,
}

impl TestNetwork {
    /// Starts a node of this cluster at an endpoint. Another at the same endpoint takes its place.
    pub(crate) fn start(&self, endpoint: &str, node_id: u64, cluster: &Arc<Cluster>) {
        let (incoming, accepted) = mpsc::channel(64);
        serve(accepted, node_id, Arc::clone(cluster));
        let place = Place {
            door: Door::Open,
            connections: 0,
            incoming,
        };
        self.places.lock().unwrap().insert(endpoint.to_owned(), place);
    }

    /// From now on the endpoint meets new connections like this.
    pub(crate) fn door(&self, endpoint: &str, door: Door) {
        self.places.lock().unwrap().get_mut(endpoint).unwrap().door = door;
    }

    /// How many connections were made to an endpoint.
    pub(crate) fn connections(&self, endpoint: &str) -> u64 {
        self.places.lock().unwrap()[endpoint].connections
    }
}

impl Network for TestNetwork {
    fn connect(&self, endpoint: &str) -> BoxFuture<'static, io::Result<Box<dyn IoStream>>> {
        let (endpoint, places) = (endpoint.to_owned(), Arc::clone(&self.places));
        Box::pin(async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let (door, incoming) = match places.lock().unwrap().get_mut(&endpoint) {
                Some(place) => {
                    place.connections += 1;
                    (place.door, place.incoming.clone())
                }
                None => return Err(refused()),
            };
            match door {
                Door::Open => {
                    let (near, far) = tokio::io::duplex(PIPE_BYTES);
                    incoming.send(Ok(far)).await.map_err(|_| refused())?;
                    Ok(Box::new(near) as Box<dyn IoStream>)
                }
                Door::Refuses => Err(refused()),
                Door::Silent => std::future::pending().await,
            }
        })
    }
}

/// A cluster of fake nodes and what is needed to be its client.
pub(crate) struct World {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) network: TestNetwork,
    pub(crate) cluster: Arc<Cluster>,
}

impl World {
    /// So many nodes, at `node-1:1` and so on.
    pub(crate) fn new(nodes: u64) -> World {
        let clock = TestClock::new();
        let cluster = Cluster::new(Arc::clone(&clock));
        let network = TestNetwork::default();
        for node in 1..=nodes {
            network.start(&format!("node-{node}:1"), node, &cluster);
        }
        World {
            clock,
            network,
            cluster,
        }
    }

    /// The world for a client.
    pub(crate) fn runtime(&self) -> ClientRuntime {
        ClientRuntime {
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            random: Arc::new(Counting::default()),
            tasks: Arc::new(TestTasks),
            network: Arc::new(self.network.clone()),
            keep_alive: KeepAliveOn::Task,
        }
    }

    /// A client of these endpoints that has sent nothing yet.
    pub(crate) fn builder(&self, endpoints: &[&str]) -> ClientBuilder {
        Client::builder()
            .endpoints(endpoints.iter().copied())
            .label("test")
            .runtime(self.runtime())
    }

    /// A client of the first node.
    pub(crate) fn client(&self) -> Client {
        self.builder(&["node-1:1"]).build().unwrap()
    }
}

/// Lets this much virtual time pass.
pub(crate) async fn wait_virtually(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Milliseconds.
pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
