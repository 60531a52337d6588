//! Blocks of revisions. A group consumes revisions only from a block that the system group reserved for it
//! and that it took by a command in its own log, so whatever an unknown past handed out lies below.

use serde::{Deserialize, Serialize};

use crate::limits::{BLOCK_LOW_REVISIONS, BLOCK_REVISIONS, BLOCKS_WAITING_MAX, COMMAND_REVISIONS_MAX};

/// The revisions that a group has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revisions {
    /// The highest revision consumed so far.
    last: u64,
    /// The next revision of the current block; equal to `end` when it is used up.
    next: u64,
    /// Behind the current block.
    end: u64,
    /// First revisions of the blocks to come, ascending.
    waiting: Vec<u64>,
    /// Behind the highest block ever taken.
    top: u64,
}

impl Revisions {
    /// Those of a group that is restored: none at hand, none below the floor to come, and everything below it in the past.
    pub(crate) fn restored(floor: u64) -> Revisions {
        Revisions {
            last: floor - 1,
            next: floor,
            end: floor,
            waiting: Vec::new(),
            top: floor,
        }
    }

    /// Behind the highest block ever taken.
    pub(crate) fn top(&self) -> u64 {
        self.top
    }

    /// The highest revision consumed so far.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// How many revisions are left in all blocks taken.
    pub fn left(&self) -> u64 {
        (self.end - self.next) + self.waiting.len() as u64 * BLOCK_REVISIONS
    }

    /// Whether there are revisions for one more command or end and what it may meet.
    pub(crate) fn has_headroom(&self) -> bool {
        self.left() >= COMMAND_REVISIONS_MAX
    }

    /// Whether the next block should be asked for.
    pub fn is_low(&self) -> bool {
        self.left() < BLOCK_LOW_REVISIONS
    }

    /// Takes a block; ignored (`false`) unless it lies above every block taken before and there is room for
    /// it in the row. Two leaders may both have asked.
    pub(crate) fn take(&mut self, first: u64) -> bool {
        let fits = first
            .checked_add(BLOCK_REVISIONS)
            .is_some_and(|end| end <= i64::MAX as u64);
        if first == 0 || first < self.top || !fits || self.waiting.len() >= BLOCKS_WAITING_MAX {
            return false;
        }
        self.top = first + BLOCK_REVISIONS;
        self.waiting.push(first);
        true
    }

    /// Consumes the next revision.
    ///
    /// Panics if none is left; callers ask [`Revisions::has_headroom`] first.
    pub(crate) fn consume(&mut self) -> u64 {
        if self.next == self.end {
            assert!(
                !self.waiting.is_empty(),
                "a revision is consumed only while some are left"
            );
            self.next = self.waiting.remove(0);
            self.end = self.next + BLOCK_REVISIONS;
        }
        self.last = self.next;
        self.next += 1;
        self.last
    }
}

#[cfg(test)]
mod tests;
