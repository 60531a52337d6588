//! When what ends: the order of (deadline, id), derived from the table.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::ids::{Incarnation, OneShotId, SessionId};
use crate::time::Timestamp;

/// What has a deadline. The order of the variants and their fields is part of the order in which ends happen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    /// An open session with or without a TTL.
    Session(SessionId),
    /// A key with a TTL of its own.
    Key(Incarnation, Bytes),
    /// An ended session whose results are kept until then.
    EndedSession(SessionId),
    /// A remembered one-shot request.
    OneShot(OneShotId),
    /// The first record of a stream that ends by its age, or the first of its message ids, whichever is earlier. One
    /// item a stream, so that memory does not grow with what is in it.
    Stream(Incarnation),
}

impl Item {
    /// Whether somebody may be waiting to be told of this end. The rest is bookkeeping, which may wait for
    /// the next entry that comes by.
    fn is_told(&self) -> bool {
        matches!(self, Item::Session(_) | Item::Key(..))
    }

    fn is_key(&self) -> bool {
        matches!(self, Item::Key(..))
    }
}

/// All deadlines of a group, those that are told apart from bookkeeping.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Deadlines {
    told: BTreeSet<(Timestamp, Item)>,
    bookkeeping: BTreeSet<(Timestamp, Item)>,
    /// Keys among those that are told.
    keys: usize,
}

impl Deadlines {
    pub(crate) fn insert(&mut self, deadline: Timestamp, item: Item) {
        self.keys += usize::from(item.is_key());
        let fresh = self.of(&item).insert((deadline, item));
        assert!(fresh, "a deadline is set once before it is removed");
    }

    pub(crate) fn remove(&mut self, deadline: Timestamp, item: Item) {
        self.keys -= usize::from(item.is_key());
        let entry = (deadline, item);
        let found = self.of(&entry.1).remove(&entry);
        assert!(found, "a deadline is removed as it was set");
    }

    /// The first item that is due at `now`, if any; without `told` only of bookkeeping.
    pub(crate) fn first_due(&self, now: Timestamp, told: bool) -> Option<&Item> {
        let told = self.told.first().filter(|_| told);
        let first = match (told, self.bookkeeping.first()) {
            (Some(told), Some(kept)) => told.min(kept),
            (first, None) | (None, first) => first?,
        };
        first.0.is_due_at(now).then_some(&first.1)
    }

    /// The first deadline of which somebody may be waiting to be told.
    pub(crate) fn next_told(&self) -> Option<Timestamp> {
        self.told.first().map(|(deadline, _)| *deadline)
    }

    /// How many keys have a deadline.
    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.told.is_empty() && self.bookkeeping.is_empty()
    }

    fn of(&mut self, item: &Item) -> &mut BTreeSet<(Timestamp, Item)> {
        if item.is_told() {
            &mut self.told
        } else {
            &mut self.bookkeeping
        }
    }
}

#[cfg(test)]
mod tests;
