//! What goes along, what goes alone, and what each says of what is committed.

use std::ops::Range;
use std::path::Path;

use futures_util::stream;
use openraft::EntryPayload;
use tenure_core::time::Timestamp;
use tenure_storage::disk::RecordingDisk;
use tenure_storage::feed::FeedLimits;
use tenure_storage::log::WriterMode;
use tenure_storage::mem::MemEngine;

use super::*;
use crate::raft_types::{EntryData, LogEntry, Vote, log_id};
use crate::replica::assemble;
use crate::suite;

const FOLLOWER: NodeId = NodeId(2);

fn shared() -> Arc<Shared> {
    let engine = MemEngine::new(FeedLimits::default());
    let disk = Arc::new(RecordingDisk::new());
    let options = suite::options(disk, Path::new("/log"), WriterMode::Inline, &engine);
    assemble(&options).unwrap().shared
}

/// An append of these entries, which says that so much is committed.
fn append(entries: Range<u64>, committed: u64) -> Request {
    let entry = |index| LogEntry {
        log_id: log_id(1, index),
        payload: EntryPayload::Normal(EntryData {
            stamp: Timestamp(index),
            bytes: vec![0; 10].into(),
        }),
    };
    AppendEntriesRequest {
        vote: Vote::new_committed(1, 1),
        prev_log_id: Some(log_id(1, entries.start - 1)),
        entries: entries.map(entry).collect(),
        leader_commit: Some(log_id(1, committed)),
    }
}

/// How many entries each of the appends has that are sent of these, and what it says is committed.
async fn sent(shared: &Arc<Shared>, wanted: impl Stream<Item = Request> + Send + 'static) -> Vec<(usize, u64)> {
    let appends = Appends::new(shared.clone(), FOLLOWER, Confirmed::default(), Box::pin(wanted));
    let told = |append: Request| (append.entries.len(), append.leader_commit.unwrap().index);
    appends.in_turn().map(told).collect().await
}

/// No request comes for so long, which the time of the test goes on by.
fn wait_without_a_request(time: Duration) -> impl Stream<Item = Request> {
    stream::once(tokio::time::sleep(time)).filter_map(async |()| None)
}

#[tokio::test(start_paused = true)]
async fn that_something_is_committed_goes_with_the_next_entry_and_alone_if_none_comes() {
    let shared = shared();
    let at_once = stream::iter([append(5..5, 4), append(5..6, 4)]);
    assert_eq!(sent(&shared, at_once).await, [(1, 4)]);
    // Several commits wait no longer than one.
    let soon = stream::iter([append(6..6, 3), append(6..6, 4)])
        .chain(wait_without_a_request(COMMIT_WAITS / 2))
        .chain(stream::iter([append(6..6, 5)]))
        .chain(wait_without_a_request(COMMIT_WAITS * 3))
        .chain(stream::iter([append(6..7, 5)]));
    assert_eq!(sent(&shared, soon).await, [(0, 5), (1, 5)]);
}

#[tokio::test(start_paused = true)]
async fn the_last_that_is_wanted_does_not_wait() {
    let shared = shared();
    let sending = sent(&shared, stream::iter([append(5..5, 4)]));
    let sent = tokio::time::timeout(COMMIT_WAITS / 2, sending).await;
    assert_eq!(sent.expect("a probe is sent at once"), [(0, 4)]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_asks_is_told_at_once_of_what_is_committed() {
    let shared = shared();
    let wanted = || stream::iter([append(5..5, 4), append(5..6, 4)]);
    shared.askers.note(NodeId(3), shared.runtime.clock.now());
    assert_eq!(sent(&shared, wanted()).await, [(1, 4)], "another one asked");
    shared.askers.note(FOLLOWER, shared.runtime.clock.now());
    assert_eq!(sent(&shared, wanted()).await, [(0, 4), (1, 4)]);
}

#[test]
fn whoever_has_not_asked_for_a_while_is_forgotten() {
    let askers = Askers::default();
    askers.note(FOLLOWER, Duration::ZERO);
    assert!(askers.asked_lately(FOLLOWER, TELL_AT_ONCE_FOR / 2));
    assert!(!askers.asked_lately(FOLLOWER, TELL_AT_ONCE_FOR));
    askers.note(NodeId(3), TELL_AT_ONCE_FOR);
    assert_eq!(lock(&askers.0).len(), 1);
}
