//! What waits for one watcher, and the bytes that wait for all of them.
//!
//! A change that waits for many is held and counted once. When all buffers together hold more than the node gives
//! them, the fattest are emptied first, and their watchers told where to resume: whoever does not read pays before
//! whoever does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tenure_core::effect::{Change, ChangeKind};
use tokio::sync::Notify;

use super::{Taken, WatchEnd, locked};

/// Changes that wait for one watcher: several entries full of ends, which come faster than any client reads them.
pub(crate) const WATCHER_CHANGES_MAX: usize = 16_384;
/// Bytes of the changes that wait for one watcher.
pub(crate) const WATCHER_BYTES_MAX: usize = 4 << 20;
/// Bytes of the changes that wait for all watchers of a node.
pub(crate) const WATCHERS_BYTES_MAX: usize = 256 << 20;
/// What a change costs beside its key and value.
const CHANGE_OVERHEAD_BYTES: usize = 96;
/// What it costs in each further buffer.
const PLACE_BYTES: usize = 16;

/// What all buffers of a node hold.
#[derive(Debug)]
pub(super) struct Memory {
    bytes_max: usize,
    bytes: AtomicUsize,
    next_id: AtomicU64,
    buffers: Mutex<BTreeMap<u64, Arc<Buffer>>>,
    /// Watchers that were cut off because all together held too much.
    cut_off: AtomicU64,
}

/// A change in one or more buffers, counted while it is in any.
#[derive(Debug)]
pub(super) struct Held {
    change: Change,
    bytes: usize,
    memory: Arc<Memory>,
}

/// What waits for one watcher.
#[derive(Debug)]
pub(super) struct Buffer {
    id: u64,
    memory: Arc<Memory>,
    waiting: Mutex<Waiting>,
    pub(super) wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: VecDeque<Arc<Held>>,
    bytes: usize,
    end: Option<WatchEnd>,
}

impl Memory {
    /// Room for so many bytes.
    pub(super) fn new(bytes_max: usize) -> Memory {
        Memory {
            bytes_max,
            bytes: AtomicUsize::new(0),
            next_id: AtomicU64::new(0),
            buffers: Mutex::default(),
            cut_off: AtomicU64::new(0),
        }
    }

    /// A buffer, to be given back by [`Memory::forget`].
    pub(super) fn buffer(self: &Arc<Self>) -> Arc<Buffer> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let buffer = Arc::new(Buffer {
            id,
            memory: self.clone(),
            waiting: Mutex::default(),
            wake: Notify::new(),
        });
        locked(&self.buffers).insert(id, buffer.clone());
        buffer
    }

    /// Gives a buffer back, with what still waits in it.
    pub(super) fn forget(&self, buffer: &Buffer) {
        locked(&self.buffers).remove(&buffer.id);
        buffer.clear();
    }

    /// Holds a change for whoever wants it.
    pub(super) fn hold(self: &Arc<Self>, change: &Change) -> Arc<Held> {
        let bytes = size_of_change(change);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(Held {
            change: change.clone(),
            bytes,
            memory: self.clone(),
        })
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Watchers that were cut off because all together held too much.
    pub(super) fn cut_off(&self) -> u64 {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// Empties the fattest buffers if all together hold too much, until an eighth is free: then many changes come
    /// before it looks at all of them again.
    pub(super) fn relieve(&self) {
        if self.bytes() <= self.bytes_max {
            return;
        }
        let mut fattest: Vec<(usize, Arc<Buffer>)> = locked(&self.buffers)
            .values()
            .map(|buffer| (locked(&buffer.waiting).bytes, buffer.clone()))
            .collect();
        fattest.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));
        for (_, buffer) in fattest {
            if self.bytes() <= self.bytes_max / 8 * 7 {
                return;
            }
            if buffer.cut_off() {
                self.cut_off.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Buffer {
    /// Adds a change; breaks if there is no room or the watch has its end: then the watcher is to be removed. Changes of
    /// one revision stay together: the end names the revision whose changes did not all fit, and those of it that did
    /// are taken back.
    pub(super) fn offer(&self, held: &Arc<Held>) -> ControlFlow<()> {
        let mut waiting = locked(&self.waiting);
        if waiting.end.is_some() {
            return ControlFlow::Break(());
        }
        let revision = held.change.revision;
        let full = waiting.changes.len() >= WATCHER_CHANGES_MAX || waiting.bytes + held.bytes > WATCHER_BYTES_MAX;
        if full && waiting.first_revision().is_some_and(|first| first != revision) {
            while waiting
                .changes
                .back()
                .is_some_and(|last| last.change.revision == revision)
            {
                if let Some(last) = waiting.changes.pop_back() {
                    self.count_out(&mut waiting, last.bytes);
                }
            }
            waiting.end = Some(WatchEnd::Lagged { resume_from: revision });
            return ControlFlow::Break(());
        }
        waiting.bytes += held.bytes;
        waiting.changes.push_back(held.clone());
        self.memory.bytes.fetch_add(PLACE_BYTES, Ordering::Relaxed);
        ControlFlow::Continue(())
    }

    /// Takes what waits, up to this revision and as whole revisions: as many as are within the bounds, or one.
    pub(super) fn take(&self, told: u64, changes_max: usize, bytes_max: usize) -> Taken {
        let mut waiting = locked(&self.waiting);
        let (mut taken, mut bytes): (Vec<Change>, usize) = (Vec::new(), 0);
        while let Some(first) = waiting.changes.front() {
            let revision = first.change.revision;
            let begins = taken.last().is_none_or(|last| last.revision != revision);
            let full = taken.len() >= changes_max || bytes + first.bytes > bytes_max;
            if revision > told || (begins && full && !taken.is_empty()) {
                break;
            }
            let Some(held) = waiting.changes.pop_front() else { break };
            bytes += held.bytes;
            self.count_out(&mut waiting, held.bytes);
            taken.push(held.change.clone());
        }
        if !taken.is_empty() {
            return Taken::Changes(taken);
        }
        match &waiting.end {
            Some(end) if waiting.changes.is_empty() => Taken::Ended(end.clone()),
            _ => Taken::Nothing,
        }
    }

    /// Whether nothing waits, not even an end.
    pub(super) fn is_idle(&self) -> bool {
        let waiting = locked(&self.waiting);
        waiting.changes.is_empty() && waiting.end.is_none()
    }

    /// Ends the watch behind what waits; an end that it has already stays.
    pub(super) fn end(&self, end: WatchEnd) {
        locked(&self.waiting).end.get_or_insert(end);
    }

    /// Ends the watch where it stands: what waits is dropped. False if nothing waits, which would free nothing.
    fn cut_off(&self) -> bool {
        let mut waiting = locked(&self.waiting);
        let Some(resume_from) = waiting.first_revision() else {
            return false;
        };
        self.empty(&mut waiting);
        waiting.end = Some(WatchEnd::Lagged { resume_from });
        drop(waiting);
        self.wake.notify_one();
        true
    }

    fn clear(&self) {
        self.empty(&mut locked(&self.waiting));
    }

    fn empty(&self, waiting: &mut Waiting) {
        for held in std::mem::take(&mut waiting.changes) {
            self.count_out(waiting, held.bytes);
        }
    }

    fn count_out(&self, waiting: &mut Waiting, bytes: usize) {
        waiting.bytes -= bytes;
        self.memory.bytes.fetch_sub(PLACE_BYTES, Ordering::Relaxed);
    }
}

impl Waiting {
    fn first_revision(&self) -> Option<u64> {
        self.changes.front().map(|held| held.change.revision)
    }
}

fn size_of_change(change: &Change) -> usize {
    let value = match &change.kind {
        ChangeKind::Put { value, .. } => value.len(),
        ChangeKind::Removed { .. } => 0,
    };
    change.key.len() + value + CHANGE_OVERHEAD_BYTES
}
