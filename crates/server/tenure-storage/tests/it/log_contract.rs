//! What a group's log promises to those who use it.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tenure_storage::disk::RecordingDisk;
use tenure_storage::error::LogFailed;
use tenure_storage::log::{GroupId, GroupState, LogOptions, OPAQUE_LENGTH_MAX};

use crate::log_support::{append, open, open_on, payload, small_options, wait};

#[test]
fn what_was_appended_is_read_back_at_once_and_after_opening_again() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    let group = log.group(GroupId(3));
    assert_eq!(group.state(), GroupState::default());
    assert_eq!(group.read(0..100, 1000).unwrap(), []);
    append(&group, 0, &["zero", "one"]).unwrap();
    append(&group, 2, &["two"]).unwrap();
    wait(|done| group.save_vote(payload("vote"), done)).unwrap();
    group.save_committed(payload("committed")).unwrap();
    let expected = GroupState {
        first_index: Some(0),
        last: Some((2, payload("two"))),
        vote: Some(payload("vote")),
        committed: Some(payload("committed")),
        purged: None,
        flushed_index: Some(2),
    };
    assert_eq!(group.state(), expected);
    log.close();
    let log = open(&disk.after_power_loss(&mut |_| 0));
    let group = log.group(GroupId(3));
    assert_eq!(group.state(), expected);
    let all = vec![(0, payload("zero")), (1, payload("one")), (2, payload("two"))];
    assert_eq!(group.read(0..3, 1000).unwrap(), all);
    assert_eq!(log.groups(), [GroupId(3)]);
}

#[test]
fn entries_are_readable_before_they_are_synced_and_count_as_flushed_only_then() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    let (first, second) = (log.group(GroupId(1)), log.group(GroupId(2)));
    let seen = Arc::new(Mutex::new(None));
    let (seen_inside, second_inside) = (seen.clone(), second.clone());
    wait(|done| {
        first.append(
            vec![(1, payload("a"))],
            Box::new(move |result| {
                // Whoever writes is calling back, so this waits in the queue.
                second_inside.append(vec![(7, payload("b"))], Box::new(|result| result.unwrap()));
                let read = second_inside.read(7..8, 100).unwrap();
                *seen_inside.lock().unwrap() = Some((read, second_inside.state().flushed_index));
                done(result);
            }),
        );
    })
    .unwrap();
    assert_eq!(*seen.lock().unwrap(), Some((vec![(7, payload("b"))], None)));
    assert_eq!(second.flushed_index(), Some(7));
}

#[test]
fn what_waits_is_written_as_one_batch_with_one_sync_and_called_back_in_order() {
    let disk = RecordingDisk::new();
    let log = open_on(
        &disk,
        LogOptions {
            segment_bytes: 1 << 20,
            ..small_options()
        },
    )
    .unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let (log_inside, order_inside) = (log.clone(), order.clone());
    let before = log.stats();
    wait(|done| {
        log.group(GroupId(0)).save_vote(
            payload("v"),
            Box::new(move |result| {
                for number in 0..100_u64 {
                    let order = order_inside.clone();
                    let done = Box::new(move |result: Result<(), LogFailed>| {
                        result.unwrap();
                        order.lock().unwrap().push(number);
                    });
                    let group = log_inside.group(GroupId(number as u32 % 7));
                    match number % 7 {
                        0 => group.save_vote(payload("w"), done),
                        1 => group.truncate_after(None, done),
                        _ => {
                            let next = group.state().last.map_or(1, |(last, _)| last + 1);
                            group.append(vec![(next, payload("e"))], done);
                        }
                    }
                }
                done(result);
            }),
        );
    })
    .unwrap();
    assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<u64>>());
    let stats = log.stats();
    assert_eq!((stats.batches - before.batches, stats.syncs - before.syncs), (2, 2));
    assert_eq!(stats.queue_bytes, 0);
    assert!(stats.queue_bytes_max > 1000);
}

#[test]
fn an_entry_that_does_not_follow_is_refused_and_the_log_goes_on() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    let group = log.group(GroupId(1));
    append(&group, 5, &["five"]).unwrap();
    for (first, payloads) in [(5, ["again"]), (7, ["hole"]), (0, ["old"])] {
        match append(&group, first, &payloads) {
            Err(
                error @ LogFailed::NotContiguous {
                    group: GroupId(1),
                    expected: 6,
                    got,
                },
            ) => {
                assert_eq!(got, first);
                assert!(!error.stops_the_node());
            }
            other => panic!("{other:?}"),
        }
    }
    let gap = wait(|done| group.append(vec![(6, payload("six")), (8, payload("eight"))], done));
    assert!(
        matches!(
            gap,
            Err(LogFailed::NotContiguous {
                expected: 7,
                got: 8,
                ..
            })
        ),
        "{gap:?}"
    );
    append(&group, 6, &["six"]).unwrap();
    wait(|done| group.append(vec![], done)).unwrap();
    assert_eq!(
        group.read(0..10, 1000).unwrap(),
        [(5, payload("five")), (6, payload("six"))]
    );
    assert!(log.failure().is_none());
}

#[test]
fn too_much_is_refused_and_the_log_goes_on() {
    let disk = RecordingDisk::new();
    let log = open_on(
        &disk,
        LogOptions {
            entries_per_group_max: 3,
            ..small_options()
        },
    )
    .unwrap();
    let group = log.group(GroupId(1));
    append(&group, 1, &["a", "b"]).unwrap();
    let full = append(&group, 3, &["c", "d"]);
    assert!(
        matches!(full, Err(LogFailed::GroupFull { entries_max: 3, .. })),
        "{full:?}"
    );
    append(&group, 3, &["c"]).unwrap();
    wait(|done| group.purge(1, payload("1"), done)).unwrap();
    append(&group, 4, &["d"]).unwrap();
    let long = Bytes::from(vec![0; OPAQUE_LENGTH_MAX + 1]);
    let refused = wait(|done| group.save_vote(long.clone(), done));
    assert!(matches!(refused, Err(LogFailed::TooLong { .. })), "{refused:?}");
    assert!(matches!(
        group.save_committed(long.clone()),
        Err(LogFailed::TooLong { .. })
    ));
    let refused = wait(|done| group.purge(2, long, done));
    assert!(matches!(refused, Err(LogFailed::TooLong { .. })), "{refused:?}");
    assert_eq!(
        (group.state().vote, group.state().committed, group.state().first_index),
        (None, None, Some(2))
    );
}

#[test]
fn truncated_entries_are_gone_and_others_take_their_place() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    let group = log.group(GroupId(1));
    append(&group, 1, &["a", "b", "c", "d"]).unwrap();
    wait(|done| group.truncate_after(Some(2), done)).unwrap();
    assert_eq!(group.state().last, Some((2, payload("b"))));
    assert_eq!(group.flushed_index(), Some(2));
    append(&group, 3, &["C"]).unwrap();
    let log = open(&disk.after_power_loss(&mut |_| 0));
    let group = log.group(GroupId(1));
    let expected = [(1, payload("a")), (2, payload("b")), (3, payload("C"))];
    assert_eq!(group.read(0..10, 1000).unwrap(), expected);
    wait(|done| group.truncate_after(None, done)).unwrap();
    assert_eq!((group.state().last, group.state().first_index), (None, Some(1)));
    append(&group, 1, &["A"]).unwrap();
    assert_eq!(group.read(0..10, 1000).unwrap(), [(1, payload("A"))]);
}

#[test]
fn a_truncation_to_an_entry_that_is_not_in_memory_still_shows_it_as_the_last() {
    let disk = RecordingDisk::new();
    let log = open_on(
        &disk,
        LogOptions {
            tail_bytes_max: 0,
            ..small_options()
        },
    )
    .unwrap();
    let group = log.group(GroupId(1));
    append(&group, 1, &["a", "b", "c", "d"]).unwrap();
    assert_eq!(log.stats().tail_bytes, 1);
    wait(|done| group.truncate_after(Some(2), done)).unwrap();
    assert_eq!(group.state().last, Some((2, payload("b"))));
    assert_eq!(group.read(1..9, 1000).unwrap(), [(1, payload("a")), (2, payload("b"))]);
}

#[test]
fn a_purge_keeps_vote_committed_and_its_id_and_may_go_beyond_the_last_entry() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    let group = log.group(GroupId(1));
    append(&group, 1, &["a", "b", "c"]).unwrap();
    wait(|done| group.save_vote(payload("vote"), done)).unwrap();
    group.save_committed(payload("c")).unwrap();
    wait(|done| group.purge(2, payload("id-2"), done)).unwrap();
    assert_eq!(group.read(0..10, 1000).unwrap(), [(3, payload("c"))]);
    assert_eq!(
        (group.state().first_index, group.state().purged),
        (Some(3), Some((2, payload("id-2"))))
    );
    wait(|done| group.purge(1, payload("id-1"), done)).unwrap();
    assert_eq!(
        group.state().purged,
        Some((2, payload("id-2"))),
        "an older purge changes nothing"
    );
    wait(|done| group.purge(90, payload("id-90"), done)).unwrap();
    let expected = GroupState {
        first_index: Some(91),
        last: None,
        vote: Some(payload("vote")),
        committed: Some(payload("c")),
        purged: Some((90, payload("id-90"))),
        flushed_index: Some(90),
    };
    assert_eq!(group.state(), expected);
    let log = open(&disk.after_power_loss(&mut |_| 0));
    let group = log.group(GroupId(1));
    assert_eq!(group.state(), expected);
    assert!(append(&group, 4, &["d"]).is_err());
    append(&group, 91, &["z"]).unwrap();
    assert_eq!(group.read(0..1000, 1000).unwrap(), [(91, payload("z"))]);
}

#[test]
fn a_removed_group_leaves_nothing_behind_and_may_begin_anew() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    let group = log.group(GroupId(1));
    append(&group, 5, &["a", "b"]).unwrap();
    append(&log.group(GroupId(2)), 1, &["x"]).unwrap();
    wait(|done| group.save_vote(payload("vote"), done)).unwrap();
    wait(|done| group.remove(done)).unwrap();
    assert_eq!(group.state(), GroupState::default());
    let log = open(&disk.after_power_loss(&mut |_| 0));
    assert_eq!(log.groups(), [GroupId(2)]);
    append(&log.group(GroupId(1)), 1, &["new"]).unwrap();
    assert_eq!(log.groups(), [GroupId(1), GroupId(2)]);
}

#[test]
fn a_read_gives_what_fits_but_at_least_one_entry() {
    let disk = RecordingDisk::new();
    let log = open_on(
        &disk,
        LogOptions {
            tail_bytes_max: 250,
            ..small_options()
        },
    )
    .unwrap();
    let group = log.group(GroupId(1));
    let long = "x".repeat(100);
    for index in 1..=20 {
        append(&group, index, &[&long]).unwrap();
    }
    let indexes = |range, max_bytes| -> Vec<u64> {
        group
            .read(range, max_bytes)
            .unwrap()
            .into_iter()
            .map(|(index, _)| index)
            .collect()
    };
    assert_eq!(indexes(1..21, 0), [1]);
    assert_eq!(indexes(5..21, 300), [5, 6, 7]);
    assert_eq!(indexes(18..30, 10_000), [18, 19, 20]);
    assert_eq!(indexes(0..u64::MAX, usize::MAX), (1..=20).collect::<Vec<u64>>());
    assert_eq!(indexes(21..30, 100), [0; 0]);
    let backwards = std::ops::Range { start: 9, end: 3 };
    assert_eq!(indexes(backwards, 100), [0; 0]);
}

#[test]
fn what_is_committed_has_no_sync_of_its_own_and_rides_on_the_next_batch() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    let group = log.group(GroupId(1));
    append(&group, 1, &["a"]).unwrap();
    let before = log.stats().syncs;
    for number in 0..500 {
        group.save_committed(payload(&format!("committed {number}"))).unwrap();
    }
    assert_eq!(log.stats().syncs, before);
    assert_eq!(open(&disk.after_kill()).group(GroupId(1)).state().committed, None);
    append(&log.group(GroupId(2)), 1, &["other"]).unwrap();
    assert_eq!(log.stats().syncs, before + 1);
    let log = open(&disk.after_power_loss(&mut |_| 0));
    assert_eq!(log.group(GroupId(1)).state().committed, Some(payload("committed 499")));
}

#[test]
fn notes_of_what_is_committed_do_not_pile_up_without_bound() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    for number in 0..10_000_u32 {
        log.group(GroupId(number % 2))
            .save_committed(payload("committed"))
            .unwrap();
    }
    assert!(log.stats().queue_bytes_max < 100_000, "{:?}", log.stats());
}

#[test]
fn a_closed_log_refuses_but_still_reads() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    let group = log.group(GroupId(1));
    append(&group, 1, &["a"]).unwrap();
    group.save_committed(payload("late")).unwrap();
    log.close();
    log.close();
    assert!(matches!(append(&group, 2, &["b"]), Err(LogFailed::Closed)));
    assert!(matches!(
        wait(|done| group.save_vote(payload("v"), done)),
        Err(LogFailed::Closed)
    ));
    assert!(matches!(group.save_committed(payload("c")), Err(LogFailed::Closed)));
    assert_eq!(group.read(0..9, 100).unwrap(), [(1, payload("a"))]);
    let log = open(&disk.after_power_loss(&mut |_| 0));
    assert_eq!(log.group(GroupId(1)).state().committed, Some(payload("late")));
}

#[test]
fn entries_of_many_megabytes_in_one_append_are_written_in_several_batches() {
    let disk = RecordingDisk::new();
    let options = LogOptions {
        segment_bytes: 1 << 20,
        ..small_options()
    };
    let log = open_on(&disk, options.clone()).unwrap();
    let group = log.group(GroupId(1));
    let entries: Vec<(u64, Bytes)> = (1..=11)
        .map(|index| (index, Bytes::from(vec![index as u8; 1 << 20])))
        .collect();
    let batches = log.stats().batches;
    wait(|done| group.append(entries.clone(), done)).unwrap();
    assert!(log.stats().batches >= batches + 3);
    let log = open_on(&disk.after_power_loss(&mut |_| 0), options).unwrap();
    assert!(log.group(GroupId(1)).read(0..100, usize::MAX).unwrap() == entries);
}

#[test]
fn the_highest_index_is_refused_since_nothing_could_follow_it() {
    let log = open(&RecordingDisk::new());
    let group = log.group(GroupId(1));
    append(&group, u64::MAX - 1, &["a"]).unwrap();
    assert!(matches!(
        append(&group, u64::MAX, &["b"]),
        Err(LogFailed::NotContiguous { .. })
    ));
    wait(|done| group.purge(u64::MAX, payload("id"), done)).unwrap();
    assert!(matches!(
        append(&group, u64::MAX, &["b"]),
        Err(LogFailed::NotContiguous { .. })
    ));
    wait(|done| group.truncate_after(Some(u64::MAX), done)).unwrap();
    assert_eq!((group.state().first_index, group.state().last), (Some(u64::MAX), None));
    assert_eq!(group.read(0..u64::MAX, 100).unwrap(), []);
}
