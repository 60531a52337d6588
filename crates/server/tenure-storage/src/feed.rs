//! The change feed of a group: what watches are served from.
//!
//! The feed is no replicated state. Each replica keeps its own, in segments that are written in the same batches as
//! the state: so what is on disk ends exactly where the applied mark on disk says, and entries that are applied again
//! after a restart append the same changes again, without gap and without a change twice. Segments are removed whole,
//! from the front, when they are older or take more than [`FeedLimits`] says. After a snapshot install the feed
//! begins anew behind the snapshot.
//!
//! A revision is complete or not there at all: no segment and no page ends within one.
//!
//! The feed is history, and the state does not hang on it: a segment that is damaged is given up together with those
//! before it, with a warning. Readers from before it are told that the feed begins behind it; everybody else goes on.

pub(crate) mod page;
pub(crate) mod segment;

use std::borrow::Cow;
use std::sync::Arc;

use tenure_core::effect::Change;
use tenure_core::ids::{GroupId, Revision};
use tenure_core::time::{Span, Timestamp};

pub use page::FeedPage;
use page::PageBuilder;
use segment::{Segment, decode_segment};

use crate::state::StateError;
use crate::state::rows::{GroupRows, segment_key};
use crate::state::shared::Shared;

/// How long a change stays in the feed, in cluster time.
pub const FEED_AGE_MAX: Span = Span::from_secs(10 * 60);
/// Bytes of changes that the feed of a group keeps on disk.
pub const FEED_BYTES_MAX: u64 = 64 << 20;
/// Segments of a group's feed. Ten minutes of one write behind every 100 ms are 6,000.
pub const FEED_SEGMENTS_MAX: usize = 16_384;
/// Bytes of changes after which a segment ends with the next revision.
pub const FEED_SEGMENT_BYTES: usize = 1 << 20;

/// The change feed of one group. A handle: clones read the same feed.
#[derive(Clone)]
pub struct Feed {
    shared: Arc<Shared>,
}

/// How much a feed keeps. What is trimmed is decided at each write behind, by cluster time and bytes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedLimits {
    /// Segments that were written longer ago than this, in cluster time, are removed.
    pub age_max: Span,
    /// Bytes of segments on disk.
    pub bytes_max: u64,
    /// Segments on disk.
    pub segments_max: usize,
    /// A segment ends with the revision that makes it this long.
    pub segment_bytes: usize,
}

/// How much of a feed is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedSize {
    /// Bytes of its segments.
    pub bytes: u64,
    /// Cluster time when the oldest of them was written.
    pub since: Option<Timestamp>,
}

/// The feed could not be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FeedError {
    /// It does not reach back so far (any more). List what there is, then read on from that revision.
    #[error("the change feed begins at revision {oldest}")]
    Compacted {
        /// The first revision from which on nothing is missing.
        oldest: Revision,
    },
    /// The state of the group cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Where the next changes of a page are.
enum Source {
    /// In a segment on disk, in these rows.
    Segment(Segment, Arc<dyn GroupRows>),
    /// There are none behind the ones in memory, which were looked at.
    Finished { reached_end: bool },
}

impl Default for FeedLimits {
    fn default() -> FeedLimits {
        FeedLimits {
            age_max: FEED_AGE_MAX,
            bytes_max: FEED_BYTES_MAX,
            segments_max: FEED_SEGMENTS_MAX,
            segment_bytes: FEED_SEGMENT_BYTES,
        }
    }
}

impl Feed {
    pub(crate) fn new(shared: Arc<Shared>) -> Feed {
        Feed { shared }
    }

    /// Changes with a revision at or above `from` that pass the filter, in order. A page ends between revisions and
    /// holds at most `changes_max` changes and about `bytes_max` bytes, unless its only revision is larger. It may
    /// also end early, even empty, when very many changes did not pass: then `reached_end` is false and `next` is
    /// where to go on. The filter is called under the lock of the group for the newest changes, so it must not
    /// wait for anything.
    ///
    /// # Errors
    /// [`FeedError::Compacted`] if changes at or above `from` are missing, also because they turned out to be damaged;
    /// [`FeedError::State`] if they cannot be had now, or the group has stopped. Neither stops the group.
    pub fn read(
        &self,
        from: Revision,
        changes_max: usize,
        bytes_max: usize,
        filter: &dyn Fn(&Change) -> bool,
    ) -> Result<FeedPage, FeedError> {
        let from = from.0.max(1);
        let mut page = PageBuilder::new(from, changes_max, bytes_max, filter);
        // Each round goes through a segment and moves `next` behind it, or finds that it was trimmed meanwhile.
        loop {
            let (segment, rows) = match self.next_source(&mut page, from)? {
                Source::Segment(segment, rows) => (segment, rows),
                Source::Finished { reached_end } => return Ok(page.finish(reached_end)),
            };
            let changes = match read_segment(self.shared.group, segment, rows.as_ref()) {
                Ok(changes) => changes,
                Err(damage @ StateError::Damaged { .. }) => {
                    // Or it was trimmed meanwhile. Either way the next round finds where the feed begins now.
                    self.shared.give_up_segment(segment, &rows, &damage);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for change in changes {
                if change.revision >= page.next() && !page.offer(Cow::Owned(change)) {
                    return Ok(page.finish(false));
                }
            }
            page.advance(segment.last + 1);
        }
    }

    /// The first revision from which on nothing is missing; 1 at first.
    pub fn oldest(&self) -> Revision {
        Revision(self.shared.read_inner().feed.oldest())
    }

    /// The highest revision that it has a change of, or the one that it begins behind.
    pub fn last(&self) -> Revision {
        Revision(self.shared.read_inner().last_revision())
    }

    /// How much of it is on disk; the newest changes are only in memory.
    pub fn size(&self) -> FeedSize {
        let inner = self.shared.read_inner();
        FeedSize {
            bytes: inner.feed.bytes,
            since: inner.feed.segments.front().map(|oldest| oldest.time),
        }
    }

    /// Finds the next segment, or, if there is none, looks at the changes that are only in memory.
    fn next_source(&self, page: &mut PageBuilder<'_>, from: u64) -> Result<Source, FeedError> {
        self.shared.fault.check()?;
        let inner = self.shared.read_inner();
        if page.next() < inner.feed.oldest() {
            // What was collected before it was trimmed is still true; the next read tells of the gap.
            return match page.next() > from {
                true => Ok(Source::Finished { reached_end: false }),
                false => Err(FeedError::Compacted {
                    oldest: Revision(inner.feed.oldest()),
                }),
            };
        }
        if let Some(segment) = inner.feed.at(page.next()) {
            return Ok(Source::Segment(segment, inner.rows.clone()));
        }
        for generation in inner.generations() {
            let begin = generation
                .changes
                .partition_point(|change| change.revision < page.next());
            for change in generation.changes.iter().skip(begin) {
                if !page.offer(Cow::Borrowed(change)) {
                    return Ok(Source::Finished { reached_end: false });
                }
            }
        }
        page.advance(inner.last_revision() + 1);
        Ok(Source::Finished { reached_end: true })
    }
}

/// The changes of a segment: all that it should hold, or what is wrong with it.
fn read_segment(group: GroupId, segment: Segment, rows: &dyn GroupRows) -> Result<Vec<Change>, StateError> {
    let damaged = |what: &'static str| StateError::damaged(group, what);
    let row = rows
        .get(&segment_key(segment.first))?
        .ok_or_else(|| damaged("a segment of the change feed is missing"))?;
    let changes = decode_segment(group, &row).collect::<Result<Vec<Change>, StateError>>()?;
    let ends = (
        changes.first().map(|change| change.revision),
        changes.last().map(|change| change.revision),
    );
    if row.len() as u64 != segment.bytes || ends != (Some(segment.first), Some(segment.last)) {
        return Err(damaged("a segment of the change feed does not hold what it should"));
    }
    Ok(changes)
}
