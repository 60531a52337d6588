//! Segments of the feed: how changes become rows, and what is known of the rows without reading them.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure_core::codec::{decode_change, encode_change};
use tenure_core::effect::Change;
use tenure_core::ids::GroupId;
use tenure_core::table::Visit;
use tenure_core::time::Timestamp;

use super::FeedLimits;
use crate::state::StateError;
use crate::state::rows::{
    FEED_HEAD_KEY, RowBatch, RowRead, decode_row, encode_row, revision_of_key, segment_facts_end, segment_facts_key,
    segment_key,
};

/// Each change of a segment is preceded by the number of its bytes, four bytes, lowest first.
const LENGTH_BYTES: usize = 4;
/// No revision is higher.
const REVISION_MAX: u64 = i64::MAX as u64;
/// No row is longer.
const SEGMENT_LENGTH_MAX: u64 = u32::MAX as u64;

/// What is known of a segment on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Cluster time of the commit that it was written with.
    pub(crate) time: Timestamp,
    pub(crate) bytes: u64,
}

/// The segments on disk, and where the feed begins and ends there.
#[derive(Debug)]
pub(crate) struct SegmentIndex {
    /// The first revision from which on nothing is missing, as far as the damage of single segments allows.
    oldest: u64,
    /// No change on disk has a higher revision, and none of a lower one will come.
    pub(crate) last: u64,
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) bytes: u64,
    /// Segments up to this revision are damaged, or lie before one that is: they are read no more, and go with the next
    /// batch.
    given_up: u64,
    /// Whether the head on disk says something else.
    head_is_stale: bool,
}

/// What the rows say of the segments.
pub(crate) enum Loaded {
    /// What lies there.
    Whole(SegmentIndex),
    /// Segments are missing or are not what was written: the feed begins behind what it ended with, and its rows are to
    /// be removed.
    Lost(SegmentIndex, StateError),
}

/// What a write behind does to the segments: the rows, and the index when the rows are written.
pub(crate) struct Extension {
    dropped: usize,
    added: Vec<Segment>,
    oldest: u64,
    last: u64,
}

/// The head of the feed as a row.
#[derive(Serialize, Deserialize)]
struct HeadRow {
    oldest: u64,
    last: u64,
}

/// What is known of a segment as a row; its first revision is in the key.
#[derive(Serialize, Deserialize)]
struct FactsRow {
    last: u64,
    time: Timestamp,
    bytes: u64,
}

impl SegmentIndex {
    /// A feed without changes that begins behind `revision`.
    pub(crate) fn behind(revision: u64) -> SegmentIndex {
        SegmentIndex {
            oldest: revision.saturating_add(1),
            last: revision,
            segments: VecDeque::new(),
            bytes: 0,
            given_up: 0,
            head_is_stale: false,
        }
    }

    /// The first revision from which on nothing is missing.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.max(self.given_up.saturating_add(1))
    }

    /// Its head as a row of a new life.
    pub(crate) fn head_row(&self) -> (Vec<u8>, Bytes) {
        (
            FEED_HEAD_KEY.to_vec(),
            encode_row(&HeadRow {
                oldest: self.oldest,
                last: self.last,
            }),
        )
    }

    /// Reads the index from the rows.
    ///
    /// # Errors
    /// The head of the feed lies with the rows of the group, so damage of it is damage of the group.
    pub(crate) fn load(group: GroupId, rows: &dyn RowRead) -> Result<Loaded, StateError> {
        let head = match rows.get(&FEED_HEAD_KEY)? {
            Some(row) => {
                let head: HeadRow = decode_row(group, &row)?;
                if head.last > REVISION_MAX {
                    return Err(StateError::damaged(
                        group,
                        "the head of the change feed names no revision",
                    ));
                }
                head
            }
            None => HeadRow { oldest: 1, last: 0 },
        };
        Ok(match SegmentIndex::load_segments(group, &head, rows) {
            Ok(index) => Loaded::Whole(index),
            Err(error) => {
                let mut index = SegmentIndex::behind(head.last);
                index.head_is_stale = true;
                Loaded::Lost(index, error)
            }
        })
    }

    fn load_segments(group: GroupId, head: &HeadRow, rows: &dyn RowRead) -> Result<SegmentIndex, StateError> {
        let mut index = SegmentIndex::behind(head.last);
        index.oldest = head.oldest;
        let mut failed = None;
        // Rows below the oldest revision were removed; starting behind them does not walk over their remains.
        rows.scan(
            &segment_facts_key(head.oldest),
            &segment_facts_end(),
            &mut |key, value| match facts_of_row(group, key, value) {
                Ok(segment) => {
                    index.bytes += segment.bytes;
                    index.segments.push_back(segment);
                    Visit::Continue(())
                }
                Err(error) => {
                    failed = Some(error);
                    Visit::Break(())
                }
            },
        )?;
        if let Some(error) = failed {
            return Err(error);
        }
        let in_order = index
            .segments
            .iter()
            .zip(index.segments.iter().skip(1))
            .all(|(one, next)| one.last < next.first);
        // The head is written with the segments: it ends with the last of them, and without any it begins behind them.
        let ends = match index.segments.back() {
            Some(segment) => segment.last == head.last,
            None => head.oldest == head.last.saturating_add(1),
        };
        match in_order && ends {
            true => Ok(index),
            false => Err(StateError::damaged(
                group,
                "the segments of the change feed are not those that were written",
            )),
        }
    }

    /// Gives up a segment that is damaged, with those before it. False if that was known.
    pub(crate) fn give_up(&mut self, segment: Segment) -> bool {
        let is_news = self.has(segment) && self.given_up < segment.last;
        if is_news {
            self.given_up = segment.last;
        }
        is_news
    }

    /// The segment that holds the first change at or behind `revision`, if that is on disk.
    pub(crate) fn at(&self, revision: u64) -> Option<Segment> {
        let position = self.segments.partition_point(|segment| segment.last < revision);
        self.segments.get(position).copied()
    }

    /// Whether it still has this segment.
    pub(crate) fn has(&self, segment: Segment) -> bool {
        self.segments
            .binary_search_by_key(&segment.first, |known| known.first)
            .is_ok()
    }

    /// Puts into `batch` the rows of new segments, and removes whole segments from the front until the feed obeys its
    /// limits at cluster time `time`. Nothing happens to the index before [`SegmentIndex::apply`].
    pub(crate) fn extend(
        &self,
        mut added: Vec<(Segment, Bytes)>,
        time: Timestamp,
        limits: &FeedLimits,
        batch: &mut RowBatch,
    ) -> Extension {
        let mut bytes = self.bytes + added.iter().map(|(segment, _)| segment.bytes).sum::<u64>();
        let mut count = self.segments.len() + added.len();
        let last = added.last().map_or(self.last, |(segment, _)| segment.last);
        let mut oldest = self.oldest;
        let mut dropped = 0;
        let mut dropped_of_added = 0;
        let in_order = self.segments.iter().chain(added.iter().map(|(segment, _)| segment));
        for (position, segment) in in_order.enumerate() {
            let too_old = (segment.time + limits.age_max).is_due_at(time);
            let is_lost = segment.last <= self.given_up;
            if !too_old && !is_lost && bytes <= limits.bytes_max && count <= limits.segments_max {
                break;
            }
            if position < self.segments.len() {
                dropped += 1;
            } else {
                dropped_of_added += 1;
            }
            bytes -= segment.bytes;
            count -= 1;
            oldest = segment.last + 1;
        }
        for segment in self.segments.iter().take(dropped) {
            batch.push((segment_key(segment.first), None));
            batch.push((segment_facts_key(segment.first), None));
        }
        added.drain(..dropped_of_added);
        let extension = Extension {
            dropped,
            added: added.iter().map(|(segment, _)| *segment).collect(),
            oldest,
            last,
        };
        for (segment, rows) in added {
            let facts = FactsRow {
                last: segment.last,
                time: segment.time,
                bytes: segment.bytes,
            };
            batch.push((segment_key(segment.first), Some(rows)));
            batch.push((segment_facts_key(segment.first), Some(encode_row(&facts))));
        }
        if oldest != self.oldest || last != self.last || self.head_is_stale {
            batch.push((FEED_HEAD_KEY.to_vec(), Some(encode_row(&HeadRow { oldest, last }))));
        }
        extension
    }

    /// Takes over what has been written.
    pub(crate) fn apply(&mut self, extension: Extension) {
        for segment in self.segments.drain(..extension.dropped) {
            self.bytes -= segment.bytes;
        }
        self.bytes += extension.added.iter().map(|segment| segment.bytes).sum::<u64>();
        self.segments.extend(extension.added);
        self.oldest = extension.oldest;
        self.last = extension.last;
        self.head_is_stale = false;
    }
}

/// The changes in the row of a segment.
pub(crate) fn decode_segment(group: GroupId, row: &[u8]) -> impl Iterator<Item = Result<Change, StateError>> {
    let mut rest = row;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let decoded = split_change(rest).and_then(|(bytes, behind)| {
            rest = behind;
            decode_change(bytes).ok()
        });
        Some(decoded.ok_or_else(|| {
            rest = &[];
            StateError::damaged(group, "a segment of the change feed does not decode")
        }))
    })
}

/// Cuts the changes into segments of about `segment_bytes` each, never within a revision.
pub(crate) fn encode_segments(changes: &[Change], time: Timestamp, segment_bytes: usize) -> Vec<(Segment, Bytes)> {
    let mut segments = Vec::new();
    let mut row = Vec::new();
    let mut first = 0;
    for same_revision in changes.chunk_by(|one, next| one.revision == next.revision) {
        let revision = same_revision.first().map_or(0, |change| change.revision);
        if row.is_empty() {
            first = revision;
        }
        for change in same_revision {
            let bytes = encode_change(change);
            let length = u32::try_from(bytes.len()).expect("a change fits a log entry, and so a u32");
            row.extend_from_slice(&length.to_le_bytes());
            row.extend_from_slice(&bytes);
        }
        let is_last = changes.last().is_some_and(|change| change.revision == revision);
        if row.len() >= segment_bytes || is_last {
            let bytes = row.len() as u64;
            segments.push((
                Segment {
                    first,
                    last: revision,
                    time,
                    bytes,
                },
                std::mem::take(&mut row).into(),
            ));
        }
    }
    segments
}

fn split_change(row: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = row.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

fn facts_of_row(group: GroupId, key: &[u8], value: &[u8]) -> Result<Segment, StateError> {
    let facts: FactsRow = decode_row(group, value)?;
    let first = revision_of_key(key)
        .filter(|first| *first <= facts.last && facts.last <= REVISION_MAX && facts.bytes <= SEGMENT_LENGTH_MAX)
        .ok_or(StateError::damaged(
            group,
            "a segment of the change feed has no proper name",
        ))?;
    Ok(Segment {
        first,
        last: facts.last,
        time: facts.time,
        bytes: facts.bytes,
    })
}

#[cfg(test)]
mod tests;
