//! From what was applied to those who watch on this node.
//!
//! Each watcher has its own bounded buffer. One that does not keep up is cut off and told from which revision it
//! can go on; nobody else notices. A watcher is registered for what comes behind a revision and reads what came
//! before from the change feed, so nothing is missed and nothing comes twice.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tenure_core::effect::{Change, Effect};
use tenure_core::ids::{GroupId, Incarnation, Revision};
use tenure_core::time::Timestamp;
use tenure_replica::EffectSink;
use tokio::sync::Notify;

/// Watchers of a node.
pub(crate) const WATCHERS_MAX: usize = 10_000;
/// Changes that wait for one watcher.
pub(crate) const WATCHER_CHANGES_MAX: usize = 1_024;
/// Bytes of the changes that wait for one watcher.
pub(crate) const WATCHER_BYTES_MAX: usize = 4 << 20;
/// What a change costs in a buffer beside its key and value.
const CHANGE_OVERHEAD_BYTES: usize = 96;

/// Which changes of a cache a watcher wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Key(Bytes),
    Prefix(Bytes),
}

impl Target {
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        match self {
            Target::Key(wanted) => wanted == key,
            Target::Prefix(prefix) => key.starts_with(prefix),
        }
    }
}

/// Why a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchEnd {
    /// It did not keep up, or the changes are not kept here: it can go on from this revision.
    Lagged { resume_from: u64 },
    /// The changes that were asked for are not kept any more.
    Compacted { resume_from: u64 },
    /// The cache is gone.
    ObjectDeleted { revision: u64 },
    /// The group has stopped on this node.
    Stopped { why: String },
}

/// All watchers of a node.
#[derive(Debug, Default)]
pub(crate) struct WatchHub {
    groups: Mutex<BTreeMap<GroupId, GroupWatchers>>,
}

#[derive(Debug, Default)]
struct GroupWatchers {
    next_id: u64,
    by_cache: BTreeMap<Incarnation, CacheWatchers>,
    /// Where the watchers are, by id.
    places: BTreeMap<u64, (Incarnation, Target)>,
    /// The revision of the last entry told, stored after its changes were handed out.
    told: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct CacheWatchers {
    by_key: BTreeMap<Bytes, Vec<Watcher>>,
    by_prefix: Vec<(Bytes, Watcher)>,
}

#[derive(Debug, Clone)]
struct Watcher {
    id: u64,
    /// Only changes behind this revision; those before were read from the feed.
    behind: Revision,
    buffer: Arc<Buffer>,
}

/// What waits for one watcher.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: VecDeque<Change>,
    bytes: usize,
    end: Option<WatchEnd>,
}

/// What a watcher takes out of its buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Changes in order.
    Changes(Vec<Change>),
    /// Nothing waits.
    Nothing,
    /// The watch has ended, and everything before the end was taken.
    Ended(WatchEnd),
}

/// A registered watcher; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    hub: Arc<WatchHub>,
    group: GroupId,
    id: u64,
    behind: Revision,
    told: Arc<AtomicU64>,
    buffer: Arc<Buffer>,
}

impl Registration {
    /// Takes what waits, whole revisions only: those whose changes were all handed out.
    pub(crate) fn take(&self) -> Taken {
        let told = self.told.load(Ordering::Acquire);
        let mut waiting = locked(&self.buffer.waiting);
        let whole = waiting.changes.partition_point(|change| change.revision <= told);
        if whole > 0 {
            let taken: Vec<Change> = waiting.changes.drain(..whole).collect();
            waiting.bytes -= taken.iter().map(size_of_change).sum::<usize>();
            return Taken::Changes(taken);
        }
        if !waiting.changes.is_empty() {
            return Taken::Nothing;
        }
        match &waiting.end {
            Some(end) => Taken::Ended(end.clone()),
            None => Taken::Nothing,
        }
    }

    /// The revision at or below which no later change is, if nothing waits.
    pub(crate) fn take_progress(&self) -> Option<Revision> {
        // Read first: whatever lies at or below it was put into the buffer before it was stored.
        let told = Revision(self.told.load(Ordering::Acquire));
        let waiting = locked(&self.buffer.waiting);
        (waiting.changes.is_empty() && waiting.end.is_none()).then(|| told.max(self.behind))
    }

    /// Completes when there is something to take. Progress alone wakes nobody.
    pub(crate) async fn wait(&self) {
        self.buffer.wake.notified().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut groups = locked(&self.hub.groups);
        if let Some(group) = groups.get_mut(&self.group) {
            group.remove(self.id);
        }
    }
}

impl WatchHub {
    /// Registers a watcher for what comes behind the revision that `behind` returns. It is asked under the lock,
    /// so that no entry is told in between.
    ///
    /// # Errors
    /// The number of watchers that the node already has, if that is all it takes.
    pub(crate) fn register(
        self: &Arc<Self>,
        group: GroupId,
        incarnation: Incarnation,
        target: Target,
        behind: impl FnOnce() -> Revision,
    ) -> Result<(Registration, Revision), usize> {
        let mut groups = locked(&self.groups);
        let count: usize = groups.values().map(|group| group.places.len()).sum();
        if count >= WATCHERS_MAX {
            return Err(count);
        }
        let behind = behind();
        let watchers = groups.entry(group).or_default();
        watchers.next_id += 1;
        let id = watchers.next_id;
        let buffer = Arc::new(Buffer::default());
        let watcher = Watcher {
            id,
            behind,
            buffer: buffer.clone(),
        };
        let cache = watchers.by_cache.entry(incarnation).or_default();
        match &target {
            Target::Key(key) => cache.by_key.entry(key.clone()).or_default().push(watcher),
            Target::Prefix(prefix) => cache.by_prefix.push((prefix.clone(), watcher)),
        }
        watchers.places.insert(id, (incarnation, target));
        let told = watchers.told.clone();
        Ok((
            Registration {
                hub: self.clone(),
                group,
                id,
                behind,
                told,
                buffer,
            },
            behind,
        ))
    }

    /// How many watchers there are.
    pub(crate) fn len(&self) -> usize {
        locked(&self.groups).values().map(|group| group.places.len()).sum()
    }
}

impl EffectSink for WatchHub {
    fn applied(&self, group: GroupId, effects: &[Effect], revision: Revision, _time: Timestamp) {
        let mut groups = locked(&self.groups);
        let watchers = groups.entry(group).or_default();
        let mut touched = Touched::default();
        for effect in effects {
            match effect {
                Effect::Changed(change) => watchers.tell(change, &mut touched),
                Effect::ObjectDeleted { incarnation, revision } => {
                    let end = WatchEnd::ObjectDeleted { revision: *revision };
                    watchers.end_cache(*incarnation, &end, &mut touched);
                }
                Effect::SessionEnded { .. } => {}
            }
        }
        // Only now are its revisions whole for those who wait.
        watchers.told.store(revision.0, Ordering::Release);
        touched.wake();
    }

    fn reset(&self, group: GroupId, revision: Revision) {
        let mut groups = locked(&self.groups);
        if let Some(watchers) = groups.get_mut(&group) {
            let end = WatchEnd::Lagged {
                resume_from: revision.0 + 1,
            };
            watchers.each(&mut |watcher| {
                watcher.buffer.end(end.clone());
                watcher.buffer.wake.notify_one();
            });
        }
    }

    fn stopped(&self, group: GroupId, why: &str) {
        tracing::error!(%group, why, "the group has stopped on this node");
        let mut groups = locked(&self.groups);
        if let Some(watchers) = groups.get_mut(&group) {
            let end = WatchEnd::Stopped { why: why.to_owned() };
            watchers.each(&mut |watcher| {
                watcher.buffer.end(end.clone());
                watcher.buffer.wake.notify_one();
            });
        }
    }
}

/// Who is to be woken when an entry has been told.
#[derive(Default)]
struct Touched(Vec<Arc<Buffer>>);

impl Touched {
    fn add(&mut self, buffer: &Arc<Buffer>) {
        if !self.0.last().is_some_and(|last| Arc::ptr_eq(last, buffer)) {
            self.0.push(buffer.clone());
        }
    }

    fn wake(self) {
        for buffer in self.0 {
            buffer.wake.notify_one();
        }
    }
}

impl GroupWatchers {
    fn tell(&mut self, change: &Change, touched: &mut Touched) {
        let Some(cache) = self.by_cache.get_mut(&change.incarnation) else {
            return;
        };
        let mut cut_off = Vec::new();
        let mut offer = |watcher: &Watcher| {
            if change.revision <= watcher.behind.0 {
                return;
            }
            touched.add(&watcher.buffer);
            if watcher.buffer.offer(change).is_break() {
                cut_off.push(watcher.id);
            }
        };
        cache.by_key.get(&change.key).into_iter().flatten().for_each(&mut offer);
        for (prefix, watcher) in &cache.by_prefix {
            if change.key.starts_with(prefix) {
                offer(watcher);
            }
        }
        for id in cut_off {
            self.remove(id);
        }
    }

    fn end_cache(&mut self, incarnation: Incarnation, end: &WatchEnd, touched: &mut Touched) {
        let Some(cache) = self.by_cache.remove(&incarnation) else {
            return;
        };
        for watcher in cache.watchers() {
            watcher.buffer.end(end.clone());
            touched.add(&watcher.buffer);
            self.places.remove(&watcher.id);
        }
    }

    fn each(&self, visit: &mut dyn FnMut(&Watcher)) {
        self.by_cache.values().flat_map(CacheWatchers::watchers).for_each(visit);
    }

    fn remove(&mut self, id: u64) {
        let Some((incarnation, target)) = self.places.remove(&id) else {
            return;
        };
        let Some(cache) = self.by_cache.get_mut(&incarnation) else {
            return;
        };
        match target {
            Target::Key(key) => {
                if let Some(watchers) = cache.by_key.get_mut(&key) {
                    watchers.retain(|watcher| watcher.id != id);
                    if watchers.is_empty() {
                        cache.by_key.remove(&key);
                    }
                }
            }
            Target::Prefix(_) => cache.by_prefix.retain(|(_, watcher)| watcher.id != id),
        }
        if cache.by_key.is_empty() && cache.by_prefix.is_empty() {
            self.by_cache.remove(&incarnation);
        }
    }
}

impl CacheWatchers {
    fn watchers(&self) -> impl Iterator<Item = &Watcher> {
        self.by_key
            .values()
            .flatten()
            .chain(self.by_prefix.iter().map(|(_, watcher)| watcher))
    }
}

impl Buffer {
    /// Adds a change; breaks if there is no room: then the watcher has its end and is to be removed. Changes of
    /// one revision stay together: the end names the revision whose changes did not all fit, and those of it that
    /// did are taken back.
    fn offer(&self, change: &Change) -> ControlFlow<()> {
        let mut waiting = locked(&self.waiting);
        let size = size_of_change(change);
        let full = waiting.changes.len() >= WATCHER_CHANGES_MAX || waiting.bytes + size > WATCHER_BYTES_MAX;
        if full
            && !waiting.changes.is_empty()
            && waiting.changes.front().map(|first| first.revision) != Some(change.revision)
        {
            while waiting
                .changes
                .back()
                .is_some_and(|last| last.revision == change.revision)
            {
                waiting.changes.pop_back();
            }
            waiting.end = Some(WatchEnd::Lagged {
                resume_from: change.revision,
            });
            return ControlFlow::Break(());
        }
        waiting.bytes += size;
        waiting.changes.push_back(change.clone());
        ControlFlow::Continue(())
    }

    fn end(&self, end: WatchEnd) {
        locked(&self.waiting).end.get_or_insert(end);
    }
}

fn size_of_change(change: &Change) -> usize {
    let value = match &change.kind {
        tenure_core::effect::ChangeKind::Put { value, .. } => value.len(),
        tenure_core::effect::ChangeKind::Removed { .. } => 0,
    };
    change.key.len() + value + CHANGE_OVERHEAD_BYTES
}

/// A lock whose holder cannot have left it half changed: every change of these lists is a single step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
