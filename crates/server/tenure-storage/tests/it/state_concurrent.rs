//! One thread commits, one writes behind, others read: as in a node.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::disallowed_methods, reason = "the threads are the point")]

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tenure_core::ids::Revision;
use tenure_core::table::{TableRead, Visit, Writes};
use tenure_core::time::Timestamp;
use tenure_storage::feed::FeedLimits;
use tenure_storage::state::{DiskEngine, DiskOptions, GroupState, StateEngine};

use crate::state_harness::{GROUP, Harness, change, mark, with_both_engines};

with_both_engines!(readers_and_images_and_the_feed_see_whole_commits_only);

const ENTRIES: u64 = 3_000;
/// Keys of which each commit writes all, with one value.
const KEYS: [&[u8]; 5] = [b"a", b"c", b"e", b"g", b"i"];

fn commit_entry(state: &GroupState, index: u64, value_bytes: usize) {
    let mut value = index.to_be_bytes().to_vec();
    value.resize(value_bytes.max(8), 0);
    let value = Bytes::from(value);
    let mut writes: Writes = KEYS.iter().map(|key| (key.to_vec(), Some(value.clone()))).collect();
    // And one row that comes and goes.
    writes.insert(b"d".to_vec(), index.is_multiple_of(2).then(|| value.clone()));
    let changes = vec![change(index, b"a", Some(value)), change(index, b"c", None)];
    state.commit(writes, changes, Timestamp(index), mark(index)).unwrap();
}

/// The one value that all rows have, and that the row that comes and goes agrees.
fn value_of(table: &dyn TableRead) -> u64 {
    let mut values = Vec::new();
    table.scan(b"a", b"z", &mut |key, value| {
        values.push((key.to_vec(), u64::from_be_bytes(value[..8].try_into().unwrap())));
        Visit::Continue(())
    });
    let (_, first) = values.first().expect("it has rows").clone();
    assert!(
        values.iter().all(|(_, value)| *value == first),
        "a commit is seen in part: {values:?}"
    );
    assert_eq!(values.len(), if first.is_multiple_of(2) { 6 } else { 5 });
    assert_eq!(table.get(b"d").is_some(), first.is_multiple_of(2));
    first
}

fn read_values(state: &GroupState, done: &AtomicBool) {
    let mut last = 0;
    while !done.load(Ordering::Acquire) {
        let value = state.read(value_of).unwrap();
        assert!(value >= last, "reads do not go back");
        last = value;
        let image = state.image().unwrap();
        assert_eq!(value_of(&image), image.mark().unwrap().index);
        image.verify().unwrap();
    }
}

fn read_feed_to_the_end(state: &GroupState) {
    let mut next = Revision(1);
    let mut expected = 1;
    while expected <= ENTRIES {
        let page = state.feed().read(next, 100, usize::MAX, &|_| true).unwrap();
        for pair in page.changes.chunks(2) {
            assert_eq!((pair[0].revision, pair[1].revision), (expected, expected));
            expected += 1;
        }
        next = page.next;
        assert_eq!(next, Revision(expected));
    }
}

fn run(state: &GroupState, value_bytes: usize) {
    commit_entry(state, 1, value_bytes);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let applied = state.applied().unwrap().index;
                state.write_behind(applied.saturating_sub(applied % 7)).unwrap();
                let pending = state.pending();
                assert!(pending.durable <= pending.written);
            }
        });
        let reader = scope.spawn(|| read_values(state, &done));
        let watcher = scope.spawn(|| read_feed_to_the_end(state));
        let committed = scope
            .spawn(|| (2..=ENTRIES).for_each(|index| commit_entry(state, index, value_bytes)))
            .join();
        let watched = watcher.join();
        done.store(true, Ordering::Release);
        let written = writer.join();
        let read = reader.join();
        for result in [committed, watched, written, read] {
            assert!(result.is_ok(), "one of the threads failed");
        }
    });
    assert_eq!(state.make_durable(ENTRIES).unwrap(), Some(ENTRIES));
    assert_eq!(state.pending().bytes, 0);
    assert_eq!(state.read(value_of).unwrap(), ENTRIES);
}

fn readers_and_images_and_the_feed_see_whole_commits_only(mut harness: Harness) {
    let state = harness.state();
    run(&state, 8);
    drop(state);
    harness.restart();
    assert_eq!(harness.state().read(value_of).unwrap(), ENTRIES);
    read_feed_to_the_end(&harness.state());
}

#[test]
fn files_that_are_written_and_merged_meanwhile_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options = DiskOptions {
        memtable_bytes: 1 << 20,
        journal_bytes: 64 << 20,
        cache_bytes: 1 << 20,
        worker_threads: 2,
        feed: FeedLimits::default(),
    };
    let engine = DiskEngine::open(folder.path(), options).unwrap();
    let state = engine.group(GROUP).unwrap();
    run(&state, 4_096);
    drop((state, engine));
    let engine = DiskEngine::open(folder.path(), options).unwrap();
    assert_eq!(engine.group(GROUP).unwrap().read(value_of).unwrap(), ENTRIES);
    read_feed_to_the_end(&engine.group(GROUP).unwrap());
}
