//! What all handles of a group share: the overlay's generations over the rows, under one lock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tenure_core::effect::Change;
use tenure_core::ids::GroupId;
use tenure_core::table::Writes;

use super::overlay::{Fault, Generation};
use super::rows::{GroupRows, MARK_KEY, RowBatch, decode_mark, encode_mark, table_key};
use super::{AppliedMark, StateError};
use crate::feed::FeedLimits;
use crate::feed::segment::{Loaded, Segment, SegmentIndex, encode_segments};

/// The lock is held for a look or a small change only, never while rows are written.
const NO_PANIC: &str = "nothing panics while it changes what this lock guards";
/// Sealed generations up to which an image seals another one instead of copying it.
const SEALED_FOR_IMAGES_MAX: usize = 8;

/// One group, behind all of its handles.
pub(crate) struct Shared {
    pub(crate) group: GroupId,
    pub(crate) fault: Arc<Fault>,
    /// Why the feed began anew at the opening, if it did.
    pub(crate) lost_feed: Option<String>,
    limits: FeedLimits,
    inner: RwLock<Inner>,
    /// Held by whoever writes rows: one write behind, sync or install at a time.
    writer: Mutex<()>,
}

/// What the lock guards.
pub(crate) struct Inner {
    pub(crate) rows: Arc<dyn GroupRows>,
    /// Takes in the commits.
    pub(crate) active: Generation,
    /// Wait for the disk, oldest first. They change no more; reads still see them.
    pub(crate) sealed: VecDeque<Arc<Generation>>,
    pub(crate) applied: Option<AppliedMark>,
    /// The index of the mark on disk.
    pub(crate) written: Option<u64>,
    /// The index of the mark that survives a loss of power.
    pub(crate) durable: Option<u64>,
    /// The feed as far as it is on disk.
    pub(crate) feed: SegmentIndex,
}

impl Shared {
    /// Reads what the rows say of themselves. The rows are durable as they are.
    pub(crate) fn open(group: GroupId, rows: Arc<dyn GroupRows>, limits: FeedLimits) -> Result<Shared, StateError> {
        let applied = match rows.get(&MARK_KEY)? {
            Some(row) => Some(decode_mark(group, &row)?),
            None => None,
        };
        let mut lost_feed = None;
        let (feed, rows) = match SegmentIndex::load(group, rows.as_ref())? {
            Loaded::Whole(feed) => (feed, rows),
            Loaded::Lost(feed, error) => {
                let oldest = feed.oldest();
                tracing::warn!(%group, %error, oldest, "the change feed is damaged or of an earlier form, and begins anew");
                lost_feed = Some(error.to_string());
                (feed, rows.without_feed()?)
            }
        };
        let index = applied.as_ref().map(|mark| mark.index);
        let inner = Inner {
            rows,
            active: Generation::default(),
            sealed: VecDeque::new(),
            applied,
            written: index,
            durable: index,
            feed,
        };
        Ok(Shared {
            group,
            fault: Arc::new(Fault::default()),
            lost_feed,
            limits,
            inner: RwLock::new(inner),
            writer: Mutex::new(()),
        })
    }

    pub(crate) fn read_inner(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().expect(NO_PANIC)
    }

    pub(crate) fn write_inner(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().expect(NO_PANIC)
    }

    pub(crate) fn lock_writer(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().expect(NO_PANIC)
    }

    /// Gives up a segment that was read from these rows and is not what was written, and those before it. Nothing
    /// happens if it has gone meanwhile.
    pub(crate) fn give_up_segment(&self, segment: Segment, rows: &Arc<dyn GroupRows>, damage: &StateError) {
        let mut inner = self.write_inner();
        if Arc::ptr_eq(&inner.rows, rows) && inner.feed.give_up(segment) {
            let (group, first, last) = (self.group, segment.first, segment.last);
            tracing::warn!(%group, first, last, %damage, "a part of the change feed is damaged: it begins behind that now");
        }
    }

    /// Writes the generations that lie within the flushed log, one batch each. The caller holds the writer's lock.
    pub(crate) fn write_flushed(&self, log_flushed_index: u64) -> Result<(), StateError> {
        // A generation in use is sealed at most once a call, so that steady commits cannot keep this busy for ever.
        let mut may_seal = true;
        loop {
            let next = self.write_inner().next_to_write(log_flushed_index, &mut may_seal);
            let Some(generation) = next else {
                return Ok(());
            };
            self.write_generation(&generation)
                .map_err(|error| self.fault.set(error))?;
        }
    }

    fn write_generation(&self, generation: &Arc<Generation>) -> Result<(), StateError> {
        let mark = generation
            .mark
            .as_ref()
            .expect("a generation is sealed only with a commit in it");
        let mut batch: RowBatch = Vec::with_capacity(generation.writes.len() + 8);
        batch.push((MARK_KEY.to_vec(), Some(encode_mark(mark))));
        batch.extend(
            generation
                .writes
                .iter()
                .map(|(key, value)| (table_key(key), value.clone())),
        );
        let segments = encode_segments(&generation.changes, generation.time, self.limits.segment_bytes);
        // Only who holds the writer's lock changes the rows and the segments, so they stay as they are seen here.
        let (rows, extension) = {
            let inner = self.read_inner();
            let extension = inner.feed.extend(segments, generation.time, &self.limits, &mut batch);
            (inner.rows.clone(), extension)
        };
        rows.write(batch)?;
        let mut inner = self.write_inner();
        let written = inner.sealed.pop_front();
        inner.feed.apply(extension);
        inner.written = Some(mark.index);
        drop(inner);
        // Its rows are freed here, with the lock released.
        drop(written);
        Ok(())
    }
}

impl Inner {
    /// From the oldest generation to the one that takes in commits.
    pub(crate) fn generations(&self) -> impl Iterator<Item = &Generation> {
        self.sealed.iter().map(Arc::as_ref).chain(std::iter::once(&self.active))
    }

    /// The writes of all generations, youngest first.
    pub(crate) fn layers(&self) -> Vec<&Writes> {
        let sealed = self.sealed.iter().rev().map(|generation| &generation.writes);
        std::iter::once(&self.active.writes)
            .chain(sealed)
            .filter(|writes| !writes.is_empty())
            .collect()
    }

    /// The highest revision that the feed has a change of, in memory or on disk.
    pub(crate) fn last_revision(&self) -> u64 {
        let newest = |generation: &Generation| generation.changes.last().map(|change| change.revision);
        newest(&self.active)
            .or_else(|| self.sealed.iter().rev().find_map(|generation| newest(generation)))
            .unwrap_or(self.feed.last)
    }

    /// Says what is wrong with a commit that would not lie behind everything so far.
    pub(crate) fn check_order(&self, index: u64, changes: &[Change]) -> Result<(), &'static str> {
        if self.applied.as_ref().is_some_and(|applied| index <= applied.index) {
            return Err("its index is not higher");
        }
        let revisions = changes.iter().map(|change| change.revision);
        if changes
            .first()
            .is_some_and(|first| first.revision <= self.last_revision())
            || !revisions.is_sorted()
        {
            return Err("the revisions of its changes do not rise");
        }
        Ok(())
    }

    /// Closes the generation in use, if anything is in it.
    fn seal(&mut self) {
        if self.active.mark.is_some() {
            self.sealed.push_back(Arc::new(std::mem::take(&mut self.active)));
        }
    }

    /// The oldest generation, if the log is flushed up to its end. The one in use is sealed when no other waits:
    /// then at most one sealed generation waits for the log, and it is reached however fast new entries come.
    fn next_to_write(&mut self, log_flushed_index: u64, may_seal: &mut bool) -> Option<Arc<Generation>> {
        if self.sealed.is_empty() && *may_seal {
            *may_seal = false;
            self.seal();
        }
        let oldest = self.sealed.front()?;
        oldest
            .last_index()
            .is_some_and(|index| index <= log_flushed_index)
            .then(|| oldest.clone())
    }

    /// All generations as they are now, youngest first, without copying rows when that can be avoided.
    pub(crate) fn freeze(&mut self) -> Vec<Arc<Generation>> {
        let mut frozen = Vec::with_capacity(self.sealed.len() + 1);
        if self.sealed.len() < SEALED_FOR_IMAGES_MAX {
            self.seal();
        } else {
            let copy = Generation {
                writes: self.active.writes.clone(),
                ..Generation::default()
            };
            frozen.push(Arc::new(copy));
        }
        frozen.extend(self.sealed.iter().rev().cloned());
        frozen
    }
}
