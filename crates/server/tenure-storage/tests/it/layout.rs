//! The folder: one process at a time, formats that are known, an identity that is whole or not there.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tenure_storage::disk::{Disk, OpenMode, RecordingDisk};
use tenure_storage::error::OpenError;
use tenure_storage::layout::{DataDir, Identity};
use tenure_storage::log::{GroupId, Log, LogOptions, WriterMode};

use crate::log_support::{Random, append, payload, wait};

/// Tells a copy of this test program to hold the folder that it names.
const HOLD_VARIABLE: &str = "TENURE_TEST_HOLD_FOLDER";

const IDENTITY: Identity = Identity {
    cluster: 0xc1,
    node: 7,
    folder: u128::MAX,
};

#[test]
fn a_new_folder_is_made_and_found_again() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("some/where");
    let dir = DataDir::open(&root).unwrap();
    assert_eq!(dir.path(), root);
    assert!(dir.log_dir().is_dir() && dir.state_dir().is_dir());
    assert_eq!(dir.read_identity().unwrap(), None);
    dir.write_identity(&IDENTITY).unwrap();
    drop(dir);
    let dir = DataDir::open(&root).unwrap();
    assert_eq!(dir.read_identity().unwrap(), Some(IDENTITY));
    let other = Identity { node: 8, ..IDENTITY };
    dir.write_identity(&other).unwrap();
    assert_eq!(dir.read_identity().unwrap(), Some(other));
}

#[test]
fn a_second_opening_is_refused_even_if_the_lock_file_was_deleted() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let root = temporary.path().join("data");
    let first = DataDir::open(&root).expect("opens");
    std::fs::remove_file(root.join("LOCK")).expect("it is there");
    let error = DataDir::open(&root).expect_err("in use");
    assert!(matches!(error, OpenError::Held { .. }), "{error}");
    drop(first);
    DataDir::open(&root).expect("free again");
}

#[test]
fn a_second_opening_is_refused_and_names_the_folder() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("data");
    let dir = DataDir::open(&root).unwrap();
    let error = DataDir::open(&root).unwrap_err();
    assert!(
        matches!(&error, OpenError::Held { folder } if *folder == root),
        "{error}"
    );
    assert!(error.to_string().contains(root.to_str().unwrap()), "{error}");
    drop(dir);
    DataDir::open(&root).unwrap();
}

/// Not a test by itself: holds the folder for the test below until it is killed.
#[test]
fn holder_of_a_folder_for_another_process() {
    let Some(root) = std::env::var_os(HOLD_VARIABLE) else {
        return;
    };
    let _dir = DataDir::open(Path::new(&root)).unwrap();
    eprintln!("held");
    // Ends when whoever started this does, too.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_folder_is_refused_while_another_process_has_it_and_free_when_that_is_killed() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("data");
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "layout::holder_of_a_folder_for_another_process",
            "--nocapture",
        ])
        .env(HOLD_VARIABLE, &root)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("held")));
    let error = DataDir::open(&root).unwrap_err();
    assert!(matches!(error, OpenError::Held { .. }), "{error}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    DataDir::open(&root).unwrap();
}

#[test]
fn a_newer_or_unknown_format_is_refused_and_nothing_is_touched() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("data");
    fs::create_dir(&root).unwrap();
    let format = root.join("FORMAT");
    fs::write(&format, "tenure data folder, format 2\n").unwrap();
    let error = DataDir::open(&root).unwrap_err();
    assert!(
        matches!(error, OpenError::FormatNewer { found: 2, known: 1, .. }),
        "{error}"
    );
    let long = "x".repeat(10_000);
    for text in [
        "",
        "tenure data folder, format 0\n",
        "tenure data folder, format 1",
        "something else\n",
        &long,
    ] {
        fs::write(&format, text).unwrap();
        let error = DataDir::open(&root).unwrap_err();
        assert!(matches!(error, OpenError::FormatUnknown { .. }), "{text:?}: {error}");
    }
    let names: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["FORMAT"]);
}

#[test]
fn a_folder_with_other_files_is_refused_and_nothing_is_touched() {
    let temporary = tempfile::tempdir().unwrap();
    fs::write(temporary.path().join("letter.txt"), "dear").unwrap();
    let error = DataDir::open(temporary.path()).unwrap_err();
    assert!(
        matches!(&error, OpenError::NotOurs { found, .. } if found == "letter.txt"),
        "{error}"
    );
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
}

#[test]
fn an_identity_with_any_bit_turned_is_refused() {
    let disk = RecordingDisk::new();
    let dir = DataDir::open_on(Arc::new(disk.clone()), Path::new("data")).unwrap();
    dir.write_identity(&IDENTITY).unwrap();
    let path = Path::new("data/IDENTITY");
    let length = disk.open(path, OpenMode::Read).unwrap().length().unwrap();
    for bit in 0..length * 8 {
        disk.flip_bit(path, bit).unwrap();
        let error = dir.read_identity().unwrap_err();
        assert!(matches!(error, OpenError::IdentityDamaged { .. }), "bit {bit}: {error}");
        disk.flip_bit(path, bit).unwrap();
    }
    assert_eq!(dir.read_identity().unwrap(), Some(IDENTITY));
    disk.open(path, OpenMode::Write).unwrap().set_length(9999).unwrap();
    assert!(matches!(dir.read_identity(), Err(OpenError::IdentityDamaged { .. })));
}

#[test]
fn after_a_power_loss_the_identity_is_the_old_one_or_the_new_one() {
    let disk = RecordingDisk::new();
    disk.start_recording();
    let dir = DataDir::open_on(Arc::new(disk.clone()), Path::new("data")).unwrap();
    let opened = disk.events();
    dir.write_identity(&IDENTITY).unwrap();
    let first_written = disk.events();
    let second = Identity { node: 8, ..IDENTITY };
    dir.write_identity(&second).unwrap();
    let mut random = Random(1);
    for events in 0..=disk.events() {
        for torn in [None, Some(0), Some(20), Some(100)] {
            let found = disk.at(events, torn).after_power_loss(&mut |bound| random.below(bound));
            let dir = DataDir::open_on(Arc::new(found), Path::new("data")).unwrap();
            let identity = dir.read_identity().unwrap();
            let possible: &[_] = match events {
                _ if events <= opened => &[None],
                _ if events < first_written => &[None, Some(IDENTITY)],
                _ if events == disk.events() => &[Some(second)],
                _ => &[Some(IDENTITY), Some(second)],
            };
            assert!(possible.contains(&identity), "after {events} changes: {identity:?}");
        }
    }
}

#[test]
fn an_identity_is_lost_only_where_a_node_has_been() {
    let disk = RecordingDisk::new();
    let root = Path::new("/data");
    let open = |disk: &RecordingDisk| DataDir::open_on(Arc::new(disk.clone()), root).unwrap();
    let open_log = |disk: &RecordingDisk| {
        let log_dir = root.join("log");
        let options = LogOptions {
            segment_bytes: 4096,
            ..LogOptions::default()
        };
        Log::open(Arc::new(disk.clone()), &log_dir, options, WriterMode::Inline).unwrap()
    };
    assert!(!open(&disk).has_lost_identity().unwrap());
    // A first start that was cut short anywhere in the making of the log, and one that was cut short again.
    disk.start_recording();
    for _ in 0..2 {
        drop(open_log(&disk));
    }
    for events in 0..=disk.events() {
        for kept in [0, u64::MAX] {
            let left = disk.at(events, None);
            let left = left.after_power_loss(&mut |choices| kept.min(choices.saturating_sub(1)));
            assert!(!open(&left).has_lost_identity().unwrap(), "after event {events}");
        }
    }
    let log = open_log(&disk);
    assert!(!open(&disk).has_lost_identity().unwrap());
    append(&log.group(GroupId(1)), 1, &["an entry"]).unwrap();
    assert!(open(&disk).has_lost_identity().unwrap());
    wait(|done| log.group(GroupId(1)).purge(1, payload("id"), done)).unwrap();
    assert!(open(&disk).has_lost_identity().unwrap(), "a purge says as much");
    open(&disk).write_identity(&IDENTITY).unwrap();
    assert!(!open(&disk).has_lost_identity().unwrap());

    let disk = RecordingDisk::new();
    let dir = open(&disk);
    disk.open(&dir.state_dir().join("version"), OpenMode::Create).unwrap();
    assert!(dir.has_lost_identity().unwrap(), "there is a state");
}

#[test]
fn a_folder_in_which_a_restore_was_cut_short_is_refused_until_it_is_ended() {
    let disk: Arc<dyn Disk> = Arc::new(RecordingDisk::new());
    let root = Path::new("/data");
    let dir = DataDir::begin_restore(disk.clone(), root).expect("there is no folder yet");
    dir.write_identity(&IDENTITY).unwrap();
    for again in [
        DataDir::open_on(disk.clone(), root),
        DataDir::begin_restore(disk.clone(), root),
    ] {
        let error = again.expect_err("it is not whole");
        assert!(matches!(error, OpenError::RestoreCutShort { .. }), "{error}");
    }
    dir.end_restore().unwrap();
    drop(dir);
    let dir = DataDir::open_on(disk.clone(), root).expect("it is whole");
    assert_eq!(dir.read_identity().unwrap(), Some(IDENTITY));
    drop(dir);
    let error = DataDir::begin_restore(disk, root).expect_err("it is in use");
    assert!(matches!(error, OpenError::NotEmpty { .. }), "{error}");
}
