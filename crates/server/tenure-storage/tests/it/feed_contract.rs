//! What the change feed promises, whichever engine keeps it.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use bytes::Bytes;
use proptest::prelude::*;
use tenure_core::effect::Change;
use tenure_core::ids::Revision;
use tenure_core::table::Writes;
use tenure_core::time::{Span, Timestamp};
use tenure_storage::feed::{FeedError, FeedLimits};
use tenure_storage::state::GroupState;

use crate::state_harness::{Harness, MadeLog, change, mark, read_feed, with_both_engines};

with_both_engines!(
    a_fresh_feed_begins_at_one_and_ends_at_nothing,
    changes_are_read_before_and_after_they_are_written_behind,
    a_read_begins_at_the_revision_asked_for,
    a_page_never_splits_a_revision,
    a_page_is_bounded_in_changes_and_bytes,
    only_what_passes_the_filter_is_counted,
    a_read_that_nothing_passes_ends_in_bounded_time_and_goes_on,
    entries_applied_again_after_a_restart_leave_no_gap,
    trimming_by_bytes_removes_whole_segments_from_the_front,
    trimming_by_age_goes_by_cluster_time,
    trimming_by_age_needs_no_new_changes,
    trimming_by_number_bounds_the_index,
    a_feed_that_is_trimmed_away_knows_where_it_begins_after_a_restart,
    a_large_entry_is_cut_into_segments_between_revisions,
    pages_of_any_size_give_the_same_changes,
);

fn everything(_: &Change) -> bool {
    true
}

/// Commits one change for each revision, as one entry, and writes it behind.
fn write_segment(
    state: &GroupState,
    index: u64,
    time: Timestamp,
    revisions: &[u64],
    value_bytes: usize,
) -> Vec<Change> {
    let value = Bytes::from(vec![b'v'; value_bytes]);
    let changes: Vec<Change> = revisions
        .iter()
        .map(|revision| change(*revision, b"key", Some(value.clone())))
        .collect();
    state.commit(Writes::new(), changes.clone(), time, mark(index)).unwrap();
    state.write_behind(index).unwrap();
    changes
}

fn compacted_at(result: Result<impl Sized, FeedError>) -> u64 {
    match result.err() {
        Some(FeedError::Compacted { oldest }) => oldest.0,
        Some(error) => panic!("another error: {error}"),
        None => panic!("nothing is missing"),
    }
}

fn a_fresh_feed_begins_at_one_and_ends_at_nothing(harness: Harness) {
    let state = harness.state();
    assert_eq!((state.feed().oldest(), state.feed().last()), (Revision(1), Revision(0)));
    for from in [0, 1, 500] {
        let page = state.feed().read(Revision(from), 10, 1_000, &everything).unwrap();
        assert!(page.changes.is_empty() && page.reached_end);
        assert_eq!(page.next, Revision(from.max(1)));
    }
}

fn changes_are_read_before_and_after_they_are_written_behind(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    for round in 0..12_u8 {
        log.push([(round, Some(vec![round])), (round + 1, None)]);
        log.catch_up(&state);
        log.check_at(&state, log.last_index());
        if round % 4 == 3 {
            state.write_behind(log.last_index() - 1).unwrap();
            log.check_at(&state, log.last_index());
        }
    }
    assert_eq!(state.feed().last(), Revision(24));
    state.write_behind(log.last_index()).unwrap();
    log.check_at(&state, log.last_index());
    assert_eq!(state.feed().last(), Revision(24));
}

fn a_read_begins_at_the_revision_asked_for(harness: Harness) {
    let state = harness.state();
    let mut all = write_segment(&state, 1, Timestamp(0), &[2, 4, 6], 1);
    all.extend(write_segment(&state, 2, Timestamp(0), &[10, 12], 1));
    let late = change(20, b"late", None);
    state
        .commit(Writes::new(), vec![late.clone()], Timestamp(0), mark(3))
        .unwrap();
    all.push(late);
    for from in 0..25 {
        let expected: Vec<Change> = all.iter().filter(|change| change.revision >= from).cloned().collect();
        assert_eq!(read_feed(&state, from).unwrap(), expected, "from {from}");
    }
}

fn a_page_never_splits_a_revision(harness: Harness) {
    let state = harness.state();
    let revisions = [1, 1, 1, 2, 3, 3, 3, 3, 3, 4];
    write_segment(&state, 1, Timestamp(0), &revisions[..6], 1);
    // Still in memory. An entry ends only behind a whole revision, so this one is another.
    let changes = revisions[6..]
        .iter()
        .map(|revision| change(revision + 10, b"key", None))
        .collect();
    state.commit(Writes::new(), changes, Timestamp(0), mark(2)).unwrap();

    let lens = |max: usize| {
        let mut next = Revision(1);
        let mut lens = Vec::new();
        loop {
            let page = state.feed().read(next, max, usize::MAX, &everything).unwrap();
            lens.push((page.changes.len(), page.next.0));
            next = page.next;
            if page.reached_end {
                return lens;
            }
        }
    };
    assert_eq!(lens(2), [(3, 2), (1, 3), (2, 13), (3, 14), (1, 15)]);
    assert_eq!(lens(4), [(4, 3), (2, 13), (4, 15)]);
    assert_eq!(lens(100), [(10, 15)]);
    assert_eq!(
        lens(0),
        [(3, 2), (1, 3), (2, 13), (3, 14), (1, 15)],
        "a page holds one revision at least"
    );
}

fn a_page_is_bounded_in_changes_and_bytes(harness: Harness) {
    let state = harness.state();
    let revisions: Vec<u64> = (1..=50).collect();
    write_segment(&state, 1, Timestamp(0), &revisions, 1_000);
    let page = state.feed().read(Revision(1), 7, usize::MAX, &everything).unwrap();
    assert_eq!(
        (page.changes.len(), page.next, page.reached_end),
        (7, Revision(8), false)
    );
    let page = state.feed().read(Revision(8), 100, 10_000, &everything).unwrap();
    assert!((6..10).contains(&page.changes.len()), "{}", page.changes.len());
    assert_eq!(page.next.0, 8 + page.changes.len() as u64);
    let page = state.feed().read(Revision(8), 100, 10, &everything).unwrap();
    assert_eq!(page.changes.len(), 1, "one larger than a page still comes");
}

fn only_what_passes_the_filter_is_counted(harness: Harness) {
    let state = harness.state();
    let revisions: Vec<u64> = (1..=100).collect();
    write_segment(&state, 1, Timestamp(0), &revisions, 1);
    let tens = |change: &Change| change.revision.is_multiple_of(10);
    let page = state.feed().read(Revision(1), 3, usize::MAX, &tens).unwrap();
    let found: Vec<u64> = page.changes.iter().map(|change| change.revision).collect();
    assert_eq!(found, [10, 20, 30]);
    assert_eq!(page.next, Revision(31));
    let page = state.feed().read(Revision(91), 3, usize::MAX, &|_| false).unwrap();
    assert_eq!(
        (page.changes.len(), page.next, page.reached_end),
        (0, Revision(101), true)
    );
}

fn a_read_that_nothing_passes_ends_in_bounded_time_and_goes_on(harness: Harness) {
    let state = harness.state();
    for index in 1..=20 {
        write_segment(&state, index, Timestamp(0), &[index], 1 << 20);
    }
    let mut pages = 0;
    let mut next = Revision(1);
    loop {
        let page = state.feed().read(next, 10, usize::MAX, &|_| false).unwrap();
        pages += 1;
        next = page.next;
        if page.reached_end {
            break;
        }
    }
    assert_eq!(next, Revision(21));
    assert_eq!(pages, 3, "one read looks at about 8 MiB");
}

fn entries_applied_again_after_a_restart_leave_no_gap(mut harness: Harness) {
    let mut log = MadeLog::default();
    for round in 0..15_u8 {
        let state = harness.state();
        for step in 0..3 {
            log.push([(step, Some(vec![round])), (step + 1, None)]);
            log.catch_up(&state);
            if step < 2 {
                state.write_behind(log.last_index()).unwrap();
            }
        }
        drop(state);
        // The last entry of the round is only in the overlay.
        harness.restart();
        let state = harness.state();
        log.check_at(&state, log.last_index() - 1);
        log.catch_up(&state);
        log.check_at(&state, log.last_index());
    }
}

fn limited(harness: Harness, limits: FeedLimits) -> Harness {
    harness.with_limits(limits)
}

fn trimming_by_bytes_removes_whole_segments_from_the_front(mut harness: Harness) {
    harness = limited(
        harness,
        FeedLimits {
            bytes_max: 10_000,
            ..FeedLimits::default()
        },
    );
    let mut segments = Vec::new();
    for index in 1..=20 {
        let state = harness.state();
        // About 2,000 bytes each: never more than four are left, and never fewer, once there are.
        let changes = write_segment(&state, index, Timestamp(0), &[index * 10, index * 10 + 1], 1_000);
        segments.push(changes);
        let kept = segments.len().min(4);
        let (trimmed, left) = segments.split_at(segments.len() - kept);
        let oldest = trimmed.last().map_or(1, |changes| changes.last().unwrap().revision + 1);
        assert_eq!(state.feed().oldest(), Revision(oldest));
        assert_eq!(read_feed(&state, oldest).unwrap(), left.concat());
        if oldest > 1 {
            assert_eq!(compacted_at(read_feed(&state, oldest - 1)), oldest);
            assert_eq!(compacted_at(read_feed(&state, 0)), oldest);
        }
        if index % 5 == 0 {
            drop(state);
            harness.restart();
            let state = harness.state();
            assert_eq!(state.feed().oldest(), Revision(oldest));
            assert_eq!(read_feed(&state, oldest).unwrap(), left.concat());
        }
    }
}

fn trimming_by_age_goes_by_cluster_time(harness: Harness) {
    let harness = limited(
        harness,
        FeedLimits {
            age_max: Span::from_secs(10),
            ..FeedLimits::default()
        },
    );
    let state = harness.state();
    let at = |secs: u64, micros: u64| Timestamp(secs * 1_000_000 + micros);
    write_segment(&state, 1, at(100, 0), &[1], 1);
    write_segment(&state, 2, at(105, 0), &[2], 1);
    write_segment(&state, 3, at(110, 0), &[3], 1);
    assert_eq!(
        state.feed().oldest(),
        Revision(1),
        "exactly as old as allowed is not too old"
    );
    write_segment(&state, 4, at(110, 1), &[4], 1);
    assert_eq!(state.feed().oldest(), Revision(2));
    assert_eq!(compacted_at(read_feed(&state, 1)), 2);
    assert_eq!(read_feed(&state, 2).unwrap().len(), 3);
}

fn trimming_by_age_needs_no_new_changes(mut harness: Harness) {
    harness = limited(
        harness,
        FeedLimits {
            age_max: Span::from_secs(10),
            ..FeedLimits::default()
        },
    );
    let state = harness.state();
    write_segment(&state, 1, Timestamp(0), &[5], 1);
    write_segment(&state, 2, Timestamp(60_000_000), &[], 1);
    let check = |state: &GroupState| {
        assert_eq!((state.feed().oldest(), state.feed().last()), (Revision(6), Revision(5)));
        assert_eq!(compacted_at(read_feed(state, 5)), 6);
        assert_eq!(read_feed(state, 6).unwrap(), Vec::new());
    };
    check(&state);
    drop(state);
    harness.restart();
    check(&harness.state());
}

fn trimming_by_number_bounds_the_index(harness: Harness) {
    let harness = limited(
        harness,
        FeedLimits {
            segments_max: 3,
            ..FeedLimits::default()
        },
    );
    let state = harness.state();
    for index in 1..=10 {
        write_segment(&state, index, Timestamp(0), &[index], 1);
        assert_eq!(state.feed().oldest(), Revision(index.saturating_sub(3) + 1));
    }
}

fn a_feed_that_is_trimmed_away_knows_where_it_begins_after_a_restart(mut harness: Harness) {
    harness = limited(
        harness,
        FeedLimits {
            bytes_max: 100,
            ..FeedLimits::default()
        },
    );
    let state = harness.state();
    // Larger than all that may be kept: not even written.
    write_segment(&state, 1, Timestamp(0), &[3, 4, 7], 1_000);
    let check = |state: &GroupState| {
        assert_eq!((state.feed().oldest(), state.feed().last()), (Revision(8), Revision(7)));
        assert_eq!(compacted_at(read_feed(state, 7)), 8);
    };
    check(&state);
    drop(state);
    harness.restart();
    let state = harness.state();
    check(&state);
    let kept = write_segment(&state, 2, Timestamp(0), &[9], 1);
    assert_eq!(read_feed(&state, 8).unwrap(), kept);
}

fn a_large_entry_is_cut_into_segments_between_revisions(mut harness: Harness) {
    let limits = FeedLimits {
        segment_bytes: 1_000,
        segments_max: 2,
        ..FeedLimits::default()
    };
    harness = limited(harness, limits);
    let state = harness.state();
    // Segments end with revisions 2, 3 and 5: each as soon as it has 1,000 bytes.
    let all = write_segment(&state, 1, Timestamp(0), &[1, 1, 2, 3, 3, 3, 4, 5, 5], 340);
    assert_eq!(state.feed().oldest(), Revision(3));
    let left: Vec<Change> = all.iter().filter(|change| change.revision >= 3).cloned().collect();
    assert_eq!(read_feed(&state, 3).unwrap(), left);
    drop(state);
    harness.restart();
    assert_eq!(read_feed(&harness.state(), 3).unwrap(), left);
}

fn pages_of_any_size_give_the_same_changes(harness: Harness) {
    let limits = FeedLimits {
        segment_bytes: 400,
        ..FeedLimits::default()
    };
    let harness = limited(harness, limits);
    let state = harness.state();
    let mut all = Vec::new();
    let mut revision = 0;
    for index in 1..=30_u64 {
        let count = usize::try_from(index * 7 % 11).unwrap();
        let value = Bytes::from(vec![b'v'; count * 13]);
        let mut changes = Vec::new();
        for position in 0..count {
            // Some changes share a revision, and some revisions have no change.
            revision += u64::from(position % 3 != 1 || position == 0) * (1 + index % 2);
            changes.push(change(
                revision,
                &[u8::try_from(position).unwrap()],
                Some(value.clone()),
            ));
        }
        state
            .commit(Writes::new(), changes.clone(), Timestamp(index), mark(index))
            .unwrap();
        all.extend(changes);
        if index % 4 == 0 && index < 28 {
            state.write_behind(index).unwrap();
        }
    }
    let config = ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let last = revision;
    proptest!(config, |(from in 0..last + 3, changes_max in 0..20_usize, bytes_max in 0..3_000_usize, modulus in 1..5_u8)| {
        let filter = |change: &Change| change.key[0].is_multiple_of(modulus);
        let expected: Vec<Change> =
            all.iter().filter(|change| change.revision >= from && filter(change)).cloned().collect();
        let mut found: Vec<Change> = Vec::new();
        let mut next = Revision(from);
        loop {
            let page = state.feed().read(next, changes_max, bytes_max, &filter).unwrap();
            let revisions = page.changes.chunk_by(|one, next| one.revision == next.revision).count();
            prop_assert!(page.changes.len() <= changes_max || revisions == 1);
            prop_assert!(page.changes.iter().all(|change| change.revision >= next.0 && change.revision < page.next.0));
            found.extend(page.changes);
            prop_assert!(page.next > next || page.reached_end);
            next = page.next;
            if page.reached_end {
                break;
            }
        }
        prop_assert_eq!(found, expected);
    });
}
