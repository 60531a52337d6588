//! The real world. The only place of the server that calls the system's clock, starts threads or opens
//! sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::rand::GetRandomFlags;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use tenure_storage::disk::Files;

use super::{Clock, IoStream, Listener, Network, Random, Runtime, TaskHandle, Tasks};

/// The real world.
pub(super) fn runtime() -> Runtime {
    Runtime {
        clock: Arc::new(BootClock),
        random: Arc::new(SystemRandom),
        tasks: Arc::new(TokioTasks {
            handle: Handle::current(),
        }),
        network: Arc::new(Tcp),
        disk: Arc::new(Files),
        seed: 0,
    }
}

/// Time since the machine was started, suspension included.
struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).expect("the boot-time clock is never negative");
        let nanoseconds = u32::try_from(time.tv_nsec).expect("nanoseconds are less than a second");
        Duration::new(seconds, nanoseconds)
    }
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
struct TokioTasks {
    handle: Handle,
}

impl Tasks for TokioTasks {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        let abort = self.handle.spawn(task).abort_handle();
        TaskHandle::new(move || abort.abort())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the runtime that is handed in")]
    fn spawn_thread(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<Option<JoinHandle<()>>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).map(Some)
    }

    fn inline(&self) -> bool {
        false
    }
}

/// TCP without delay.
struct Tcp;

impl Network for Tcp {
    #[expect(clippy::disallowed_methods, reason = "this is the network that is handed in")]
    fn listen(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(address).await?;
            Ok(Box::new(TcpAcceptor { listener }) as Box<dyn Listener>)
        })
    }

    #[expect(clippy::disallowed_methods, reason = "this is the network that is handed in")]
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn IoStream>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn IoStream>)
        })
    }

    fn resolve<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host(address).await?.collect();
            if found.is_empty() {
                let why = format!("nothing is known by the name {address}");
                return Err(io::Error::new(io::ErrorKind::NotFound, why));
            }
            Ok(found)
        })
    }
}

/// A TCP listener.
struct TcpAcceptor {
    listener: TcpListener,
}

impl Listener for TcpAcceptor {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn IoStream>, SocketAddr)>> {
        Box::pin(async move {
            let (stream, address) = self.listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as Box<dyn IoStream>, address))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
