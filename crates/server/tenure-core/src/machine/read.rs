//! Reads, and rebuilding from the table what memory holds. A read of keys and sessions never sees what is due at the
//! applied time; records of a stream are kept at least as long as they are to be, and may be read a little longer.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Memory;
use super::deadlines::Item;
use crate::command::NodeRecord;
use crate::ids::{GroupId, Incarnation, Namespace, NodeId, ObjectName, OneShotId, SessionId};
use crate::keyspace::{self, ClusterRow, HeadRow, KeyRow, KeyRowRef, LAPSED, OneShotRow, SessionRow};
use crate::limits::{NAME_BYTES_MAX, PAGE_BYTES_MAX, PAGE_ROWS_MAX};
use crate::query::{ClusterView, Found, KeyView, NodesView, Query, SessionView};
use crate::refusal::Failure;
use crate::response::{CacheRecord, StreamRecord};
use crate::stream::Gaps;
use crate::table::{TableRead, Visit, prefix_end};
use crate::{home, kv, session, stream};

mod streams;

/// What the name of a cache adds at most to a key that is shown with it.
const OWNED_NAME_BYTES: usize = 3 * NAME_BYTES_MAX;

/// Rebuilds what memory holds. Visits every row that has a deadline once.
pub(super) fn rebuild(table: &dyn TableRead) -> Memory {
    let mut memory = Memory {
        time: keyspace::read(table, keyspace::TIME).unwrap_or_default(),
        revisions: keyspace::read(table, keyspace::REVISIONS).unwrap_or_default(),
        gaps: Gaps::load(table),
        ..Memory::default()
    };
    each(table, b"C", &mut |key, value| {
        let record: CacheRecord = keyspace::decode(key, value);
        memory.caches.insert(record.name, record.incarnation);
    });
    each(table, b"A", &mut |key, value| {
        let record: StreamRecord = keyspace::decode(key, value);
        memory.streams.insert(record.name, record.incarnation);
    });
    each(table, b"H", &mut |key, value| {
        let head: HeadRow = keyspace::decode(key, value);
        let incarnation = Incarnation(keyspace::number_in(key));
        if let Some(due) = stream::due(&head) {
            memory.deadlines.insert(due, Item::Stream(incarnation));
        }
        if stream::is_to_be_shortened(&head) {
            memory.shortening.insert(incarnation);
        }
    });
    each(table, b"W", &mut |key, _| {
        memory.sweeps.insert(Incarnation(keyspace::number_in(key)));
    });
    each(table, b"K", &mut |key, value| {
        let row: KeyRowRef<'_> = keyspace::decode(key, value);
        if let Some(deadline) = row.deadline {
            let incarnation = Incarnation(keyspace::number_in(key));
            memory
                .deadlines
                .insert(deadline, Item::Key(incarnation, Bytes::copy_from_slice(&key[9..])));
        }
    });
    each(table, b"S", &mut |key, value| {
        let row: SessionRow = keyspace::decode(key, value);
        let id = SessionId(keyspace::number_in(key));
        let item = if row.ended.is_some() {
            Item::EndedSession(id)
        } else {
            Item::Session(id)
        };
        memory.deadlines.insert(row.deadline, item);
        memory.sessions += 1;
    });
    each(table, b"Q", &mut |key, value| {
        let session = SessionId(keyspace::number_in(key));
        memory.kept.insert((session, keyspace::number_at(key, 9)), value.len());
    });
    each(table, b"X", &mut |key, value| {
        let row: OneShotRow = keyspace::decode(key, value);
        memory
            .deadlines
            .insert(row.not_after, Item::OneShot(OneShotId(keyspace::wide_in(key))));
        memory.one_shots += 1;
        memory.one_shot_bytes += value.len();
    });
    memory
}

/// Answers a read.
pub(super) fn query(table: &dyn TableRead, memory: &Memory, query: &Query) -> Found {
    let found = match query {
        Query::Get { cache, key } => get(table, memory, cache, key).map(Found::Key),
        Query::List {
            cache,
            prefix,
            after,
            limit,
        } => list(table, memory, cache, prefix, after.as_ref(), *limit),
        Query::Cache(name) => home::cache(table, name).map(Found::Cache),
        Query::Caches(namespace) => Ok(Found::Caches(all(table, &keyspace::caches_of(namespace)))),
        Query::Home(namespace) => Ok(Found::Home(keyspace::read(table, &keyspace::home(namespace)))),
        Query::Namespaces => Ok(Found::Namespaces(namespaces(table))),
        Query::Nodes => Ok(Found::Nodes(nodes(table))),
        Query::Cluster => Ok(Found::Cluster(cluster(table))),
        Query::Session(id) => Ok(Found::Session(session_view(table, memory, *id, true))),
        Query::Sessions {
            namespace,
            after,
            limit,
        } => Ok(sessions(table, memory, namespace, *after, *limit)),
        Query::Stream(name) => streams::stream(table, name).map(Found::Stream),
        Query::Streams(namespace) => Ok(Found::Streams(all(table, &keyspace::streams_of(namespace)))),
        Query::Records { stream, from, limit } => streams::records(table, &memory.gaps, stream, *from, *limit),
    };
    found.unwrap_or_else(Found::Failed)
}

fn get(table: &dyn TableRead, memory: &Memory, cache: &ObjectName, key: &Bytes) -> Result<Option<KeyView>, Failure> {
    let incarnation = home::incarnation(table, cache)?;
    let row: Option<KeyRow> = keyspace::read(table, &keyspace::key(incarnation, key));
    Ok(row.and_then(|row| key_view(table, memory, key.clone(), row)))
}

fn list(
    table: &dyn TableRead,
    memory: &Memory,
    cache: &ObjectName,
    prefix: &Bytes,
    after: Option<&Bytes>,
    limit: usize,
) -> Result<Found, Failure> {
    let incarnation = home::incarnation(table, cache)?;
    let start = keyspace::key(incarnation, prefix);
    let end = prefix_end(&start).expect("a kind byte is below 255");
    let from = match after {
        Some(after) => {
            let mut behind = keyspace::key(incarnation, after);
            behind.push(0);
            behind.max(start)
        }
        None => start,
    };
    let limit = limit.clamp(1, PAGE_ROWS_MAX);
    let (mut keys, mut bytes, mut more) = (Vec::new(), 0, false);
    table.scan(&from, &end, &mut |row_key, value| {
        if keys.len() == limit || (bytes > 0 && bytes + value.len() > PAGE_BYTES_MAX) {
            more = true;
            return Visit::Break(());
        }
        let key = Bytes::copy_from_slice(&row_key[9..]);
        if let Some(view) = key_view(table, memory, key, keyspace::decode(row_key, value)) {
            bytes += value.len() + view.key.len();
            keys.push(view);
        }
        Visit::Continue(())
    });
    Ok(Found::Keys { keys, more })
}

fn key_view(table: &dyn TableRead, memory: &Memory, key: Bytes, row: KeyRow) -> Option<KeyView> {
    if kv::has_lapsed(table, &row, memory.time) {
        return None;
    }
    let remaining = kv::remaining(&row, memory.time, |owner| {
        session::remaining_of(table, owner, memory.time)
    });
    let KeyRow {
        value,
        version,
        created,
        owner,
        ..
    } = row;
    Some(KeyView {
        key,
        value,
        version,
        created,
        owner,
        remaining,
    })
}

fn session_view(table: &dyn TableRead, memory: &Memory, id: SessionId, with_owned: bool) -> Option<SessionView> {
    let row = session::load(table, id)?;
    let lapsed = row.ended.is_none() && row.deadline.is_due_at(memory.time);
    let ended = match row.ended {
        Some(ended) => Some((ended.reason, ended.revision)),
        // It has ended for every reader, and takes its revision with the entry that reaches it.
        None => lapsed.then_some((LAPSED.reason, LAPSED.revision)),
    };
    let owned = if with_owned && ended.is_none() {
        session::owned(table, id, PAGE_ROWS_MAX)
    } else {
        Vec::new()
    };
    let mut bytes = 0;
    let fits = move |(_, key): &(Incarnation, Bytes)| {
        bytes += key.len() + OWNED_NAME_BYTES;
        bytes <= PAGE_BYTES_MAX
    };
    let named = owned.into_iter().take_while(fits).filter_map(|(incarnation, key)| {
        let name: ObjectName = keyspace::read(table, &keyspace::live(incarnation))?;
        let row_key = keyspace::key(incarnation, &key);
        let row = table.get(&row_key)?;
        let row: KeyRowRef<'_> = keyspace::decode(&row_key, &row);
        let has_lapsed = row.deadline.is_some_and(|deadline| deadline.is_due_at(memory.time));
        (!has_lapsed).then_some((name, key))
    });
    let open = ended.is_none();
    Some(SessionView {
        id,
        namespace: row.namespace,
        label: row.label,
        ttl: row.ttl,
        remaining: row.ttl.filter(|_| open).map(|_| row.deadline.remaining_at(memory.time)),
        ended,
        owned_count: if open { row.owned } else { 0 },
        owned: named.collect(),
        results_kept: row.kept,
    })
}

fn sessions(
    table: &dyn TableRead,
    memory: &Memory,
    namespace: &Namespace,
    after: Option<SessionId>,
    limit: usize,
) -> Found {
    let start = keyspace::sessions_of(namespace);
    let end = prefix_end(&start).expect("a kind byte is below 255");
    let number_at = start.len();
    let from = match after {
        Some(after) => keyspace::session_of(namespace, SessionId(after.0.saturating_add(1))),
        None => start,
    };
    let limit = limit.clamp(1, PAGE_ROWS_MAX);
    let (mut found, mut more) = (Vec::new(), false);
    table.scan(&from, &end, &mut |key, _| {
        if found.len() == limit {
            more = true;
            return Visit::Break(());
        }
        let id = SessionId(keyspace::number_at(key, number_at));
        found.extend(session_view(table, memory, id, false));
        Visit::Continue(())
    });
    Found::Sessions { sessions: found, more }
}

fn namespaces(table: &dyn TableRead) -> Vec<(Namespace, GroupId)> {
    let mut found = Vec::new();
    each(table, b"s", &mut |key, value| {
        let mut names = key[1..]
            .split(|byte| *byte == 0)
            .map(|name| String::from_utf8_lossy(name).into_owned());
        if let (Some(tenant), Some(name)) = (names.next(), names.next()) {
            found.push((Namespace { tenant, name }, keyspace::decode(key, value)));
        }
    });
    found
}

fn cluster(table: &dyn TableRead) -> Option<ClusterView> {
    let row: ClusterRow = keyspace::read(table, keyspace::CLUSTER)?;
    Some(ClusterView {
        cluster: row.cluster,
        home_groups: row.home_groups,
        floor: row.floor,
    })
}

fn nodes(table: &dyn TableRead) -> NodesView {
    let (mut draining, mut leaders) = (BTreeSet::new(), BTreeMap::new());
    each(table, b"d", &mut |key, _| {
        draining.insert(NodeId(keyspace::number_in(key)));
    });
    each(table, b"l", &mut |key, value| {
        if let Ok(group) = u32::try_from(keyspace::number_in(key)) {
            leaders.insert(GroupId(group), keyspace::decode(key, value));
        }
    });
    NodesView {
        nodes: all::<NodeRecord>(table, b"n"),
        draining,
        leaders,
        next: keyspace::read::<ClusterRow>(table, keyspace::CLUSTER).map_or(0, |row| row.next_node),
    }
}

fn all<T: serde::de::DeserializeOwned>(table: &dyn TableRead, prefix: &[u8]) -> Vec<T> {
    let mut found = Vec::new();
    each(table, prefix, &mut |key, value| {
        found.push(keyspace::decode(key, value))
    });
    found
}

fn each(table: &dyn TableRead, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes)) {
    let end = prefix_end(prefix).expect("a kind byte is below 255");
    table.scan(prefix, &end, &mut |key, value| {
        visit(key, value);
        Visit::Continue(())
    });
}
