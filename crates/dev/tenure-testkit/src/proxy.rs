//! A TCP proxy on loopback in front of a node, which can lose what passes through it.
//!
//! Bytes that were swallowed are missing in the middle of a stream, so a connection that lost some is cut as soon as
//! the proxy lets through again: its two ends must not be left to misunderstand each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Bytes that are passed on at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the node.
    Requests,
    /// From the node to the client.
    Replies,
}

/// A proxy. It ends, and cuts what passes through it, when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    policy: watch::Sender<Policy>,
    swallowed_requests: AtomicU64,
    swallowed_replies: AtomicU64,
    connections: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Policy {
    swallow_requests: bool,
    swallow_replies: bool,
    delay: Duration,
    /// Connections of an earlier generation are cut.
    generation: u64,
}

impl Proxy {
    /// Starts a proxy in front of a node, letting everything through.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn start(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            target,
            policy: watch::Sender::new(Policy::default()),
            swallowed_requests: AtomicU64::new(0),
            swallowed_replies: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Proxy {
            address,
            shared,
            accepting,
        }
    }

    /// Where it listens, as clients are told.
    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// From now on everything that goes this way is lost. Connections stay up, and new ones are taken.
    pub fn swallow(&self, direction: Direction) {
        self.shared.policy.send_modify(|policy| match direction {
            Direction::Requests => policy.swallow_requests = true,
            Direction::Replies => policy.swallow_replies = true,
        });
    }

    /// From now on everything is lost, both ways, without a sign to either end.
    pub fn swallow_everything(&self) {
        self.shared.policy.send_modify(|policy| {
            policy.swallow_requests = true;
            policy.swallow_replies = true;
        });
    }

    /// Holds everything back for so long, each way.
    pub fn delay(&self, delay: Duration) {
        self.shared.policy.send_modify(|policy| policy.delay = delay);
    }

    /// Lets everything through again at once. Connections that lost something are cut.
    pub fn pass(&self) {
        self.shared.policy.send_modify(|policy| {
            *policy = Policy {
                generation: policy.generation,
                ..Policy::default()
            };
        });
    }

    /// Cuts every connection that there is. New ones are taken.
    pub fn cut(&self) {
        self.shared.policy.send_modify(|policy| policy.generation += 1);
    }

    /// Bytes that were lost this way so far.
    pub fn swallowed_bytes(&self, direction: Direction) -> u64 {
        self.shared.swallowed(direction).load(Ordering::SeqCst)
    }

    /// Connections that were ever taken.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Shared {
    fn swallowed(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Requests => &self.swallowed_requests,
            Direction::Replies => &self.swallowed_replies,
        }
    }
}

impl Policy {
    fn swallows(&self, direction: Direction) -> bool {
        match direction {
            Direction::Requests => self.swallow_requests,
            Direction::Replies => self.swallow_replies,
        }
    }

    /// Whether everything is let through, while this connection has lost something.
    fn lets_through_after(&self, lost: &AtomicBool) -> bool {
        lost.load(Ordering::SeqCst) && !self.swallow_requests && !self.swallow_replies
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(carry(client, Arc::clone(&shared)));
    }
}

/// One connection, until either end closes it or it is cut.
async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let Ok(node) = TcpStream::connect(shared.target).await else {
        return;
    };
    // Without this the proxy itself would delay small messages.
    let _ = client.set_nodelay(true);
    let _ = node.set_nodelay(true);
    let lost = AtomicBool::new(false);
    let (from_client, to_client) = client.into_split();
    let (from_node, to_node) = node.into_split();
    tokio::select! {
        () = pump(&shared, Direction::Requests, &lost, from_client, to_node) => {}
        () = pump(&shared, Direction::Replies, &lost, from_node, to_client) => {}
    }
}

async fn pump(
    shared: &Shared,
    direction: Direction,
    lost: &AtomicBool,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) {
    let mut policy = shared.policy.subscribe();
    let generation = policy.borrow().generation;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = tokio::select! {
            biased;
            changed = policy.changed() => {
                let now = *policy.borrow_and_update();
                if changed.is_err() || now.generation != generation || now.lets_through_after(lost) {
                    return;
                }
                continue;
            }
            read = from.read(&mut chunk) => read,
        };
        let Some(length) = read.ok().filter(|length| *length > 0) else {
            return;
        };
        let now = *shared.policy.borrow();
        if now.lets_through_after(lost) {
            return;
        }
        if now.swallows(direction) {
            lost.store(true, Ordering::SeqCst);
            shared.swallowed(direction).fetch_add(length as u64, Ordering::SeqCst);
            continue;
        }
        if !now.delay.is_zero() {
            tokio::time::sleep(now.delay).await;
        }
        if to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}
