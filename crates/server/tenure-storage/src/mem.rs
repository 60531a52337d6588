//! The state in memory, behind the same overlay as on disk: for clusters that keep nothing, for tests, and for the
//! simulator, with crashes and failures to order.
//!
//! What a crash can leave is modelled on the engine on disk: batches of all groups go into one journal, so what is left
//! is everything up to the last sync and any prefix of the batches behind it. Nothing here is left to chance: who
//! simulates chooses how many.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use bytes::Bytes;
use tenure_core::ids::GroupId;
use tenure_core::table::Visit;

use crate::feed::FeedLimits;
use crate::state::rows::{GroupRows, RowBatch, RowRead, RowSink, feed_keys, is_of_feed};
use crate::state::{GroupState, StateEngine, StateError};

/// Rows that a scan copies at once, at first and at most: it holds no lock while they are visited, since the
/// visitor may read.
const SCAN_CHUNK_ROWS: (usize, usize) = (8, 256);
/// Nothing panics under the locks here.
const NO_PANIC: &str = "nothing panics while it changes what this lock guards";

type RowMap = BTreeMap<Vec<u8>, Bytes>;

/// Keeps the groups' rows in memory. Clones are the same engine.
#[derive(Clone)]
pub struct MemEngine {
    limits: FeedLimits,
    /// Whether what a crash would undo is remembered.
    crashes: bool,
    running: Arc<Mutex<Running>>,
}

/// What a crash replaces.
struct Running {
    disk: Arc<Mutex<MemDisk>>,
    groups: BTreeMap<GroupId, GroupState>,
}

/// What would be on the disk.
#[derive(Default)]
struct MemDisk {
    rows: BTreeMap<GroupId, Arc<Cell>>,
    /// For each batch behind the last sync, oldest first, what its rows were before.
    undo: Vec<Undo>,
    remembers_undo: bool,
    crashed: bool,
    fails_writes: bool,
    fails_syncs: bool,
}

/// The rows of one life of a group. The map is shared with images and copied when it changes under one.
#[derive(Default)]
struct Cell {
    rows: RwLock<Arc<RowMap>>,
    fails_reads: Mutex<bool>,
}

struct Undo {
    group: GroupId,
    before: RowBatch,
}

struct MemRows {
    group: GroupId,
    disk: Arc<Mutex<MemDisk>>,
    cell: Arc<Cell>,
}

struct MemSnapshot(Arc<RowMap>);

impl MemEngine {
    /// An engine that cannot crash and come back: what it holds ends with the process.
    pub fn new(limits: FeedLimits) -> MemEngine {
        MemEngine::build(limits, false)
    }

    /// An engine whose crashes can be simulated. It remembers what each batch behind the last sync replaced.
    pub fn with_crashes(limits: FeedLimits) -> MemEngine {
        MemEngine::build(limits, true)
    }

    fn build(limits: FeedLimits, crashes: bool) -> MemEngine {
        let disk = MemDisk {
            remembers_undo: crashes,
            ..MemDisk::default()
        };
        let running = Running {
            disk: Arc::new(Mutex::new(disk)),
            groups: BTreeMap::new(),
        };
        MemEngine {
            limits,
            crashes,
            running: Arc::new(Mutex::new(running)),
        }
    }

    /// Batches of all groups that were written behind since the last sync.
    pub fn unsynced_batches(&self) -> usize {
        self.lock_disk(|disk| disk.undo.len())
    }

    /// Crashes: overlays are gone, and of the batches behind the last sync the first `batches_kept` are left (all,
    /// if there are fewer). Every handle given out before fails from now on; [`StateEngine::group`] gives new
    /// ones over what is left. Failures that were ordered are over.
    ///
    /// # Panics
    /// If the engine was not made by [`MemEngine::with_crashes`].
    pub fn crash(&self, batches_kept: usize) {
        assert!(
            self.crashes,
            "an engine whose crashes are simulated is made by with_crashes"
        );
        let mut running = self.running.lock().expect(NO_PANIC);
        let mut left = MemDisk {
            remembers_undo: true,
            ..MemDisk::default()
        };
        {
            let mut disk = running.disk.lock().expect(NO_PANIC);
            disk.crashed = true;
            let kept = batches_kept.min(disk.undo.len());
            let undone = disk.undo.split_off(kept);
            // Copies: the old handles may still be read by somebody who does not know yet.
            let mut maps: BTreeMap<GroupId, RowMap> = BTreeMap::new();
            for (group, cell) in &disk.rows {
                maps.insert(*group, cell.rows.read().expect(NO_PANIC).as_ref().clone());
            }
            for undo in undone.into_iter().rev() {
                apply(maps.entry(undo.group).or_default(), undo.before);
            }
            for (group, map) in maps {
                left.rows.insert(
                    group,
                    Arc::new(Cell {
                        rows: RwLock::new(Arc::new(map)),
                        ..Cell::default()
                    }),
                );
            }
        }
        *running = Running {
            disk: Arc::new(Mutex::new(left)),
            groups: BTreeMap::new(),
        };
    }

    /// From now on reads of this group's rows fail, or no longer do.
    pub fn fail_reads(&self, group: GroupId, fails: bool) {
        self.lock_disk(|disk| {
            *disk.rows.entry(group).or_default().fails_reads.lock().expect(NO_PANIC) = fails;
        });
    }

    /// Turns the first byte of every segment of this group's feed that is on its disk around.
    pub fn damage_feed(&self, group: GroupId) {
        self.lock_disk(|disk| {
            let cell = disk.rows.entry(group).or_default();
            let mut rows = cell.rows.write().expect(NO_PANIC);
            for (key, value) in Arc::make_mut(&mut rows) {
                if is_of_feed(key) {
                    let turned = value
                        .iter()
                        .enumerate()
                        .map(|(at, byte)| if at == 0 { !byte } else { *byte });
                    *value = turned.collect();
                }
            }
        });
    }

    /// From now on writes of batches fail, or no longer do. Nothing of a batch that fails is kept.
    pub fn fail_writes(&self, fails: bool) {
        self.lock_disk(|disk| disk.fails_writes = fails);
    }

    /// From now on syncs fail, or no longer do.
    pub fn fail_syncs(&self, fails: bool) {
        self.lock_disk(|disk| disk.fails_syncs = fails);
    }

    fn lock_disk<T>(&self, look: impl FnOnce(&mut MemDisk) -> T) -> T {
        let running = self.running.lock().expect(NO_PANIC);
        let mut disk = running.disk.lock().expect(NO_PANIC);
        look(&mut disk)
    }
}

impl StateEngine for MemEngine {
    fn group(&self, group: GroupId) -> Result<GroupState, StateError> {
        let mut running = self.running.lock().expect(NO_PANIC);
        if let Some(state) = running.groups.get(&group) {
            return Ok(state.clone());
        }
        let cell = running
            .disk
            .lock()
            .expect(NO_PANIC)
            .rows
            .entry(group)
            .or_default()
            .clone();
        let rows = MemRows {
            group,
            disk: running.disk.clone(),
            cell,
        };
        let state = GroupState::open(group, Arc::new(rows), self.limits)?;
        running.groups.insert(group, state.clone());
        Ok(state)
    }

    fn begin_anew(&self, group: GroupId) -> Result<GroupState, StateError> {
        {
            let mut running = self.running.lock().expect(NO_PANIC);
            if let Some(old) = running.groups.remove(&group) {
                old.close();
            }
            let mut disk = running.disk.lock().expect(NO_PANIC);
            disk.sync()?;
            disk.rows.insert(group, Arc::default());
        }
        self.group(group)
    }

    fn sync_all(&self) -> Result<(), StateError> {
        self.lock_disk(MemDisk::sync)
    }
}

impl MemDisk {
    fn sync(&mut self) -> Result<(), StateError> {
        if self.fails_syncs {
            let ordered = io::Error::other("a sync failure was ordered");
            return Err(StateError::engine_failed("synced", ordered));
        }
        self.undo.clear();
        Ok(())
    }
}

impl MemRows {
    fn lock_disk(&self) -> Result<MutexGuard<'_, MemDisk>, StateError> {
        let disk = self.disk.lock().expect(NO_PANIC);
        match disk.crashed {
            true => Err(StateError::Closed { group: self.group }),
            false => Ok(disk),
        }
    }

    fn check_reads(&self) -> Result<(), StateError> {
        match *self.cell.fails_reads.lock().expect(NO_PANIC) {
            true => Err(StateError::group_failed(
                self.group,
                io::Error::other("a read failure was ordered"),
            )),
            false => Ok(()),
        }
    }
}

impl RowRead for MemRows {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        self.check_reads()?;
        Ok(self.cell.rows.read().expect(NO_PANIC).get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) -> Result<(), StateError> {
        self.check_reads()?;
        let mut from = Bound::Included(from.to_vec());
        let mut chunk_rows = SCAN_CHUNK_ROWS.0;
        loop {
            let chunk: Vec<(Vec<u8>, Bytes)> = {
                let rows = self.cell.rows.read().expect(NO_PANIC);
                let range = rows.range::<[u8], _>((from.as_ref().map(Vec::as_slice), Bound::Excluded(to)));
                range
                    .take(chunk_rows)
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect()
            };
            for (key, value) in &chunk {
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
            match chunk.into_iter().next_back() {
                Some((last, _)) if last.as_slice() < to => from = Bound::Excluded(last),
                _ => return Ok(()),
            }
            chunk_rows = (chunk_rows * 2).min(SCAN_CHUNK_ROWS.1);
        }
    }
}

impl GroupRows for MemRows {
    fn write(&self, batch: RowBatch) -> Result<(), StateError> {
        let mut disk = self.lock_disk()?;
        if disk.fails_writes {
            let ordered = io::Error::other("a write failure was ordered");
            return Err(StateError::engine_failed("written", ordered));
        }
        // What a closed handle still writes belongs to nobody.
        if !disk
            .rows
            .get(&self.group)
            .is_some_and(|counting| Arc::ptr_eq(counting, &self.cell))
        {
            return Err(StateError::Closed { group: self.group });
        }
        let current = self.cell.rows.read().expect(NO_PANIC).clone();
        if disk.remembers_undo {
            let before = batch
                .iter()
                .map(|(key, _)| (key.clone(), current.get(key).cloned()))
                .collect();
            disk.undo.push(Undo {
                group: self.group,
                before,
            });
        }
        // Two owners, the cell and this function: no image shares the map, so it may change in place.
        if Arc::strong_count(&current) == 2 {
            drop(current);
            let mut rows = self.cell.rows.write().expect(NO_PANIC);
            apply(Arc::make_mut(&mut rows), batch);
        } else {
            let mut copy = current.as_ref().clone();
            apply(&mut copy, batch);
            *self.cell.rows.write().expect(NO_PANIC) = Arc::new(copy);
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StateError> {
        self.lock_disk()?.sync()
    }

    fn snapshot(&self) -> Box<dyn RowRead> {
        Box::new(MemSnapshot(self.cell.rows.read().expect(NO_PANIC).clone()))
    }

    fn replace(
        &self,
        fill: &mut dyn FnMut(&mut RowSink<'_>) -> Result<(), StateError>,
    ) -> Result<Arc<dyn GroupRows>, StateError> {
        let mut map = RowMap::new();
        fill(&mut |key, value| {
            map.insert(key, value);
            Ok(())
        })?;
        let mut disk = self.lock_disk()?;
        disk.sync()?;
        let cell = Arc::new(Cell {
            rows: RwLock::new(Arc::new(map)),
            ..Cell::default()
        });
        disk.rows.insert(self.group, cell.clone());
        drop(disk);
        Ok(Arc::new(MemRows {
            group: self.group,
            disk: self.disk.clone(),
            cell,
        }))
    }

    fn without_feed(&self) -> Result<Arc<dyn GroupRows>, StateError> {
        let [from, to] = feed_keys();
        let mut batch = RowBatch::new();
        for (key, _) in self.cell.rows.read().expect(NO_PANIC).range(from..to) {
            batch.push((key.clone(), None));
        }
        self.write(batch)?;
        Ok(Arc::new(MemRows {
            group: self.group,
            disk: self.disk.clone(),
            cell: self.cell.clone(),
        }))
    }
}

impl RowRead for MemSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) -> Result<(), StateError> {
        for (key, value) in self.0.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

fn apply(rows: &mut RowMap, batch: RowBatch) {
    for (key, value) in batch {
        match value {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        };
    }
}
