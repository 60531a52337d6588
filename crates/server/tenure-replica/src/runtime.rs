//! The world, handed in: clock, randomness, tasks and threads, network, disk.
//!
//! Storage, replica and node reach the outside only through one [`Runtime`] value given at start. In
//! production that is tokio and the system; in the simulation it is one seed, turmoil's network and memory.
//! Whoever calls a clock or starts a task in any other way makes a run that no seed can replay.

mod system;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use tenure_storage::disk::Disk;
use tenure_storage::log::WriterMode;

/// Everything that reaches the outside world. Cloning it is cheap, and every clone is the same world.
#[derive(Clone)]
pub struct Runtime {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where random bits come from.
    pub random: Arc<dyn Random>,
    /// Where tasks and threads are started.
    pub tasks: Arc<dyn Tasks>,
    /// Where connections are made.
    pub network: Arc<dyn Network>,
    /// Where files are.
    pub disk: Arc<dyn Disk>,
    /// Seeds the consensus library where its runtime is deterministic (feature `deterministic`); without
    /// effect otherwise.
    pub seed: u64,
}

impl Runtime {
    /// The real world: tokio, the boot-time clock, the system's randomness, TCP and files.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime, which then has no place for the tasks.
    pub fn system() -> Runtime {
        system::runtime()
    }

    /// How the log of this world is written: by a thread of its own, or in place where there are no threads.
    pub fn log_writer(&self) -> WriterMode {
        if self.tasks.inline() {
            return WriterMode::Inline;
        }
        let tasks = self.tasks.clone();
        WriterMode::Thread(Arc::new(move |name, work| {
            tasks.spawn_thread(name, work).map(|_detached| ())
        }))
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// A clock that measures how much time passes.
pub trait Clock: Send + Sync {
    /// Time since some fixed instant of this machine's life. It never goes back, and it counts the time
    /// during which the machine was suspended: a clock that stops then would let a lease live too long.
    fn now(&self) -> Duration;
}

/// A source of random bits that nobody can guess, except in a simulation.
pub trait Random: Send + Sync {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);

    /// 64 random bits.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// 128 random bits.
    fn next_u128(&self) -> u128 {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        u128::from_le_bytes(bytes)
    }
}

/// Starts tasks and threads. Waiting for time to pass is `tokio::time` everywhere: it is virtual in a
/// simulation.
pub trait Tasks: Send + Sync {
    /// Starts a task. It goes on when the handle is dropped.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle;

    /// Starts a thread for blocking work, or returns `None` where there are no threads (see
    /// [`inline`](Tasks::inline)); then nothing was started and the work is to be done in place.
    ///
    /// # Errors
    /// What the system said when it could not start the thread; then nothing was started either.
    fn spawn_thread(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<Option<JoinHandle<()>>>;

    /// Whether blocking work is done in place because there are no threads.
    fn inline(&self) -> bool;
}

/// A task that was started.
pub struct TaskHandle {
    abort: Box<dyn Fn() + Send + Sync>,
}

impl TaskHandle {
    /// A handle whose [`abort`](TaskHandle::abort) calls this.
    pub fn new(abort: impl Fn() + Send + Sync + 'static) -> TaskHandle {
        TaskHandle { abort: Box::new(abort) }
    }

    /// Ends the task at its next await; nothing happens if it has ended.
    pub fn abort(&self) {
        (self.abort)();
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle").finish_non_exhaustive()
    }
}

/// Makes connections.
pub trait Network: Send + Sync {
    /// Listens on an address; port 0 takes a free one.
    ///
    /// # Errors
    /// What the network said, such as that the address is taken.
    fn listen(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>>;

    /// Connects to an address.
    ///
    /// # Errors
    /// What the network said.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn IoStream>>>;

    /// The addresses that a text of the form `HOST:PORT` stands for, at least one, the best first. Where there are no
    /// names, such as in a simulation, the host is an IP address.
    ///
    /// # Errors
    /// Nothing is known by this name, or the text is none.
    fn resolve<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let parsed = address.parse().map(|address| vec![address]);
        Box::pin(async move {
            parsed.map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{address} is no address")))
        })
    }
}

/// Accepts connections.
pub trait Listener: Send + Sync {
    /// The next connection and where it comes from.
    ///
    /// # Errors
    /// What the network said; later calls may succeed.
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn IoStream>, SocketAddr)>>;

    /// The address that it listens on.
    ///
    /// # Errors
    /// What the system said.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A connection.
pub trait IoStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> IoStream for T {}

#[cfg(test)]
mod tests;
