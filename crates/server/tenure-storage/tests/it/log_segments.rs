//! Segments are used again, and lagging groups do not hold them.

use std::path::Path;

use tenure_storage::disk::{Disk, OpenMode, RecordingDisk};
use tenure_storage::log::{GroupId, Log, LogOptions};

use crate::log_support::{DIR, Model, append, files, open, open_on, payload, small_options, wait};

/// Appends and purges, so that a group's log moves on but stays short.
fn move_on(log: &Log, group: GroupId, entries: u64) {
    let group = log.group(group);
    let first = group.state().last.map_or(1, |(last, _)| last + 1);
    for index in first..first + entries {
        append(&group, index, &[&"y".repeat(100)]).unwrap();
        if index % 10 == 0 {
            wait(|done| group.purge(index - 5, payload("id"), done)).unwrap();
        }
    }
}

#[test]
fn purged_segments_are_used_again_and_the_log_stays_short() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    move_on(&log, GroupId(1), 2000);
    let stats = log.stats();
    assert!(stats.segments <= 3 && stats.spares <= 2, "{stats:?}");
    assert!(stats.bytes > 50 * 4096, "{stats:?}");
    assert!(
        disk.used() < 8 * 4096 + 8192,
        "{} bytes in {:?}",
        disk.used(),
        files(&disk)
    );
    let expected = Model::of(&log);
    log.close();
    assert_eq!(Model::of(&open(&disk.after_power_loss(&mut |_| 0))), expected);
}

#[test]
fn what_lagging_groups_hold_is_copied_forward_so_that_old_segments_go() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    for lagging in 2..6 {
        let group = log.group(GroupId(lagging));
        wait(|done| group.save_vote(payload("an old vote"), done)).unwrap();
        append(&group, 7, &[&"l".repeat(200), "short", &"m".repeat(300)]).unwrap();
        wait(|done| group.purge(7, payload("id"), done)).unwrap();
    }
    move_on(&log, GroupId(1), 3000);
    let stats = log.stats();
    assert!(stats.segments <= 5, "{stats:?}");
    assert!(stats.entries_copied > 0, "{stats:?}");
    // Copying costs a part of the whole, not a multiple.
    assert!(stats.entries_copied < stats.entries, "{stats:?}");
    let found = open(&disk.after_power_loss(&mut |_| 0));
    assert_eq!(Model::of(&found), Model::of(&log));
    for lagging in 2..6 {
        let state = found.group(GroupId(lagging)).state();
        assert_eq!(state.vote, Some(payload("an old vote")));
        assert_eq!((state.first_index, state.purged), (Some(8), Some((7, payload("id")))));
        assert_eq!(state.last, Some((9, payload(&"m".repeat(300)))));
    }
}

#[test]
fn a_vote_outlives_every_segment_it_was_written_in() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    wait(|done| log.group(GroupId(9)).save_vote(payload("vote"), done)).unwrap();
    move_on(&log, GroupId(1), 500);
    assert!(!files(&disk).contains(&"0000000001.seg".to_owned()));
    assert_eq!(
        open(&disk.after_power_loss(&mut |_| 0)).group(GroupId(9)).state().vote,
        Some(payload("vote"))
    );
}

#[test]
fn a_segment_of_another_length_may_follow() {
    let disk = RecordingDisk::new();
    let mut expected = Model::default();
    for segment_bytes in [4096, 20_000, 5000, 64 << 10, 4096] {
        let log = open_on(
            &disk,
            LogOptions {
                segment_bytes,
                ..small_options()
            },
        )
        .unwrap();
        assert_eq!(Model::of(&log), expected);
        move_on(&log, GroupId(1), 300);
        expected = Model::of(&log);
    }
}

#[test]
fn unfinished_files_of_a_crash_are_tidied_away_and_foreign_ones_are_left_alone() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    move_on(&log, GroupId(1), 20);
    log.close();
    for name in ["0000000007.tmp", "0000000009.spare", "notes.txt"] {
        disk.open(&Path::new(DIR).join(name), OpenMode::Create)
            .unwrap()
            .write_at(0, b"rest")
            .unwrap();
    }
    let expected = Model::of(&log);
    assert_eq!(Model::of(&open(&disk)), expected);
    let files = files(&disk);
    assert!(files.contains(&"notes.txt".to_owned()), "{files:?}");
    assert!(
        !files
            .iter()
            .any(|name| name == "0000000007.tmp" || name == "0000000009.spare"),
        "{files:?}"
    );
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the reader must be another thread")]
fn a_reader_keeps_the_segment_it_reads_while_the_log_moves_on() {
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
    for index in 1..=200 {
        append(&group, index, &[&format!("entry {index}")]).unwrap();
    }
    let reader = std::thread::Builder::new();
    let (group_read, writer) = (group.clone(), log.clone());
    let reader = reader
        .spawn(move || {
            let mut read = 0;
            while group_read.state().purged.is_none_or(|(upto, _)| upto < 2000) {
                for (index, found) in group_read.read(0..u64::MAX, usize::MAX).unwrap() {
                    assert_eq!(found, payload(&format!("entry {index}")));
                    read += 1;
                }
            }
            read
        })
        .unwrap();
    for index in 201..=2100 {
        append(&group, index, &[&format!("entry {index}")]).unwrap();
        wait(|done| group.purge(index - 100, payload("id"), done)).unwrap();
    }
    assert!(reader.join().unwrap() > 0);
    assert!(writer.failure().is_none());
}

#[test]
fn when_room_is_short_all_spare_segments_go_but_the_next() {
    let disk = RecordingDisk::new();
    let log = open(&disk);
    let group = log.group(GroupId(1));
    for index in 1..500 {
        append(&group, index, &[&"y".repeat(100)]).unwrap();
    }
    wait(|done| group.purge(499, payload("id"), done)).unwrap();
    assert_eq!(log.stats().spares, 2);
    let spares = || files(&disk).iter().filter(|name| name.ends_with(".spare")).count();
    assert_eq!(spares(), 2);
    for _ in 0..2 {
        log.give_back_spares().unwrap();
        assert_eq!(log.stats().spares, 1);
        assert_eq!(spares(), 1);
    }
    let expected = Model::of(&log);
    assert_eq!(Model::of(&open(&disk.after_power_loss(&mut |_| 0))), expected);
    move_on(&log, GroupId(2), 500);
    let expected = Model::of(&log);
    log.close();
    assert_eq!(Model::of(&open(&disk.after_power_loss(&mut |_| 0))), expected);
}
