//! Keys: values with a version, a fencing token, an owner and a TTL.
//!
//! The token of a key is `created`, the revision of its creation: renewal and later writes leave it, and the
//! next creation's is higher. `version` is for compare-and-set.

use bytes::Bytes;

use crate::command::Guard;
use crate::effect::{Change, ChangeKind, Effect};
use crate::ids::{Incarnation, ObjectName, SessionId, SessionRef};
use crate::keyspace::{self, KeyRow, KeyRowRef};
use crate::limits::{REFUSAL_VALUE_BYTES_MAX, SESSION_OWNED_MAX};
use crate::machine::Run;
use crate::machine::deadlines::Item;
use crate::refusal::{EndReason, Failure, Halt, KeyFacts, Missing, Refusal};
use crate::response::{Done, Removed};
use crate::session;
use crate::table::TableRead;
use crate::time::{Span, Timestamp};

pub(crate) mod counter;
pub(crate) mod prefix;

/// What a put writes; see [`Command::Put`](crate::command::Command::Put).
pub(crate) struct Put<'a> {
    pub(crate) cache: &'a ObjectName,
    pub(crate) key: &'a Bytes,
    pub(crate) value: &'a Bytes,
    pub(crate) ttl: Option<Span>,
    pub(crate) guard: Option<&'a Guard>,
    pub(crate) owner: Option<SessionRef>,
}

/// A key that a write replaces or removes, without its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Old {
    pub(crate) version: u64,
    pub(crate) created: u64,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) owner: Option<SessionId>,
    /// Bytes of its value.
    pub(crate) value_len: usize,
}

/// What a write makes of a key.
pub(crate) struct New {
    pub(crate) value: Bytes,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) owner: Option<SessionId>,
}

/// Writes a key. In order: the cache exists, the guard holds, the owner lives and may own one more.
pub(crate) fn put(run: &mut Run<'_>, put: &Put<'_>) -> Result<Done, Halt> {
    let incarnation = run.incarnation(put.cache)?;
    let old = meet(run, incarnation, put.key);
    if let Some(refusal) = check(run, old.as_ref(), put.guard) {
        return Err(refusal.into());
    }
    let old = old.as_ref().map(Old::from);
    let owner = match put.owner {
        Some(owner) => Some(may_own(run, owner, old.as_ref(), 0)?),
        None => None,
    };
    let version = run.consume_revision();
    let new = New {
        value: put.value.clone(),
        deadline: put.ttl.map(|ttl| run.now + ttl),
        owner,
    };
    let created = write(run, version, incarnation, put.key, old.as_ref(), new);
    Ok(Done::Put { version, created })
}

/// Deletes a key. Without a guard it succeeds also when there is none.
pub(crate) fn delete(run: &mut Run<'_>, cache: &ObjectName, key: &Bytes, guard: Option<&Guard>) -> Result<Done, Halt> {
    let incarnation = run.incarnation(cache)?;
    let old = meet(run, incarnation, key);
    if let Some(refusal) = check(run, old.as_ref(), guard) {
        return Err(refusal.into());
    }
    let removed = old.map(|old| Removed {
        revision: remove(run, incarnation, key, &Old::from(&old), EndReason::Delete),
        version: old.version,
    });
    Ok(Done::Deleted { removed })
}

/// Renews the TTL of a key. It never brings back one that has lapsed.
pub(crate) fn touch(
    run: &mut Run<'_>,
    cache: &ObjectName,
    key: &Bytes,
    ttl: Span,
    guard: Option<&Guard>,
) -> Result<Done, Halt> {
    let incarnation = run.incarnation(cache)?;
    let old = meet(run, incarnation, key);
    if let Some(refusal) = check(run, old.as_ref(), guard) {
        return Err(refusal.into());
    }
    let mut row = old.ok_or_else(|| Failure::NotFound {
        what: Missing::Key(key.clone()),
    })?;
    let deadline = Some(run.now + ttl);
    change_deadline(run, incarnation, key, row.deadline, deadline);
    row.deadline = deadline;
    keyspace::write(run.table, keyspace::key(incarnation, key), &row);
    Ok(Done::Touched {
        version: row.version,
        created: row.created,
    })
}

/// Ends a key whose own TTL is due. That of a deleted cache goes without an event.
pub(crate) fn expire(run: &mut Run<'_>, incarnation: Incarnation, key: &Bytes) {
    let row: KeyRow = keyspace::read(run.table, &keyspace::key(incarnation, key)).expect("what has a deadline exists");
    if !run.memory.sweeps.contains(&incarnation) {
        remove(run, incarnation, key, &Old::from(&row), EndReason::Expired);
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
pub(crate) fn meet(run: &mut Run<'_>, incarnation: Incarnation, key: &Bytes) -> Option<KeyRow> {
    let row: KeyRow = keyspace::read(run.table, &keyspace::key(incarnation, key))?;
    lives_on(run, incarnation, key, &Old::from(&row)).then_some(row)
}

/// The same without a copy of the value.
pub(crate) fn meet_old(run: &mut Run<'_>, incarnation: Incarnation, key: &Bytes) -> Option<Old> {
    let old = old(run.table, incarnation, key)?;
    lives_on(run, incarnation, key, &old).then_some(old)
}

/// The key as its row is, without its value.
pub(crate) fn old(table: &(impl TableRead + ?Sized), incarnation: Incarnation, key: &[u8]) -> Option<Old> {
    let row_key = keyspace::key(incarnation, key);
    let bytes = table.get(&row_key)?;
    let row: KeyRowRef<'_> = keyspace::decode(&row_key, &bytes);
    Some(Old {
        version: row.version,
        created: row.created,
        deadline: row.deadline,
        owner: row.owner,
        value_len: row.value.len(),
    })
}

/// Whether a key is still there for a command that meets it; else it has ended now.
fn lives_on(run: &mut Run<'_>, incarnation: Incarnation, key: &Bytes, old: &Old) -> bool {
    if old.deadline.is_some_and(|deadline| deadline.is_due_at(run.now)) {
        remove(run, incarnation, key, old, EndReason::Expired);
        return false;
    }
    old.owner.is_none_or(|owner| session::alive(run, owner).is_ok())
}

/// Whether a key, as a command meets it, fulfils a guard.
pub(crate) fn holds(row: Option<&KeyRow>, guard: &Guard) -> bool {
    match guard {
        Guard::Absent => row.is_none(),
        Guard::Present => row.is_some(),
        Guard::Version(version) => row.is_some_and(|row| row.version == *version),
        Guard::Value(value) => row.is_some_and(|row| row.value == *value),
        Guard::Created(created) => row.is_some_and(|row| row.created == *created),
    }
}

/// `None` if the guard holds, else what stood in the way.
fn check(run: &mut Run<'_>, row: Option<&KeyRow>, guard: Option<&Guard>) -> Option<Refusal> {
    if guard.is_none_or(|guard| holds(row, guard)) {
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

/// Whether this session may own the key from now on. `more` is how many it will own besides, by what is done in the
/// same step.
pub(crate) fn may_own(
    run: &mut Run<'_>,
    owner: SessionRef,
    old: Option<&Old>,
    more: i64,
) -> Result<SessionId, Failure> {
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
    if !owns_it && row.owned.saturating_add_signed(more) >= SESSION_OWNED_MAX as u64 {
        let which = "what a session may own".to_owned();
        return Err(Failure::Limit {
            which,
            value: SESSION_OWNED_MAX as u64,
        });
    }
    Ok(owner.id)
}

/// Writes a key under a revision, which becomes its version, tells so, and returns the key's token.
pub(crate) fn write(
    run: &mut Run<'_>,
    version: u64,
    incarnation: Incarnation,
    key: &Bytes,
    old: Option<&Old>,
    new: New,
) -> u64 {
    let New { value, deadline, owner } = new;
    change_owner(run, incarnation, key, old.and_then(|old| old.owner), owner);
    change_deadline(run, incarnation, key, old.and_then(|old| old.deadline), deadline);
    let created = old.map_or(version, |old| old.created);
    let row = KeyRow {
        value,
        version,
        created,
        deadline,
        owner,
    };
    keyspace::write(run.table, keyspace::key(incarnation, key), &row);
    run.effects.push(Effect::Changed(Change {
        revision: version,
        incarnation,
        key: key.clone(),
        kind: ChangeKind::Put {
            value: row.value,
            created,
            owner,
            ttl: deadline.map(|deadline| deadline.remaining_at(run.now)),
        },
        previous_version: old.map(|old| old.version),
    }));
    created
}

/// Removes a key under a revision of its own, which is returned, and tells so.
fn remove(run: &mut Run<'_>, incarnation: Incarnation, key: &Bytes, old: &Old, reason: EndReason) -> u64 {
    let revision = run.consume_revision();
    remove_at(run, revision, incarnation, key, old, reason);
    revision
}

/// Removes a key under a revision, and tells so.
pub(crate) fn remove_at(
    run: &mut Run<'_>,
    revision: u64,
    incarnation: Incarnation,
    key: &Bytes,
    old: &Old,
    reason: EndReason,
) {
    discard(run, incarnation, key, old.owner, old.deadline);
    run.effects.push(Effect::Changed(Change {
        revision,
        incarnation,
        key: key.clone(),
        kind: ChangeKind::Removed { reason },
        previous_version: Some(old.version),
    }));
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

impl From<&KeyRow> for Old {
    fn from(row: &KeyRow) -> Old {
        Old {
            version: row.version,
            created: row.created,
            deadline: row.deadline,
            owner: row.owner,
            value_len: row.value.len(),
        }
    }
}
