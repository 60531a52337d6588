//! The real world. The only place of the client that reads the system's clocks, starts threads or opens sockets.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::rand::GetRandomFlags;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::{ClientRuntime, Clock, Instants, IoStream, KeepAliveOn, Network, Random, TaskHandle, Tasks};

/// A reading of both clocks that took longer than this is taken again: the thread was set aside in between.
const READING_MAX: Duration = Duration::from_millis(10);
/// How often a reading is taken again before it is used as it is.
const READINGS_MAX: usize = 4;

/// The real world.
pub(super) fn runtime() -> ClientRuntime {
    ClientRuntime {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        tasks: Arc::new(TokioTasks::new(Handle::current())),
        network: Arc::new(Tcp),
        keep_alive: KeepAliveOn::Thread,
    }
}

/// The boot-time and the monotonic clock of the system.
struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instants {
        let mut boot = read(ClockId::Boottime);
        let mut monotonic = read(ClockId::Monotonic);
        for _ in 0..READINGS_MAX {
            let after = read(ClockId::Boottime);
            if after.saturating_sub(boot) <= READING_MAX {
                break;
            }
            boot = after;
            monotonic = read(ClockId::Monotonic);
        }
        Instants { boot, monotonic }
    }

    fn boot(&self) -> Duration {
        read(ClockId::Boottime)
    }

    fn monotonic(&self) -> Duration {
        read(ClockId::Monotonic)
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).expect("clocks that count from boot are never negative");
    let nanoseconds = u32::try_from(time.tv_nsec).expect("nanoseconds are less than a second");
    Duration::new(seconds, nanoseconds)
}

/// The time of day of this machine after this time, in milliseconds since 1970: for display, and for nothing else.
pub(crate) fn wall_clock_ms(after: Duration) -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let now = Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0));
    u64::try_from(now.saturating_add(after).as_millis()).unwrap_or(u64::MAX)
}

/// The randomness of the operating system.
struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, buffer: &mut [u8]) {
        let mut rest = buffer;
        while !rest.is_empty() {
            let filled = rustix::rand::getrandom(&mut *rest, GetRandomFlags::empty())
                .expect("the system gives random bits to every process");
            rest = &mut rest[filled..];
        }
    }
}

/// Tasks of one tokio runtime, and threads.
pub(crate) struct TokioTasks {
    handle: Handle,
}

impl TokioTasks {
    /// Tasks of this runtime.
    pub(crate) fn new(handle: Handle) -> TokioTasks {
        TokioTasks { handle }
    }
}

impl Tasks for TokioTasks {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        let abort = self.handle.spawn(task).abort_handle();
        TaskHandle::new(move || abort.abort())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the runtime that is handed in")]
    fn spawn_thread(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
    }
}

/// TCP without delay.
struct Tcp;

impl Network for Tcp {
    #[expect(clippy::disallowed_methods, reason = "this is the network that is handed in")]
    fn connect(&self, endpoint: &str) -> BoxFuture<'static, io::Result<Box<dyn IoStream>>> {
        let endpoint = endpoint.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(endpoint).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn IoStream>)
        })
    }
}
