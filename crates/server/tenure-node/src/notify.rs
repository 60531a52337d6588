//! From what was applied to those who watch on this node.
//!
//! Each watcher of a cache has its own bounded buffer. One that does not keep up is cut off and told from which revision it
//! can go on; nobody else notices. A watcher is registered for what comes behind a revision and reads what came
//! before from the change feed, so nothing is missed and nothing comes twice.
//!
//! The watchers of each group have a lock of their own, and a change looks only at the watchers of its key and of the
//! prefixes of its key: others cost it nothing, however many they are.
//!
//! Those who follow streams have no buffers, since they read the records themselves (see `followers`). They share one lock
//! over all groups, which an entry takes for each append and each deleted object in it, to say where the stream ends now.

mod buffer;
pub(crate) mod followers;
mod prefixes;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use tenure_core::effect::{Change, Effect};
use tenure_core::ids::{GroupId, Incarnation, Revision};
use tenure_core::time::{Span, Timestamp};
use tenure_replica::{EffectSink, EntrySize};

pub(crate) use self::buffer::WATCHERS_BYTES_MAX;
use self::buffer::{Buffer, Held, Memory};
use self::followers::{Followers, Following};
use self::prefixes::Prefixes;
use crate::observe::Observed;

/// Watchers of a node.
pub(crate) const WATCHERS_MAX: usize = 10_000;

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
#[derive(Debug)]
pub(crate) struct WatchHub {
    groups: RwLock<BTreeMap<GroupId, Arc<Mutex<GroupWatchers>>>>,
    watchers: AtomicUsize,
    followers: Arc<Followers>,
    memory: Arc<Memory>,
    observed: Observed,
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
    by_prefix: Prefixes<Watcher>,
}

#[derive(Debug, Clone)]
struct Watcher {
    id: u64,
    /// Only changes behind this revision; those before were read from the feed.
    behind: Revision,
    buffer: Arc<Buffer>,
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
    group: Arc<Mutex<GroupWatchers>>,
    id: u64,
    behind: Revision,
    told: Arc<AtomicU64>,
    buffer: Arc<Buffer>,
}

impl Registration {
    /// Takes what waits, whole revisions only: those whose changes were all handed out, and about so much at once.
    pub(crate) fn take(&self, changes_max: usize, bytes_max: usize) -> Taken {
        let told = self.told.load(Ordering::Acquire);
        self.buffer.take(told, changes_max, bytes_max)
    }

    /// The revision at or below which no later change is, if nothing waits.
    pub(crate) fn take_progress(&self) -> Option<Revision> {
        // Read first: whatever lies at or below it was put into the buffer before it was stored.
        let told = Revision(self.told.load(Ordering::Acquire));
        self.buffer.is_idle().then(|| told.max(self.behind))
    }

    /// Completes when there is something to take. Progress alone wakes nobody.
    pub(crate) async fn wait(&self) {
        self.buffer.wake.notified().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        locked(&self.group).remove(self.id);
        self.hub.memory.forget(&self.buffer);
        self.hub.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for WatchHub {
    fn default() -> WatchHub {
        WatchHub::with_bytes_max(WATCHERS_BYTES_MAX)
    }
}

impl WatchHub {
    /// A hub whose watchers together may have so many bytes waiting.
    fn with_bytes_max(bytes_max: usize) -> WatchHub {
        WatchHub {
            groups: RwLock::default(),
            watchers: AtomicUsize::new(0),
            followers: Arc::default(),
            memory: Arc::new(Memory::new(bytes_max)),
            observed: Observed::default(),
        }
    }

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
        let before = self.watchers.fetch_add(1, Ordering::Relaxed) + self.followers.len();
        if before >= WATCHERS_MAX {
            self.watchers.fetch_sub(1, Ordering::Relaxed);
            return Err(before);
        }
        let buffer = self.memory.buffer();
        let group = self.group(group);
        let (id, behind, told) = locked(&group).add(incarnation, target, buffer.clone(), behind);
        let registration = Registration {
            hub: self.clone(),
            group,
            id,
            behind,
            told,
            buffer,
        };
        Ok((registration, behind))
    }

    /// Registers a follower of a stream, which counts as a watcher. Whatever is applied from now on wakes it.
    ///
    /// # Errors
    /// The number of watchers that the node already has, if that is all it takes.
    pub(crate) fn follow(&self, group: GroupId, incarnation: Incarnation) -> Result<Following, usize> {
        let max = WATCHERS_MAX.saturating_sub(self.watchers.load(Ordering::Relaxed));
        self.followers.register(group, incarnation, max)
    }

    /// How many watchers there are, those who follow streams among them.
    pub(crate) fn len(&self) -> usize {
        self.watchers.load(Ordering::Relaxed) + self.followers.len()
    }

    /// Bytes of changes that wait for watchers. What waits for many is counted once.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Watchers that were cut off because all together had too much waiting.
    pub(crate) fn cut_off(&self) -> u64 {
        self.memory.cut_off()
    }

    /// What was noted of what was applied.
    pub(crate) fn observed(&self) -> &Observed {
        &self.observed
    }

    fn group(&self, group: GroupId) -> Arc<Mutex<GroupWatchers>> {
        if let Some(watchers) = self.known_group(group) {
            return watchers;
        }
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        groups.entry(group).or_default().clone()
    }

    fn known_group(&self, group: GroupId) -> Option<Arc<Mutex<GroupWatchers>>> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.get(&group).cloned()
    }

    /// Ends all watches of a group.
    fn end_group(&self, group: GroupId, end: &WatchEnd) {
        if let Some(watchers) = self.known_group(group) {
            locked(&watchers).each(&mut |watcher| {
                watcher.buffer.end(end.clone());
                watcher.buffer.wake.notify_one();
            });
        }
    }
}

impl EffectSink for WatchHub {
    fn applied(&self, group: GroupId, effects: &[Effect], revision: Revision, time: Timestamp) {
        self.observed.transitions.note(group, effects, time);
        self.followers.applied(group, effects);
        let group = self.group(group);
        let mut watchers = locked(&group);
        let mut touched = Touched::default();
        for effect in effects {
            match effect {
                Effect::Changed(change) => watchers.tell(change, &self.memory, &mut touched),
                Effect::ObjectDeleted { incarnation, revision } => {
                    let end = WatchEnd::ObjectDeleted { revision: *revision };
                    watchers.end_cache(*incarnation, &end, &mut touched);
                }
                Effect::SessionEnded { .. } | Effect::Appended { .. } => {}
            }
        }
        // Only now are its revisions whole for those who wait.
        watchers.told.store(revision.0, Ordering::Release);
        drop(watchers);
        touched.wake();
        self.memory.relieve();
    }

    fn proposed(&self, _group: GroupId, size: EntrySize) {
        self.observed.note_entry(size);
    }

    fn ended_late(&self, _group: GroupId, late: Span) {
        self.observed.note_end(late);
    }

    fn reset(&self, group: GroupId, revision: Revision) {
        self.followers.reset(group);
        let end = WatchEnd::Lagged {
            resume_from: revision.0 + 1,
        };
        self.end_group(group, &end);
    }

    fn stopped(&self, group: GroupId, why: &str) {
        tracing::error!(%group, why, "the group has stopped on this node");
        self.followers.stopped(group, why);
        self.end_group(group, &WatchEnd::Stopped { why: why.to_owned() });
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
    fn add(
        &mut self,
        incarnation: Incarnation,
        target: Target,
        buffer: Arc<Buffer>,
        behind: impl FnOnce() -> Revision,
    ) -> (u64, Revision, Arc<AtomicU64>) {
        let behind = behind();
        self.next_id += 1;
        let id = self.next_id;
        let watcher = Watcher { id, behind, buffer };
        let cache = self.by_cache.entry(incarnation).or_default();
        match &target {
            Target::Key(key) => cache.by_key.entry(key.clone()).or_default().push(watcher),
            Target::Prefix(prefix) => cache.by_prefix.insert(prefix.clone(), watcher),
        }
        self.places.insert(id, (incarnation, target));
        (id, behind, self.told.clone())
    }

    fn tell(&mut self, change: &Change, memory: &Arc<Memory>, touched: &mut Touched) {
        let Some(cache) = self.by_cache.get(&change.incarnation) else {
            return;
        };
        // Held once for all of them, and only if there is one.
        let mut held: Option<Arc<Held>> = None;
        let mut cut_off = Vec::new();
        let mut offer = |watcher: &Watcher| {
            if change.revision <= watcher.behind.0 {
                return;
            }
            touched.add(&watcher.buffer);
            let held = held.get_or_insert_with(|| memory.hold(change));
            if watcher.buffer.offer(held).is_break() {
                cut_off.push(watcher.id);
            }
        };
        cache.by_key.get(&change.key).into_iter().flatten().for_each(&mut offer);
        cache.by_prefix.visit(&change.key, &mut offer);
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
            Target::Prefix(prefix) => cache.by_prefix.retain(&prefix, |watcher| watcher.id != id),
        }
        if cache.by_key.is_empty() && cache.by_prefix.is_empty() {
            self.by_cache.remove(&incarnation);
        }
    }
}

impl CacheWatchers {
    fn watchers(&self) -> impl Iterator<Item = &Watcher> {
        self.by_key.values().flatten().chain(self.by_prefix.values())
    }
}

/// A lock whose holder cannot have left it half changed: every change of these lists is a single step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
