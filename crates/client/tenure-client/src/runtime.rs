//! The world, handed in: clocks, randomness, tasks, network.
//!
//! The client reaches the outside only through one [`ClientRuntime`] value. In production that is tokio and the
//! system; in a simulation it is one seed and a simulated network. Waiting for time to pass is `tokio::time`
//! everywhere, which is virtual in a simulation.

pub(crate) mod system;

use std::fmt;
use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

pub use tenure_recipes::clock::{Clock, Instants, ManualClock};

/// Everything that reaches the outside world. Cloning it is cheap, and every clone is the same world.
#[derive(Clone)]
pub struct ClientRuntime {
    /// Where time comes from: the boot-time clock for deadlines, and a monotonic one beside it.
    pub clock: Arc<dyn Clock>,
    /// Where random bits come from.
    pub random: Arc<dyn Random>,
    /// Where tasks and threads are started.
    pub tasks: Arc<dyn Tasks>,
    /// Where connections are made.
    pub network: Arc<dyn Network>,
    /// What renews sessions.
    pub keep_alive: KeepAliveOn,
}

impl ClientRuntime {
    /// The real world: tokio, the system's clocks and randomness, TCP, and a thread of its own for renewals.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime, which then has no place for the tasks.
    pub fn system() -> ClientRuntime {
        system::runtime()
    }
}

impl fmt::Debug for ClientRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRuntime")
            .field("keep_alive", &self.keep_alive)
            .finish_non_exhaustive()
    }
}

/// What renews sessions in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAliveOn {
    /// A thread for each client, with connections of its own, so that nothing the program does on its workers can
    /// starve it.
    Thread,
    /// A task beside all others, where there are no threads.
    Task,
}

/// A source of random bits that nobody can guess, except in a simulation.
pub trait Random: Send + Sync {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);
}

/// Starts tasks and threads.
pub trait Tasks: Send + Sync {
    /// Starts a task. It goes on when the handle is dropped.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle;

    /// Starts a thread. It is asked for only with [`KeepAliveOn::Thread`].
    ///
    /// # Errors
    /// What the system said when it could not start one; then nothing was started.
    fn spawn_thread(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()>;
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
    /// Connects to `HOST:PORT`.
    ///
    /// # Errors
    /// What the network said.
    fn connect(&self, endpoint: &str) -> BoxFuture<'static, io::Result<Box<dyn IoStream>>>;
}

/// A connection.
pub trait IoStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> IoStream for T {}

/// Random numbers from a source of bits.
pub(crate) fn random_u64(random: &dyn Random) -> u64 {
    let mut bytes = [0; 8];
    random.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// 16 random bytes: a nonce, or the id of a request.
pub(crate) fn random_identity(random: &dyn Random) -> bytes::Bytes {
    let mut identity = [0; tenure_api::limits::IDENTITY_BYTES];
    random.fill(&mut identity);
    bytes::Bytes::copy_from_slice(&identity)
}
