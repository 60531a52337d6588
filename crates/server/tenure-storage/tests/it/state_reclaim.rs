//! Room that the engine on disk holds and does not need is given back, and not when there is too little to do so.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tenure_core::ids::GroupId;
use tenure_storage::feed::FeedLimits;
use tenure_storage::state::{DiskEngine, DiskOptions, GroupState, StateEngine};

use crate::state_harness::{GROUP, MadeLog, open_disk};

const VALUE_BYTES: usize = 1 << 20;
/// More than a journal takes before another one is begun.
const VALUES: u8 = 50;

/// Bytes that files below a folder take.
fn used(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() => used(&entry.path()),
            Ok(about) => about.blocks() * 512,
            // The engine has deleted it meanwhile.
            Err(_) => 0,
        })
        .sum()
}

fn journals(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.path().extension().is_some_and(|suffix| suffix == "jnl"))
        .count()
}

/// Waits until the engine, which deletes files when nobody reads them any more, has done so.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    panic!("{what}");
}

/// An engine in which one group has put much, and another one has put little at the beginning.
fn engine_with_values() -> (TempDir, DiskEngine, GroupState, MadeLog) {
    let folder = TempDir::new().unwrap();
    let limits = FeedLimits {
        bytes_max: 2 << 20,
        ..FeedLimits::default()
    };
    let options = DiskOptions {
        feed: limits,
        ..DiskOptions::default()
    };
    let engine = DiskEngine::open(folder.path(), options).unwrap();
    let mut little = MadeLog::default();
    little.push([(1, Some(b"stays".to_vec()))]);
    let other = engine.group(GroupId(8)).unwrap();
    little.catch_up(&other);
    other.write_behind(u64::MAX).unwrap();

    let state = engine.group(GROUP).unwrap();
    let mut log = MadeLog::default();
    log.push([(255, Some(b"stays".to_vec()))]);
    for key in 0..VALUES {
        // Not to be made smaller by any compression.
        let mut random = u64::from(key) + 1;
        let value = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        });
        log.push([(key, Some(value.take(VALUE_BYTES).collect()))]);
        log.catch_up(&state);
        state.write_behind(u64::MAX).unwrap();
    }
    (folder, engine, state, log)
}

/// The same when all of it was deleted again.
fn engine_after_deletes() -> (TempDir, DiskEngine, GroupState, MadeLog) {
    let (folder, engine, state, mut log) = engine_with_values();
    delete_all(&state, &mut log);
    (folder, engine, state, log)
}

fn delete_all(state: &GroupState, log: &mut MadeLog) {
    for key in 0..VALUES {
        log.push([(key, None)]);
    }
    log.catch_up(state);
    state.write_behind(u64::MAX).unwrap();
}

/// The engine's threads would wait for themselves once a thousand requests filled the line from which they are served.
#[test]
fn memory_becomes_tables_however_many_batches_come_meanwhile() {
    const GROUPS: u32 = 16;
    const BATCHES: u8 = 250;
    const VALUE: usize = 1 << 10;
    let folder = TempDir::new().unwrap();
    let options = DiskOptions {
        memtable_bytes: 64 << 10,
        worker_threads: 1,
        ..DiskOptions::default()
    };
    let engine = DiskEngine::open(folder.path(), options).unwrap();
    let states: Vec<GroupState> = (1..=GROUPS)
        .map(|group| engine.group(GroupId(group)).unwrap())
        .collect();
    let mut log = MadeLog::default();
    for batch in 0..BATCHES {
        log.push([(batch, Some(vec![batch; VALUE]))]);
        // All groups have enough in memory at the same time, and each batch of each of them says so.
        for state in &states {
            log.catch_up(state);
            state.write_behind(u64::MAX).unwrap();
        }
    }
    // The rows once, and once more as what has changed.
    let written = 2 * u64::from(GROUPS) * u64::from(BATCHES) * VALUE as u64;
    eventually("memory becomes tables", || {
        used(&folder.path().join("keyspaces")) > written / 2
    });
    for state in &states {
        assert_eq!(crate::state_harness::rows_of(state), log.table_at(log.last_index()));
    }
}

#[test]
fn what_was_deleted_goes_from_the_disk_and_journals_with_it() {
    let (folder, engine, state, log) = engine_after_deletes();
    let before = used(folder.path());
    assert!(before > 64 << 20, "{before} bytes");
    assert!(journals(folder.path()) > 1, "the other group holds a journal");
    engine.give_back(&|| Some(1 << 40)).unwrap();
    eventually("all journals but one go", || journals(folder.path()) == 1);
    // What the last journal holds, at most.
    eventually("what was deleted goes", || {
        used(&folder.path().join("keyspaces")) < 16 << 20
    });
    assert!(used(folder.path()) < before / 2, "{} of {before}", used(folder.path()));
    engine.give_back(&|| Some(1 << 40)).unwrap();

    let rows = |state: &GroupState| crate::state_harness::rows_of(state);
    assert_eq!(rows(&state), log.table_at(log.last_index()));
    drop((state, engine));
    let engine = open_disk(folder.path(), FeedLimits::default()).unwrap();
    assert_eq!(rows(&engine.group(GROUP).unwrap()), log.table_at(log.last_index()));
    assert_eq!(rows(&engine.group(GroupId(8)).unwrap()).len(), 1);
}

#[test]
fn without_room_for_it_nothing_is_written_anew() {
    let (folder, engine, state, log) = engine_after_deletes();
    let tables = folder.path().join("keyspaces");
    for room in [None, Some(0), Some(1 << 20)] {
        // What the engine had begun by itself has an end.
        let journals_before = journals(folder.path());
        engine.give_back(&|| room).unwrap();
        assert_eq!(journals(folder.path()), journals_before, "{room:?}");
    }
    assert!(used(&tables) > 24 << 20, "{}", used(&tables));
    assert_eq!(crate::state_harness::rows_of(&state), log.table_at(log.last_index()));
}

#[test]
fn room_for_a_merge_of_what_is_in_tables_is_owed() {
    let (_folder, engine, state, mut log) = engine_with_values();
    // Nothing is left in memory that has to be written.
    engine.give_back(&|| Some(1 << 40)).unwrap();
    assert_eq!(state.pending().bytes, 0);
    let tables = u64::from(VALUES) * VALUE_BYTES as u64;
    assert!(engine.owed() >= tables, "{} for {tables}", engine.owed());
    delete_all(&state, &mut log);
    engine.give_back(&|| Some(1 << 40)).unwrap();
    eventually("what was deleted needs no room any more", || engine.owed() < tables / 2);
}
