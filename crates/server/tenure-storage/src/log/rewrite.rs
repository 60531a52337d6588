//! Copying forward what lagging groups still need, so that old segments can go.
//!
//! Only the oldest segment can be freed. When the segments in use are more than twice as long as what is alive in them,
//! the live entries of the oldest are copied to the end of the log, a little behind each batch, until it is empty.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::group::Group;
use super::read::read_entries;
use super::record::{HEADER_LENGTH, Kind};
use super::segment::Segment;
use super::writer::Writer;
use super::{Inner, NO_PANIC};
use crate::error::LogFailed;

/// How much is copied behind one batch, in bytes, if segments are longer than twice that.
const COPY_LENGTH_MAX: u64 = 1 << 20;

/// So many segments may be in use without anything being copied.
const SEGMENTS_FREE_OF_CHARGE: u64 = 3;

/// The entries of one segment that are still to be copied.
pub(super) struct Rewrite {
    segment: u32,
    todo: VecDeque<(Arc<Group>, Range<u64>)>,
}

struct Copied {
    group: Arc<Group>,
    index: u64,
    payload: Bytes,
}

impl Writer {
    /// Copies one batch, if anything is to be copied.
    pub(super) fn rewrite_some(&mut self, inner: &Inner) -> Result<(), LogFailed> {
        if self.rewrite.is_none() {
            self.rewrite = plan(inner, self.active());
        }
        let Some(mut rewrite) = self.rewrite.take() else {
            return Ok(());
        };
        let copied = rewrite.read_some(inner)?;
        if copied.is_empty() {
            return self.free_segments(inner);
        }
        self.rewrite = Some(rewrite);
        self.make_room(
            inner,
            copied.iter().map(|copy| HEADER_LENGTH + copy.payload.len()).sum(),
        )?;
        self.begin_batch();
        for copy in &copied {
            self.builder
                .push(Kind::Copied, copy.group.id, copy.index, &copy.payload);
        }
        let Some(start) = self.write_batch(inner)? else {
            return Ok(());
        };
        let mut at = 0;
        for copy in &copied {
            let location = self.location(start, at, &copy.payload);
            at += HEADER_LENGTH + copy.payload.len();
            // Nobody but the writer changes what is written, and it has done nothing else since.
            let before = copy.group.memory().written.relocate(copy.index, location);
            before.into_iter().for_each(|before| inner.drop_location(before));
            self.active().add_live(1, location.record_length());
        }
        inner
            .counters
            .entries_copied
            .fetch_add(copied.len() as u64, Ordering::Relaxed);
        self.write_mark(inner)
    }
}

impl Rewrite {
    /// The next entries to copy. None: all are copied, or dropped meanwhile.
    fn read_some(&mut self, inner: &Inner) -> Result<Vec<Copied>, LogFailed> {
        let length_max = COPY_LENGTH_MAX.min(inner.options.segment_bytes / 2);
        let mut copied = Vec::new();
        let mut length = 0;
        // Everything in it may have been dropped meanwhile, and the segment with it.
        let segment = inner.segments.read().expect(NO_PANIC).get(&self.segment).cloned();
        let Some(segment) = segment else { return Ok(copied) };
        while let Some((group, range)) = self.todo.front_mut() {
            let mut located = Vec::new();
            while !range.is_empty() && length < length_max {
                let location = group.memory().written.location(range.start);
                if let Some(location) = location.filter(|location| location.segment == segment.number) {
                    length += location.record_length();
                    located.push((range.start, location));
                }
                range.start += 1;
            }
            let mut entries = Vec::new();
            for entry in located {
                read_entries(&segment, &[entry], group.id, inner.seed, &inner.dir, &mut entries)?;
            }
            copied.extend(entries.into_iter().map(|(index, payload)| Copied {
                group: group.clone(),
                index,
                payload,
            }));
            if !range.is_empty() {
                break;
            }
            self.todo.pop_front();
        }
        Ok(copied)
    }
}

/// Whether the oldest segment is to be emptied, and of what.
fn plan(inner: &Inner, active: &Segment) -> Option<Rewrite> {
    let oldest = {
        let segments = inner.segments.read().expect(NO_PANIC);
        let live_bytes: u64 = segments
            .values()
            .map(|segment| segment.live_bytes.load(Ordering::Relaxed))
            .sum();
        let allowed = live_bytes * 2 + SEGMENTS_FREE_OF_CHARGE * inner.options.segment_bytes;
        if segments.len() as u64 * inner.options.segment_bytes <= allowed {
            return None;
        }
        segments
            .values()
            .next()
            .filter(|oldest| oldest.number != active.number)
            .cloned()?
    };
    let mut todo = VecDeque::new();
    for group in inner.all_groups() {
        let memory = group.memory();
        let start = memory.written.meta.live().start;
        for (place, location) in memory.written.locations.iter().enumerate() {
            if location.segment == oldest.number {
                extend(&mut todo, &group, start + place as u64);
            }
        }
    }
    Some(Rewrite {
        segment: oldest.number,
        todo,
    })
}

fn extend(todo: &mut VecDeque<(Arc<Group>, Range<u64>)>, group: &Arc<Group>, index: u64) {
    match todo.back_mut() {
        Some((last, range)) if Arc::ptr_eq(last, group) && range.end == index => range.end += 1,
        _ => todo.push_back((group.clone(), index..index + 1)),
    }
}
