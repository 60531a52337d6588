//! Damage of files at rest: what it costs is named, and nobody else pays for it.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tenure_core::ids::{GroupId, Revision};
use tenure_storage::feed::{FeedError, FeedLimits};
use tenure_storage::mem::MemEngine;
use tenure_storage::state::{DiskEngine, DiskOptions, GroupState, StateEngine, StateError, Stops};

use crate::state_harness::{GROUP, MadeLog, copy_folder, read_feed, rows_in, rows_of};

const GROUPS: [GroupId; 2] = [GroupId(1), GroupId(2)];
/// Keyspaces are numbered in the order of their making: names, pointers, then rows and feed of each group.
const POINTERS: &str = "keyspaces/1";
const ROWS_OF_FIRST: &str = "keyspaces/2";
const FEED_OF_FIRST: &str = "keyspaces/3";
/// How often a condition is looked for that another thread brings about.
const LOOKS_MAX: u32 = 2_000_000;

/// An engine whose memory becomes files soon.
fn open(folder: &Path) -> Result<DiskEngine, StateError> {
    let options = DiskOptions {
        memtable_bytes: 64 << 10,
        journal_bytes: 64 << 20,
        cache_bytes: 1 << 20,
        worker_threads: 1,
        feed: FeedLimits::default(),
    };
    DiskEngine::open(folder, options)
}

fn states(engine: &DiskEngine) -> [GroupState; 2] {
    GROUPS.map(|group| engine.group(group).expect("the group opens"))
}

/// Two groups with tables on disk, closed.
struct Made {
    folder: TempDir,
    logs: [MadeLog; 2],
}

fn make() -> Made {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).unwrap();
    let states = states(&engine);
    let mut logs = [MadeLog::default(), MadeLog::default()];
    for (state, log) in states.iter().zip(&mut logs) {
        fill(state, log, 8);
    }
    // What was written last may be in the journal only; everything before it is in tables.
    for keyspace in 2..=5 {
        let tables = folder.path().join(format!("keyspaces/{keyspace}/tables"));
        wait_for(|| fs::read_dir(&tables).unwrap().next().is_some());
    }
    drop((states, engine));
    Made { folder, logs }
}

/// Writes so many batches of 40 KiB, each a segment of the feed.
fn fill(state: &GroupState, log: &mut MadeLog, batches: u8) {
    for batch in 0..batches {
        let value =
            |key: u8| (0..10 * 1024_u32).map(move |at| (at * 31 + u32::from(key) + u32::from(batch)).to_le_bytes()[0]);
        log.push((0..4).map(|key| (batch.wrapping_mul(4) + key, Some(value(key).collect()))));
        log.catch_up(state);
        state.write_behind(log.last_index()).unwrap();
    }
}

fn wait_for(condition: impl Fn() -> bool) {
    for _ in 0..LOOKS_MAX {
        if condition() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("it did not happen");
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}

fn tables_of(keyspace: &Path) -> Vec<PathBuf> {
    let tables = fs::read_dir(keyspace.join("tables")).unwrap();
    let mut tables: Vec<PathBuf> = tables.map(|entry| entry.unwrap().path()).collect();
    tables.sort();
    tables
}

/// Of those, some may be about to go, so that one alone may mean nothing.
fn remove_tables(keyspace: &Path) {
    for table in tables_of(keyspace) {
        fs::remove_file(table).unwrap();
    }
}

/// The manifest that counts: older ones may be about to go.
fn manifest_of(keyspace: &Path) -> PathBuf {
    let current = fs::read(keyspace.join("current")).unwrap();
    let number = u64::from_le_bytes(*current.first_chunk().unwrap());
    keyspace.join(format!("v{number}"))
}

/// Turns a byte in the middle of each table around: in a block that is read only when somebody asks for its rows.
fn flip_in_tables(keyspace: &Path) {
    for table in tables_of(keyspace) {
        let length = fs::metadata(&table).unwrap().len();
        flip(&table, length / 2);
    }
}

#[test]
fn a_group_with_damaged_files_is_named_with_the_reason_and_the_others_run() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 8] = [
        ("its file current is missing", |keyspace| {
            fs::remove_file(keyspace.join("current")).unwrap()
        }),
        ("current is not what was written", |keyspace| {
            fs::write(keyspace.join("current"), b"short").unwrap();
        }),
        ("cannot be read", |keyspace| flip(&keyspace.join("current"), 0)),
        ("does not have its checksum", |keyspace| {
            flip(&manifest_of(keyspace), 40)
        }),
        ("cannot be read", |keyspace| {
            fs::remove_file(manifest_of(keyspace)).unwrap()
        }),
        ("files of it are missing", remove_tables),
        ("", |keyspace| {
            for table in tables_of(keyspace) {
                let table = OpenOptions::new().write(true).open(table).unwrap();
                table.set_len(table.metadata().unwrap().len() - 3).unwrap();
            }
        }),
        ("its keyspace is missing", |keyspace| {
            fs::remove_dir_all(keyspace).unwrap()
        }),
    ];
    let made = make();
    for (reason, damage) in damages {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(made.folder.path(), copy.path());
        damage(&copy.path().join(ROWS_OF_FIRST));
        // Said again at each start, until the group begins anew.
        for _ in 0..2 {
            let engine = open(copy.path()).unwrap();
            let error = engine.group(GROUPS[0]).unwrap_err();
            assert!(
                matches!(error, StateError::Damaged { group, .. } if group == GROUPS[0]),
                "{error}"
            );
            assert_eq!(error.stops(), Stops::Group(GROUPS[0]));
            let said = error.to_string();
            assert!(said.contains("group g-1") && said.contains(reason), "{reason}: {said}");
            let is_gone = !reason.contains("keyspace is missing");
            assert_eq!(said.contains(ROWS_OF_FIRST), is_gone, "it names the files: {said}");
            let mut log = made.logs[1].clone();
            let state = engine.group(GROUPS[1]).unwrap();
            log.check_at(&state, log.last_index());
            log.push([(200, Some(vec![1]))]);
            log.catch_up(&state);
            log.check_at(&state, log.last_index());
        }
        let engine = open(copy.path()).unwrap();
        assert_eq!(engine.begin_anew(GROUPS[0]).unwrap().applied(), None);
        drop(engine);
        assert_eq!(open(copy.path()).unwrap().group(GROUPS[0]).unwrap().applied(), None);
    }
}

#[test]
fn a_block_that_is_damaged_stops_its_group_when_it_is_read_and_the_next_start_names_the_file() {
    let made = make();
    flip_in_tables(&made.folder.path().join(ROWS_OF_FIRST));
    let engine = open(made.folder.path()).unwrap();
    let [first, second] = states(&engine);
    let error = first.read(rows_in).unwrap_err();
    assert!(matches!(error, StateError::Damaged { .. }), "{error}");
    assert_eq!(error.stops(), Stops::Group(GROUPS[0]));
    let said = error.to_string();
    assert!(
        said.contains("group g-1") && said.contains(ROWS_OF_FIRST) && said.contains("checksum"),
        "{said}"
    );
    assert!(!said.contains("written or synced"), "{said}");
    made.logs[1].check_at(&second, made.logs[1].last_index());
    drop((first, second, engine));

    let engine = open(made.folder.path()).unwrap();
    let said = engine.group(GROUPS[0]).unwrap_err().to_string();
    let names_a_table = said.contains(ROWS_OF_FIRST) && said.contains("its file tables/");
    assert!(names_a_table && said.contains("does not have its checksum"), "{said}");
    made.logs[1].check_at(&engine.group(GROUPS[1]).unwrap(), made.logs[1].last_index());
}

#[test]
fn damage_that_the_engine_meets_by_itself_stops_the_node_once_and_is_named_by_the_next_start() {
    let made = make();
    let mut logs = made.logs;
    flip_in_tables(&made.folder.path().join(ROWS_OF_FIRST));
    let engine = open(made.folder.path()).unwrap();
    let state = engine.group(GROUPS[0]).unwrap();
    // Its files are merged sooner or later; then nothing is written any more, for any group.
    let mut failed = None;
    for round in 0..2_000_u32 {
        logs[0].push([(round.to_le_bytes()[0], Some(vec![1; 16 << 10]))]);
        logs[0].catch_up(&state);
        if let Err(error) = state.write_behind(logs[0].last_index()) {
            failed = Some(error);
            break;
        }
    }
    // The merge may come behind the last write; a sync fails from then on too.
    let error = failed
        .or_else(|| (0..LOOKS_MAX).find_map(|_| engine.sync_all().err()))
        .expect("the files are merged");
    assert_eq!(error.stops(), Stops::Node);
    let said = error.to_string();
    assert!(
        said.contains("this node must stop") && said.contains("start the node again"),
        "{said}"
    );
    drop((state, engine));

    let engine = open(made.folder.path()).unwrap();
    let error = engine.group(GROUPS[0]).unwrap_err();
    assert!(matches!(error, StateError::Damaged { .. }), "{error}");
    logs[1].check_at(&engine.group(GROUPS[1]).unwrap(), logs[1].last_index());
}

#[test]
fn a_feed_whose_files_are_damaged_begins_anew_and_the_state_is_untouched() {
    type Damage = fn(&Path);
    let damages: [Damage; 4] = [
        |keyspace| fs::remove_dir_all(keyspace).unwrap(),
        |keyspace| fs::remove_file(keyspace.join("current")).unwrap(),
        remove_tables,
        |keyspace| flip(&manifest_of(keyspace), 40),
    ];
    let made = make();
    for damage in damages {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(made.folder.path(), copy.path());
        damage(&copy.path().join(FEED_OF_FIRST));
        let mut log = made.logs[0].clone();
        let behind = log.last_revision();
        for start in 0..2 {
            let engine = open(copy.path()).unwrap();
            let [state, other] = states(&engine);
            assert_eq!(rows_of(&state), log.table_at(log.last_index()), "start {start}");
            assert_eq!(state.feed().oldest(), Revision(behind + 1));
            assert!(matches!(read_feed(&state, 1), Err(FeedError::Compacted { oldest }) if oldest.0 == behind + 1));
            let expected: Vec<_> = log
                .changes()
                .filter(|change| change.revision > behind)
                .cloned()
                .collect();
            assert_eq!(read_feed(&state, behind + 1).unwrap(), expected);
            made.logs[1].check_at(&other, made.logs[1].last_index());
            fill(&state, &mut log, 1);
            state.make_durable(u64::MAX).unwrap();
        }
    }
}

#[test]
fn a_block_of_the_feed_that_is_damaged_costs_its_readers_and_not_the_group() {
    let made = make();
    let mut log = made.logs[0].clone();
    flip_in_tables(&made.folder.path().join(FEED_OF_FIRST));
    let engine = open(made.folder.path()).unwrap();
    let [state, other] = states(&engine);
    // Several files are damaged: each is met once, and then the feed begins behind it.
    let (mut from, mut given_up) = (1, 0);
    let read = loop {
        match read_feed(&state, from) {
            Err(FeedError::Compacted { oldest }) => {
                assert!(oldest.0 > from, "it says where to resume: {oldest:?}");
                (from, given_up) = (oldest.0, given_up + 1);
            }
            read => break read.unwrap(),
        }
    };
    assert!(given_up > 0, "a damaged part was read");
    let expected: Vec<_> = log
        .changes()
        .filter(|change| change.revision >= from)
        .cloned()
        .collect();
    assert_eq!(read, expected, "what lies behind it is there");
    assert_eq!(rows_of(&state), log.table_at(log.last_index()));
    fill(&state, &mut log, 1);
    assert_eq!(rows_of(&state), log.table_at(log.last_index()));
    drop((state, other, engine));
    // The damaged file is found and goes; the group is as it was.
    let state = open(made.folder.path()).unwrap().group(GROUPS[0]).unwrap();
    assert_eq!(rows_of(&state), log.table_at(log.last_index()));
    assert_eq!(state.feed().oldest(), Revision(log.last_revision() + 1));
}

#[test]
fn a_damaged_part_of_the_feed_is_dropped_with_the_next_batch() {
    let engine = MemEngine::with_crashes(FeedLimits::default());
    let state = engine.group(GROUP).unwrap();
    let mut log = MadeLog::default();
    fill(&state, &mut log, 3);
    engine.damage_feed(GROUP);
    let behind = log.last_revision();
    // Behind the damage, for those who read on from there.
    fill(&state, &mut log, 1);
    let first = log.changes().next().unwrap().revision;
    let mut resume = None;
    for _ in 0..4 {
        match state
            .feed()
            .read(resume.unwrap_or(Revision(first)), 100, usize::MAX, &|_| true)
        {
            Err(FeedError::Compacted { oldest }) => resume = Some(oldest),
            Ok(page) => {
                assert_eq!(page.changes.first().map(|change| change.revision), Some(behind + 1));
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(resume, Some(Revision(behind + 1)));
    assert_eq!(rows_of(&state), log.table_at(log.last_index()), "the group goes on");
    fill(&state, &mut log, 1);
    state.make_durable(u64::MAX).unwrap();
    drop(state);
    engine.crash(usize::MAX);
    let state = engine.group(GROUP).unwrap();
    assert_eq!(state.feed().oldest(), Revision(behind + 1));
    let expected: Vec<_> = log
        .changes()
        .filter(|change| change.revision > behind)
        .cloned()
        .collect();
    assert_eq!(read_feed(&state, behind + 1).unwrap(), expected);
}

#[test]
fn damage_of_what_all_groups_share_is_named_and_nothing_is_changed() {
    let made = make();
    for (file, named) in [
        ("version", "version"),
        (POINTERS, POINTERS),
        ("keyspaces/1/current", POINTERS),
        ("keyspaces/0", "keyspaces/0"),
        ("keyspaces/0/current", "keyspaces/0"),
    ] {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(made.folder.path(), copy.path());
        let (lost, kept) = (copy.path().join(file), copy.path().join("kept"));
        fs::rename(&lost, &kept).unwrap();
        let error = open(copy.path()).err().expect("it is damaged");
        assert!(matches!(error, StateError::EngineDamaged { .. }), "{file}: {error}");
        assert_eq!(error.stops(), Stops::Node);
        let said = error.to_string();
        assert!(said.contains(&copy.path().join(named).display().to_string()), "{said}");
        assert!(
            said.contains("missing") && said.contains("put the right file back"),
            "{said}"
        );
        assert!(!said.to_lowercase().contains("exist"), "{said}");
        fs::rename(&kept, &lost).unwrap();
        let engine = open(copy.path()).unwrap();
        for (state, log) in states(&engine).iter().zip(&made.logs) {
            log.check_at(state, log.last_index());
        }
    }
}

#[test]
fn a_folder_whose_making_was_cut_short_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    let made = folder.path();
    for left in ["", "version"] {
        fs::remove_dir_all(made.join("keyspaces")).unwrap();
        fs::create_dir(made.join("keyspaces")).unwrap();
        fs::write(made.join("0.jnl"), [0; 4_096]).unwrap();
        match left {
            "" => fs::remove_file(made.join("version")).unwrap(),
            name => fs::write(made.join(name), b"").unwrap(),
        }
        assert_eq!(open(made).unwrap().group(GROUP).unwrap().applied(), None);
    }
}

#[test]
fn a_folder_of_the_form_before_is_read_and_its_feed_begins_anew() {
    let made = make();
    {
        let database = fjall::Database::builder(made.folder.path()).open().unwrap();
        let pointers = database
            .keyspace("groups", fjall::KeyspaceCreateOptions::default)
            .unwrap();
        pointers.insert("format", 1_u64.to_be_bytes()).unwrap();
        for name in database.list_keyspace_names() {
            if name.starts_with("feed-") {
                let feed = database.keyspace(&name, fjall::KeyspaceCreateOptions::default).unwrap();
                database.delete_keyspace(feed).unwrap();
            }
        }
        database.persist(fjall::PersistMode::SyncAll).unwrap();
    }
    let engine = open(made.folder.path()).unwrap();
    for (state, log) in states(&engine).iter().zip(&made.logs) {
        assert_eq!(rows_of(state), log.table_at(log.last_index()));
        assert_eq!(state.feed().oldest(), Revision(log.last_revision() + 1));
    }
}

#[test]
fn a_full_disk_and_a_failed_sync_say_what_to_do() {
    let full = StateError::EngineFailed {
        action: "written",
        cause: std::sync::Arc::new(fjall::Error::Io(io::ErrorKind::StorageFull.into())),
    };
    let said = full.to_string();
    assert!(
        said.contains("cannot be written") && said.contains("free some room"),
        "{said}"
    );
    let sync = StateError::EngineFailed {
        action: "synced",
        cause: std::sync::Arc::new(io::Error::other("the cable")),
    };
    let said = sync.to_string();
    assert!(
        said.contains("cannot be synced") && said.contains("never tried again"),
        "{said}"
    );
}
