//! What the nodes of a cluster say to each other goes through here, one gate in front of each node.
//!
//! A gate knows from which node a connection comes by asking the kernel which process has its other end, so that what two
//! nodes say to each other can be treated apart from what others say. What is lost is missing in the middle of a stream, so a
//! connection that lost something is cut as soon as it could go on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
#[derive(Debug, Default)]
pub struct Wires {
    /// The folder of each node that has a gate.
    folders: Arc<Mutex<BTreeMap<u64, PathBuf>>>,
    accepting: Vec<AbortHandle>,
    wiring: Arc<watch::Sender<Wiring>>,
}

impl Wires {
    /// A gate in front of a node that has this data folder and listens there. Returns where others reach the node.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn add(&mut self, node: u64, folder: &Path, behind: SocketAddr) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound listener has an address");
        locked(&self.folders).insert(node, folder.to_owned());
        let gate = Gate {
            to: node,
            behind,
            folders: Arc::clone(&self.folders),
            wiring: Arc::clone(&self.wiring),
        };
        self.accepting.push(tokio::spawn(gate.accept(listener)).abort_handle());
        address.to_string()
    }

    /// From now on it is like this.
    pub fn set(&self, wiring: Wiring) {
        self.wiring.send_replace(wiring);
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.accepting.iter().for_each(AbortHandle::abort);
    }
}

/// What stands in front of one node.
struct Gate {
    to: u64,
    behind: SocketAddr,
    folders: Arc<Mutex<BTreeMap<u64, PathBuf>>>,
    wiring: Arc<watch::Sender<Wiring>>,
}

impl Gate {
    async fn accept(self, listener: TcpListener) {
        let here = listener.local_addr().expect("a bound listener has an address");
        while let Ok((stream, peer)) = listener.accept().await {
            let (to, behind, wiring) = (self.to, self.behind, self.wiring.subscribe());
            let folders = locked(&self.folders).clone();
            tokio::spawn(async move {
                let asking = tokio::task::spawn_blocking(move || owner::of(peer, here, &folders));
                // Nobody whom we know: it has gone again, or is no node.
                let Ok(Some(from)) = asking.await else {
                    return;
                };
                carry(stream, behind, from, to, wiring).await;
            });
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    use std::collections::BTreeMap;
    use std::fs;
    use std::net::SocketAddr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    /// The number of the node that has the end at `there` of a connection to `here`; `None`: none of these.
    pub(super) fn of(there: SocketAddr, here: SocketAddr, folders: &BTreeMap<u64, PathBuf>) -> Option<u64> {
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
    fn node_of(process: &Path, folders: &BTreeMap<u64, PathBuf>) -> Option<u64> {
        process.file_name()?.to_str()?.parse::<u32>().ok()?;
        let words = fs::read(process.join("cmdline")).ok()?;
        let words = words.split(|byte| *byte == 0);
        let found = folders
            .iter()
            .find(|(_, folder)| words.clone().any(|word| word == folder.as_os_str().as_bytes()));
        found.map(|(node, _)| *node)
    }

    fn has_open(process: &Path, socket: &str) -> bool {
        let Ok(open) = fs::read_dir(process.join("fd")) else {
            return false;
        };
        open.flatten()
            .any(|file| fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == socket))
    }
}
