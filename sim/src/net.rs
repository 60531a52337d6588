//! The simulated network: turmoil's sockets, with all that arrives counted and digested.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::ToSocketAddrs;
use turmoil::net::{TcpListener, TcpStream};

use crate::clock;
use crate::journal::Digest;

/// After so long without an answer a connection is asked for again, and then after twice as long, as Linux does. turmoil
/// sends nothing twice by itself.
const CONNECT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often it is asked for.
const CONNECT_TRIES: u32 = 7;

/// The network of all machines.
#[derive(Clone, Default)]
pub(crate) struct VirtualNetwork {
    traffic: Arc<Mutex<Traffic>>,
}

/// What has arrived, on all connections together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    /// Bytes that were read.
    pub(crate) bytes: u64,
    /// Reads that brought some.
    pub(crate) reads: u64,
    /// A digest of every byte and of when it was read.
    pub(crate) digest: Digest,
}

impl VirtualNetwork {
    /// What has arrived so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stream(&self, inner: TcpStream) -> VirtualStream {
        VirtualStream {
            inner,
            traffic: Arc::clone(&self.traffic),
        }
    }
}

impl tenure_replica::runtime::Network for VirtualNetwork {
    fn listen(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn tenure_replica::runtime::Listener>>> {
        async move {
            let listener: Box<dyn tenure_replica::runtime::Listener> = Box::new(VirtualListener {
                inner: TcpListener::bind(address).await?,
                network: self.clone(),
            });
            Ok(listener)
        }
        .boxed()
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn tenure_replica::runtime::IoStream>>> {
        async move {
            let stream: Box<dyn tenure_replica::runtime::IoStream> = Box::new(self.stream(connect(address).await?));
            Ok(stream)
        }
        .boxed()
    }

    /// Machines are known by their names.
    fn resolve<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let wrong = move || io::Error::new(io::ErrorKind::InvalidInput, format!("{address} is no address"));
        async move {
            let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
            let port = port.parse().map_err(|_| wrong())?;
            Ok(vec![SocketAddr::new(turmoil::lookup(host), port)])
        }
        .boxed()
    }
}

impl tenure_client::runtime::Network for VirtualNetwork {
    fn connect(&self, endpoint: &str) -> BoxFuture<'static, io::Result<Box<dyn tenure_client::runtime::IoStream>>> {
        let (network, endpoint) = (self.clone(), endpoint.to_owned());
        async move {
            let stream: Box<dyn tenure_client::runtime::IoStream> = Box::new(network.stream(connect(endpoint).await?));
            Ok(stream)
        }
        .boxed()
    }
}

struct VirtualListener {
    inner: TcpListener,
    network: VirtualNetwork,
}

impl tenure_replica::runtime::Listener for VirtualListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn tenure_replica::runtime::IoStream>, SocketAddr)>> {
        async move {
            let (stream, peer) = self.inner.accept().await?;
            let stream: Box<dyn tenure_replica::runtime::IoStream> = Box::new(self.network.stream(stream));
            Ok((stream, peer))
        }
        .boxed()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

/// A connection whose arrivals are digested.
struct VirtualStream {
    inner: TcpStream,
    traffic: Arc<Mutex<Traffic>>,
}

impl AsyncRead for VirtualStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let arrived = &buffer.filled()[before..];
        if !arrived.is_empty() {
            let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
            traffic.bytes += arrived.len() as u64;
            traffic.reads += 1;
            let time_us = clock::now().unwrap_or_default().as_micros();
            traffic.digest.add(&time_us.to_le_bytes());
            traffic.digest.add(arrived);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for VirtualStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

async fn connect(address: impl ToSocketAddrs + Clone) -> io::Result<TcpStream> {
    for tried in 0..CONNECT_TRIES {
        let connecting = TcpStream::connect(address.clone());
        if let Ok(answered) = tokio::time::timeout(CONNECT_AGAIN_AFTER * (1 << tried), connecting).await {
            return answered;
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}
