//! Refuse early, and say when to come back. What is refused here was not applied.
//!
//! A node works on a bounded number of requests and bytes at once, over all connections. A namespace may have as much
//! of both as is still free: one that floods leaves half to the others, two leave a third, and so on.
//!
//! Keep-alives are never refused for load, but a session that sends more of them than its TTL gives reason for
//! hurts only itself: those in excess are dropped. Sessions are opened at a bounded rate a namespace, since an ended
//! one still takes room for as long as its results answer repeats.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::ids::{GroupId, Namespace, SessionId};
use tenure_core::limits::{SESSION_RESULTS_KEPT, SESSIONS_MAX};
use tenure_core::query::Query;

/// Requests that a node works on at once, over all connections.
pub(crate) const REQUESTS_IN_FLIGHT_MAX: usize = 65_536;
/// Bytes of those requests.
pub(crate) const REQUEST_BYTES_IN_FLIGHT_MAX: usize = 512 << 20;
/// When to come back if a node works on as many as it takes.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(50);
/// Sessions that a namespace may open at once.
pub(crate) const SESSIONS_OPENED_AT_ONCE_MAX: u64 = 100_000;
/// Sessions that a namespace may open a second beyond that.
pub(crate) const SESSIONS_OPENED_PER_SECOND_MAX: u64 = 400;
/// Among so many numbers the namespaces are spread. Two that share one share what each may take, no more.
const SHARES: usize = 1_024;
/// Namespaces whose openings are counted.
const OPENERS_MAX: usize = 10_000;
/// Sessions whose keep-alives are counted.
const SESSIONS_COUNTED_MAX: usize = 100_000;
/// How often those that have ended are looked for when there are as many.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// A node takes at most one keep-alive a session in this part of its TTL: four times as many as a client sends.
const KEEP_ALIVE_PART_OF_TTL: u32 = 24;
/// Nor need a renewal wait longer than this for the one before it, however long the TTL is: people renew by hand.
const KEEP_ALIVE_SPACING_MAX: Duration = Duration::from_millis(250);

// One namespace alone fills at most half of what a group has for sessions, those that have ended included.
const _: () = assert!(
    SESSIONS_OPENED_AT_ONCE_MAX + SESSIONS_OPENED_PER_SECOND_MAX * SESSION_RESULTS_KEPT.as_millis() / 1_000
        <= SESSIONS_MAX as u64 / 2
);

/// What a node has taken on.
#[derive(Debug)]
pub(crate) struct Admission {
    all: Taken,
    shares: Vec<Taken>,
    openers: Mutex<BTreeMap<Namespace, Opener>>,
    counted: Mutex<Counted>,
}

/// Requests that are being worked on.
#[derive(Debug, Default)]
struct Taken {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

/// How many sessions a namespace may open: what it has saved up, as of an instant.
#[derive(Debug)]
struct Opener {
    saved_thousandths: u64,
    at: Duration,
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
pub(crate) struct Admitted<'a> {
    all: &'a Taken,
    share: &'a Taken,
    bytes: usize,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        for taken in [self.all, self.share] {
            taken.requests.fetch_sub(1, Ordering::Relaxed);
            taken.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Default for Admission {
    fn default() -> Admission {
        Admission {
            all: Taken::default(),
            shares: (0..SHARES).map(|_| Taken::default()).collect(),
            openers: Mutex::default(),
            counted: Mutex::default(),
        }
    }
}

impl Admission {
    /// Lets a request of a namespace in, or returns `None` if the node works on as much as it takes, or the namespace
    /// has as much of it as is still free. A request that belongs to no namespace is one of a share of its own.
    pub(crate) fn admit(&self, namespace: Option<&Namespace>, bytes: usize) -> Option<Admitted<'_>> {
        let share = &self.shares[namespace.map_or(0, share_of)];
        let add = |taken: &AtomicUsize, more| taken.fetch_add(more, Ordering::Relaxed);
        // Counted first: then what the check lets through is never more than the bound.
        let (requests, bytes_before) = (add(&self.all.requests, 1), add(&self.all.bytes, bytes));
        let (own, own_bytes) = (add(&share.requests, 1), add(&share.bytes, bytes));
        let admitted = Admitted {
            all: &self.all,
            share,
            bytes,
        };
        let fits = own < REQUESTS_IN_FLIGHT_MAX.saturating_sub(requests)
            && own_bytes.saturating_add(bytes) <= REQUEST_BYTES_IN_FLIGHT_MAX.saturating_sub(bytes_before);
        fits.then_some(admitted)
    }

    /// Requests that are being worked on.
    pub(crate) fn in_flight(&self) -> usize {
        self.all.requests.load(Ordering::Relaxed)
    }

    /// Their bytes.
    pub(crate) fn bytes_in_flight(&self) -> usize {
        self.all.bytes.load(Ordering::Relaxed)
    }

    /// Whether a namespace may open a session now; if not, when it may.
    ///
    /// # Errors
    /// How long to wait.
    pub(crate) fn take_opening(&self, namespace: &Namespace, now: Duration) -> Result<(), Duration> {
        const FULL: u64 = SESSIONS_OPENED_AT_ONCE_MAX * 1_000;
        let mut openers = self.openers.lock().unwrap_or_else(PoisonError::into_inner);
        if openers.len() >= OPENERS_MAX && !openers.contains_key(namespace) {
            openers.retain(|_, opener| opener.saved(now) < FULL);
        }
        let opener = openers.entry(namespace.clone()).or_insert(Opener {
            saved_thousandths: FULL,
            at: now,
        });
        let saved = opener.saved(now);
        if saved < 1_000 {
            let missing = (1_000 - saved).div_ceil(SESSIONS_OPENED_PER_SECOND_MAX);
            return Err(Duration::from_millis(missing.max(1)));
        }
        (opener.saved_thousandths, opener.at) = (saved - 1_000, now);
        Ok(())
    }

    /// Whether a keep-alive is taken now; if not, how long it would have to wait. Only renewals count (see
    /// [`Admission::note_renewed`]): an attempt with a wrong secret takes nothing from the session's owner.
    pub(crate) fn check_keep_alive(&self, group: GroupId, session: SessionId, now: Duration) -> Result<(), Duration> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = counted.sessions.get(&(group, session)) else {
            return Ok(());
        };
        let spacing = (kept.ttl / KEEP_ALIVE_PART_OF_TTL).min(KEEP_ALIVE_SPACING_MAX);
        match spacing.checked_sub(now.saturating_sub(kept.renewed_at)) {
            Some(left) if !left.is_zero() => Err(left),
            _ => Ok(()),
        }
    }

    /// Notes a session that was renewed by an attempt that came at `now`. Returns what it had left of its TTL, in
    /// hundredths, if it was renewed here before.
    pub(crate) fn note_renewed(&self, group: GroupId, session: SessionId, ttl: Duration, now: Duration) -> Option<u64> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = counted.sessions.len() >= SESSIONS_COUNTED_MAX;
        if is_full && !counted.sessions.contains_key(&(group, session)) {
            if now < counted.next_sweep_at {
                return None;
            }
            counted.next_sweep_at = now + SWEEP_EVERY;
            counted
                .sessions
                .retain(|_, kept| now.saturating_sub(kept.renewed_at) < kept.ttl);
            if counted.sessions.len() >= SESSIONS_COUNTED_MAX {
                return None;
            }
        }
        let renewed = Kept { renewed_at: now, ttl };
        let before = counted.sessions.insert((group, session), renewed)?;
        let left = before.ttl.saturating_sub(now.saturating_sub(before.renewed_at));
        let percent = left.as_micros() * 100 / before.ttl.as_micros().max(1);
        u64::try_from(percent).ok()
    }

    /// Forgets a session that ended.
    pub(crate) fn forget(&self, group: GroupId, session: SessionId) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.sessions.remove(&(group, session));
    }
}

/// The namespace that a read is about.
pub(crate) fn namespace_of_query(query: &Query) -> Option<&Namespace> {
    match query {
        Query::Get { cache: name, .. }
        | Query::List { cache: name, .. }
        | Query::Cache(name)
        | Query::Stream(name)
        | Query::Records { stream: name, .. } => Some(&name.namespace),
        Query::Caches(namespace)
        | Query::Streams(namespace)
        | Query::Home(namespace)
        | Query::Sessions { namespace, .. } => Some(namespace),
        Query::Namespaces | Query::Nodes | Query::Cluster | Query::Session(_) => None,
    }
}

impl Opener {
    fn saved(&self, now: Duration) -> u64 {
        let since = u64::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(u64::MAX);
        // A thousandth of a session a millisecond for each session a second.
        let more = since.saturating_mul(SESSIONS_OPENED_PER_SECOND_MAX);
        self.saved_thousandths
            .saturating_add(more)
            .min(SESSIONS_OPENED_AT_ONCE_MAX * 1_000)
    }
}

/// The number of a namespace (FNV-1a), from 1.
fn share_of(namespace: &Namespace) -> usize {
    let bytes = namespace.tenant.bytes().chain([0]).chain(namespace.name.bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    1 + (hash as usize) % (SHARES - 1)
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

    fn namespace(name: &str) -> Namespace {
        Namespace {
            tenant: "acme".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_namespace_gets_half_of_what_is_free_and_leaves_no_trace() {
        let admission = Admission::default();
        let (flood, other) = (namespace("flood"), namespace("other"));
        let admitted: Vec<_> = std::iter::from_fn(|| admission.admit(Some(&flood), 1)).collect();
        assert_eq!(admitted.len(), REQUESTS_IN_FLIGHT_MAX / 2);
        let others: Vec<_> = std::iter::from_fn(|| admission.admit(Some(&other), 1)).collect();
        assert_eq!(others.len(), REQUESTS_IN_FLIGHT_MAX / 4);
        assert!(admission.admit(None, 1).is_some());
        assert_eq!(admission.in_flight(), admitted.len() + others.len());
        drop((admitted, others));
        assert_eq!((admission.in_flight(), admission.bytes_in_flight()), (0, 0));
    }

    #[test]
    fn requests_are_bounded_by_their_bytes_too() {
        let admission = Admission::default();
        let large = REQUEST_BYTES_IN_FLIGHT_MAX / 64;
        let flood = namespace("flood");
        let admitted: Vec<_> = std::iter::from_fn(|| admission.admit(Some(&flood), large)).collect();
        assert_eq!(admitted.len(), 32);
        assert!(admission.admit(Some(&namespace("other")), large).is_some());
    }

    #[test]
    fn a_namespace_opens_sessions_at_a_bounded_rate_and_another_one_does_not_notice() {
        let admission = Admission::default();
        let (flood, other) = (namespace("flood"), namespace("other"));
        for _ in 0..SESSIONS_OPENED_AT_ONCE_MAX {
            assert_eq!(admission.take_opening(&flood, ms(0)), Ok(()));
        }
        assert_eq!(admission.take_opening(&flood, ms(0)), Err(ms(3)));
        assert_eq!(admission.take_opening(&other, ms(0)), Ok(()));
        let opened = (1..=10_000).filter(|at| admission.take_opening(&flood, ms(*at)).is_ok());
        assert_eq!(opened.count() as u64, SESSIONS_OPENED_PER_SECOND_MAX * 10);
    }

    #[test]
    fn a_renewal_tells_how_much_the_session_had_left() {
        let admission = Admission::default();
        assert_eq!(admission.note_renewed(GROUP, SESSION, ms(1_000), ms(0)), None);
        assert_eq!(admission.note_renewed(GROUP, SESSION, ms(1_000), ms(250)), Some(75));
        assert_eq!(admission.note_renewed(GROUP, SESSION, ms(1_000), ms(5_000)), Some(0));
    }
}
