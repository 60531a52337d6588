//! Cluster time of one group on this node: the anchor.
//!
//! Cluster time is what the log's stamps say. Between two stamps a replica estimates it from its **anchor**, a
//! stamp and the instant of its own boot-time clock that belongs to it. Nothing else is a clock: nothing is
//! kept over a change of leader, and two lines are never merged into a maximum.
//!
//! An append is never before its stamping, so the estimate never exceeds the time that really passed: a lease
//! is never ended early by it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::time::{Span, Timestamp};

use crate::runtime::Clock;

/// A stamp and the instant of the local clock that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    stamp: Timestamp,
    instant: Duration,
}

impl Anchor {
    /// Cluster time at an instant of the local clock.
    fn time_at(self, instant: Duration) -> Timestamp {
        self.stamp + micros(instant.saturating_sub(self.instant))
    }
}

/// Keeps the anchor of one group.
pub(crate) struct TimeKeeper {
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
}

struct Kept {
    anchor: Anchor,
    /// The index of the last stamped entry that this replica appended and still has.
    last_stamped_index: Option<u64>,
}

impl TimeKeeper {
    /// At the opening of the group: the later of the last stamp in the log and the state's time, and now. So
    /// the time of a stopped cluster stands still.
    pub(crate) fn open(clock: Arc<dyn Clock>, last_in_log: Option<(u64, Timestamp)>, state_time: Timestamp) -> Self {
        let stamp = last_in_log.map_or(state_time, |(_, stamp)| stamp.max(state_time));
        let anchor = Anchor {
            stamp,
            instant: clock.now(),
        };
        let last_stamped_index = last_in_log.map(|(index, _)| index);
        TimeKeeper {
            clock,
            kept: Mutex::new(Kept {
                anchor,
                last_stamped_index,
            }),
        }
    }

    /// Cluster time now, as this replica estimates it. A leader's stamps are this value.
    pub(crate) fn now(&self) -> Timestamp {
        // The instant is taken under the lock, so that stamps never go back between two calls.
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.anchor.time_at(self.clock.now())
    }

    /// How long until cluster time reaches `time`, if the anchor stays.
    pub(crate) fn wait_until_reached(&self, time: Timestamp) -> Duration {
        Duration::from_micros((time - self.now()).0)
    }

    /// An entry that this node stamped itself was appended. The instant that belongs to the stamp is that of
    /// the stamping, which lies on the anchor's own line; the instant of the append would make the time of a
    /// busy leader crawl.
    pub(crate) fn appended_own(&self, index: u64, stamp: Timestamp) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp >= kept.anchor.stamp {
            let instant = kept.anchor.instant + Duration::from_micros((stamp - kept.anchor.stamp).0);
            kept.anchor = Anchor { stamp, instant };
        }
        kept.last_stamped_index = Some(index);
    }

    /// An entry that another leader stamped was appended now.
    pub(crate) fn appended_foreign(&self, index: u64, stamp: Timestamp) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.last_stamped_index = Some(index);
        #[cfg(feature = "deterministic")]
        if crate::planted::is(crate::planted::Planted::LostTime) {
            return;
        }
        kept.anchor = Anchor {
            stamp,
            instant: self.clock.now(),
        };
    }

    /// The log was cut back, which leaves the anchor alone; `last_in_log` is the last stamped entry that is left.
    pub(crate) fn cut(&self, last_in_log: Option<(u64, Timestamp)>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.last_stamped_index = last_in_log.map(|(index, _)| index);
    }

    /// A snapshot was installed: its time belongs to now, unless a later stamped entry stays in the log.
    pub(crate) fn installed(&self, snapshot_index: u64, time: Timestamp) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.last_stamped_index.is_some_and(|last| last > snapshot_index) {
            return;
        }
        kept.anchor = Anchor {
            stamp: time,
            instant: self.clock.now(),
        };
        kept.last_stamped_index = None;
    }
}

/// Whole microseconds of a duration, rounded down.
fn micros(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
