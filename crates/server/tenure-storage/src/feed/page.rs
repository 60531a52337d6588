//! One answer of the feed: changes in order, whole revisions only, within limits.

use std::borrow::Cow;

use tenure_core::effect::Change;
use tenure_core::ids::Revision;

use crate::state::overlay::change_bytes;

/// Bytes of changes that one read looks at, whether or not they pass the filter.
const EXAMINED_BYTES_MAX: usize = 8 << 20;

/// Some changes of the feed, and where to read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedPage {
    /// The changes that passed the filter, in order.
    pub changes: Vec<Change>,
    /// The revision to read on from.
    pub next: Revision,
    /// Whether the feed had no further change when it was read.
    pub reached_end: bool,
}

/// Collects a page.
pub(crate) struct PageBuilder<'a> {
    filter: &'a dyn Fn(&Change) -> bool,
    changes_max: usize,
    bytes_max: usize,
    changes: Vec<Change>,
    bytes: usize,
    examined_bytes: usize,
    /// The revision that is being looked at, and how many changes there were before it.
    current: Option<(u64, usize)>,
    next: u64,
}

impl<'a> PageBuilder<'a> {
    pub(crate) fn new(
        from: u64,
        changes_max: usize,
        bytes_max: usize,
        filter: &'a dyn Fn(&Change) -> bool,
    ) -> PageBuilder<'a> {
        PageBuilder {
            filter,
            changes_max,
            bytes_max,
            changes: Vec::new(),
            bytes: 0,
            examined_bytes: 0,
            current: None,
            next: from,
        }
    }

    /// The first revision that was not looked at yet.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Everything below `next` was offered.
    pub(crate) fn advance(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Looks at one more change. `false`: the page is full and does not hold it.
    pub(crate) fn offer(&mut self, change: Cow<'_, Change>) -> bool {
        let revision = change.revision;
        let before = match self.current {
            Some((current, before)) if current == revision => before,
            _ => {
                let full = self.changes.len() >= self.changes_max
                    || self.bytes >= self.bytes_max
                    || self.examined_bytes >= EXAMINED_BYTES_MAX;
                if full && self.current.is_some() {
                    self.next = revision;
                    return false;
                }
                self.current = Some((revision, self.changes.len()));
                self.changes.len()
            }
        };
        let bytes = change_bytes(&change);
        self.examined_bytes += bytes;
        if (self.filter)(&change) {
            self.changes.push(change.into_owned());
            self.bytes += bytes;
            // A revision that does not fit goes onto the next page whole; alone it may be larger than a page.
            if before > 0 && (self.changes.len() > self.changes_max || self.bytes > self.bytes_max) {
                self.changes.truncate(before);
                self.next = revision;
                return false;
            }
        }
        true
    }

    pub(crate) fn finish(self, reached_end: bool) -> FeedPage {
        FeedPage {
            changes: self.changes,
            next: Revision(self.next),
            reached_end,
        }
    }
}
