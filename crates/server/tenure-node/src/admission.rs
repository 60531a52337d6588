//! Refuse early, and say when to come back. What is refused here was not applied.
//!
//! Keep-alives are never refused for load, but a session that sends more of them than its TTL gives reason for
//! hurts only itself: those in excess are dropped.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::ids::{GroupId, SessionId};

/// Requests that a node works on at once, over all connections.
pub(crate) const REQUESTS_IN_FLIGHT_MAX: usize = 65_536;
/// When to come back if a node works on as many as it takes.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(50);
/// Sessions whose keep-alives are counted.
const SESSIONS_COUNTED_MAX: usize = 100_000;
/// How often those that have ended are looked for when there are as many.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// A node takes at most one keep-alive a session in this part of its TTL: four times as many as a client sends.
const KEEP_ALIVE_PART_OF_TTL: u32 = 24;

/// What a node has taken on.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    in_flight: AtomicUsize,
    counted: Mutex<Counted>,
}

/// Sessions whose renewals are counted.
#[derive(Debug, Default)]
struct Counted {
    sessions: BTreeMap<(GroupId, SessionId), Kept>,
    next_sweep_at: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    renewed_at: Duration,
    ttl: Duration,
}

/// A request that was let in; it counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted<'a>(&'a AtomicUsize);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    /// Lets a request in, or returns `None` if the node works on as many as it takes.
    pub(crate) fn admit(&self) -> Option<Admitted<'_>> {
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let admitted = Admitted(&self.in_flight);
        (before < REQUESTS_IN_FLIGHT_MAX).then_some(admitted)
    }

    /// Requests that are being worked on.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether a keep-alive is taken now; if not, how long it would have to wait. Only renewals count (see
    /// [`Admission::note_renewed`]): an attempt with a wrong secret takes nothing from the session's owner.
    pub(crate) fn check_keep_alive(&self, group: GroupId, session: SessionId, now: Duration) -> Result<(), Duration> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = counted.sessions.get(&(group, session)) else {
            return Ok(());
        };
        let spacing = kept.ttl / KEEP_ALIVE_PART_OF_TTL;
        match spacing.checked_sub(now.saturating_sub(kept.renewed_at)) {
            Some(left) if !left.is_zero() => Err(left),
            _ => Ok(()),
        }
    }

    /// Notes a session that was renewed by an attempt that came at `now`.
    pub(crate) fn note_renewed(&self, group: GroupId, session: SessionId, ttl: Duration, now: Duration) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = counted.sessions.len() >= SESSIONS_COUNTED_MAX;
        if is_full && !counted.sessions.contains_key(&(group, session)) {
            if now < counted.next_sweep_at {
                return;
            }
            counted.next_sweep_at = now + SWEEP_EVERY;
            counted
                .sessions
                .retain(|_, kept| now.saturating_sub(kept.renewed_at) < kept.ttl);
            if counted.sessions.len() >= SESSIONS_COUNTED_MAX {
                return;
            }
        }
        counted.sessions.insert((group, session), Kept { renewed_at: now, ttl });
    }

    /// Forgets a session that ended.
    pub(crate) fn forget(&self, group: GroupId, session: SessionId) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.sessions.remove(&(group, session));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(1);
    const SESSION: SessionId = SessionId(7);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_session_that_floods_keep_alives_is_renewed_once_in_its_share_of_the_ttl() {
        let admission = Admission::default();
        assert_eq!(admission.check_keep_alive(GROUP, SESSION, ms(0)), Ok(()));
        admission.note_renewed(GROUP, SESSION, ms(2_400), ms(1));
        assert_eq!(admission.check_keep_alive(GROUP, SESSION, ms(51)), Err(ms(50)));
        assert_eq!(admission.check_keep_alive(GROUP, SESSION, ms(101)), Ok(()));
        assert_eq!(admission.check_keep_alive(GROUP, SessionId(8), ms(51)), Ok(()));
        admission.forget(GROUP, SESSION);
        assert_eq!(admission.check_keep_alive(GROUP, SESSION, ms(51)), Ok(()));
    }

    #[test]
    fn attempts_that_renew_nothing_take_nothing_from_the_owner() {
        let admission = Admission::default();
        admission.note_renewed(GROUP, SESSION, ms(2_400), ms(0));
        for at in 101..200 {
            assert_eq!(admission.check_keep_alive(GROUP, SESSION, ms(at)), Ok(()));
        }
    }

    #[test]
    fn requests_over_the_bound_are_not_let_in_and_leave_no_trace() {
        let admission = Admission::default();
        let admitted: Vec<_> = (0..REQUESTS_IN_FLIGHT_MAX).filter_map(|_| admission.admit()).collect();
        assert_eq!(admitted.len(), REQUESTS_IN_FLIGHT_MAX);
        assert!(admission.admit().is_none());
        assert_eq!(admission.in_flight(), REQUESTS_IN_FLIGHT_MAX);
        drop(admitted);
        assert_eq!(admission.in_flight(), 0);
    }
}
