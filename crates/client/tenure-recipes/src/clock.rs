//! The pair of clocks that a holder measures with.
//!
//! A holder's right ends after a length of time that passes for the server too, so it is measured on a clock that
//! goes on while the machine is suspended. A second clock, which stops then, is read beside it: if the two disagree,
//! the machine slept, and the holder asks the server before it believes in anything.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A reading of both clocks at one moment. Each counts from some fixed instant of its own, so only differences of the
/// same clock mean anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Instants {
    /// Time on the clock that goes on while the machine is suspended. Every deadline is on this one.
    pub boot: Duration,
    /// Time on the clock that stops then.
    pub monotonic: Duration,
}

impl Instants {
    /// By how much more the one clock went than the other since an earlier reading: the length of a suspension.
    pub fn disagreement_since(self, earlier: Instants) -> Duration {
        let boot = self.boot.saturating_sub(earlier.boot);
        let monotonic = self.monotonic.saturating_sub(earlier.monotonic);
        boot.abs_diff(monotonic)
    }

    /// Both clocks this much later.
    #[must_use]
    pub fn plus(self, time: Duration) -> Instants {
        Instants {
            boot: self.boot.saturating_add(time),
            monotonic: self.monotonic.saturating_add(time),
        }
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync {
    /// Reads both clocks, as near to the same moment as can be. Neither ever goes back.
    fn now(&self) -> Instants;

    /// Reads the clock that goes on while the machine is suspended alone, which costs less than both.
    fn boot(&self) -> Duration {
        self.now().boot
    }

    /// Reads the clock that stops then alone.
    fn monotonic(&self) -> Duration {
        self.now().monotonic
    }
}

/// A clock that stands still until it is moved: for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: Mutex<Instants>,
}

impl ManualClock {
    /// A clock at this reading.
    pub fn new(now: Instants) -> ManualClock {
        ManualClock { now: Mutex::new(now) }
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.plus(time);
    }

    /// Suspends the machine for this long: only the boot-time clock goes on.
    pub fn suspend(&self, time: Duration) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.boot = now.boot.saturating_add(time);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instants {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
