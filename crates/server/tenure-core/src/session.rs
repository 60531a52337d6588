//! Sessions: a client's identity and liveness in one group. What etcd calls a lease is a session here.
//!
//! Ending is not forgetting: when a TTL ends or a session is closed, what it owns is removed in that step, but
//! its remembered results go on answering repeats for [`SESSION_RESULTS_KEPT`]. Only new requests are refused.

use bytes::Bytes;

use crate::effect::{Change, ChangeKind, Effect};
use crate::ids::{Incarnation, Namespace, Nonce, Secret, SessionId, SessionRef};
use crate::keyspace::{self, Ended, KeyRowRef, LAPSED, SessionRow};
use crate::limits::{IDENTITY_SESSION_IDLE, SESSION_RESULTS_KEPT, SESSIONS_MAX};
use crate::machine::Run;
use crate::machine::deadlines::Item;
use crate::refusal::{EndReason, Failure, Missing};
use crate::response::{Done, KeptAlive};
use crate::table::{TableRead, Visit, prefix_end};
use crate::time::{Span, Timestamp};

pub(crate) mod requests;
pub(crate) mod rows;

/// What a session is opened with; see [`Command::OpenSession`](crate::command::Command::OpenSession).
pub(crate) struct Opening<'a> {
    pub(crate) nonce: Nonce,
    pub(crate) secret: Secret,
    pub(crate) ttl: Option<Span>,
    pub(crate) label: &'a str,
    pub(crate) namespace: &'a Namespace,
}

/// Opens a session, or finds the one that was opened with this nonce.
pub(crate) fn open(run: &mut Run<'_>, opening: &Opening<'_>) -> Result<Done, Failure> {
    let Opening {
        nonce,
        secret,
        ttl,
        label,
        namespace,
    } = *opening;
    let nonce_key = keyspace::nonce(nonce);
    if let Some(id) = keyspace::read::<SessionId>(run.table, &nonce_key) {
        let row = alive(run, id)?;
        return Ok(Done::SessionOpened {
            id,
            secret: row.secret,
            ttl: row.ttl,
        });
    }
    if run.memory.sessions >= SESSIONS_MAX {
        return Err(Failure::Limit {
            which: "sessions".to_owned(),
            value: SESSIONS_MAX as u64,
        });
    }
    let id = SessionId(run.consume_revision());
    let deadline = run.now + ttl.unwrap_or(IDENTITY_SESSION_IDLE);
    let row = SessionRow {
        nonce,
        secret,
        ttl,
        deadline,
        label: label.to_owned(),
        namespace: namespace.clone(),
        owned: 0,
        acknowledged_below: 1,
        acknowledged: Vec::new(),
        kept: 0,
        kept_bytes: 0,
        ended: None,
    };
    run.memory.sessions += 1;
    run.memory.deadlines.insert(deadline, Item::Session(id));
    keyspace::write(run.table, nonce_key, &id);
    run.table.put(keyspace::session_of(namespace, id), Bytes::new());
    run.sessions.set(id, Some(row));
    Ok(Done::SessionOpened { id, secret, ttl })
}

/// Ends a session and removes what it owns. `secret` is `None` for the forced close.
pub(crate) fn close(run: &mut Run<'_>, id: SessionId, secret: Option<Secret>) -> Result<Done, Failure> {
    let row = alive_by_name(run, id)?;
    if secret.is_some_and(|secret| secret != row.secret) {
        return Err(Failure::WrongSecret { session: id });
    }
    let reason = if secret.is_some() {
        EndReason::Closed
    } else {
        EndReason::Forced
    };
    let ended = end(run, id, reason);
    Ok(Done::SessionClosed {
        revision: ended.revision,
        removed: ended.removed,
    })
}

/// One keep-alive, judged at the time before this entry. A session that has lapsed and was not reached yet stays for
/// the ends of this entry, which have their order and their bound; see [`name_end`].
pub(crate) fn keep_alive(run: &mut Run<'_>, kept: SessionRef) -> KeptAlive {
    let session = kept.id;
    let before = run.memory.time;
    let Some(row) = run.session(session).filter(|row| row.secret == kept.secret) else {
        return KeptAlive::Unknown { session };
    };
    let remaining = row.ttl;
    let lapsed = row.deadline.is_due_at(before).then_some(LAPSED);
    if let Some(Ended { reason, revision }) = row.ended.or(lapsed) {
        return KeptAlive::Ended {
            session,
            reason,
            revision,
        };
    }
    extend(run, session);
    KeptAlive::Renewed { session, remaining }
}

/// Fills in the revision at which a lapsed session ended, if the ends of this entry reached it.
pub(crate) fn name_end(run: &mut Run<'_>, kept: &mut KeptAlive) {
    if let KeptAlive::Ended { session, revision, .. } = kept
        && *revision == LAPSED.revision
        && let Some(ended) = run.session(*session).and_then(|row| row.ended)
    {
        *revision = ended.revision;
    }
}

/// Moves the deadline of an open session to a whole TTL from now.
pub(crate) fn extend(run: &mut Run<'_>, id: SessionId) {
    let now = run.now;
    let row = run.session_mut(id).expect("only a known session is extended");
    let deadline = now + row.ttl.unwrap_or(IDENTITY_SESSION_IDLE);
    let old = std::mem::replace(&mut row.deadline, deadline);
    if deadline != old {
        run.memory.deadlines.remove(old, Item::Session(id));
        run.memory.deadlines.insert(deadline, Item::Session(id));
    }
}

/// The session, if it lives. One that has lapsed and was not reached yet is ended first.
pub(crate) fn alive<'a>(run: &'a mut Run<'_>, id: SessionId) -> Result<&'a SessionRow, Failure> {
    let now = run.now;
    let row = run.session(id).ok_or(Failure::SessionUnknown { session: id })?;
    if let Some(Ended { reason, revision }) = row.ended {
        return Err(Failure::SessionExpired {
            session: id,
            reason,
            revision,
        });
    }
    if row.deadline.is_due_at(now) {
        let revision = end(run, id, EndReason::Expired).revision;
        return Err(Failure::SessionExpired {
            session: id,
            reason: EndReason::Expired,
            revision,
        });
    }
    Ok(run.session(id).expect("it was just seen"))
}

/// The same for a session that a command names and that does not ask itself: then it is a thing that is missing.
pub(crate) fn alive_by_name<'a>(run: &'a mut Run<'_>, id: SessionId) -> Result<&'a SessionRow, Failure> {
    alive(run, id).map_err(|failure| match failure {
        Failure::SessionUnknown { session } => Failure::NotFound {
            what: Missing::Session(session),
        },
        other => other,
    })
}

/// The end of a session.
pub(crate) struct SessionEnd {
    /// The one revision of the end and of what went with it.
    pub(crate) revision: u64,
    /// Keys that went with it. Those of deleted caches were gone for every reader and do not count.
    pub(crate) removed: u64,
}

/// Ends an open session: everything that it owns goes in one step, under one revision.
pub(crate) fn end(run: &mut Run<'_>, id: SessionId, reason: EndReason) -> SessionEnd {
    let revision = run.consume_revision();
    let reason_of_keys = if reason == EndReason::Expired {
        EndReason::Session
    } else {
        reason
    };
    let mut removed = 0;
    let count = owned_count(run, id);
    let owned = owned(run.table, id, count);
    assert_eq!(owned.len(), count, "a session counts what it owns");
    for (incarnation, key) in owned {
        run.table.delete(&keyspace::owned(id, incarnation, &key));
        let key_row_key = keyspace::key(incarnation, &key);
        let key_row = run.table.get(&key_row_key).expect("what a session owns exists");
        let key_row: KeyRowRef<'_> = keyspace::decode(&key_row_key, &key_row);
        if let Some(deadline) = key_row.deadline {
            run.memory
                .deadlines
                .remove(deadline, Item::Key(incarnation, key.clone()));
        }
        run.table.delete(&key_row_key);
        if !run.memory.sweeps.contains(&incarnation) {
            removed += 1;
            let kind = ChangeKind::Removed { reason: reason_of_keys };
            let previous_version = Some(key_row.version);
            run.effects.push(Effect::Changed(Change {
                revision,
                incarnation,
                key,
                kind,
                previous_version,
            }));
        }
    }
    let forget_at = run.now + SESSION_RESULTS_KEPT;
    let row = run.session_mut(id).expect("only a known session is ended");
    let had_ended = row.ended.replace(Ended { reason, revision });
    assert!(had_ended.is_none(), "a session ends once");
    let old = std::mem::replace(&mut row.deadline, forget_at);
    row.owned = 0;
    run.memory.deadlines.remove(old, Item::Session(id));
    run.memory.deadlines.insert(forget_at, Item::EndedSession(id));
    run.effects.push(Effect::SessionEnded {
        session: id,
        reason,
        revision,
    });
    SessionEnd { revision, removed }
}

/// Forgets an ended session with its results.
pub(crate) fn forget(run: &mut Run<'_>, id: SessionId) {
    let row = run.session(id).expect("only a known session is forgotten").clone();
    requests::forget_results(run, id);
    run.memory.deadlines.remove(row.deadline, Item::EndedSession(id));
    run.memory.sessions -= 1;
    run.table.delete(&keyspace::nonce(row.nonce));
    run.table.delete(&keyspace::session_of(&row.namespace, id));
    run.sessions.set(id, None);
}

/// How many keys a session owns.
pub(crate) fn owned_count(run: &mut Run<'_>, id: SessionId) -> usize {
    run.session(id).map_or(0, |row| row.owned as usize)
}

/// Whether a session has lapsed and was not reached yet.
pub(crate) fn has_lapsed(run: &mut Run<'_>, id: SessionId) -> bool {
    let now = run.now;
    run.session(id)
        .is_some_and(|row| row.ended.is_none() && row.deadline.is_due_at(now))
}

/// How many results a session keeps.
pub(crate) fn kept_count(run: &mut Run<'_>, id: SessionId) -> usize {
    run.session(id).map_or(0, |row| row.kept as usize)
}

/// The first `limit` things that a session owns, in order. It does not look for one more: behind the last one the engine
/// may have much to step over.
pub(crate) fn owned(table: &(impl TableRead + ?Sized), id: SessionId, limit: usize) -> Vec<(Incarnation, Bytes)> {
    let mut owned = Vec::new();
    if limit == 0 {
        return owned;
    }
    let from = keyspace::owned_by(id);
    let to = prefix_end(&from).expect("a kind byte is below 255");
    table.scan(&from, &to, &mut |key, _| {
        owned.push((
            Incarnation(keyspace::number_at(key, 9)),
            Bytes::copy_from_slice(&key[17..]),
        ));
        if owned.len() < limit {
            Visit::Continue(())
        } else {
            Visit::Break(())
        }
    });
    owned
}

/// How long an open session lives from `now`: `None` for one without a TTL, nothing once it has ended.
pub(crate) fn remaining_of(table: &(impl TableRead + ?Sized), id: SessionId, now: Timestamp) -> Option<Span> {
    remaining(load(table, id).as_ref(), now)
}

/// The same as of the entry that is being applied.
pub(crate) fn remaining_in(run: &mut Run<'_>, id: SessionId) -> Option<Span> {
    let now = run.now;
    remaining(run.session(id), now)
}

fn remaining(row: Option<&SessionRow>, now: Timestamp) -> Option<Span> {
    match row {
        Some(row) if row.ended.is_none() => row.ttl.map(|_| row.deadline.remaining_at(now)),
        _ => Some(Span(0)),
    }
}

/// The session's row as the table has it. While an entry is applied, ask [`Run::session`].
pub(crate) fn load(table: &(impl TableRead + ?Sized), id: SessionId) -> Option<SessionRow> {
    keyspace::read(table, &keyspace::session(id))
}
