//! Looking at a folder whose state is damaged: what is wrong is told, and the looking itself goes on.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tenure_core::ids::GroupId;
use tenure_storage::feed::FeedLimits;
use tenure_storage::inspect::{Inspection, Part, inspect};
use tenure_storage::layout::{DataDir, Identity};
use tenure_storage::log::{Log, LogOptions, WriterMode};
use tenure_storage::state::StateEngine as _;

use crate::mutations::Seeded;
use crate::state_harness::{MadeLog, copy_folder, open_disk};

const GROUPS: [GroupId; 3] = [GroupId(1), GroupId(2), GroupId(300)];
/// Rows that a group is given; some are looked up one by one beside the scan.
const ROWS: u8 = 200;
/// Folders that are damaged at random. Each takes a while, since the engine makes its journals long.
const DAMAGED_FOLDERS: usize = 12;

/// A data folder with an empty log, so that the state alone names the groups.
fn made() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let data = DataDir::open(folder.path()).unwrap();
    let options = LogOptions {
        segment_bytes: 4096,
        ..LogOptions::default()
    };
    Log::open(data.disk().clone(), &data.log_dir(), options, WriterMode::Inline).unwrap();
    let identity = Identity {
        cluster: 1,
        node: 1,
        folder: 1,
    };
    data.write_identity(&identity).unwrap();
    let engine = open_disk(&data.state_dir(), FeedLimits::default()).unwrap();
    for group in GROUPS {
        let mut log = MadeLog::default();
        log.push((0..ROWS).map(|key| (key, Some(vec![key; 100]))));
        let state = engine.group(group).unwrap();
        log.catch_up(&state);
        state.write_behind(log.last_index()).unwrap();
    }
    engine.sync_all().unwrap();
    folder
}

fn look_at(folder: &Path) -> Inspection {
    let scratch = tempfile::tempdir().unwrap();
    inspect(folder, scratch.path()).unwrap()
}

/// Every file of the state, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.join("state")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files.sort();
    files
}

#[test]
fn without_a_log_the_state_names_the_groups_and_every_row_is_read() {
    let folder = made();
    let inspection = look_at(folder.path());
    assert_eq!(inspection.damage, Vec::new());
    let groups: Vec<GroupId> = inspection.groups.iter().map(|found| found.group).collect();
    assert_eq!(groups, GROUPS);
    for found in inspection.groups {
        assert!(found.state.unwrap().rows >= u64::from(ROWS), "{found:?}");
    }
}

#[test]
fn a_group_whose_rows_are_gone_is_named_beside_the_others() {
    let folder = made();
    // Keyspaces are numbered in the order of their making: names, pointers, then rows and feed of each group.
    fs::remove_dir_all(folder.path().join("state/keyspaces/4")).unwrap();
    let inspection = look_at(folder.path());
    let [damage] = inspection.damage.as_slice() else {
        panic!("{:?}", inspection.damage);
    };
    assert_eq!((damage.part, damage.group), (Part::State, Some(GROUPS[1])));
    let read: Vec<GroupId> = inspection
        .groups
        .iter()
        .filter(|found| found.state.is_some())
        .map(|found| found.group)
        .collect();
    assert_eq!(read, [GROUPS[0], GROUPS[2]]);
}

#[test]
fn whatever_is_wrong_with_the_state_the_looking_ends_with_an_answer() {
    let pristine = made();
    let mut seeded = Seeded::new(5);
    let mut damaged = 0;
    for _ in 0..DAMAGED_FOLDERS {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(pristine.path(), folder.path());
        let files = files(folder.path());
        let file = &files[seeded.below(files.len())];
        let mut bytes = fs::read(file).unwrap();
        let len = bytes.len();
        match seeded.below(4) {
            0 => fs::remove_file(file).unwrap(),
            1 => fs::write(file, &bytes[..seeded.below(len.max(1)).min(len)]).unwrap(),
            _ if len > 0 => {
                // Journals are long and mostly zero.
                let at = seeded.below(len.min(64 << 10));
                bytes[at] ^= 1 << seeded.below(8);
                fs::write(file, &bytes).unwrap();
            }
            _ => fs::write(file, b"not what was written").unwrap(),
        }
        damaged += usize::from(!look_at(folder.path()).damage.is_empty());
    }
    assert!(damaged > 0, "some of it is seen");
}
