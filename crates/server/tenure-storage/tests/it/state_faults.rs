//! Crashes and failures: what is left is always the state at the mark that is left with it.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proptest::prelude::*;
use tenure_core::ids::{GroupId, Revision};
use tenure_core::table::{TableRead, Writes};
use tenure_core::time::Timestamp;
use tenure_storage::feed::{FeedError, FeedLimits};
use tenure_storage::mem::MemEngine;
use tenure_storage::state::{GroupState, StateEngine, StateError, Stops};

use crate::state_harness::{GROUP, KEYS_END, MadeLog, Rows, copy_folder, mark, open_disk, read_feed, rows_in, rows_of};

/// Every batch that any group wrote, in the order of their writing: the group and the mark that it moved to.
type Batches = Vec<(usize, u64)>;

/// The groups of the tests with several.
const GROUPS: [GroupId; 2] = [GroupId(1), GroupId(2)];

fn open_groups(engine: &dyn StateEngine) -> [GroupState; 2] {
    GROUPS.map(|group| engine.group(group).expect("the group opens"))
}

/// Commits some entries to both groups and writes each behind, in turn.
fn run_two_groups(states: &[GroupState; 2], logs: &mut [MadeLog; 2], rounds: u8) -> Batches {
    let mut batches = Vec::new();
    for round in 0..rounds {
        for (which, (state, log)) in states.iter().zip(logs.iter_mut()).enumerate() {
            log.push([(round, Some(vec![round; 50])), (round / 2, None)]);
            log.push([(round / 3, Some(vec![round; 50]))]);
            log.catch_up(state);
            state.write_behind(log.last_index()).unwrap();
            batches.push((which, log.last_index()));
        }
    }
    batches
}

/// Checks that both groups are what they were after some prefix of the batches. Returns its length.
fn check_prefix(states: &[GroupState; 2], logs: &[MadeLog; 2], batches: &Batches) -> usize {
    let marks = states
        .each_ref()
        .map(|state| state.applied().map_or(0, |mark| mark.index));
    for (state, (log, index)) in states.iter().zip(logs.iter().zip(marks)) {
        log.check_at(state, index);
    }
    let mut reached = [0, 0];
    for (length, (which, index)) in batches.iter().enumerate() {
        if reached == marks {
            return length;
        }
        reached[*which] = *index;
    }
    assert_eq!(reached, marks, "both groups end with the same batch of the journal");
    batches.len()
}

#[test]
fn a_simulated_crash_keeps_any_prefix_of_the_unsynced_batches() {
    for kept in 0..=12 {
        let engine = MemEngine::with_crashes(FeedLimits::default());
        let states = open_groups(&engine);
        let mut logs = [MadeLog::default(), MadeLog::default()];
        let mut batches = run_two_groups(&states, &mut logs, 2);
        assert_eq!(states[0].make_durable(u64::MAX).unwrap(), Some(4));
        let synced = batches.len();
        batches.extend(run_two_groups(&states, &mut logs, 5));
        assert_eq!(engine.unsynced_batches(), 10);

        engine.crash(kept);
        let left = open_groups(&engine);
        assert_eq!(check_prefix(&left, &logs, &batches), synced + kept.min(10));

        let dead = states[0].commit(Writes::new(), Vec::new(), Timestamp(0), mark(99));
        assert!(dead.is_ok(), "the overlay of the dead process is its own");
        let error = states[0].write_behind(99).unwrap_err();
        assert!(matches!(error, StateError::Closed { .. }), "{error}");
        logs[0].catch_up(&left[0]);
        left[0].write_behind(u64::MAX).unwrap();
        logs[0].check_at(&left[0], logs[0].last_index());
    }
}

#[test]
fn a_simulated_crash_behind_an_install_keeps_it() {
    let engine = MemEngine::with_crashes(FeedLimits::default());
    let state = engine.group(GROUP).unwrap();
    let mut log = MadeLog::default();
    log.push([(1, Some(vec![1]))]);
    log.catch_up(&state);
    state.write_behind(1).unwrap();
    let fill = |table: &mut dyn tenure_core::table::Table| {
        table.put(vec![9], Bytes::from_static(b"new"));
        Ok(())
    };
    state.install(fill, mark(50), Revision(60)).unwrap();
    engine.crash(0);
    let state = engine.group(GROUP).unwrap();
    assert_eq!(rows_of(&state), Rows::from([(vec![9], Bytes::from_static(b"new"))]));
    assert_eq!(state.applied(), Some(mark(50)));
    assert_eq!(state.feed().oldest(), Revision(61));
}

#[test]
fn a_copy_of_the_folder_while_it_is_in_use_opens_at_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open_disk(folder.path(), FeedLimits::default()).unwrap();
    let states = open_groups(&engine);
    let mut logs = [MadeLog::default(), MadeLog::default()];
    let mut batches = Batches::new();
    for point in 0..4 {
        batches.extend(run_two_groups(&states, &mut logs, 3));
        // Committed but not written behind: the copy must not have it.
        logs[0].push([(77, Some(vec![point]))]);
        logs[0].catch_up(&states[0]);
        let copy = tempfile::tempdir().unwrap();
        copy_folder(folder.path(), copy.path());
        let copied = open_disk(copy.path(), FeedLimits::default()).unwrap();
        assert_eq!(check_prefix(&open_groups(&copied), &logs, &batches), batches.len());
    }
}

/// A folder with some batches of two groups in its journal, closed.
struct Recorded {
    folder: tempfile::TempDir,
    logs: [MadeLog; 2],
    batches: Batches,
    /// Bytes of the journal that are in use.
    used: u64,
}

fn record() -> Recorded {
    let folder = tempfile::tempdir().unwrap();
    let mut logs = [MadeLog::default(), MadeLog::default()];
    let engine = open_disk(folder.path(), FeedLimits::default()).unwrap();
    let batches = run_two_groups(&open_groups(&engine), &mut logs, 6);
    drop(engine);
    let mut bytes = Vec::new();
    fs::File::open(journal_of(folder.path()))
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    // The preallocated rest, which is only zeros, takes long to copy.
    OpenOptions::new()
        .write(true)
        .open(journal_of(folder.path()))
        .unwrap()
        .set_len(used)
        .unwrap();
    Recorded {
        folder,
        logs,
        batches,
        used,
    }
}

fn journal_of(folder: &Path) -> PathBuf {
    let journals = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    journals
        .filter(|path| path.extension().is_some_and(|extension| extension == "jnl"))
        .max()
        .expect("a journal")
}

/// Opens a copy whose journal was changed, and returns how many batches are left.
fn batches_left(recorded: &Recorded, damage: impl FnOnce(&mut fs::File)) -> usize {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(recorded.folder.path(), copy.path());
    let mut journal = OpenOptions::new()
        .read(true)
        .write(true)
        .open(journal_of(copy.path()))
        .unwrap();
    damage(&mut journal);
    drop(journal);
    let engine = open_disk(copy.path(), FeedLimits::default()).expect("it opens");
    let states = open_groups(&engine);
    let left = check_prefix(&states, &recorded.logs, &recorded.batches);
    // What is missing is applied again and stays.
    for (state, log) in states.iter().zip(&recorded.logs) {
        log.catch_up(state);
        state.make_durable(u64::MAX).unwrap();
        log.check_at(state, log.last_index());
    }
    drop(states);
    drop(engine);
    let engine = open_disk(copy.path(), FeedLimits::default()).expect("it opens once more");
    for (state, log) in open_groups(&engine).iter().zip(&recorded.logs) {
        log.check_at(state, log.last_index());
    }
    left
}

#[test]
fn a_journal_cut_anywhere_opens_at_a_batch() {
    let recorded = record();
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(length in 0..=recorded.used)| {
        batches_left(&recorded, |journal| journal.set_len(length).unwrap());
    });
    assert_eq!(batches_left(&recorded, |_| ()), recorded.batches.len());
    assert_eq!(
        batches_left(&recorded, |journal| journal.set_len(recorded.used - 1).unwrap()),
        recorded.batches.len() - 1
    );
}

#[test]
fn a_page_of_the_journal_that_was_never_written_costs_its_batch_and_those_behind() {
    let recorded = record();
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(start in 0..recorded.used, length in 1..4_096_u64)| {
        // The zeros of the preallocated file show where the page is missing; what follows it is there.
        let hole = usize::try_from(length.min(recorded.used - start)).unwrap();
        batches_left(&recorded, |journal| {
            journal.set_len(recorded.used + 10_000).unwrap();
            journal.seek(SeekFrom::Start(start)).unwrap();
            journal.write_all(&vec![0; hole]).unwrap();
        });
    });
}

#[test]
fn a_bit_that_flipped_in_the_journal_never_gives_a_wrong_state() {
    let recorded = record();
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(position in 0..recorded.used, bit in 0..8_u32)| {
        batches_left(&recorded, |journal| {
            let mut byte = [0];
            journal.seek(SeekFrom::Start(position)).unwrap();
            journal.read_exact(&mut byte).unwrap();
            byte[0] ^= 1 << bit;
            journal.seek(SeekFrom::Start(position)).unwrap();
            journal.write_all(&byte).unwrap();
        });
    });
}

#[test]
fn a_group_whose_files_are_gone_is_damaged_and_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open_disk(folder.path(), FeedLimits::default()).unwrap();
    let states = open_groups(&engine);
    let mut logs = [MadeLog::default(), MadeLog::default()];
    run_two_groups(&states, &mut logs, 2);
    drop((states, engine));
    // Keyspaces are numbered in the order of their making: the pointers, then the groups.
    fs::remove_dir_all(folder.path().join("keyspaces/2")).unwrap();

    let engine = open_disk(folder.path(), FeedLimits::default()).unwrap();
    let error = engine.group(GROUPS[0]).unwrap_err();
    assert!(
        matches!(error, StateError::Damaged { group, .. } if group == GROUPS[0]),
        "{error}"
    );
    assert_eq!(error.stops(), Stops::Group(GROUPS[0]));
    logs[1].check_at(&engine.group(GROUPS[1]).unwrap(), 4);

    // It gets a snapshot under the same id.
    let anew = engine.begin_anew(GROUPS[0]).unwrap();
    MadeLog::default().check_at(&anew, 0);
    let fill = |table: &mut dyn tenure_core::table::Table| {
        table.put(vec![9], Bytes::from_static(b"new"));
        Ok(())
    };
    anew.install(fill, mark(50), Revision(60)).unwrap();
    drop((anew, engine));
    let engine = open_disk(folder.path(), FeedLimits::default()).unwrap();
    assert_eq!(engine.group(GROUPS[0]).unwrap().applied(), Some(mark(50)));
    logs[1].check_at(&engine.group(GROUPS[1]).unwrap(), 4);
}

#[test]
fn a_folder_that_is_open_is_not_opened_twice() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open_disk(folder.path(), FeedLimits::default()).unwrap();
    let error = open_disk(folder.path(), FeedLimits::default())
        .err()
        .expect("it is in use");
    assert!(matches!(error, StateError::EngineFailed { .. }), "{error}");
    assert_eq!(error.stops(), Stops::Node);
    drop(engine);
    open_disk(folder.path(), FeedLimits::default()).unwrap();
}

#[test]
fn what_was_built_on_a_failed_read_is_never_kept() {
    let engine = MemEngine::with_crashes(FeedLimits::default());
    let state = engine.group(GROUP).unwrap();
    let other = engine.group(GroupId(8)).unwrap();
    let mut log = MadeLog::default();
    log.push([(1, Some(vec![1]))]);
    log.catch_up(&state);
    log.catch_up(&other);
    state.write_behind(1).unwrap();
    let image = state.image().unwrap();

    engine.fail_reads(GROUP, true);
    let mut seen = Some(Bytes::new());
    let error = state.read(|table| seen = table.get(&[1])).unwrap_err();
    assert_eq!(seen, None, "the machine sees no row, and has no branch for it");
    assert!(matches!(error, StateError::GroupFailed { group: GROUP, .. }), "{error}");
    assert_eq!(error.stops(), Stops::Group(GROUP));

    engine.fail_reads(GROUP, false);
    let is_failed = |result: Result<(), StateError>| {
        let error = result.expect_err("a group that failed once is not used again");
        assert!(matches!(error, StateError::GroupFailed { group: GROUP, .. }), "{error}");
    };
    is_failed(state.commit(Writes::new(), Vec::new(), Timestamp(0), mark(2)));
    is_failed(state.write_behind(2));
    is_failed(state.make_durable(2).map(drop));
    is_failed(state.image().map(drop));
    is_failed(state.install(|_| Ok(()), mark(9), Revision(9)));
    is_failed(state.read(|_| ()));
    is_failed(image.verify());
    assert!(matches!(
        read_feed(&state, 1),
        Err(FeedError::State(StateError::GroupFailed { .. }))
    ));
    log.check_at(&other, 1);

    engine.crash(usize::MAX);
    log.check_at(&engine.group(GROUP).unwrap(), 1);
}

#[test]
fn a_failed_scan_fails_the_group_too() {
    let engine = MemEngine::new(FeedLimits::default());
    let state = engine.group(GROUP).unwrap();
    engine.fail_reads(GROUP, true);
    let error = state.read(rows_in).unwrap_err();
    assert!(matches!(error, StateError::GroupFailed { .. }), "{error}");
}

#[test]
fn a_failed_write_or_sync_stops_the_node_and_keeps_nothing_of_the_batch() {
    for fails_writes in [true, false] {
        let engine = MemEngine::with_crashes(FeedLimits::default());
        let state = engine.group(GROUP).unwrap();
        let mut log = MadeLog::default();
        log.push([(1, Some(vec![1]))]);
        log.catch_up(&state);
        state.make_durable(1).unwrap();
        log.push([(2, Some(vec![2]))]);
        log.catch_up(&state);
        if fails_writes {
            engine.fail_writes(true);
        } else {
            engine.fail_syncs(true);
            assert_eq!(engine.sync_all().unwrap_err().stops(), Stops::Node);
        }
        let error = state.make_durable(2).unwrap_err();
        assert!(matches!(error, StateError::EngineFailed { .. }), "{error}");
        assert_eq!(error.stops(), Stops::Node);
        engine.fail_writes(false);
        engine.fail_syncs(false);
        assert!(state.make_durable(2).is_err(), "a failed sync is not tried again");
        assert_eq!(state.pending().durable, Some(1));
        engine.crash(0);
        log.check_at(&engine.group(GROUP).unwrap(), 1);
    }
}

#[test]
fn a_crash_does_not_change_an_image_that_is_still_held() {
    let engine = MemEngine::with_crashes(FeedLimits::default());
    let state = engine.group(GROUP).unwrap();
    let mut log = MadeLog::default();
    log.push([(1, Some(vec![1]))]);
    log.catch_up(&state);
    state.write_behind(1).unwrap();
    let image = state.image().unwrap();
    engine.crash(0);
    assert_eq!(rows_in(&image), log.table_at(1));
    let mut seen = 0;
    image.scan(&[], KEYS_END, &mut |_, _| {
        seen += 1;
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(seen, 1);
}
