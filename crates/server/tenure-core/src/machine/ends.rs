//! Ending what is due, in order and in bounded steps.
//!
//! An end that is told consumes a revision. While none are at hand only bookkeeping goes on, which needs none;
//! the ends wait for the next block.

use super::deadlines::Item;
use super::{Memory, Run};
use crate::limits::ENDED_PER_ENTRY_USUAL;
use crate::refusal::EndReason;
use crate::session::requests;
use crate::time::Timestamp;
use crate::{kv, session, stream};

/// Ends what is due at the entry's time, in the order of (deadline, id), and says how many objects ended or were
/// forgotten. A session is never split over entries.
pub(super) fn end_what_is_due(run: &mut Run<'_>) -> usize {
    let mut count = 0;
    while let Some(item) = next_due(run) {
        let size = match &item {
            Item::Session(id) => 1 + session::owned_count(run, *id),
            Item::EndedSession(id) => 1 + session::kept_count(run, *id),
            Item::Key(..) | Item::OneShot(_) | Item::Stream(_) => 1,
        };
        if count > 0 && count + size > ENDED_PER_ENTRY_USUAL {
            return count;
        }
        count += size;
        match item {
            Item::Session(id) => {
                session::end(run, id, EndReason::Expired);
            }
            Item::EndedSession(id) => session::forget(run, id),
            Item::Key(incarnation, key) => kv::expire(run, incarnation, &key),
            Item::OneShot(id) => requests::forget_one_shot(run, id),
            // One was counted above; a stream is split over entries as need be.
            Item::Stream(incarnation) => {
                count += stream::expire(run, incarnation, ENDED_PER_ENTRY_USUAL + 1 - count) - 1
            }
        }
    }
    count
}

/// Whether due work is left that the next entry can do.
pub(super) fn is_more_due(memory: &Memory, now: Timestamp) -> bool {
    let has_headroom = memory.revisions.has_headroom();
    memory.deadlines.first_due(now, has_headroom).is_some()
        || !memory.sweeps.is_empty()
        || !memory.shortening.is_empty()
}

fn next_due(run: &Run<'_>) -> Option<Item> {
    run.memory.deadlines.first_due(run.now, run.has_headroom()).cloned()
}
