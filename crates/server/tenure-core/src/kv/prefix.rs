//! Deleting keys by prefix, a bounded number in one step.

use bytes::Bytes;

use super::Old;
use crate::ids::{Incarnation, ObjectName};
use crate::keyspace::{self, KeyRowRef};
use crate::kv;
use crate::limits::{PREFIX_DELETED_BYTES_MAX, PREFIX_DELETED_MAX};
use crate::machine::Run;
use crate::refusal::{EndReason, Failure};
use crate::response::Done;
use crate::session;
use crate::table::{Visit, prefix_end};

/// Removes the first keys that begin so, in order of bytes, under one revision. What has lapsed on the way ends first,
/// each under its own, and takes part of the room: a session is ended whole, so the step stops before one that does
/// not fit any more.
pub(crate) fn delete(run: &mut Run<'_>, cache: &ObjectName, prefix: &Bytes) -> Result<Done, Failure> {
    let incarnation = run.incarnation(cache)?;
    if run.prefix_deleted >= PREFIX_DELETED_MAX {
        // One entry holds very many commands; the caller goes on in a later one.
        return Ok(Done::PrefixDeleted {
            revision: None,
            removed: 0,
            more: true,
        });
    }
    let (keys, mut more) = first_keys(run, incarnation, prefix);
    let mut going: Vec<(Bytes, Old)> = Vec::new();
    let mut ended = 0;
    for key in keys {
        let lapsed = lapsed_with(run, incarnation, &key);
        let taken = ended + going.len();
        if taken > 0 && taken + lapsed.max(1) > PREFIX_DELETED_MAX {
            more = true;
            break;
        }
        ended += lapsed;
        if let Some(old) = kv::meet_old(run, incarnation, &key) {
            going.push((key, old));
        }
    }
    run.prefix_deleted += ended + going.len();
    let revision = (!going.is_empty()).then(|| run.consume_revision());
    if let Some(revision) = revision {
        for (key, old) in &going {
            kv::remove_at(run, revision, incarnation, key, old, EndReason::Delete);
        }
    }
    Ok(Done::PrefixDeleted {
        revision,
        removed: going.len() as u64,
        more,
    })
}

/// The first keys that begin so, within the bounds of a step, and whether there are more.
fn first_keys(run: &Run<'_>, incarnation: Incarnation, prefix: &[u8]) -> (Vec<Bytes>, bool) {
    let from = keyspace::key(incarnation, prefix);
    let to = prefix_end(&from).expect("a kind byte is below 255");
    let (mut keys, mut bytes, mut more) = (Vec::new(), 0, false);
    run.table.scan(&from, &to, &mut |row_key, value| {
        let row: KeyRowRef<'_> = keyspace::decode(row_key, value);
        bytes += row_key.len() - keyspace::KEY_AT + row.value.len();
        more = keys.len() == PREFIX_DELETED_MAX || (!keys.is_empty() && bytes > PREFIX_DELETED_BYTES_MAX);
        if more {
            return Visit::Break(());
        }
        keys.push(Bytes::copy_from_slice(&row_key[keyspace::KEY_AT..]));
        Visit::Continue(())
    });
    (keys, more)
}

/// How much ends when this key is met because it has lapsed, or its session has: nothing if it lives.
fn lapsed_with(run: &mut Run<'_>, incarnation: Incarnation, key: &[u8]) -> usize {
    let now = run.now;
    let Some(old) = kv::old(run.table, incarnation, key) else {
        return 0;
    };
    if old.deadline.is_some_and(|deadline| deadline.is_due_at(now)) {
        return 1;
    }
    match old.owner {
        Some(owner) if session::has_lapsed(run, owner) => 1 + session::owned_count(run, owner),
        _ => 0,
    }
}
