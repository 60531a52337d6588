//! Warnings that a client can cause are written a few times a minute, with a count of those left out, so that it cannot
//! fill the disk with them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often one kind of warning is written in a [`WINDOW`].
const LINES_MAX: u32 = 5;
const WINDOW: Duration = Duration::from_secs(60);

/// Which warnings were written lately.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    kinds: Mutex<BTreeMap<&'static str, Kind>>,
    left_out: AtomicU64,
}

#[derive(Debug)]
struct Kind {
    began: Duration,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    /// Whether a warning of this kind is written now; then it says how many were left out since the one before.
    pub(crate) fn allow(&self, kind: &'static str, now: Duration) -> Option<u64> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = kinds.entry(kind).or_insert(Kind {
            began: now,
            lines: 0,
            left_out: 0,
        });
        if now.saturating_sub(kind.began) >= WINDOW {
            (kind.began, kind.lines) = (now, 0);
        }
        if kind.lines >= LINES_MAX {
            kind.left_out += 1;
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        kind.lines += 1;
        Some(std::mem::take(&mut kind.left_out))
    }

    /// Warnings that were left out so far.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_written_a_few_times_a_minute_and_what_was_left_out_is_counted() {
        let limit = LogLimit::default();
        let at = Duration::from_secs;
        let written = (0..100).filter_map(|_| limit.allow("stalled", at(7)));
        assert_eq!(written.collect::<Vec<_>>(), [0; 5]);
        assert_eq!(limit.allow("refused", at(7)), Some(0), "another kind has its own share");
        assert_eq!(limit.allow("stalled", at(66)), None);
        assert_eq!(limit.allow("stalled", at(67)), Some(96));
        assert_eq!(limit.allow("stalled", at(68)), Some(0));
        assert_eq!(limit.left_out(), 96);
    }
}
