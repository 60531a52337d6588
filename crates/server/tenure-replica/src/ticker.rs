//! When a leader proposes an entry though nobody asks for anything: a tick.

use tenure_core::time::{Span, Timestamp};

/// How often a tick is proposed while anything has a deadline, so that a leader that comes after this one is
/// not far behind in time.
const IDLE_TICK: Span = Span::from_secs(10);
/// How often a tick is tried again that did not end what it should have ended.
const RETRY_TICK: Span = Span::from_millis(100);

/// What the need for a tick depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TickView {
    /// When the next key or session ends.
    pub(crate) next_deadline: Option<Timestamp>,
    /// Whether anything has a deadline, bookkeeping included.
    pub(crate) has_deadlines: bool,
    /// Whether due work is left that an entry can do at once.
    pub(crate) more_due: bool,
    /// The time of the last applied entry.
    pub(crate) applied_time: Timestamp,
    /// The highest stamp among the entries that were proposed and are not applied yet.
    pub(crate) proposed: Option<Timestamp>,
}

/// When the next tick is to be proposed, if nobody else speaks. A point that is not after now means at once.
pub(crate) fn next_tick(view: &TickView) -> Option<Timestamp> {
    // Entries in flight carry on with what is due, and their end is a reason to look again.
    if view.more_due && view.proposed.is_none() {
        return Some(Timestamp(0));
    }
    let at_deadline = view.next_deadline.and_then(|deadline| {
        // The first microsecond at which it is due.
        let due = deadline + Span(1);
        match view.proposed {
            Some(proposed) if proposed >= due => None,
            // Time is past the deadline and still it is there: rather late than in a hot loop.
            _ if view.applied_time >= due => Some(view.applied_time + RETRY_TICK),
            _ => Some(due),
        }
    });
    let idle = (view.has_deadlines && view.proposed.is_none()).then(|| view.applied_time + IDLE_TICK);
    at_deadline.into_iter().chain(idle).min()
}

#[cfg(test)]
mod tests;
