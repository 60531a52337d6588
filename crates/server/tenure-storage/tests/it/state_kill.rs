//! A process that is killed while it writes its state.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;
use tenure_core::table::Writes;
use tenure_core::time::Timestamp;
use tenure_storage::feed::FeedLimits;
use tenure_storage::state::{DiskEngine, DiskOptions, GroupState, StateEngine};

use crate::state_harness::{GROUP, Rows, change, mark, read_feed, rows_of};

/// Tells the process that it is the one to be killed, and where to write.
const FOLDER_VARIABLE: &str = "TENURE_TEST_STATE_FOLDER";
/// Keys that the entries write in turn.
const KEYS: u64 = 300;
const VALUE_BYTES: usize = 3_000;

fn open(folder: &Path) -> DiskEngine {
    // So little memory that files are written and merged all the time.
    let options = DiskOptions {
        memtable_bytes: 256 << 10,
        journal_bytes: 64 << 20,
        cache_bytes: 1 << 20,
        worker_threads: 2,
        feed: FeedLimits {
            bytes_max: 1 << 20,
            ..FeedLimits::default()
        },
    };
    DiskEngine::open(folder, options).expect("it opens")
}

fn key(index: u64) -> Vec<u8> {
    (index % KEYS).to_be_bytes().to_vec()
}

/// What entry `index` leaves under its key; nothing for some.
fn value(index: u64) -> Option<Bytes> {
    (!index.is_multiple_of(11)).then(|| {
        let mut value = index.to_be_bytes().to_vec();
        value.resize(VALUE_BYTES, b'v');
        value.into()
    })
}

fn rows_at(index: u64) -> Rows {
    let newest: BTreeMap<Vec<u8>, u64> = (1..=index)
        .rev()
        .take(KEYS as usize)
        .map(|index| (key(index), index))
        .collect();
    newest
        .into_iter()
        .filter_map(|(key, index)| Some((key, value(index)?)))
        .collect()
}

/// Checks that rows, mark and feed agree. Returns the mark.
fn check(state: &GroupState) -> u64 {
    let index = state.applied().map_or(0, |mark| mark.index);
    assert_eq!(rows_of(state), rows_at(index), "the rows are those of the mark");
    let oldest = state.feed().oldest().0;
    let revisions: Vec<u64> = read_feed(state, oldest)
        .unwrap()
        .iter()
        .map(|change| change.revision)
        .collect();
    assert_eq!(
        revisions,
        (oldest..=index).collect::<Vec<u64>>(),
        "the feed ends at the mark"
    );
    index
}

/// Writes until it is killed, and says after each write behind or sync how far it is.
fn write_for_ever(folder: &Path) {
    let engine = open(folder);
    let state = engine.group(GROUP).unwrap();
    let begin = check(&state);
    for index in begin + 1.. {
        let value = value(index);
        let changes = vec![change(index, &key(index), value.clone())];
        state
            .commit(
                Writes::from([(key(index), value)]),
                changes,
                Timestamp(index),
                mark(index),
            )
            .unwrap();
        if index.is_multiple_of(5) {
            state.write_behind(index - 1).unwrap();
            println!("written {}", state.pending().written.unwrap_or(0));
        }
        if index.is_multiple_of(401) {
            state.make_durable(index).unwrap();
        }
    }
}

#[test]
fn a_killed_process_leaves_the_state_at_its_mark() {
    if let Some(folder) = env::var_os(FOLDER_VARIABLE) {
        return write_for_ever(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut reached = 0;
    for round in 1..=6_usize {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                "state_kill::a_killed_process_leaves_the_state_at_its_mark",
                "--exact",
                "--nocapture",
            ])
            .env(FOLDER_VARIABLE, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let written = lines.filter_map(|line| {
            line.unwrap()
                .strip_prefix("written ")
                .map(|index| index.parse().unwrap())
        });
        // It is killed somewhere behind this line, while it goes on.
        let told: u64 = written.take(round * 37).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();

        let engine = open(folder.path());
        let index = check(&engine.group(GROUP).unwrap());
        assert!(
            index >= told && told > reached,
            "what was written behind outlives the process"
        );
        reached = index;
    }
}
