//! Switches between nodes: while one is off, nothing that is sent arrives, and nothing says so.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tenure_replica::runtime::IoStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The switches of a cluster.
#[derive(Default)]
pub(crate) struct Switches {
    places: Mutex<BTreeMap<SocketAddr, u64>>,
    gates: Mutex<BTreeMap<(u64, u64), Arc<Gate>>>,
}

/// What the connections of one node to another one pass.
#[derive(Default)]
pub(crate) struct Gate {
    requests_cut: AtomicBool,
    replies_cut: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Switches {
    /// Notes where a node listens.
    pub(crate) fn place(&self, node: u64, address: SocketAddr) {
        let mut places = self.places.lock().unwrap();
        places.retain(|_, other| *other != node);
        places.insert(address, node);
    }

    pub(crate) fn address(&self, node: u64) -> SocketAddr {
        let places = self.places.lock().unwrap();
        *places.iter().find(|(_, other)| **other == node).unwrap().0
    }

    /// The gate of connections from a node to whoever listens there.
    pub(crate) fn gate(&self, from: u64, to: SocketAddr) -> Arc<Gate> {
        let to = self.places.lock().unwrap().get(&to).copied().unwrap_or(0);
        self.between(from, to)
    }

    fn between(&self, from: u64, to: u64) -> Arc<Gate> {
        self.gates.lock().unwrap().entry((from, to)).or_default().clone()
    }

    /// Nothing goes between a node and all others any more.
    pub(crate) fn cut_off(&self, node: u64) {
        let others: Vec<u64> = self.places.lock().unwrap().values().copied().collect();
        for other in others.into_iter().filter(|other| *other != node) {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    /// Nothing goes over the connections of one node to another one, in neither direction.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        let gate = self.between(from, to);
        gate.requests_cut.store(true, Ordering::SeqCst);
        gate.replies_cut.store(true, Ordering::SeqCst);
    }

    /// What one node sends to another one arrives, and no reply comes back.
    pub(crate) fn cut_replies(&self, from: u64, to: u64) {
        self.between(from, to).replies_cut.store(true, Ordering::SeqCst);
    }

    /// Everything arrives again, also what was sent meanwhile.
    pub(crate) fn heal(&self) {
        for gate in self.gates.lock().unwrap().values() {
            gate.requests_cut.store(false, Ordering::SeqCst);
            gate.replies_cut.store(false, Ordering::SeqCst);
            for waker in std::mem::take(&mut *gate.waiting.lock().unwrap()) {
                waker.wake();
            }
        }
    }
}

impl Gate {
    pub(crate) fn is_cut(&self) -> bool {
        self.requests_cut.load(Ordering::SeqCst) || self.replies_cut.load(Ordering::SeqCst)
    }

    /// A connection through this gate.
    pub(crate) fn through(self: Arc<Gate>, stream: Box<dyn IoStream>) -> Box<dyn IoStream> {
        Box::new(Gated { gate: self, stream })
    }

    fn waits(&self, cut: &AtomicBool, context: &Context<'_>) -> bool {
        if !cut.load(Ordering::SeqCst) {
            return false;
        }
        self.waiting.lock().unwrap().push(context.waker().clone());
        // It may have been healed in between.
        cut.load(Ordering::SeqCst)
    }
}

struct Gated {
    gate: Arc<Gate>,
    stream: Box<dyn IoStream>,
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.gate.waits(&self.gate.replies_cut, context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Gated {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.gate.waits(&self.gate.requests_cut, context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
