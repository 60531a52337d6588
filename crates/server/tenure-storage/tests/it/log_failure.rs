//! A disk that fails: the log stops, once and for all, and what was called back stays.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tenure_storage::disk::RecordingDisk;
use tenure_storage::error::{LogFailed, OpenError};
use tenure_storage::log::{GroupId, Log, LogOptions};

use crate::log_support::{DIR, Model, Random, Run, append, open, open_on, payload, small_options, wait};

/// A log that remembers what it told the node of its failure.
fn open_watched(disk: &RecordingDisk) -> (Log, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let told_inside = told.clone();
    let options = LogOptions {
        on_failure: Arc::new(move |failed| told_inside.lock().unwrap().push(failed.to_string())),
        ..small_options()
    };
    (open_on(disk, options).unwrap(), told)
}

fn assert_dead(log: &Log, told: &Mutex<Vec<String>>) {
    let group = log.group(GroupId(1));
    let failures = [
        append(&group, 1_000_000, &["x"]),
        wait(|done| group.save_vote(payload("v"), done)),
        wait(|done| group.truncate_after(None, done)),
        wait(|done| group.purge(1_000_000, payload("id"), done)),
        wait(|done| group.remove(done)),
        group.save_committed(payload("c")),
        group.read(0..10, 10).map(|_| ()),
    ];
    for failure in failures {
        assert!(matches!(&failure, Err(LogFailed::Io { .. })), "{failure:?}");
        assert!(failure.unwrap_err().stops_the_node());
    }
    assert!(log.failure().is_some());
    assert_eq!(told.lock().unwrap().len(), 1, "the node is told once: {told:?}");
}

#[test]
fn a_failed_sync_is_the_end_of_the_log() {
    let disk = RecordingDisk::new();
    let (log, told) = open_watched(&disk);
    let group = log.group(GroupId(1));
    append(&group, 1, &["a"]).unwrap();
    disk.fail_sync_after(0);
    let syncs = disk.syncs();
    let failed = append(&group, 2, &["b"]).unwrap_err();
    assert!(
        failed.to_string().contains("sync") && failed.to_string().contains("0000000001.seg"),
        "{failed}"
    );
    assert!(
        failed.to_string().contains("never tried again: look at the disk"),
        "{failed}"
    );
    assert_dead(&log, &told);
    log.close();
    assert_eq!(disk.syncs(), syncs + 1, "a failed sync is not tried again");
    // The system has dropped the page: the write is seen until the power goes, and then it is not.
    let log = open(&disk.after_power_loss(&mut |_| 0));
    assert_eq!(log.group(GroupId(1)).state().last, Some((1, payload("a"))));
}

#[test]
fn what_is_shown_after_a_failed_sync_and_a_restart_survives_a_power_loss() {
    let disk = RecordingDisk::new();
    let (log, _) = open_watched(&disk);
    append(&log.group(GroupId(1)), 1, &["a"]).unwrap();
    disk.fail_sync_after(0);
    append(&log.group(GroupId(1)), 2, &["b"]).unwrap_err();
    let killed = disk.after_kill();
    assert_eq!(open(&killed).group(GroupId(1)).state().last, Some((2, payload("b"))));
    let lost = killed.after_power_loss(&mut |_| 0);
    assert_eq!(open(&lost).group(GroupId(1)).state().last, Some((2, payload("b"))));
}

#[test]
fn whatever_waits_behind_a_failure_is_told_of_it_in_order() {
    let disk = RecordingDisk::new();
    let (log, told) = open_watched(&disk);
    let results = Arc::new(Mutex::new(Vec::new()));
    let (results_inside, log_inside, disk_inside) = (results.clone(), log.clone(), disk.clone());
    wait(|done| {
        log.group(GroupId(1)).save_vote(
            payload("v"),
            Box::new(move |result| {
                disk_inside.fail_write_after(0);
                for number in 0..10 {
                    let results = results_inside.clone();
                    let done = Box::new(move |result: Result<(), LogFailed>| {
                        results.lock().unwrap().push((number, result.is_err()));
                    });
                    log_inside.group(GroupId(number)).append(vec![(0, payload("x"))], done);
                }
                done(result);
            }),
        );
    })
    .unwrap();
    assert_eq!(
        *results.lock().unwrap(),
        (0..10).map(|number| (number, true)).collect::<Vec<_>>()
    );
    assert_dead(&log, &told);
}

#[test]
fn a_failure_of_any_write_or_sync_loses_nothing_that_was_acknowledged() {
    for skip in 0..120 {
        for fail_write in [false, true] {
            let what = format!("fail after {skip}, write {fail_write}");
            let disk = RecordingDisk::new();
            let (log, told) = open_watched(&disk);
            disk.start_recording();
            let mut run = Run::new(log, &disk, Model::default(), skip);
            if fail_write {
                disk.fail_write_after(skip)
            } else {
                disk.fail_sync_after(skip)
            }
            let mut steps = 0;
            while run.log.failure().is_none() {
                run.step(3);
                steps += 1;
                assert!(steps < 1000, "{what}: it fails in the end");
            }
            assert_eq!(told.lock().unwrap().len(), 1, "{what}");
            let events = disk.events();
            run.check(&open(&disk.after_kill()), events, &what);
            let mut random = Random(skip);
            let lost = disk.after_power_loss(&mut |bound| random.below(bound));
            run.check(&open(&lost), events, &what);
        }
    }
}

#[test]
fn a_full_disk_stops_the_log_and_with_room_again_everything_acknowledged_is_there() {
    let disk = RecordingDisk::new();
    let (log, told) = open_watched(&disk);
    disk.start_recording();
    disk.set_capacity(Some(disk.used() + 6000));
    let mut acknowledged = 0;
    let failed = loop {
        match append(&log.group(GroupId(1)), acknowledged + 1, &[&"f".repeat(200)]) {
            Ok(()) => acknowledged += 1,
            Err(failed) => break failed,
        }
    };
    assert!(
        matches!(&failed, LogFailed::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull),
        "{failed}"
    );
    assert!(
        failed.to_string().contains("the disk is full: free some room"),
        "{failed}"
    );
    assert!(acknowledged > 20);
    assert_dead(&log, &told);
    // Opening needs no more room than there is, and with more it goes on.
    let found = disk.after_power_loss(&mut |_| 0);
    let log = open(&found);
    let group = log.group(GroupId(1));
    let last = group.state().last.unwrap().0;
    assert!(
        (acknowledged..=acknowledged + 1).contains(&last),
        "{last} of {acknowledged}"
    );
    for index in last + 1..last + 50 {
        append(&group, index, &[&"f".repeat(200)]).unwrap();
    }
    assert_eq!(group.read(0..u64::MAX, usize::MAX).unwrap().len() as u64, last + 49);
}

#[test]
fn an_opening_that_fails_half_way_can_be_tried_again() {
    for prepared in [false, true] {
        for skip in 0..30 {
            for fail_write in [false, true] {
                let mut disk = RecordingDisk::new();
                let mut expected = Model::default();
                if prepared {
                    let (run, _) = {
                        let mut run = Run::new(open(&disk), &disk, Model::default(), 5);
                        (0..60).for_each(|_| run.step(3));
                        run.log.close();
                        (run, ())
                    };
                    expected = run.last_model().clone();
                    disk = disk.after_kill();
                }
                if fail_write {
                    disk.fail_write_after(skip)
                } else {
                    disk.fail_sync_after(skip)
                }
                if let Err(error) = open_on(&disk, small_options()) {
                    assert!(matches!(error, OpenError::Io { .. }), "{error}");
                }
                let disk = disk.after_power_loss(&mut |_| 1);
                assert_eq!(Model::of(&open(&disk)), expected, "skip {skip}, write {fail_write}");
            }
        }
    }
}

#[test]
fn a_log_that_must_be_there_is_not_made() {
    let disk = RecordingDisk::new();
    let must = LogOptions {
        create: false,
        ..small_options()
    };
    let error = open_on(&disk, must.clone()).unwrap_err();
    assert!(
        matches!(&error, OpenError::LogMissing { folder } if folder == Path::new(DIR)),
        "{error}"
    );
    assert_eq!(disk.used(), 0);
    append(&open(&disk).group(GroupId(1)), 1, &["a"]).unwrap();
    let log = open_on(&disk, must).unwrap();
    assert_eq!(log.group(GroupId(1)).state().last, Some((1, payload("a"))));
}
