//! Keep-alive as a pure schedule: what to send when, and when a holder must stop believing.
//!
//! A schedule is told what the clocks say and what came back, and answers what to do now. It holds no timer and opens
//! no connection, so a thread can drive it in production, a task in a simulation and a loop in a test.
//!
//! The rules: an attempt is sent every TTL/6; one attempt is waited for at most `max(TTL/12, 100 ms)`, then the next
//! node is asked; an error is not a loss. An answered attempt makes the holder believe until the instant at which
//! *that attempt* was sent, plus 0.8 of what the server said remains. When that instant is reached the session is
//! lost, whatever any call is doing, and stays lost.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Instants;

/// An attempt is sent every TTL divided by this.
pub const INTERVAL_DIVISOR: u32 = 6;
/// One attempt is waited for at most the TTL divided by this.
pub const ATTEMPT_DIVISOR: u32 = 12;
/// But at least so long.
pub const ATTEMPT_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// After a failed attempt the next one goes out this part of the TTL after it at the earliest. A node drops what comes
/// faster than one in TTL/24.
pub const RETRY_DIVISOR: u32 = 20;
/// Of what the server says remains, a holder believes this numerator…
pub const BELIEF_NUMERATOR: u32 = 4;
/// …over this denominator.
pub const BELIEF_DENOMINATOR: u32 = 5;
/// So much before the end of its belief a session counts as lost, so that a timer that is a little late still fires
/// in time.
pub const LOSS_LEAD: Duration = Duration::from_millis(2);
/// If the two clocks went apart by more than this, the machine slept.
pub const DISAGREEMENT_MAX: Duration = Duration::from_millis(100);
/// Attempts whose late answers still count.
pub const ATTEMPTS_REMEMBERED_MAX: usize = 32;

const _: () = assert!(
    RETRY_DIVISOR > ATTEMPT_DIVISOR && RETRY_DIVISOR < 24,
    "retries are quick, and none is dropped"
);
const _: () = assert!(
    ATTEMPT_DIVISOR >= INTERVAL_DIVISOR,
    "one attempt does not eat the next one's turn"
);
const _: () = assert!(
    BELIEF_NUMERATOR < BELIEF_DENOMINATOR,
    "a holder stops before the server does"
);

/// When to send keep-alives for one session, and until when its holder may believe.
#[derive(Clone, Debug)]
pub struct KeepAliveSchedule {
    ttl: Duration,
    /// The end of the belief, on the boot-time clock, with the lead taken off.
    deadline: Duration,
    /// When the newest answered attempt was sent.
    confirmed: Duration,
    /// The reading against which a disagreement of the clocks is measured.
    anchor: Instants,
    /// The clocks disagreed at this instant: only an answer to an attempt sent since makes the session valid again.
    reconfirm_since: Option<Duration>,
    next_send: Duration,
    last_sent: Duration,
    /// The attempt that is waited for, and until when.
    waiting: Option<(u64, Duration)>,
    /// Attempts with the instants of their sending, oldest first.
    sent: VecDeque<(u64, Duration)>,
    lost: Option<LostReason>,
}

impl KeepAliveSchedule {
    /// The schedule of a session whose opening, or first renewal, was sent at `sent` and answered with `remaining`.
    pub fn new(ttl: Duration, sent: Instants, remaining: Duration) -> KeepAliveSchedule {
        KeepAliveSchedule {
            ttl,
            deadline: end_of_belief(sent.boot, remaining.min(ttl)),
            confirmed: sent.boot,
            anchor: sent,
            reconfirm_since: None,
            next_send: sent.boot.saturating_add(ttl / INTERVAL_DIVISOR),
            last_sent: sent.boot,
            waiting: None,
            sent: VecDeque::new(),
            lost: None,
        }
    }

    /// What to do now. A [`Step::Send`] that is carried out is reported by [`sent`](KeepAliveSchedule::sent).
    pub fn step(&mut self, now: Instants) -> Step {
        self.observe(now);
        if let Some(reason) = self.lost {
            return Step::Lost(reason);
        }
        if self.waiting.is_some_and(|(_, until)| now.boot >= until) {
            // Not waited for any longer: the next node is asked at once. A late answer still counts.
            self.waiting = None;
            self.next_send = now.boot;
        }
        match self.waiting {
            None if now.boot >= self.next_send => Step::Send {
                timeout: self.attempt_timeout(),
            },
            None => Step::Wait {
                until: self.next_send.min(self.deadline),
            },
            Some((_, until)) => Step::Wait {
                until: until.min(self.deadline),
            },
        }
    }

    /// An attempt is being sent; `now` was read before sending. Numbers rise over all attempts.
    pub fn sent(&mut self, now: Instants, attempt: u64) {
        self.last_sent = now.boot;
        self.next_send = now.boot.saturating_add(self.ttl / INTERVAL_DIVISOR);
        self.waiting = Some((attempt, now.boot.saturating_add(self.attempt_timeout())));
        if self.sent.len() == ATTEMPTS_REMEMBERED_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((attempt, now.boot));
    }

    /// The server renewed the session: so much remained at the entry that answers this attempt. An attempt that is
    /// not known, and any answer after a loss, changes nothing.
    pub fn answered(&mut self, now: Instants, attempt: u64, remaining: Duration) {
        self.observe(now);
        let Some(sent) = self.settle(attempt) else { return };
        if self.lost.is_some() {
            return;
        }
        self.deadline = self.deadline.max(end_of_belief(sent, remaining.min(self.ttl)));
        self.confirmed = self.confirmed.max(sent);
        if self.reconfirm_since.is_some_and(|since| sent >= since) {
            self.reconfirm_since = None;
        }
        self.anchor = now;
    }

    /// The attempt got no answer about the session: another follows soon, and until the deadline nothing is lost.
    pub fn failed(&mut self, now: Instants, attempt: u64) {
        self.observe(now);
        let waited_for = self.waiting.is_some_and(|(number, _)| number == attempt);
        if waited_for {
            self.waiting = None;
            self.next_send = self.last_sent.saturating_add(self.ttl / RETRY_DIVISOR);
        }
    }

    /// The server says that the session is over, or not there.
    pub fn ended(&mut self, now: Instants, attempt: u64, reason: LostReason) {
        self.observe(now);
        if self.settle(attempt).is_some() {
            self.lose(reason);
        }
    }

    /// The holder gives the session up: nothing is sent any more.
    pub fn stop(&mut self) {
        self.lose(LostReason::Closed);
    }

    /// Whether the holder may act on the session now: it is not lost, its deadline is ahead, and the clocks gave no
    /// reason to ask first.
    pub fn is_valid(&mut self, now: Instants) -> bool {
        self.observe(now);
        self.lost.is_none() && self.reconfirm_since.is_none()
    }

    /// How the session stands.
    pub fn state(&mut self, now: Instants) -> SessionState {
        self.observe(now);
        let quiet = now.boot.saturating_sub(self.confirmed);
        match self.lost {
            Some(reason) => SessionState::Lost { reason },
            None if self.reconfirm_since.is_some() || quiet > believed(self.ttl) / 2 => SessionState::Suspect,
            None => SessionState::Live,
        }
    }

    /// For how long the session may still be believed in if no answer comes; zero once it is lost.
    pub fn remaining(&mut self, now: Instants) -> Duration {
        if self.is_valid(now) {
            self.deadline.saturating_sub(now.boot)
        } else {
            Duration::ZERO
        }
    }

    /// The instant on the boot-time clock at which the session is lost if no answer comes.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The session's TTL.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long one attempt is waited for before the next node is asked.
    pub fn attempt_timeout(&self) -> Duration {
        (self.ttl / ATTEMPT_DIVISOR).max(ATTEMPT_TIMEOUT_MIN)
    }

    /// Takes note of the time: the deadline may have passed, or the machine may have slept.
    fn observe(&mut self, now: Instants) {
        if self.lost.is_some() {
            return;
        }
        if now.boot >= self.deadline {
            self.lose(LostReason::Unconfirmed);
        } else if now.disagreement_since(self.anchor) > DISAGREEMENT_MAX {
            self.anchor = now;
            self.reconfirm_since = Some(now.boot);
            self.waiting = None;
            self.next_send = now.boot;
        }
    }

    /// The instant at which an attempt was sent; it is not waited for any more.
    fn settle(&mut self, attempt: u64) -> Option<Duration> {
        let position = self.sent.iter().position(|(number, _)| *number == attempt)?;
        let (_, sent) = self.sent.remove(position)?;
        if self.waiting.is_some_and(|(number, _)| number == attempt) {
            self.waiting = None;
        }
        Some(sent)
    }

    fn lose(&mut self, reason: LostReason) {
        if self.lost.is_none() {
            self.lost = Some(reason);
            self.waiting = None;
            self.sent = VecDeque::new();
        }
    }
}

/// What a schedule wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send an attempt now, to another node than the last one if that one failed.
    Send {
        /// How long it is waited for.
        timeout: Duration,
    },
    /// Nothing before this instant of the boot-time clock, unless an answer comes.
    Wait {
        /// The instant.
        until: Duration,
    },
    /// Nothing ever again.
    Lost(LostReason),
}

/// How a session stands, as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// The server confirmed it lately.
    Live,
    /// No confirmation came for half the time that the holder believes, or the machine slept. It is not lost.
    Suspect,
    /// It is over for this holder, for good.
    Lost {
        /// Why.
        reason: LostReason,
    },
}

/// Why a holder lost its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// No renewal was confirmed in time. On the server it may live a little longer.
    Unconfirmed,
    /// The server ended it.
    Ended {
        /// Why.
        cause: EndCause,
        /// The revision of its end.
        revision: u64,
    },
    /// The server does not know it (any more).
    Unknown,
    /// The holder itself closed or dropped it.
    Closed,
}

/// Why a server ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Its TTL ended.
    Expired,
    /// It was closed.
    Closed,
    /// Somebody closed it by force.
    Forced,
    /// A reason that this program does not know.
    Other,
}

/// The part of a length of time that a holder believes.
pub fn believed(remaining: Duration) -> Duration {
    remaining.saturating_mul(BELIEF_NUMERATOR) / BELIEF_DENOMINATOR
}

/// Until when a holder believes, given when the answered attempt was sent.
fn end_of_belief(sent: Duration, remaining: Duration) -> Duration {
    sent.saturating_add(believed(remaining).saturating_sub(LOSS_LEAD))
}

#[cfg(test)]
mod tests;
