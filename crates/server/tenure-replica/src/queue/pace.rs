//! How fast a line drains, and so how much may wait in it: what comes must be answered soon, or refused at once.

use std::time::Duration;

/// What waits always has so much room, whatever the pace: two entries of one namespace. Below that a bound would only
/// cut entries short.
pub(super) const ROOM_UNITS_MIN: usize = 4_096;
/// Intervals between full entries are measured until they are together at least so long.
const MEASURED_AT_LEAST: Duration = Duration::from_millis(10);
/// Bytes of a unit: an entry is full at as many units of bytes as of commands.
const UNIT_BYTES: usize = 1_024;
/// The shortest and the longest time after which one that was refused is to come back.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(50);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

/// The pace of one line. All instants are of the local clock.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// How long the line takes for a unit while it has more than it can take, once that was measured.
    per_unit: Option<Duration>,
    /// Since when something has been waiting without any being taken.
    standing_since: Option<Duration>,
    /// When the last entry was taken, if it was full: only between two of those does the line set the pace, and not
    /// those who put something into it.
    full_at: Option<Duration>,
    measured: Duration,
    measured_units: usize,
}

/// How many units a request is.
pub(super) fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES).max(1)
}

impl Pace {
    /// Notes that something came into an empty line.
    pub(super) fn note_first(&mut self, now: Duration) {
        self.standing_since.get_or_insert(now);
    }

    /// Notes that an entry of so many units was taken, whether it was full, and whether anything is left.
    pub(super) fn note_taken(&mut self, now: Duration, units: usize, full: bool, left: bool) {
        self.standing_since = left.then_some(now);
        let before = self.full_at.take();
        if !full {
            return;
        }
        self.full_at = left.then_some(now);
        let Some(before) = before else { return };
        self.measured += now.saturating_sub(before);
        self.measured_units += units;
        if self.measured < MEASURED_AT_LEAST {
            return;
        }
        let measured = self.measured / u32::try_from(self.measured_units).unwrap_or(u32::MAX).max(1);
        (self.measured, self.measured_units) = (Duration::ZERO, 0);
        // Half of what was known, so that one slow sync does not turn away half of what comes.
        self.per_unit = Some(self.per_unit.map_or(measured, |known| (known + measured) / 2));
    }

    /// How many units may wait so that none waits longer than this.
    pub(super) fn room(&self, wait_max: Duration, now: Duration) -> usize {
        let stands = self
            .standing_since
            .is_some_and(|since| now.saturating_sub(since) > wait_max / 2);
        if stands {
            return ROOM_UNITS_MIN;
        }
        let Some(per_unit) = self.per_unit else {
            return usize::MAX;
        };
        let room = wait_max.as_nanos() / per_unit.as_nanos().max(1);
        usize::try_from(room).unwrap_or(usize::MAX).max(ROOM_UNITS_MIN)
    }

    /// When one that is refused while so many units wait is to come back: half of them are gone then.
    pub(super) fn retry_after(&self, units: usize) -> Duration {
        let units = u32::try_from(units / 2).unwrap_or(u32::MAX);
        let wait = self
            .per_unit
            .map_or(RETRY_AFTER_MIN, |per_unit| per_unit.saturating_mul(units));
        wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }
}

#[cfg(test)]
mod tests;
