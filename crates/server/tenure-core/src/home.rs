//! Object records of a home group: which caches there are, and which life of each. Data lies under the
//! incarnation, so a cache that is created again under its old name starts empty at once; the rows of the old
//! life are swept in bounded steps.

use bytes::Bytes;

use crate::command::CacheSettings;
use crate::effect::Effect;
use crate::ids::{Incarnation, ObjectName, SessionId};
use crate::keyspace::{self, KeyRowRef};
use crate::kv;
use crate::limits::OBJECTS_PER_NAMESPACE_MAX;
use crate::machine::Run;
use crate::refusal::{Failure, Missing, Refusal};
use crate::response::{CacheRecord, Done, Response};
use crate::table::{TableRead, Visit, prefix_end};
use crate::time::Timestamp;

/// Creates a cache. The same settings again succeed, others are refused.
pub(crate) fn create_cache(run: &mut Run<'_>, name: &ObjectName, settings: &CacheSettings) -> Response {
    if let Some(record) = keyspace::read::<CacheRecord>(run.table, &keyspace::cache(name)) {
        if record.settings != *settings {
            return Response::Refused(Refusal::ExistsOtherwise(record));
        }
        return Response::Done(Done::CacheCreated { record, existed: true });
    }
    if count_caches(run.table, name) >= OBJECTS_PER_NAMESPACE_MAX {
        let which = "caches and streams of a namespace".to_owned();
        return Response::Failed(Failure::Limit {
            which,
            value: OBJECTS_PER_NAMESPACE_MAX as u64,
        });
    }
    let incarnation = Incarnation(run.consume_revision());
    let record = CacheRecord {
        name: name.clone(),
        settings: settings.clone(),
        incarnation,
    };
    keyspace::write(run.table, keyspace::cache(name), &record);
    keyspace::write(run.table, keyspace::live(incarnation), name);
    run.memory.caches.insert(name.clone(), incarnation);
    Response::Done(Done::CacheCreated { record, existed: false })
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

/// Removes at most `budget` rows of deleted caches, the oldest life first. The note that a life is to be swept
/// counts as a row.
pub(crate) fn sweep(run: &mut Run<'_>, budget: usize) {
    let mut left = budget;
    while left > 0
        && let Some(incarnation) = run.memory.sweeps.first().copied()
    {
        let rows = rows_of(run.table, incarnation, left);
        left -= rows.len();
        for (key, owner, deadline) in &rows {
            kv::discard(run, incarnation, key, *owner, *deadline);
        }
        if left > 0 {
            left -= 1;
            run.memory.sweeps.remove(&incarnation);
            run.table.delete(&keyspace::sweep(incarnation));
        }
    }
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

fn count_caches(table: &(impl TableRead + ?Sized), name: &ObjectName) -> usize {
    let from = keyspace::caches_of(&name.namespace);
    let to = prefix_end(&from).expect("a kind byte is below 255");
    let mut count = 0;
    table.scan(&from, &to, &mut |_, _| {
        count += 1;
        Visit::Continue(())
    });
    count
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
