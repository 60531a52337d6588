//! Remembered requests: asking again is safe, because a repeat finds the first result and runs nothing.
//!
//! The design is that of RIFL (Lee et al., "Implementing Linearizability at Large Scale and Low Latency",
//! SOSP 2015) and of the client sessions in Ongaro's Raft dissertation, section 6.3: the result is stored in the
//! step that runs the command, is part of every snapshot, and goes when the requester acknowledges it.

use crate::command::Acknowledged;
use crate::ids::{Fingerprint, OneShotId, SessionId, SessionRef};
use crate::keyspace::{self, OneShotRow, ResultRow, SessionRow};
use crate::limits::{
    ONE_SHOT_AHEAD_MAX, ONE_SHOT_BYTES_MAX, ONE_SHOTS_MAX, RESULTS_MAX, SESSION_ACKNOWLEDGED_RANGES_MAX,
    SESSION_RESULT_BYTES_MAX, SESSION_RESULTS_MAX,
};
use crate::machine::Run;
use crate::machine::deadlines::Item;
use crate::refusal::Failure;
use crate::response::{Done, Response};
use crate::session;
use crate::time::{Span, Timestamp};

/// A numbered request of a session.
pub(crate) struct Numbered<'a> {
    pub(crate) session: SessionRef,
    pub(crate) seq: u64,
    pub(crate) acknowledged: &'a Acknowledged,
    pub(crate) fingerprint: Fingerprint,
}

/// Runs a numbered request, or answers a repeat. The flag says whether it was a repeat.
///
/// The order of the checks is a promise: another command under a known number, the known result, an unknown
/// session, a forgotten result, an ended session, a full window; only then the command itself.
pub(crate) fn of_session(
    run: &mut Run<'_>,
    request: &Numbered<'_>,
    remembered: bool,
    execute: &mut dyn FnMut(&mut Run<'_>) -> Response,
) -> (Response, bool) {
    let id = request.session.id;
    if let Err(failure) = note_acknowledged(run, request.session, request.acknowledged) {
        return (Response::Failed(failure), false);
    }
    if let Some(len) = run.memory.kept.get(&(id, request.seq)).copied() {
        if let Err(failure) = run.count_read(len) {
            return (Response::Failed(failure), false);
        }
        let known = keyspace::read::<ResultRow>(run.table, &keyspace::result(id, request.seq));
        let known = known.expect("what memory says is kept is in the table");
        if known.fingerprint != request.fingerprint {
            return (Response::Failed(Failure::RequestReused), false);
        }
        return (known.response, true);
    }
    if let Err(failure) = may_run(run, request) {
        return (Response::Failed(failure), false);
    }
    let response = execute(run);
    if remembered && is_kept(&response) {
        remember(run, request, &response);
    }
    (response, false)
}

/// Takes note of acknowledged results and does nothing else.
pub(crate) fn acknowledge(
    run: &mut Run<'_>,
    session: SessionRef,
    acknowledged: &Acknowledged,
) -> Result<Done, Failure> {
    note_acknowledged(run, session, acknowledged)?;
    Ok(Done::Acknowledged)
}

/// Runs a one-shot request, or answers a repeat. The flag says whether it was a repeat.
pub(crate) fn one_shot(
    run: &mut Run<'_>,
    id: OneShotId,
    not_after: Timestamp,
    fingerprint: Fingerprint,
    remembered: bool,
    execute: &mut dyn FnMut(&mut Run<'_>) -> Response,
) -> (Response, bool) {
    if not_after.is_due_at(run.now) {
        return (Response::Failed(Failure::TooLate), false);
    }
    if let Some(bytes) = run.table.get(&keyspace::one_shot(id))
        && let Err(failure) = run.count_read(bytes.len())
    {
        return (Response::Failed(failure), false);
    }
    if let Some(known) = keyspace::read::<OneShotRow>(run.table, &keyspace::one_shot(id))
        && !known.not_after.is_due_at(run.now)
    {
        if known.fingerprint != fingerprint {
            return (Response::Failed(Failure::RequestReused), false);
        }
        return (known.response, true);
    }
    if not_after - run.now > ONE_SHOT_AHEAD_MAX {
        let rule = format!(
            "at most {} ms ahead of the group's time",
            ONE_SHOT_AHEAD_MAX.as_millis()
        );
        return (
            Response::Failed(Failure::Invalid {
                field: "not_after".to_owned(),
                rule,
            }),
            false,
        );
    }
    if run.memory.one_shots >= ONE_SHOTS_MAX || run.memory.one_shot_bytes >= ONE_SHOT_BYTES_MAX {
        let what = "remembered requests without a session".to_owned();
        return (
            Response::Failed(Failure::Overloaded {
                what,
                retry_after: Span::from_secs(1),
            }),
            false,
        );
    }
    let response = execute(run);
    if remembered && is_kept(&response) {
        let replaced = run.table.get(&keyspace::one_shot(id)).is_some();
        if replaced {
            forget_one_shot(run, id);
        }
        let row = OneShotRow {
            not_after,
            fingerprint,
            response: response.clone(),
        };
        run.memory.one_shots += 1;
        run.memory.one_shot_bytes += keyspace::write(run.table, keyspace::one_shot(id), &row);
        run.memory.deadlines.insert(not_after, Item::OneShot(id));
    }
    (response, false)
}

/// Forgets a one-shot request.
pub(crate) fn forget_one_shot(run: &mut Run<'_>, id: OneShotId) {
    let key = keyspace::one_shot(id);
    let bytes = run.table.get(&key).expect("only a remembered request is forgotten");
    let row: OneShotRow = keyspace::decode(&key, &bytes);
    run.memory.one_shots -= 1;
    run.memory.one_shot_bytes -= bytes.len();
    run.memory.deadlines.remove(row.not_after, Item::OneShot(id));
    run.table.delete(&key);
}

/// Whether a result is worth keeping. Of these nothing was done and a later attempt may go through, or the
/// verdict was about the attempt and not about the command.
fn is_kept(response: &Response) -> bool {
    !matches!(
        response,
        Response::Failed(Failure::Overloaded { .. } | Failure::WrongSecret { .. })
    )
}

/// The checks between a known result and the command itself.
fn may_run(run: &mut Run<'_>, request: &Numbered<'_>) -> Result<(), Failure> {
    let id = request.session.id;
    let (now, has_headroom) = (run.now, run.has_headroom());
    let row = run.session(id).ok_or(Failure::SessionUnknown { session: id })?;
    if is_acknowledged(row, request.seq) {
        return Err(Failure::RequestForgotten { seq: request.seq });
    }
    if row.ended.is_none() && row.deadline.is_due_at(now) && !has_headroom {
        let what = "revisions".to_owned();
        return Err(Failure::Overloaded {
            what,
            retry_after: Span::from_millis(100),
        });
    }
    let row = session::alive(run, id)?;
    if row.kept >= SESSION_RESULTS_MAX as u64 || row.kept_bytes >= SESSION_RESULT_BYTES_MAX as u64 {
        return Err(Failure::WindowFull {
            seqs: row.kept,
            bytes: row.kept_bytes,
        });
    }
    if row.ttl.is_none() {
        session::extend(run, id);
    }
    if run.memory.kept.len() >= RESULTS_MAX {
        let what = "remembered requests of the group".to_owned();
        return Err(Failure::Overloaded {
            what,
            retry_after: Span::from_secs(1),
        });
    }
    Ok(())
}

fn remember(run: &mut Run<'_>, request: &Numbered<'_>, response: &Response) {
    let id = request.session.id;
    let key = keyspace::result(id, request.seq);
    let row = ResultRow {
        fingerprint: request.fingerprint,
        response: response.clone(),
    };
    let len = keyspace::write(run.table, key, &row);
    run.memory.kept.insert((id, request.seq), len);
    let session = run
        .session_mut(id)
        .expect("the session is known: it may have ended, not gone");
    session.kept += 1;
    session.kept_bytes += len as u64;
}

/// Takes note of what the requester needs no more. Acknowledgements only grow, so a late copy harms nothing.
fn note_acknowledged(run: &mut Run<'_>, session: SessionRef, acknowledged: &Acknowledged) -> Result<(), Failure> {
    let id = session.id;
    let row = run.session(id).ok_or(Failure::SessionUnknown { session: id })?;
    if row.secret != session.secret {
        return Err(Failure::WrongSecret { session: id });
    }
    let says_nothing_new =
        acknowledged.below <= row.acknowledged_below && acknowledged.also.iter().all(|seq| is_acknowledged(row, *seq));
    if says_nothing_new {
        return Ok(());
    }
    let row = run.session_mut(id).expect("it was just seen");
    for (first, last) in add_acknowledged(row, acknowledged) {
        drop_results(run, id, first, last);
    }
    Ok(())
}

/// Takes note in the row, and returns the ranges of numbers to drop, both ends inclusive: all of them are
/// acknowledged now, and among them are all that were not before.
fn add_acknowledged(row: &mut SessionRow, acknowledged: &Acknowledged) -> Vec<(u64, u64)> {
    let mut fresh = Vec::new();
    if acknowledged.below > row.acknowledged_below {
        fresh.push((row.acknowledged_below, acknowledged.below - 1));
        row.acknowledged_below = acknowledged.below;
        absorb_ranges(row);
    }
    for seq in &acknowledged.also {
        if !is_acknowledged(row, *seq) && add_range(row, *seq) {
            fresh.push((*seq, *seq));
            absorb_ranges(row);
        }
    }
    fresh
}

/// Whether the result of this number was acknowledged.
fn is_acknowledged(row: &SessionRow, seq: u64) -> bool {
    seq < row.acknowledged_below
        || row
            .acknowledged
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&seq))
}

/// Adds one number to the ranges, of which the low mark may swallow the first one then. One that would make too
/// many is ignored, and its result stays.
fn add_range(row: &mut SessionRow, seq: u64) -> bool {
    let at = row.acknowledged.partition_point(|(_, last)| *last < seq);
    let joins_left = at > 0 && row.acknowledged[at - 1].1.checked_add(1) == Some(seq);
    let joins_right = row
        .acknowledged
        .get(at)
        .is_some_and(|(first, _)| seq.checked_add(1) == Some(*first));
    match (joins_left, joins_right) {
        (true, true) => {
            row.acknowledged[at - 1].1 = row.acknowledged[at].1;
            row.acknowledged.remove(at);
        }
        (true, false) => row.acknowledged[at - 1].1 = seq,
        (false, true) => row.acknowledged[at].0 = seq,
        (false, false) if seq == row.acknowledged_below || row.acknowledged.len() < SESSION_ACKNOWLEDGED_RANGES_MAX => {
            row.acknowledged.insert(at, (seq, seq));
        }
        (false, false) => return false,
    }
    true
}

/// Lets the low mark swallow the ranges that it has reached.
fn absorb_ranges(row: &mut SessionRow) {
    while let Some((first, last)) = row.acknowledged.first().copied() {
        if first > row.acknowledged_below || last == u64::MAX {
            return;
        }
        row.acknowledged_below = row.acknowledged_below.max(last + 1);
        row.acknowledged.remove(0);
    }
}

/// Drops the results of these numbers, both ends inclusive.
fn drop_results(run: &mut Run<'_>, id: SessionId, first: u64, last: u64) {
    let (mut results, mut bytes) = (0, 0);
    let of_these = (id, first)..=(id, last);
    for ((_, seq), len) in run.memory.kept.extract_if(of_these, |_, _| true) {
        run.table.delete(&keyspace::result(id, seq));
        results += 1;
        bytes += len as u64;
    }
    if results > 0 {
        let row = run.session_mut(id).expect("it has results, so it is known");
        row.kept -= results;
        row.kept_bytes -= bytes;
    }
}

/// Drops all results of a session that is forgotten.
pub(crate) fn forget_results(run: &mut Run<'_>, id: SessionId) {
    let of_session = (id, 0)..=(id, u64::MAX);
    for ((_, seq), _) in run.memory.kept.extract_if(of_session, |_, _| true) {
        run.table.delete(&keyspace::result(id, seq));
    }
}

#[cfg(test)]
mod tests;
