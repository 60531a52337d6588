//! The other nodes: one [`Peers`] value a node, shared by all its groups.
//!
//! `link` is the one stream to another node, `client` the consensus library's network over it, `commits` what an append may wait
//! for, `pulse` the heartbeats of all groups, `server` what answers the streams of others, `snapshot` both ends of a snapshot's
//! way, `join` how a node is let in, `wire` the messages.
//!
//! A call that was surely never sent is told apart from one without a reply: the first was not applied, of the second
//! nothing is known.

mod client;
mod commits;
mod join;
mod link;
mod pulse;
mod server;
mod snapshot;
mod wire;

pub(crate) use client::PeerNetworks;
pub(crate) use commits::Askers;
pub use join::{Doorkeeper, JoinAsked, Joined, join};
pub(crate) use link::{CallError, Link};
pub use server::PeerService;
pub(crate) use wire::{peer, to_refused, to_unavailable};

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use futures_util::FutureExt;
use tokio::sync::{Semaphore, watch};
use tonic::Status;

use tenure_core::ids::{GroupId, NodeId};

use crate::lane::Lane;
use crate::raft_types::Raft;
use crate::replica::Timings;
use crate::runtime::{Runtime, TaskHandle};
use crate::shared::Shared;

/// The protocol that this release speaks. Both sides of a stream say theirs, and another one is refused.
const PROTOCOL: u32 = 1;
/// The longest message between nodes.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// With this key a refusal says that whoever is refused was removed from the cluster.
const REMOVED_KEY: &str = "tenure-removed";
/// Groups that may be registered.
const GROUPS_MAX: usize = 65_536;

/// Who a node is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The cluster.
    pub cluster: u128,
    /// The node's id, which was never used for another folder.
    pub node: NodeId,
    /// The node's folder.
    pub folder: u128,
}

/// What a node knows of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRecord {
    /// Where it is reached: `HOST:PORT`.
    pub address: String,
    /// Its folder, if that is known. A node that comes with another one is refused.
    pub folder: Option<u128>,
}

/// The other nodes of the cluster and the ways to them. Clones are the same value. Connections are made when they are
/// first needed, and end when the last clone is dropped.
#[derive(Clone)]
pub struct Peers {
    inner: Arc<Inner>,
}

struct Inner {
    world: Arc<World>,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
    groups: Mutex<BTreeMap<GroupId, Member>>,
    doorkeeper: Mutex<Option<Arc<dyn Doorkeeper>>>,
    /// One snapshot goes out at a time, and one comes in: each may be large.
    sending: Semaphore,
    receiving: Semaphore,
    /// Where snapshots are read.
    lane: Lane,
    /// What sends heartbeats, once there is a group.
    pulse: OnceLock<TaskHandle>,
}

/// What every link needs.
struct World {
    identity: PeerIdentity,
    runtime: Runtime,
    book: watch::Sender<Book>,
    /// Whether this node was removed from the cluster.
    removed: watch::Sender<bool>,
}

/// What is known of the other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Book {
    records: BTreeMap<NodeId, PeerRecord>,
    /// The id that the next node gets, as of these records; 0 if that is not known.
    next: u64,
}

/// A group of this node, as peers reach it.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) shared: Arc<Shared>,
    pub(crate) raft: Raft,
    pub(crate) timings: Timings,
}

impl Peers {
    /// A node without peers so far.
    ///
    /// # Errors
    /// What the system said when it could not start a thread for reading snapshots.
    pub fn new(identity: PeerIdentity, runtime: Runtime) -> io::Result<Peers> {
        let lane = Lane::start(&*runtime.tasks, "peer-snapshot")?;
        let world = World {
            identity,
            runtime,
            book: watch::Sender::default(),
            removed: watch::Sender::new(false),
        };
        Ok(Peers {
            inner: Arc::new(Inner {
                world: Arc::new(world),
                links: Mutex::default(),
                groups: Mutex::default(),
                doorkeeper: Mutex::default(),
                sending: Semaphore::new(1),
                receiving: Semaphore::new(1),
                lane,
                pulse: OnceLock::new(),
            }),
        })
    }

    /// Who this node is.
    pub fn identity(&self) -> PeerIdentity {
        self.inner.world.identity
    }

    /// Notes where a node is reached and which folder it has. A connection to another address is ended.
    pub fn set(&self, node: NodeId, record: PeerRecord) {
        self.inner.world.book.send_if_modified(|book| {
            let changed = book.records.get(&node) != Some(&record);
            book.records.insert(node, record);
            changed
        });
    }

    /// Replaces everything that is known of nodes. These are all of them, this one too, and `next` is the id that another one
    /// would get: a lower one that is not among them was removed. Who comes with such an id is refused by name, and if it
    /// is this node's own, [`removed`](Peers::removed) completes. A `next` of 0 says nothing of removed nodes.
    pub fn set_all(&self, mut records: BTreeMap<NodeId, PeerRecord>, next: u64) {
        let World {
            identity,
            book,
            removed,
            ..
        } = &*self.inner.world;
        if records.remove(&identity.node).is_none() && identity.node.0 < next {
            removed.send_replace(true);
        }
        let now = Book { records, next };
        book.send_if_modified(|book| {
            let changed = *book != now;
            *book = now;
            changed
        });
    }

    /// Forgets a node. Nothing is sent to it any more.
    pub fn forget(&self, node: NodeId) {
        // The way to it stays, and leads nowhere: whoever holds it finds it again if the node is known again.
        let book = &self.inner.world.book;
        book.send_if_modified(|book| book.records.remove(&node).is_some());
    }

    /// What is known of nodes.
    pub fn known(&self) -> BTreeMap<NodeId, PeerRecord> {
        self.inner.world.book.borrow().records.clone()
    }

    /// Opens a stream to every node that is known and has none. Returns at once.
    pub fn reach_all(&self) {
        for node in self.known().into_keys() {
            self.link(node).want();
        }
    }

    /// Completes when this node is known to be removed from the cluster: it says so itself, by what it has applied, or
    /// another node of the cluster does.
    pub async fn removed(&self) {
        let mut removed = self.inner.world.removed.subscribe();
        // The sender lives as long as this value.
        let _ = removed.wait_for(|removed| *removed).await;
    }

    /// Whether a stream to this node is open.
    pub fn is_connected(&self, node: NodeId) -> bool {
        lock(&self.inner.links)
            .get(&node)
            .is_some_and(|link| link.is_connected())
    }

    /// From now on this one lets nodes in, or nobody does.
    pub fn set_doorkeeper(&self, doorkeeper: Option<Arc<dyn Doorkeeper>>) {
        let before = std::mem::replace(&mut *lock(&self.inner.doorkeeper), doorkeeper);
        // Outside the lock: it may hold much.
        drop(before);
    }

    /// What answers the other nodes: a gRPC service to be mounted on the node's port.
    pub fn service(&self) -> PeerService {
        PeerService::new(self.clone())
    }

    /// The way to a node.
    pub(crate) fn link(&self, node: NodeId) -> Arc<Link> {
        let mut links = lock(&self.inner.links);
        let link = links
            .entry(node)
            .or_insert_with(|| Arc::new(Link::start(self.inner.world.clone(), node)));
        link.clone()
    }

    /// Lets peers reach a group of this node.
    pub(crate) fn register(&self, member: Member) -> Result<(), String> {
        let mut groups = lock(&self.inner.groups);
        if groups.len() >= GROUPS_MAX {
            return Err(format!("more than {GROUPS_MAX} groups on one node"));
        }
        groups.insert(member.shared.group, member);
        drop(groups);
        self.inner.pulse.get_or_init(|| {
            let pulse = pulse::run(Arc::downgrade(&self.inner));
            self.inner.world.runtime.tasks.spawn("heartbeats", pulse.boxed())
        });
        Ok(())
    }

    /// Ends that, if it is still this opening of the group that is registered.
    pub(crate) fn deregister(&self, shared: &Arc<Shared>) {
        let removed = {
            let mut groups = lock(&self.inner.groups);
            let is_this = groups
                .get(&shared.group)
                .is_some_and(|member| Arc::ptr_eq(&member.shared, shared));
            if is_this { groups.remove(&shared.group) } else { None }
        };
        // Outside the lock: it may hold the last handle on much.
        drop(removed);
    }

    fn member(&self, group: GroupId) -> Option<Member> {
        lock(&self.inner.groups).get(&group).cloned()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(pulse) = self.pulse.get() {
            pulse.abort();
        }
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers")
            .field("identity", &self.inner.world.identity)
            .finish_non_exhaustive()
    }
}

impl World {
    /// What this node says when a stream is opened.
    fn hello(&self, to: NodeId) -> peer::Hello {
        peer::Hello {
            protocol: PROTOCOL,
            cluster: self.identity.cluster.to_be_bytes().to_vec().into(),
            from: self.identity.node.0,
            to: to.0,
            folder: self.identity.folder.to_be_bytes().to_vec().into(),
        }
    }

    /// Whether whoever said this is a node of this cluster that speaks to this node.
    ///
    /// # Errors
    /// What does not fit, by name.
    fn check(&self, hello: &peer::Hello) -> Result<NodeId, Misfit> {
        let PeerIdentity { cluster, node, .. } = self.identity;
        let misfit = |why: String| Err(Misfit { why, removed: None });
        if hello.protocol != PROTOCOL {
            return misfit(format!(
                "protocol: node {} speaks {PROTOCOL} and not {}",
                node.0, hello.protocol
            ));
        }
        if hello.cluster != cluster.to_be_bytes()[..] {
            return misfit(format!("cluster: node {} belongs to another one", node.0));
        }
        if hello.to != node.0 {
            return misfit(format!("node: this is node {} and not {}", node.0, hello.to));
        }
        let from = NodeId(hello.from);
        if from == node {
            return misfit(format!("node: this is node {} itself", node.0));
        }
        let book = self.book.borrow();
        if book.was_removed(from) {
            return Err(self.removed_from(from));
        }
        let known = book.records.get(&from).and_then(|record| record.folder);
        if known.is_some_and(|folder| hello.folder != folder.to_be_bytes()[..]) {
            return misfit(format!("folder: node {} has another one", from.0));
        }
        Ok(from)
    }

    /// What a node is told that was removed from this cluster.
    fn removed_from(&self, node: NodeId) -> Misfit {
        Misfit {
            why: format!("node: node {} was removed from the cluster", node.0),
            removed: Some(mark_of_removed(self.identity.cluster, node)),
        }
    }

    /// What another node said in place of an answer, in words. If it says that this node was removed, that is noted.
    fn heard(&self, status: &Status) -> String {
        let mark = status.metadata().get(REMOVED_KEY).and_then(|mark| mark.to_str().ok());
        if mark.is_some_and(|mark| mark == mark_of_removed(self.identity.cluster, self.identity.node)) {
            self.removed.send_replace(true);
        }
        status.message().to_owned()
    }
}

impl Book {
    fn was_removed(&self, node: NodeId) -> bool {
        node.0 < self.next && !self.records.contains_key(&node)
    }
}

/// Why a stream is refused.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
struct Misfit {
    why: String,
    /// If the other side was removed from the cluster: what says so.
    removed: Option<String>,
}

impl From<Misfit> for Status {
    fn from(misfit: Misfit) -> Status {
        let mut status = Status::failed_precondition(misfit.why);
        if let Some(mark) = misfit.removed.and_then(|mark| mark.parse().ok()) {
            status.metadata_mut().insert(REMOVED_KEY, mark);
        }
        status
    }
}

/// Names the cluster and the node, so that nothing that only looks like a refusal ends a node.
fn mark_of_removed(cluster: u128, node: NodeId) -> String {
    format!("{cluster:032x}/{}", node.0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds what peers share")
}

#[cfg(test)]
mod tests;
