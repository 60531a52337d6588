//! Every read as data. A read never sees what is due at the applied time, swept or not.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::command::NodeRecord;
use crate::ids::{GroupId, Incarnation, Namespace, NodeId, ObjectName, SessionId};
use crate::refusal::{EndReason, Failure};
use crate::response::{CacheRecord, StreamRecord};
use crate::time::{Span, Timestamp};

/// A read of one group's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One key.
    Get {
        /// In which cache.
        cache: ObjectName,
        /// The key.
        key: Bytes,
    },
    /// A page of keys in order.
    List {
        /// In which cache.
        cache: ObjectName,
        /// Keys that begin with this.
        prefix: Bytes,
        /// Only keys behind this one.
        after: Option<Bytes>,
        /// At most so many.
        limit: usize,
    },
    /// One cache.
    Cache(ObjectName),
    /// The caches of a namespace.
    Caches(Namespace),
    /// System group: the home of a namespace.
    Home(Namespace),
    /// System group: namespaces with their homes, in order.
    Namespaces,
    /// System group: the nodes.
    Nodes,
    /// System group: what the cluster was founded with.
    Cluster,
    /// One session and what it owns.
    Session(SessionId),
    /// A page of the sessions of a namespace, in order of opening.
    Sessions {
        /// Of which namespace.
        namespace: Namespace,
        /// Only sessions behind this one.
        after: Option<SessionId>,
        /// At most so many.
        limit: usize,
    },
    /// One stream.
    Stream(ObjectName),
    /// The streams of a namespace.
    Streams(Namespace),
    /// A page of the records of a stream.
    Records {
        /// Which stream.
        stream: ObjectName,
        /// Where to begin.
        from: ReadFrom,
        /// At most so many.
        limit: usize,
    },
}

/// Where reading a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// With the oldest record that is kept.
    Earliest,
    /// Behind the last record.
    Latest,
    /// At this offset, or at the oldest record that is kept if that is later.
    Offset(u64),
}

/// The nodes of a cluster, and what an operator wants of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodesView {
    /// The nodes, by id.
    pub nodes: Vec<NodeRecord>,
    /// Those that are drained.
    pub draining: BTreeSet<NodeId>,
    /// Who was chosen to lead which group.
    pub leaders: BTreeMap<GroupId, NodeId>,
    /// The id that the next node gets. A lower one that is not among the nodes was removed.
    pub next: u64,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The key, or nothing.
    Key(Option<KeyView>),
    /// Keys in order.
    Keys {
        /// The page.
        keys: Vec<KeyView>,
        /// Whether there are more behind it.
        more: bool,
    },
    /// The cache.
    Cache(CacheRecord),
    /// Caches by name.
    Caches(Vec<CacheRecord>),
    /// The home of the namespace, or nothing if the namespace does not exist yet.
    Home(Option<GroupId>),
    /// Namespaces with their homes.
    Namespaces(Vec<(Namespace, GroupId)>),
    /// The nodes.
    Nodes(NodesView),
    /// The cluster, or nothing before it is founded.
    Cluster(Option<ClusterView>),
    /// The session, or nothing.
    Session(Option<SessionView>),
    /// Sessions in order of opening, without what they own.
    Sessions {
        /// The page.
        sessions: Vec<SessionView>,
        /// Whether there are more behind it.
        more: bool,
    },
    /// It could not be read.
    Failed(Failure),
    /// The stream.
    Stream(StreamView),
    /// Streams by name.
    Streams(Vec<StreamRecord>),
    /// Records at consecutive offsets.
    Records {
        /// The page: a bounded number and size, but always at least one record if there is one.
        records: Vec<RecordView>,
        /// The first offset that can be read: of the stream, or behind the gap in which the page was to begin.
        first: u64,
        /// The offset that the next record gets.
        tail: u64,
        /// The stream's life.
        incarnation: Incarnation,
    },
}

/// A stream as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamView {
    /// Its record.
    pub record: StreamRecord,
    /// The first offset that can be read.
    pub first: u64,
    /// The offset that the next record gets.
    pub tail: u64,
    /// Bytes of the records that can be read.
    pub bytes: u64,
    /// The highest fencing token that was accepted.
    pub token: Option<u64>,
}

/// A record of a stream as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// Its offset.
    pub offset: u64,
    /// What was appended.
    pub data: Bytes,
    /// Cluster time of its append.
    pub time: Timestamp,
    /// The fencing token that its append carried.
    pub token: Option<u64>,
}

/// A key as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// Revision of its last write.
    pub version: u64,
    /// Revision of its creation, its fencing token.
    pub created: u64,
    /// The session that owns it.
    pub owner: Option<SessionId>,
    /// How long it lives if nobody renews it or its session.
    pub remaining: Option<Span>,
}

/// A session as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Its id.
    pub id: SessionId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its label.
    pub label: String,
    /// Its TTL.
    pub ttl: Option<Span>,
    /// How long it lives if nobody renews it.
    pub remaining: Option<Span>,
    /// How it ended, if it did: the reason and the revision, 0 if it has lapsed and its end is still to come.
    pub ended: Option<(EndReason, u64)>,
    /// How many keys it owns. One that has lapsed, or whose cache was deleted, counts until it is ended or swept.
    pub owned_count: u64,
    /// The keys among the first page of them that a reader sees, each with its cache.
    pub owned: Vec<(ObjectName, Bytes)>,
    /// Results it keeps for repeats.
    pub results_kept: u64,
}

/// The cluster as the system group knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// Its id.
    pub cluster: u128,
    /// Its number of home groups.
    pub home_groups: u32,
    /// Every revision below this one may have been handed out.
    pub floor: u64,
}
