//! Every mutation as data, and the entry that carries many of them.
//!
//! What could differ between replicas (time, ids, secrets) is a field here, chosen before the proposal.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{Fingerprint, Namespace, NodeId, Nonce, ObjectName, OneShotId, Secret, SessionId, SessionRef};
use crate::time::{Span, Timestamp};

/// One entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Cluster time as the leader stamped it.
    pub stamp: Timestamp,
    /// Keep-alives, which come before the time of this entry ends anything.
    pub keep_alives: Vec<SessionRef>,
    /// The commands, in order.
    pub requests: Vec<Request>,
}

/// A command with the identity under which its result is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Who asks, under which number.
    pub origin: Origin,
    /// What is asked.
    pub command: Command,
}

/// The identity of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// None: it runs once per attempt.
    Anonymous,
    /// A single call without a session, remembered until `not_after`.
    OneShot {
        /// Chosen by the caller.
        id: OneShotId,
        /// Later than this it is refused as too late.
        not_after: Timestamp,
        /// Of the command.
        fingerprint: Fingerprint,
    },
    /// A numbered request of a session.
    Session {
        /// The requester.
        session: SessionRef,
        /// Its number for this request, from 1.
        seq: u64,
        /// Which earlier results the requester needs no more.
        acknowledged: Acknowledged,
        /// Of the command.
        fingerprint: Fingerprint,
    },
}

/// Seqs whose results the requester has seen, or has given up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Every seq below this one.
    pub below: u64,
    /// Single seqs above it.
    pub also: Vec<u64>,
}

/// Every mutation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Opens a session, or finds the one that was opened with this nonce.
    OpenSession {
        /// Chosen by the client.
        nonce: Nonce,
        /// Chosen by the node that proposes; a repeat returns the first.
        secret: Secret,
        /// Without one the session can own nothing and is only an identity.
        ttl: Option<Span>,
        /// Shown wherever a holder is.
        label: String,
        /// Where it belongs, for listings.
        namespace: Namespace,
    },
    /// Ends a session and removes what it owns in one step.
    CloseSession {
        /// Which one.
        session: SessionId,
        /// Proof of the right; `None` is the forced close.
        secret: Option<Secret>,
    },
    /// Takes note of acknowledged results and does nothing else.
    Acknowledge {
        /// Whose results.
        session: SessionRef,
        /// Which ones.
        acknowledged: Acknowledged,
    },
    /// Creates a cache; the same settings again succeed.
    CreateCache {
        /// Its name.
        name: ObjectName,
        /// Its settings.
        settings: CacheSettings,
    },
    /// Deletes a cache; its rows are swept afterwards in bounded steps.
    DeleteCache {
        /// Its name.
        name: ObjectName,
    },
    /// Writes a key.
    Put {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
        /// Its own TTL; without one it stays until it is deleted or its session ends.
        ttl: Option<Span>,
        /// What must hold.
        guard: Option<Guard>,
        /// The session that owns the key from now on.
        owner: Option<SessionRef>,
    },
    /// Deletes a key.
    Delete {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
        /// What must hold.
        guard: Option<Guard>,
    },
    /// Renews the TTL of a key: no revision, no event, no remembered result.
    Touch {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
        /// Counted from the stamp of the entry.
        ttl: Span,
        /// What must hold.
        guard: Option<Guard>,
    },
    /// Home group: takes a block of revisions that the system group reserved for it. Ignored unless it
    /// lies above every block taken before.
    TakeBlock {
        /// The first revision of the block.
        first: u64,
    },
    /// System group: a command about the cluster itself.
    System(SystemCommand),
}

/// A command of the system group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SystemCommand {
    /// Founds the cluster; founding it again with the same identity changes nothing.
    Found {
        /// 128 random bits that name the cluster.
        cluster: u128,
        /// How many home groups there are, for good.
        home_groups: u32,
    },
    /// Lets a node in, or records its new address. One folder gets one id.
    AddNode {
        /// 128 random bits that name the node's folder.
        folder: u128,
        /// Where it is reached.
        address: String,
    },
    /// Assigns a namespace to a home group on first use; it stays there.
    AssignNamespace {
        /// Which one.
        namespace: Namespace,
    },
    /// Reserves a block of revisions, raising the floor.
    ReserveBlock,
}

/// What a cache was created with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSettings {
    /// How many copies are wished for.
    pub replication: u32,
}

/// What must hold for a write to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guard {
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present,
    /// Its last write had this version.
    Version(u64),
    /// It has this value.
    Value(Bytes),
    /// It was created at this revision, its fencing token, and has existed since.
    Created(u64),
}

/// A node as the system group knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its id.
    pub id: NodeId,
    /// Its folder.
    pub folder: u128,
    /// Where it is reached.
    pub address: String,
}
