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
/// A node takes at most one keep-alive a session in this part of its TTL: four times as many as a client sends.
const KEEP_ALIVE_PART_OF_TTL: u32 = 24;

/// What a node has taken on.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    in_flight: AtomicUsize,
    kept_alive: Mutex<BTreeMap<(GroupId, SessionId), Kept>>,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    taken_at: Duration,
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

    /// Whether a keep-alive is taken now; if not, how long it would have to wait.
    pub(crate) fn take_keep_alive(&self, group: GroupId, session: SessionId, now: Duration) -> Result<(), Duration> {
        let mut kept_alive = self.kept_alive.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = kept_alive.get_mut(&(group, session)) else {
            return Ok(());
        };
        let spacing = kept.ttl / KEEP_ALIVE_PART_OF_TTL;
        let since = now.saturating_sub(kept.taken_at);
        if since < spacing {
            return Err(spacing - since);
        }
        kept.taken_at = now;
        Ok(())
    }

    /// Notes a session that was renewed, so that its next keep-alives can be judged.
    pub(crate) fn note_renewed(&self, group: GroupId, session: SessionId, ttl: Duration, now: Duration) {
        let mut kept_alive = self.kept_alive.lock().unwrap_or_else(PoisonError::into_inner);
        if kept_alive.len() >= SESSIONS_COUNTED_MAX && !kept_alive.contains_key(&(group, session)) {
            kept_alive.retain(|_, kept| now.saturating_sub(kept.taken_at) < kept.ttl);
            if kept_alive.len() >= SESSIONS_COUNTED_MAX {
                return;
            }
        }
        kept_alive
            .entry((group, session))
            .or_insert(Kept { taken_at: now, ttl })
            .ttl = ttl;
    }

    /// Forgets a session that ended.
    pub(crate) fn forget(&self, group: GroupId, session: SessionId) {
        self.kept_alive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(group, session));
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
    fn a_session_that_floods_keep_alives_is_taken_once_in_its_share_of_the_ttl() {
        let admission = Admission::default();
        assert_eq!(admission.take_keep_alive(GROUP, SESSION, ms(0)), Ok(()));
        admission.note_renewed(GROUP, SESSION, ms(2_400), ms(1));
        assert_eq!(admission.take_keep_alive(GROUP, SESSION, ms(51)), Err(ms(50)));
        assert_eq!(admission.take_keep_alive(GROUP, SESSION, ms(101)), Ok(()));
        assert_eq!(admission.take_keep_alive(GROUP, SESSION, ms(102)), Err(ms(99)));
        assert_eq!(admission.take_keep_alive(GROUP, SessionId(8), ms(102)), Ok(()));
        admission.forget(GROUP, SESSION);
        assert_eq!(admission.take_keep_alive(GROUP, SESSION, ms(103)), Ok(()));
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
