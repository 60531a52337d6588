//! The log with a thread of its own, in memory and on real files.

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tenure_storage::disk::{Disk, Files, RecordingDisk};
use tenure_storage::error::LogFailed;
use tenure_storage::layout::DataDir;
use tenure_storage::log::{GroupId, Log, LogOptions};

use crate::log_support::{DIR, append, payload, small_options, threads, wait};

fn open_threaded(disk: Arc<dyn Disk>, dir: &Path) -> Log {
    Log::open(disk, dir, small_options(), threads()).unwrap()
}

/// Several callers, each waiting for each of its entries.
#[expect(clippy::disallowed_methods, reason = "the callers must be other threads")]
fn append_from_many_threads(log: &Log, entries: u64) {
    std::thread::scope(|scope| {
        for number in 0..4 {
            let group = log.group(GroupId(number));
            scope.spawn(move || {
                for index in 1..=entries {
                    append(&group, index, &[&format!("{number} {index}")]).unwrap();
                    if index % 50 == 0 {
                        wait(|done| group.purge(index - 20, payload("id"), done)).unwrap();
                    }
                }
            });
        }
    });
}

fn check_many(log: &Log, entries: u64) {
    for number in 0..4 {
        let group = log.group(GroupId(number));
        let first = entries / 50 * 50 - 19;
        let expected: Vec<_> = (first..=entries)
            .map(|index| (index, payload(&format!("{number} {index}"))))
            .collect();
        assert_eq!(group.read(0..u64::MAX, usize::MAX).unwrap(), expected);
        assert_eq!(group.flushed_index(), Some(entries));
    }
}

#[test]
fn many_callers_share_batches_and_find_everything_after_a_power_loss() {
    let disk = RecordingDisk::new();
    let log = open_threaded(Arc::new(disk.clone()), Path::new(DIR));
    append_from_many_threads(&log, 500);
    check_many(&log, 500);
    let lost = disk.after_power_loss(&mut |_| 0);
    log.close();
    check_many(&open_threaded(Arc::new(lost), Path::new(DIR)), 500);
}

#[test]
fn it_works_on_real_files_and_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = DataDir::open(&folder.path().join("data")).unwrap();
    for entries in [120, 120] {
        let log = open_threaded(Arc::new(Files), &dir.log_dir());
        if log.groups().is_empty() {
            append_from_many_threads(&log, entries);
        }
        check_many(&log, entries);
        log.close();
    }
}

#[test]
fn callbacks_come_in_the_order_in_which_was_asked() {
    let log = open_threaded(Arc::new(RecordingDisk::new()), Path::new(DIR));
    let order = Arc::new(Mutex::new(Vec::new()));
    let (sender, receiver) = mpsc::channel();
    for number in 0..2000_u64 {
        let (order, sender) = (order.clone(), sender.clone());
        let done = Box::new(move |result: Result<(), LogFailed>| {
            order.lock().unwrap().push((number, result.is_ok()));
            if number == 1999 {
                sender.send(()).unwrap();
            }
        });
        // Every tenth one does not follow, and is told so in its turn.
        let index = if number % 10 == 9 { 77_777 } else { number - number / 10 };
        log.group(GroupId(1)).append(vec![(index, payload("x"))], done);
    }
    receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    let expected: Vec<_> = (0..2000).map(|number| (number, number % 10 != 9)).collect();
    assert_eq!(*order.lock().unwrap(), expected);
}

#[test]
fn a_close_writes_what_waits_and_the_last_handle_stops_the_threads() {
    let disk = RecordingDisk::new();
    let log = open_threaded(Arc::new(disk.clone()), Path::new(DIR));
    let group = log.group(GroupId(1));
    let (sender, receiver) = mpsc::channel();
    for index in 0..100 {
        let sender = sender.clone();
        group.append(
            vec![(index, payload("x"))],
            Box::new(move |result| sender.send(result.is_ok()).unwrap()),
        );
    }
    group.save_committed(payload("c")).unwrap();
    log.close();
    drop(sender);
    assert_eq!(receiver.iter().filter(|ok| *ok).count(), 100);
    let log = open_threaded(Arc::new(disk.after_power_loss(&mut |_| 0)), Path::new(DIR));
    assert_eq!(log.group(GroupId(1)).state().committed, Some(payload("c")));
    // Nobody waits for these threads, and the callback is still called.
    let group = log.group(GroupId(2));
    drop(log);
    let (sender, receiver) = mpsc::channel();
    group.append(
        vec![(0, payload("x"))],
        Box::new(move |result| sender.send(result.is_ok()).unwrap()),
    );
    drop(group);
    assert!(receiver.recv_timeout(Duration::from_secs(60)).unwrap());
}

#[test]
fn a_callback_that_panics_fails_the_log_instead_of_hanging_it() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let told_inside = told.clone();
    let options = LogOptions {
        on_failure: Arc::new(move |failed| told_inside.lock().unwrap().push(failed.clone())),
        ..small_options()
    };
    let log = Log::open(Arc::new(RecordingDisk::new()), Path::new(DIR), options, threads()).unwrap();
    let group = log.group(GroupId(1));
    group.append(
        vec![(1, payload("a"))],
        Box::new(|_| panic!("this test panics on purpose")),
    );
    let (sender, receiver) = mpsc::channel();
    group.append(
        vec![(2, payload("b"))],
        Box::new(move |result| sender.send(result).unwrap()),
    );
    // Either it waited behind the panic, or was asked for after it, or dropped with the batch that panicked.
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Ok(result) => assert!(matches!(result, Err(LogFailed::WriterGone)), "{result:?}"),
        Err(error) => assert_eq!(error, mpsc::RecvTimeoutError::Disconnected),
    }
    log.close();
    assert!(matches!(log.failure(), Some(LogFailed::WriterGone)));
    assert!(matches!(append(&group, 2, &["b"]), Err(LogFailed::WriterGone)));
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the callers must be other threads")]
fn a_failed_sync_reaches_everybody_who_waits() {
    let disk = RecordingDisk::new();
    let log = open_threaded(Arc::new(disk.clone()), Path::new(DIR));
    append(&log.group(GroupId(1)), 1, &["a"]).unwrap();
    disk.fail_sync_after(20);
    std::thread::scope(|scope| {
        for number in 2..6 {
            let group = log.group(GroupId(number));
            scope.spawn(move || {
                let mut index = 0;
                while append(&group, index, &["x"]).is_ok() {
                    index += 1;
                }
            });
        }
    });
    assert!(matches!(log.failure(), Some(LogFailed::Io { .. })));
    log.close();
}
