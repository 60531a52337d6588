//! The clocks of simulated machines. They go as the simulation's time goes and stand still between its steps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_client::runtime::Instants;

/// The clock of one machine from one start of it to the next. Machines that started at different times show different
/// times, as real ones do, so that a reading of one machine means nothing on another.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    /// The machine's time at the start of the simulation, or, if it started later, what makes its time begin at zero.
    zero: Zero,
    /// So much of the simulation's time is a unit of this clock's.
    slowness: u32,
    /// And so many units of this clock's go by in that.
    haste: u32,
    /// The last reading, in microseconds of the simulation.
    last_us: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum Zero {
    /// The machine had run for so long when the simulation began.
    Before(Duration),
    /// It was started at this time of the simulation.
    At(Duration),
}

impl VirtualClock {
    /// The clock of a machine that had been up for so long when the simulation began.
    pub(crate) fn up_for(uptime: Duration) -> VirtualClock {
        VirtualClock {
            zero: Zero::Before(uptime),
            slowness: 1,
            haste: 1,
            last_us: AtomicU64::new(0),
        }
    }

    /// The clock of a machine that is started at this time of the simulation.
    pub(crate) fn started_at(start: Duration) -> VirtualClock {
        VirtualClock {
            zero: Zero::At(start),
            slowness: 1,
            haste: 1,
            last_us: AtomicU64::new(micros(start)),
        }
    }

    /// The same clock at another speed: so many units go by in so many of the simulation's.
    pub(crate) fn at_speed(self, (haste, slowness): (u32, u32)) -> VirtualClock {
        VirtualClock {
            haste,
            slowness,
            ..self
        }
    }

    /// Time since the machine's start, which counts everything: nothing is ever suspended here.
    pub(crate) fn reading(&self) -> Duration {
        // While a crash tears down what ran, no time is passing: reading on would reach the real clock.
        let now_us = now().map_or(0, micros);
        let last_us = self.last_us.fetch_max(now_us, Ordering::Relaxed).max(now_us);
        let time = Duration::from_micros(last_us);
        match self.zero {
            Zero::Before(uptime) => time * self.haste / self.slowness + uptime,
            Zero::At(start) => time.saturating_sub(start) * self.haste / self.slowness,
        }
    }
}

impl tenure_replica::runtime::Clock for VirtualClock {
    fn now(&self) -> Duration {
        self.reading()
    }
}

impl tenure_client::runtime::Clock for VirtualClock {
    fn now(&self) -> Instants {
        let reading = self.reading();
        Instants {
            boot: reading,
            monotonic: reading,
        }
    }
}

/// Time since the start of the simulation, as the machine sees it that is running now; `None` if none is.
pub(crate) fn now() -> Option<Duration> {
    tokio::runtime::Handle::try_current().ok()?;
    turmoil::sim_elapsed()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
