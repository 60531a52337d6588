//! Both engines behind one face, and a log of made-up entries to apply, for the tests of state and feed.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_core::effect::{Change, ChangeKind};
use tenure_core::ids::{GroupId, Incarnation, Revision};
use tenure_core::table::{TableRead, Visit, Writes};
use tenure_core::time::Timestamp;
use tenure_storage::feed::{FeedError, FeedLimits, FeedPage};
use tenure_storage::mem::MemEngine;
use tenure_storage::state::{AppliedMark, DiskEngine, DiskOptions, GroupState, StateEngine, StateError};

/// The group that most tests use.
pub(crate) const GROUP: GroupId = GroupId(7);
/// Behind every key that the tests use.
pub(crate) const KEYS_END: &[u8] = &[0xff; 8];

/// The rows of a table, for comparing.
pub(crate) type Rows = BTreeMap<Vec<u8>, Bytes>;

/// Runs each named function, which takes a [`Harness`], with the engine in memory and with the one on disk.
macro_rules! with_both_engines {
    ($($name:ident),+ $(,)?) => {
        mod in_memory {
            $(#[test] fn $name() { super::$name(crate::state_harness::Harness::memory()); })+
        }
        mod on_disk {
            $(#[test] fn $name() { super::$name(crate::state_harness::Harness::disk()); })+
        }
    };
}
pub(crate) use with_both_engines;

/// An engine that can be killed and started again.
pub(crate) struct Harness {
    limits: FeedLimits,
    engine: Option<Engine>,
}

enum Engine {
    Memory(MemEngine),
    Disk(DiskEngine, TempDir),
}

impl Harness {
    pub(crate) fn memory() -> Harness {
        let limits = FeedLimits::default();
        Harness {
            limits,
            engine: Some(Engine::Memory(MemEngine::with_crashes(limits))),
        }
    }

    pub(crate) fn disk() -> Harness {
        let limits = FeedLimits::default();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let engine = open_disk(folder.path(), limits).expect("a new folder opens");
        Harness {
            limits,
            engine: Some(Engine::Disk(engine, folder)),
        }
    }

    /// The same kind of engine, empty, with other limits of the feed.
    pub(crate) fn with_limits(self, limits: FeedLimits) -> Harness {
        let engine = match self.engine.expect("an engine runs") {
            Engine::Memory(_) => Engine::Memory(MemEngine::with_crashes(limits)),
            Engine::Disk(engine, folder) => {
                drop(engine);
                Engine::Disk(open_disk(folder.path(), limits).expect("it opens again"), folder)
            }
        };
        Harness {
            limits,
            engine: Some(engine),
        }
    }

    pub(crate) fn engine(&self) -> &dyn StateEngine {
        match self.engine.as_ref().expect("an engine runs") {
            Engine::Memory(engine) => engine,
            Engine::Disk(engine, _) => engine,
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        self.engine().group(GROUP).expect("the group opens")
    }

    /// Ends the process and starts it again: what was written behind is there, what was not is gone. Handles are to
    /// be dropped before.
    pub(crate) fn restart(&mut self) {
        self.engine = Some(match self.engine.take().expect("an engine runs") {
            Engine::Memory(engine) => {
                engine.crash(usize::MAX);
                Engine::Memory(engine)
            }
            Engine::Disk(engine, folder) => {
                drop(engine);
                Engine::Disk(open_disk(folder.path(), self.limits).expect("it opens again"), folder)
            }
        });
    }
}

/// Opens the engine on disk with little memory.
pub(crate) fn open_disk(folder: &Path, feed: FeedLimits) -> Result<DiskEngine, StateError> {
    let options = DiskOptions {
        journal_bytes: 64 << 20,
        cache_bytes: 1 << 20,
        worker_threads: 1,
        feed,
        ..DiskOptions::default()
    };
    DiskEngine::open(folder, options)
}

/// One entry of the made-up log.
#[derive(Clone, Debug)]
pub(crate) struct MadeEntry {
    pub(crate) writes: Writes,
    pub(crate) changes: Vec<Change>,
    pub(crate) time: Timestamp,
}

/// A log of entries with the indexes 1, 2, 3, … and what the table is after each.
#[derive(Clone, Debug, Default)]
pub(crate) struct MadeLog {
    pub(crate) entries: Vec<MadeEntry>,
    tables: Vec<Rows>,
}

impl MadeLog {
    /// Adds an entry that sets and removes these keys, one revision each, a millisecond later. Returns its index.
    pub(crate) fn push(&mut self, writes: impl IntoIterator<Item = (u8, Option<Vec<u8>>)>) -> u64 {
        let time = Timestamp(self.entries.len() as u64 * 1_000);
        self.push_at(time, writes)
    }

    /// The same at a time.
    pub(crate) fn push_at(&mut self, time: Timestamp, writes: impl IntoIterator<Item = (u8, Option<Vec<u8>>)>) -> u64 {
        let mut table = self.table_at(self.last_index());
        let mut revision = self.last_revision();
        let mut entry = MadeEntry {
            writes: Writes::new(),
            changes: Vec::new(),
            time,
        };
        for (key, value) in writes {
            revision += 1;
            let value = value.map(Bytes::from);
            entry.changes.push(change(revision, &[key], value.clone()));
            match &value {
                Some(value) => table.insert(vec![key], value.clone()),
                None => table.remove(&vec![key]),
            };
            entry.writes.insert(vec![key], value);
        }
        self.entries.push(entry);
        self.tables.push(table);
        self.last_index()
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(crate) fn last_revision(&self) -> u64 {
        self.changes().last().map_or(0, |change| change.revision)
    }

    /// The table after the entry with this index.
    pub(crate) fn table_at(&self, index: u64) -> Rows {
        match index {
            0 => Rows::new(),
            index => self.tables[usize::try_from(index).unwrap() - 1].clone(),
        }
    }

    /// All changes so far.
    pub(crate) fn changes(&self) -> impl DoubleEndedIterator<Item = &Change> {
        self.entries.iter().flat_map(|entry| &entry.changes)
    }

    /// Applies to the state what it does not have yet.
    pub(crate) fn catch_up(&self, state: &GroupState) {
        let applied = state.applied().map_or(0, |mark| mark.index);
        for index in applied + 1..=self.last_index() {
            let entry = self.entries[usize::try_from(index).unwrap() - 1].clone();
            state
                .commit(entry.writes, entry.changes, entry.time, mark(index))
                .expect("it commits in order");
        }
    }

    /// Checks that rows, mark and feed of the state all are what they were at `index`.
    pub(crate) fn check_at(&self, state: &GroupState, index: u64) {
        assert_eq!(state.applied(), (index > 0).then(|| mark(index)));
        assert_eq!(
            rows_of(state),
            self.table_at(index),
            "the rows are those of entry {index}"
        );
        let upto = self.entries.iter().take(usize::try_from(index).unwrap());
        let expected: Vec<Change> = upto.flat_map(|entry| entry.changes.clone()).collect();
        assert_eq!(read_feed(state, 1).expect("the feed is whole"), expected);
    }
}

/// A mark whose opaque bytes tell its index.
pub(crate) fn mark(index: u64) -> AppliedMark {
    AppliedMark {
        index,
        bytes: Bytes::from(format!("entry {index}")),
    }
}

pub(crate) fn change(revision: u64, key: &[u8], value: Option<Bytes>) -> Change {
    let kind = match value {
        Some(value) => ChangeKind::Put {
            value,
            created: revision,
            owner: None,
            ttl: None,
        },
        None => ChangeKind::Removed {
            reason: tenure_core::refusal::EndReason::Delete,
        },
    };
    let key = Bytes::copy_from_slice(key);
    Change {
        revision,
        incarnation: Incarnation(1),
        key,
        kind,
        previous_version: None,
    }
}

pub(crate) fn rows_of(state: &GroupState) -> Rows {
    state.read(rows_in).expect("it can be read")
}

pub(crate) fn rows_in(table: &dyn TableRead) -> Rows {
    let mut rows = Rows::new();
    let mut last: Option<Vec<u8>> = None;
    table.scan(&[], KEYS_END, &mut |key, value| {
        assert!(
            last.as_deref().is_none_or(|last| last < key),
            "a scan is in ascending order"
        );
        last = Some(key.to_vec());
        rows.insert(key.to_vec(), value.clone());
        Visit::Continue(())
    });
    rows
}

/// All changes from a revision on, page by page.
pub(crate) fn read_feed(state: &GroupState, from: u64) -> Result<Vec<Change>, FeedError> {
    let mut changes = Vec::new();
    let mut next = Revision(from);
    loop {
        let page: FeedPage = state.feed().read(next, 3, usize::MAX, &|_| true)?;
        changes.extend(page.changes);
        assert!(page.next > next || page.reached_end, "a page moves on");
        next = page.next;
        if page.reached_end {
            return Ok(changes);
        }
    }
}

/// Copies a folder file by file, as it is in the page cache.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}
