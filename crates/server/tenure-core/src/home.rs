//! Object records of a home group: which caches and streams there are, and which life of each. Data lies under the
//! incarnation, so an object that is created again under its old name starts empty at once; the rows of the old
//! life are swept in bounded steps.

use bytes::Bytes;

use crate::command::{CacheSettings, StreamSettings};
use crate::effect::Effect;
use crate::ids::{Incarnation, Namespace, ObjectName, SessionId};
use crate::keyspace::{self, HeadRow, KeyRowRef};
use crate::kv;
use crate::limits::OBJECTS_PER_NAMESPACE_MAX;
use crate::machine::Run;
use crate::refusal::{Failure, Halt, Missing, Refusal};
use crate::response::{CacheRecord, Done, StreamRecord};
use crate::stream::Stream;
use crate::table::{TableRead, Visit, prefix_end};
use crate::time::Timestamp;

/// Creates a cache. The same settings again succeed, others are refused.
pub(crate) fn create_cache(run: &mut Run<'_>, name: &ObjectName, settings: &CacheSettings) -> Result<Done, Halt> {
    if let Some(record) = keyspace::read::<CacheRecord>(run.table, &keyspace::cache(name)) {
        if record.settings != *settings {
            return Err(Refusal::ExistsOtherwise(record).into());
        }
        return Ok(Done::CacheCreated { record, existed: true });
    }
    may_have_one_more(run.table, &name.namespace)?;
    let incarnation = Incarnation(run.consume_revision());
    let record = CacheRecord {
        name: name.clone(),
        settings: settings.clone(),
        incarnation,
    };
    keyspace::write(run.table, keyspace::cache(name), &record);
    keyspace::write(run.table, keyspace::live(incarnation), name);
    run.memory.caches.insert(name.clone(), incarnation);
    Ok(Done::CacheCreated { record, existed: false })
}

/// Deletes a cache. Its rows are unreachable from this step on; its watches are told.
pub(crate) fn delete_cache(run: &mut Run<'_>, name: &ObjectName) -> Result<Done, Failure> {
    let incarnation = run.incarnation(name)?;
    let revision = run.consume_revision();
    run.memory.caches.remove(name);
    run.table.delete(&keyspace::cache(name));
    run.table.delete(&keyspace::live(incarnation));
    run.table.put(keyspace::sweep(incarnation), Bytes::new());
    run.memory.sweeps.insert(incarnation);
    run.effects.push(Effect::ObjectDeleted { incarnation, revision });
    Ok(Done::CacheDeleted { revision })
}

/// Creates a stream. The same settings again succeed, others are refused.
pub(crate) fn create_stream(run: &mut Run<'_>, name: &ObjectName, settings: &StreamSettings) -> Result<Done, Halt> {
    if let Some(record) = keyspace::read::<StreamRecord>(run.table, &keyspace::stream(name)) {
        if record.settings != *settings {
            return Err(Refusal::StreamExistsOtherwise(record).into());
        }
        return Ok(Done::StreamCreated { record, existed: true });
    }
    settings.check()?;
    may_have_one_more(run.table, &name.namespace)?;
    let incarnation = Incarnation(run.consume_revision());
    let record = StreamRecord {
        name: name.clone(),
        settings: *settings,
        incarnation,
    };
    let head = HeadRow {
        settings: *settings,
        first: 0,
        tail: 0,
        swept: 0,
        bytes_written: 0,
        bytes_gone: 0,
        first_bytes: 0,
        first_time: Timestamp(0),
        token: None,
        ids: 0,
        ids_until: None,
    };
    keyspace::write(run.table, keyspace::stream(name), &record);
    keyspace::write(run.table, keyspace::head(incarnation), &head);
    run.memory.streams.insert(name.clone(), incarnation);
    Ok(Done::StreamCreated { record, existed: false })
}

/// Deletes a stream. Its rows are unreachable from this step on; whoever follows it is told.
pub(crate) fn delete_stream(run: &mut Run<'_>, name: &ObjectName) -> Result<Done, Failure> {
    let incarnation = run.stream(name)?;
    let revision = run.consume_revision();
    run.memory.streams.remove(name);
    run.table.delete(&keyspace::stream(name));
    Stream::load(run.table, incarnation).forget(run);
    run.table.put(keyspace::sweep(incarnation), Bytes::new());
    run.memory.sweeps.insert(incarnation);
    run.effects.push(Effect::ObjectDeleted { incarnation, revision });
    Ok(Done::StreamDeleted { revision })
}

/// Removes at most `budget` rows of deleted caches and streams, the oldest life first, and says how many. The note
/// that a life is to be swept counts as a row.
pub(crate) fn sweep(run: &mut Run<'_>, budget: usize) -> usize {
    let mut left = budget;
    while left > 0
        && let Some(incarnation) = run.memory.sweeps.first().copied()
    {
        let rows = rows_of(run.table, incarnation, left);
        left -= rows.len();
        for (key, owner, deadline) in &rows {
            kv::discard(run, incarnation, key, *owner, *deadline);
        }
        for rows_of_stream in [
            keyspace::records_of(incarnation),
            keyspace::message_ids_of(incarnation),
            keyspace::id_ends_of(incarnation),
        ] {
            left -= delete_rows(run, &rows_of_stream, left);
        }
        if left > 0 {
            left -= 1;
            run.memory.sweeps.remove(&incarnation);
            run.table.delete(&keyspace::sweep(incarnation));
        }
    }
    budget - left
}

/// The life of a cache that exists.
pub(crate) fn incarnation(table: &(impl TableRead + ?Sized), name: &ObjectName) -> Result<Incarnation, Failure> {
    cache(table, name).map(|record| record.incarnation)
}

/// The record of a cache that exists.
pub(crate) fn cache(table: &(impl TableRead + ?Sized), name: &ObjectName) -> Result<CacheRecord, Failure> {
    keyspace::read(table, &keyspace::cache(name)).ok_or_else(|| Failure::NotFound {
        what: Missing::Cache(name.clone()),
    })
}

/// The record of a stream that exists.
pub(crate) fn stream(table: &(impl TableRead + ?Sized), name: &ObjectName) -> Result<StreamRecord, Failure> {
    keyspace::read(table, &keyspace::stream(name)).ok_or_else(|| Failure::NotFound {
        what: Missing::Stream(name.clone()),
    })
}

/// Whether a namespace may have one more cache or stream.
fn may_have_one_more(table: &(impl TableRead + ?Sized), namespace: &Namespace) -> Result<(), Failure> {
    let mut count = 0;
    for from in [keyspace::caches_of(namespace), keyspace::streams_of(namespace)] {
        let to = prefix_end(&from).expect("a kind byte is below 255");
        table.scan(&from, &to, &mut |_, _| {
            count += 1;
            Visit::Continue(())
        });
    }
    Failure::unless_within(
        "caches and streams of a namespace",
        count + 1,
        OBJECTS_PER_NAMESPACE_MAX,
    )
}

/// Deletes the first rows that begin so, at most so many, and says how many.
fn delete_rows(run: &mut Run<'_>, prefix: &[u8], at_most: usize) -> usize {
    let to = prefix_end(prefix).expect("a kind byte is below 255");
    let mut keys = Vec::new();
    run.table.scan(prefix, &to, &mut |key, _| {
        if keys.len() == at_most {
            return Visit::Break(());
        }
        keys.push(key.to_vec());
        Visit::Continue(())
    });
    for key in &keys {
        run.table.delete(key);
    }
    keys.len()
}

/// The first rows of a life, without their values, which would be far too much to hold at once.
fn rows_of(
    table: &(impl TableRead + ?Sized),
    incarnation: Incarnation,
    limit: usize,
) -> Vec<(Bytes, Option<SessionId>, Option<Timestamp>)> {
    let from = keyspace::keys_of(incarnation);
    let to = prefix_end(&from).expect("a kind byte is below 255");
    let mut rows = Vec::new();
    table.scan(&from, &to, &mut |key, value| {
        if rows.len() == limit {
            return Visit::Break(());
        }
        let row: KeyRowRef<'_> = keyspace::decode(key, value);
        rows.push((Bytes::copy_from_slice(&key[9..]), row.owner, row.deadline));
        Visit::Continue(())
    });
    rows
}
