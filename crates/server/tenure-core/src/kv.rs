//! Keys: values with a version, a fencing token, an owner and a TTL.
//!
//! The token of a key is `created`, the revision of its creation: renewal and later writes leave it, and the
//! next creation's is higher. `version` is for compare-and-set.

use bytes::Bytes;

use crate::command::{Command, Guard};
use crate::effect::{Change, ChangeKind, Effect};
use crate::ids::{Incarnation, ObjectName, SessionId, SessionRef};
use crate::keyspace::{self, KeyRow};
use crate::limits::{REFUSAL_VALUE_BYTES_MAX, SESSION_OWNED_MAX};
use crate::machine::Run;
use crate::machine::deadlines::Item;
use crate::refusal::{EndReason, Failure, KeyFacts, Missing, Refusal};
use crate::response::{Done, Removed, Response};
use crate::session;
use crate::table::TableRead;
use crate::time::{Span, Timestamp};

/// Writes a key. In order: the cache exists, the guard holds, the owner lives and may own one more.
pub(crate) fn put(run: &mut Run<'_>, command: &Command) -> Result<Response, Failure> {
    let Command::Put {
        cache,
        key,
        value,
        ttl,
        guard,
        owner,
    } = command
    else {
        unreachable!("the machine hands over only this command");
    };
    let incarnation = run.incarnation(cache)?;
    let old = meet(run, incarnation, key);
    if let Some(refusal) = check(run, old.as_ref(), guard.as_ref()) {
        return Ok(Response::Refused(refusal));
    }
    let owner = match owner {
        Some(owner) => Some(may_own(run, *owner, old.as_ref())?),
        None => None,
    };
    let version = run.consume_revision();
    let row = KeyRow {
        value: value.clone(),
        version,
        created: old.as_ref().map_or(version, |old| old.created),
        deadline: ttl.map(|ttl| run.now + ttl),
        owner,
    };
    change_owner(run, incarnation, key, old.as_ref().and_then(|old| old.owner), owner);
    change_deadline(
        run,
        incarnation,
        key,
        old.as_ref().and_then(|old| old.deadline),
        row.deadline,
    );
    keyspace::write(run.table, keyspace::key(incarnation, key), &row);
    run.effects.push(Effect::Changed(Change {
        revision: version,
        incarnation,
        key: key.clone(),
        kind: ChangeKind::Put {
            value: row.value,
            created: row.created,
            owner,
            ttl: *ttl,
        },
        previous_version: old.map(|old| old.version),
    }));
    Ok(Response::Done(Done::Put {
        version,
        created: row.created,
    }))
}

/// Deletes a key. Without a guard it succeeds also when there is none.
pub(crate) fn delete(
    run: &mut Run<'_>,
    cache: &ObjectName,
    key: &Bytes,
    guard: Option<&Guard>,
) -> Result<Response, Failure> {
    let incarnation = run.incarnation(cache)?;
    let old = meet(run, incarnation, key);
    if let Some(refusal) = check(run, old.as_ref(), guard) {
        return Ok(Response::Refused(refusal));
    }
    let removed = old.map(|old| Removed {
        revision: remove(run, incarnation, key, &old, EndReason::Delete),
        version: old.version,
    });
    Ok(Response::Done(Done::Deleted { removed }))
}

/// Renews the TTL of a key. It never brings back one that has lapsed.
pub(crate) fn touch(
    run: &mut Run<'_>,
    cache: &ObjectName,
    key: &Bytes,
    ttl: Span,
    guard: Option<&Guard>,
) -> Result<Response, Failure> {
    let incarnation = run.incarnation(cache)?;
    let old = meet(run, incarnation, key);
    if let Some(refusal) = check(run, old.as_ref(), guard) {
        return Ok(Response::Refused(refusal));
    }
    let mut row = old.ok_or_else(|| Failure::NotFound {
        what: Missing::Key(key.clone()),
    })?;
    let deadline = Some(run.now + ttl);
    change_deadline(run, incarnation, key, row.deadline, deadline);
    row.deadline = deadline;
    keyspace::write(run.table, keyspace::key(incarnation, key), &row);
    Ok(Response::Done(Done::Touched {
        version: row.version,
        created: row.created,
    }))
}

/// Ends a key whose own TTL is due. That of a deleted cache goes without an event.
pub(crate) fn expire(run: &mut Run<'_>, incarnation: Incarnation, key: &Bytes) {
    let row: KeyRow = keyspace::read(run.table, &keyspace::key(incarnation, key)).expect("what has a deadline exists");
    if run.table.get(&keyspace::live(incarnation)).is_some() {
        remove(run, incarnation, key, &row, EndReason::Expired);
    } else {
        discard(run, incarnation, key, row.owner, row.deadline);
    }
}

/// Removes a key without a revision and without an event.
pub(crate) fn discard(
    run: &mut Run<'_>,
    incarnation: Incarnation,
    key: &Bytes,
    owner: Option<SessionId>,
    deadline: Option<Timestamp>,
) {
    change_owner(run, incarnation, key, owner, None);
    change_deadline(run, incarnation, key, deadline, None);
    run.table.delete(&keyspace::key(incarnation, key));
}

/// How long a key of this creation lives from now: `None` if nothing ends it, nothing if it is gone.
pub(crate) fn remaining_of(run: &mut Run<'_>, cache: &ObjectName, key: &Bytes, created: u64) -> Option<Span> {
    let row = run
        .incarnation(cache)
        .ok()
        .and_then(|incarnation| keyspace::read::<KeyRow>(run.table, &keyspace::key(incarnation, key)))
        .filter(|row| row.created == created);
    match row {
        Some(row) => remaining_in(run, &row),
        None => Some(Span(0)),
    }
}

fn remaining_in(run: &mut Run<'_>, row: &KeyRow) -> Option<Span> {
    remaining(row, run.now, |owner| session::remaining_in(run, owner))
}

/// How long a key lives from `now`: the earlier of its own end and its session's.
pub(crate) fn remaining(
    row: &KeyRow,
    now: Timestamp,
    of_session: impl FnOnce(SessionId) -> Option<Span>,
) -> Option<Span> {
    let own = row.deadline.map(|deadline| deadline.remaining_at(now));
    let by_session = row.owner.and_then(of_session);
    match (own, by_session) {
        (Some(own), Some(by_session)) => Some(own.min(by_session)),
        (remaining, None) | (None, remaining) => remaining,
    }
}

/// Whether a key has lapsed at `now`, reached or not.
pub(crate) fn has_lapsed(table: &(impl TableRead + ?Sized), row: &KeyRow, now: Timestamp) -> bool {
    let own = row.deadline.is_some_and(|deadline| deadline.is_due_at(now));
    own || row
        .owner
        .and_then(|owner| session::load(table, owner))
        .is_some_and(|session| session.ended.is_none() && session.deadline.is_due_at(now))
}

/// The key as a command meets it: a lapsed session or key that was not reached yet ends first.
fn meet(run: &mut Run<'_>, incarnation: Incarnation, key: &Bytes) -> Option<KeyRow> {
    let row: KeyRow = keyspace::read(run.table, &keyspace::key(incarnation, key))?;
    if row.deadline.is_some_and(|deadline| deadline.is_due_at(run.now)) {
        remove(run, incarnation, key, &row, EndReason::Expired);
        return None;
    }
    if let Some(owner) = row.owner
        && session::alive(run, owner).is_err()
    {
        return None;
    }
    Some(row)
}

/// `None` if the guard holds, else what stood in the way.
fn check(run: &mut Run<'_>, row: Option<&KeyRow>, guard: Option<&Guard>) -> Option<Refusal> {
    let holds = match (guard, row) {
        (None, _) => true,
        (Some(Guard::Absent), row) => row.is_none(),
        (Some(Guard::Present), row) => row.is_some(),
        (Some(Guard::Version(version)), row) => row.is_some_and(|row| row.version == *version),
        (Some(Guard::Value(value)), row) => row.is_some_and(|row| row.value == *value),
        (Some(Guard::Created(created)), row) => row.is_some_and(|row| row.created == *created),
    };
    if holds {
        None
    } else {
        Some(Refusal::ConditionFailed(row.map(|row| facts(run, row))))
    }
}

fn facts(run: &mut Run<'_>, row: &KeyRow) -> KeyFacts {
    KeyFacts {
        version: row.version,
        created: row.created,
        holder: row.owner,
        remaining: remaining_in(run, row),
        value: (row.value.len() <= REFUSAL_VALUE_BYTES_MAX).then(|| row.value.clone()),
        value_len: row.value.len() as u64,
    }
}

/// Whether this session may own the key from now on.
fn may_own(run: &mut Run<'_>, owner: SessionRef, old: Option<&KeyRow>) -> Result<SessionId, Failure> {
    let row = session::alive_by_name(run, owner.id)?;
    if row.secret != owner.secret {
        return Err(Failure::WrongSecret { session: owner.id });
    }
    if row.ttl.is_none() {
        let rule = "a session without a TTL can own nothing".to_owned();
        return Err(Failure::Invalid {
            field: "owner".to_owned(),
            rule,
        });
    }
    let owns_it = old.is_some_and(|old| old.owner == Some(owner.id));
    if !owns_it && row.owned >= SESSION_OWNED_MAX as u64 {
        let which = "what a session may own".to_owned();
        return Err(Failure::Limit {
            which,
            value: SESSION_OWNED_MAX as u64,
        });
    }
    Ok(owner.id)
}

/// Removes a key under a revision of its own, which is returned, and tells so.
fn remove(run: &mut Run<'_>, incarnation: Incarnation, key: &Bytes, row: &KeyRow, reason: EndReason) -> u64 {
    let revision = run.consume_revision();
    discard(run, incarnation, key, row.owner, row.deadline);
    run.effects.push(Effect::Changed(Change {
        revision,
        incarnation,
        key: key.clone(),
        kind: ChangeKind::Removed { reason },
        previous_version: Some(row.version),
    }));
    revision
}

fn change_owner(
    run: &mut Run<'_>,
    incarnation: Incarnation,
    key: &Bytes,
    from: Option<SessionId>,
    to: Option<SessionId>,
) {
    if from == to {
        return;
    }
    if let Some(from) = from {
        run.table.delete(&keyspace::owned(from, incarnation, key));
        count_owned(run, from, |owned| owned - 1);
    }
    if let Some(to) = to {
        run.table.put(keyspace::owned(to, incarnation, key), Bytes::new());
        count_owned(run, to, |owned| owned + 1);
    }
}

fn count_owned(run: &mut Run<'_>, id: SessionId, change: fn(u64) -> u64) {
    let row = run.session_mut(id).expect("an owner is known");
    row.owned = change(row.owned);
}

fn change_deadline(
    run: &mut Run<'_>,
    incarnation: Incarnation,
    key: &Bytes,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
) {
    if from == to {
        return;
    }
    if let Some(from) = from {
        run.memory.deadlines.remove(from, Item::Key(incarnation, key.clone()));
    }
    if let Some(to) = to {
        run.memory.deadlines.insert(to, Item::Key(incarnation, key.clone()));
    }
}
