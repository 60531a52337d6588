//! What came out.

use std::fmt;
use std::time::Duration;

use crate::histogram::Histogram;
use crate::work::Work;

/// What came out of one run of one work.
#[derive(Clone, Debug)]
pub struct Report {
    /// The work.
    pub work: Work,
    /// How many did it at once.
    pub workers: usize,
    /// How many connections they shared.
    pub connections: usize,
    /// How long was measured, without the warming up.
    pub measured: Duration,
    /// The latencies of what was done in that time; how many there are is how much was done.
    pub latencies: Histogram,
    /// What failed in that time, or was refused though nobody stood in the way.
    pub errors: u64,
    /// What the first failure said, if there was one.
    pub first_error: Option<String>,
}

impl Report {
    /// Operations a second, rounded down.
    pub fn rate(&self) -> u64 {
        let micros = u64::try_from(self.measured.as_micros()).unwrap_or(u64::MAX).max(1);
        self.latencies.total().saturating_mul(1_000_000) / micros
    }

    /// The latency in the middle, in microseconds.
    pub fn p50_us(&self) -> u64 {
        self.latencies.per_mille(500)
    }

    /// The latency that one in a hundred exceeds, in microseconds.
    pub fn p99_us(&self) -> u64 {
        self.latencies.per_mille(990)
    }
}

impl fmt::Display for Report {
    /// `WORK workers=… connections=…: N ops/s p50=…us p99=…us errors=N`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} workers={} connections={}: {} ops/s p50={}us p99={}us errors={}",
            self.work,
            self.workers,
            self.connections,
            self.rate(),
            self.p50_us(),
            self.p99_us(),
            self.errors
        )
    }
}

#[cfg(test)]
mod tests;
