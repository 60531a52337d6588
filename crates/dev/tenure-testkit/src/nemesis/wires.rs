//! What the nodes of a cluster say to each other goes through here, one gate in front of each node.
//!
//! A gate knows from which node a connection comes by asking the kernel which process has its other end, so that what two
//! nodes say to each other can be treated apart from what others say. What is lost is missing in the middle of a stream, so a
//! connection that lost something is cut as soon as it could go on.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// Bytes that are passed on at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks of one direction of a connection that are held back at a time; a sender with more has to wait.
const CHUNKS_HELD_MAX: usize = 64;

/// What happens to what nodes say to each other. Nodes are counted from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wiring {
    /// What is lost: from the first to the second.
    pub lost: BTreeSet<(u64, u64)>,
    /// Between whom everything is held back, both ways, and for how long.
    pub late: BTreeSet<u64>,
    /// For how long.
    pub delay: Duration,
}

impl Wiring {
    fn loses(&self, from: u64, to: u64) -> bool {
        self.lost.contains(&(from, to))
    }

    fn delay(&self, from: u64, to: u64) -> Duration {
        match self.late.contains(&from) || self.late.contains(&to) {
            true => self.delay,
            false => Duration::ZERO,
        }
    }
}

/// The gates of a cluster. They close, and cut what passes through them, when this is dropped.
#[derive(Debug)]
pub struct Wires {
    gates: Vec<Gate>,
    wiring: Arc<watch::Sender<Wiring>>,
}

#[derive(Debug)]
struct Gate {
    address: SocketAddr,
    behind: Arc<Mutex<Option<SocketAddr>>>,
    accepting: AbortHandle,
}

impl Wires {
    /// A gate for each node, whose data folder this is.
    ///
    /// # Panics
    /// If one cannot listen.
    pub async fn start(folders: &[PathBuf]) -> Wires {
        let wiring = Arc::new(watch::Sender::new(Wiring::default()));
        let folders: Arc<[PathBuf]> = folders.into();
        let mut gates = Vec::new();
        for to in 1..=folders.len() as u64 {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
            let address = listener.local_addr().expect("a bound listener has an address");
            let behind: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
            let serving = accept(
                listener,
                to,
                Arc::clone(&behind),
                Arc::clone(&folders),
                Arc::clone(&wiring),
            );
            gates.push(Gate {
                address,
                behind,
                accepting: tokio::spawn(serving).abort_handle(),
            });
        }
        Wires { gates, wiring }
    }

    /// Where others reach a node whose own address is this.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn in_front_of(&self, node: u64, address: SocketAddr) -> String {
        let gate = &self.gates[usize::try_from(node).expect("a small number") - 1];
        *gate.behind.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
        gate.address.to_string()
    }

    /// From now on it is like this.
    pub fn set(&self, wiring: Wiring) {
        self.wiring.send_replace(wiring);
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        for gate in &self.gates {
            gate.accepting.abort();
        }
    }
}

async fn accept(
    listener: TcpListener,
    to: u64,
    behind: Arc<Mutex<Option<SocketAddr>>>,
    folders: Arc<[PathBuf]>,
    wiring: Arc<watch::Sender<Wiring>>,
) {
    let here = listener.local_addr().expect("a bound listener has an address");
    while let Ok((stream, peer)) = listener.accept().await {
        let target = *behind.lock().unwrap_or_else(PoisonError::into_inner);
        let (folders, wiring) = (Arc::clone(&folders), wiring.subscribe());
        tokio::spawn(async move {
            let asking = tokio::task::spawn_blocking(move || owner::of(peer, here, &folders));
            // Nobody whom we know: it has gone again, or is no node.
            let (Some(target), Ok(Some(from))) = (target, asking.await) else {
                return;
            };
            carry(stream, target, from, to, wiring).await;
        });
    }
}

/// One connection from one node to another, until either end closes it or it is cut.
async fn carry(from_stream: TcpStream, target: SocketAddr, from: u64, to: u64, wiring: watch::Receiver<Wiring>) {
    let Ok(to_stream) = TcpStream::connect(target).await else {
        return;
    };
    // Without this small messages would be late.
    let _ = (from_stream.set_nodelay(true), to_stream.set_nodelay(true));
    let lost = Arc::new(AtomicBool::new(false));
    let (from_reads, from_writes) = from_stream.into_split();
    let (to_reads, to_writes) = to_stream.into_split();
    let way = |from, to| Way {
        from,
        to,
        wiring: wiring.clone(),
        lost: Arc::clone(&lost),
    };
    tokio::select! {
        () = way(from, to).pass(from_reads, to_writes) => {}
        () = way(to, from).pass(to_reads, from_writes) => {}
    }
}

/// One direction of a connection.
struct Way {
    from: u64,
    to: u64,
    wiring: watch::Receiver<Wiring>,
    /// The connection lost something.
    lost: Arc<AtomicBool>,
}

impl Way {
    async fn pass(self, reads: OwnedReadHalf, writes: OwnedWriteHalf) {
        let (held, due) = mpsc::channel(CHUNKS_HELD_MAX);
        tokio::select! {
            () = self.take_in(reads, held) => {}
            () = let_go(due, writes) => {}
        }
    }

    /// Whether this connection lost something, and nothing of it would be lost now.
    fn is_broken(&self, now: &Wiring) -> bool {
        self.lost.load(Ordering::SeqCst) && !now.loses(self.from, self.to) && !now.loses(self.to, self.from)
    }

    async fn take_in(mut self, mut reads: OwnedReadHalf, held: mpsc::Sender<(Instant, Vec<u8>)>) {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = tokio::select! {
                biased;
                changed = self.wiring.changed() => {
                    let now = self.wiring.borrow_and_update().clone();
                    if changed.is_err() || self.is_broken(&now) {
                        return;
                    }
                    continue;
                }
                read = reads.read(&mut chunk) => read,
            };
            let Some(length) = read.ok().filter(|length| *length > 0) else {
                return;
            };
            let now = self.wiring.borrow().clone();
            if self.is_broken(&now) {
                return;
            }
            if now.loses(self.from, self.to) {
                self.lost.store(true, Ordering::SeqCst);
                continue;
            }
            let due = Instant::now() + now.delay(self.from, self.to);
            if held.send((due, chunk[..length].to_vec())).await.is_err() {
                return;
            }
        }
    }
}

async fn let_go(mut due: mpsc::Receiver<(Instant, Vec<u8>)>, mut writes: OwnedWriteHalf) {
    while let Some((at, bytes)) = due.recv().await {
        tokio::time::sleep_until(at.into()).await;
        if writes.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Which node has the other end of a connection.
mod owner {
    use std::fs;
    use std::net::SocketAddr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    /// The number of the node that has the end at `there` of a connection to `here`; `None`: none of these.
    pub(super) fn of(there: SocketAddr, here: SocketAddr, folders: &[PathBuf]) -> Option<u64> {
        let socket = socket_of(there, here)?;
        let processes = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
        processes
            .filter_map(|process| Some((node_of(&process, folders)?, process)))
            .find(|(_, process)| has_open(process, &socket))
            .map(|(node, _)| node)
    }

    /// How `/proc/PID/fd` names the socket.
    fn socket_of(there: SocketAddr, here: SocketAddr) -> Option<String> {
        let ends = [hexadecimal(there)?, hexadecimal(here)?];
        let table = fs::read_to_string("/proc/net/tcp").ok()?;
        let line = table.lines().map(str::split_whitespace).find(|fields| {
            let mut ends_there = fields.clone().skip(1);
            ends.iter().all(|end| ends_there.next() == Some(end.as_str()))
        });
        let inode = line?.nth(9)?;
        Some(format!("socket:[{inode}]"))
    }

    /// An IPv4 address as the kernel prints it: the bytes of the address as one little-endian number.
    fn hexadecimal(address: SocketAddr) -> Option<String> {
        let SocketAddr::V4(address) = address else {
            return None;
        };
        let ip = u32::from_ne_bytes(address.ip().octets());
        Some(format!("{ip:08X}:{:04X}", address.port()))
    }

    /// The node that a process is, by the folder that it was started on.
    fn node_of(process: &Path, folders: &[PathBuf]) -> Option<u64> {
        process.file_name()?.to_str()?.parse::<u32>().ok()?;
        let words = fs::read(process.join("cmdline")).ok()?;
        let words = words.split(|byte| *byte == 0);
        let place = folders
            .iter()
            .position(|folder| words.clone().any(|word| word == folder.as_os_str().as_bytes()))?;
        Some(place as u64 + 1)
    }

    fn has_open(process: &Path, socket: &str) -> bool {
        let Ok(open) = fs::read_dir(process.join("fd")) else {
            return false;
        };
        open.flatten()
            .any(|file| fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == socket))
    }
}
