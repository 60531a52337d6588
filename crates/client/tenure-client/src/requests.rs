//! Under which identity a mutation is sent.
//!
//! A client asks as a session of its own, without a TTL, one for each namespace, opened when it is first needed. Each
//! mutation takes a number of it, and the server keeps the result under that number until it is acknowledged. What is
//! finished here, answered or given up, is acknowledged with the next request, so that a late copy runs nowhere.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use tenure_api::limits::ONE_SHOT_AHEAD_MS;
use tenure_api::v1::{self, OneShot, RequestId, SessionRef, SessionRequest, request_id};

/// Numbered requests of one identity that are under way; a further one waits. The server keeps 1,024 results, among
/// them those whose acknowledgement is on its way.
pub(crate) const OUTSTANDING_MAX: usize = 512;
/// Single acknowledged numbers that travel with one request. The server keeps 64 ranges of them.
const SINGLES_MAX: usize = 64;
/// An identity that was not used for so long is replaced: the server ends it after an hour.
const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// How the mutations of a client are identified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestMode {
    /// By numbers of a session that the client opens for itself. The first mutation in a namespace costs one request
    /// more; asking again is safe for as long as the client lives.
    #[default]
    Numbered,
    /// Each by an id of its own, remembered for a minute: exactly once in one commit, for programs that do one thing
    /// and end.
    OneShot,
    /// Not at all: a mutation is never sent twice, and a lost answer leaves its outcome unknown.
    Anonymous,
}

/// The session as which a client asks in one namespace.
pub(crate) struct Requester {
    pub(crate) session: SessionRef,
    pub(crate) scope: v1::Scope,
    slots: Arc<Semaphore>,
    inner: Mutex<RequesterInner>,
}

struct RequesterInner {
    window: Window,
    /// When it was used last, on the boot-time clock.
    used: Duration,
    /// An acknowledgement without a request is about to be sent.
    acknowledging: bool,
    /// More has come up meanwhile that is to be acknowledged without a request.
    acknowledge_more: bool,
    /// The server has ended it.
    ended: bool,
}

impl Requester {
    pub(crate) fn new(session: SessionRef, scope: v1::Scope, now: Duration) -> Requester {
        let inner = RequesterInner {
            window: Window::default(),
            used: now,
            acknowledging: false,
            acknowledge_more: false,
            ended: false,
        };
        Requester {
            session,
            scope,
            slots: Arc::new(Semaphore::new(OUTSTANDING_MAX)),
            inner: Mutex::new(inner),
        }
    }

    /// Whether new requests may be made with it: the server has not ended it, as far as is known and can be reckoned.
    pub(crate) fn fresh(&self, now: Duration) -> bool {
        let inner = self.inner();
        !inner.ended && now.saturating_sub(inner.used) < IDLE_MAX
    }

    /// The server has ended it: new requests take another.
    pub(crate) fn end(&self) {
        self.inner().ended = true;
    }

    /// Takes the next number, once there is room for it.
    pub(crate) async fn begin(self: &Arc<Requester>, now: Duration) -> Ticket {
        let slot = Arc::clone(&self.slots)
            .acquire_owned()
            .await
            .expect("the slots are never closed");
        self.ticket(slot, now)
    }

    /// Takes the next number if there is room for it.
    pub(crate) fn try_begin(self: &Arc<Requester>, now: Duration) -> Option<Ticket> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        Some(self.ticket(slot, now))
    }

    fn ticket(self: &Arc<Requester>, slot: OwnedSemaphorePermit, now: Duration) -> Ticket {
        let mut inner = self.inner();
        inner.used = now;
        let seq = inner.window.begin();
        Ticket {
            requester: Arc::clone(self),
            seq,
            settled: false,
            sent: Mutex::default(),
            _slot: slot,
        }
    }

    /// What can be acknowledged now.
    pub(crate) fn acknowledgements(&self) -> (u64, Vec<u64>) {
        self.inner().window.acknowledgements()
    }

    /// The server has taken note of these. Says whether another acknowledgement is to be sent, as more has come up.
    pub(crate) fn acknowledged(&self, singles: &[u64]) -> bool {
        let mut inner = self.inner();
        inner.window.acknowledged(singles);
        let more = std::mem::take(&mut inner.acknowledge_more);
        inner.acknowledging = more;
        more
    }

    /// Whether an acknowledgement is to be sent now because none is about to be. Whoever sends the one that is about to
    /// be sends another one after it.
    pub(crate) fn start_acknowledging(&self) -> bool {
        let mut inner = self.inner();
        let busy = std::mem::replace(&mut inner.acknowledging, true);
        inner.acknowledge_more = busy;
        !busy
    }

    /// The acknowledgement could not be sent; it goes with the next request.
    pub(crate) fn stop_acknowledging(&self) {
        let mut inner = self.inner();
        inner.acknowledging = false;
        inner.acknowledge_more = false;
    }

    fn inner(&self) -> MutexGuard<'_, RequesterInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number that is in use. Dropping it without [`settle`](Ticket::settle) gives the call up.
pub(crate) struct Ticket {
    pub(crate) requester: Arc<Requester>,
    seq: u64,
    settled: bool,
    /// How many attempts were made, and what the last of them acknowledges beside the low mark.
    sent: Mutex<(u32, Vec<u64>)>,
    _slot: OwnedSemaphorePermit,
}

impl Ticket {
    /// The identity for an attempt, with what can be acknowledged now.
    pub(crate) fn request_id(&self) -> RequestId {
        let (acknowledged_below, acknowledged) = self.requester.acknowledgements();
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        *sent = (sent.0.saturating_add(1), acknowledged.clone());
        let session = Some(self.requester.session.clone());
        let request = SessionRequest {
            session,
            seq: self.seq,
            acknowledged_below,
            acknowledged,
        };
        RequestId {
            kind: Some(request_id::Kind::Session(request)),
        }
    }

    /// How many attempts were made.
    pub(crate) fn attempts(&self) -> u32 {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// The call is over, answered or given up. Returns whether it was given up, so that its acknowledgement is worth
    /// a message of its own.
    pub(crate) fn finish(mut self, answered: bool) -> bool {
        self.settled = true;
        let (attempts, singles) = std::mem::take(&mut *self.sent.lock().unwrap_or_else(PoisonError::into_inner));
        let mut inner = self.requester.inner();
        // Of several attempts it is not known which one came through with what it acknowledged.
        if answered && attempts == 1 {
            inner.window.acknowledged(&singles);
        }
        inner.window.finish(self.seq);
        !answered
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            self.requester.inner().window.finish(self.seq);
        }
    }
}

/// Which numbers are in use and which are done with.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The highest number given out.
    last: u64,
    outstanding: BTreeSet<u64>,
    /// Finished above the lowest outstanding one, and not known to be acknowledged.
    finished: BTreeSet<u64>,
}

impl Window {
    /// The next number.
    fn begin(&mut self) -> u64 {
        self.last += 1;
        self.outstanding.insert(self.last);
        self.last
    }

    /// The result of this number is needed no more.
    fn finish(&mut self, seq: u64) {
        if self.outstanding.remove(&seq) {
            self.finished.insert(seq);
            let low = self.low();
            self.finished = self.finished.split_off(&low);
        }
    }

    /// Everything below the first is done with, and so is each of the second.
    fn acknowledgements(&self) -> (u64, Vec<u64>) {
        (self.low(), self.finished.iter().copied().take(SINGLES_MAX).collect())
    }

    /// The server has taken note of these.
    fn acknowledged(&mut self, singles: &[u64]) {
        for single in singles {
            self.finished.remove(single);
        }
    }

    fn low(&self) -> u64 {
        self.outstanding.first().copied().unwrap_or(self.last + 1)
    }
}

/// The identity of a request without a session, if the group's time is this.
pub(crate) fn one_shot(id: Bytes, group_time_us: u64) -> RequestId {
    let not_after_us = group_time_us.saturating_add(ONE_SHOT_AHEAD_MS * 1_000);
    RequestId {
        kind: Some(request_id::Kind::OneShot(OneShot { id, not_after_us })),
    }
}

#[cfg(test)]
mod tests;
