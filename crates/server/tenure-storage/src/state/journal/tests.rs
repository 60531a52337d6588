//! The cut, on journals that the engine wrote.

use std::io::{Seek, SeekFrom, Write};

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use tempfile::TempDir;

use super::*;

/// A closed database with batches 0, 1, 2, … of two rows each, and where each of them ends in the journal.
fn recorded(batches: u8) -> (TempDir, Vec<u64>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut ends = Vec::new();
    for batch in 0..batches {
        let database = Database::builder(folder.path())
            .worker_threads(1)
            .open()
            .expect("it opens");
        let keyspace = database
            .keyspace("rows", KeyspaceCreateOptions::default)
            .expect("a keyspace");
        let mut rows = database.batch().durability(Some(PersistMode::SyncAll));
        rows.insert(&keyspace, [batch], vec![batch; 5_000]);
        rows.insert(&keyspace, "last", [batch]);
        rows.commit().expect("it commits");
        drop((keyspace, database));
        let bytes = fs::read(journal_of(&folder)).expect("it can be read");
        ends.push(bytes.iter().rposition(|byte| *byte != 0).expect("it is not empty") as u64 + 1);
    }
    (folder, ends)
}

fn journal_of(folder: &TempDir) -> PathBuf {
    newest_journal(folder.path())
        .expect("the folder can be read")
        .expect("there is a journal")
}

fn journal_length(folder: &TempDir) -> u64 {
    fs::metadata(journal_of(folder)).expect("it is there").len()
}

fn overwrite(folder: &TempDir, position: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new()
        .write(true)
        .open(journal_of(folder))
        .expect("it opens");
    file.seek(SeekFrom::Start(position)).expect("it seeks");
    file.write_all(bytes).expect("it writes");
}

fn last_row(folder: &TempDir) -> Result<Option<u8>, fjall::Error> {
    let database = Database::builder(folder.path()).worker_threads(1).open()?;
    let keyspace = database.keyspace("rows", KeyspaceCreateOptions::default)?;
    Ok(keyspace.get("last")?.map(|value| value[0]))
}

#[test]
fn no_folder_and_no_journal_are_fine() {
    let folder = tempfile::tempdir().unwrap();
    cut_torn_tail(folder.path()).unwrap();
    cut_torn_tail(&folder.path().join("none")).unwrap();
}

#[test]
fn a_whole_journal_is_left_alone() {
    let (folder, ends) = recorded(3);
    let length = journal_length(&folder);
    cut_torn_tail(folder.path()).unwrap();
    assert_eq!(journal_length(&folder), length);
    overwrite(&folder, ends[2], &[0; 100]);
    cut_torn_tail(folder.path()).unwrap();
    assert_eq!(last_row(&folder).unwrap(), Some(2));
}

#[test]
fn a_hole_that_the_engine_refuses_to_open_is_cut_off() {
    let (folder, ends) = recorded(4);
    // In the middle of the large value of batch 2: its end is there, but its checksum is another.
    overwrite(&folder, ends[1] + 1_000, &[0; 2_000]);
    assert!(
        last_row(&folder).is_err(),
        "if the engine deals with it one day, the cut can go"
    );
    cut_torn_tail(folder.path()).unwrap();
    assert_eq!(journal_length(&folder), ends[1]);
    assert_eq!(last_row(&folder).unwrap(), Some(1));
}

#[test]
fn a_batch_that_ends_early_is_cut_off() {
    for missing in [1, 4, 12, 13, 14, 100, 5_000] {
        let (folder, ends) = recorded(2);
        OpenOptions::new()
            .write(true)
            .open(journal_of(&folder))
            .unwrap()
            .set_len(ends[1] - missing)
            .unwrap();
        cut_torn_tail(folder.path()).unwrap();
        assert_eq!(journal_length(&folder), ends[0]);
        assert_eq!(last_row(&folder).unwrap(), Some(0));
    }
}

#[test]
fn sequence_numbers_that_do_not_rise_are_cut_off() {
    for number in [0_u64, u64::MAX, SEQUENCE_NUMBER_MAX] {
        let (folder, ends) = recorded(3);
        overwrite(&folder, ends[1] + 5, &number.to_le_bytes());
        cut_torn_tail(folder.path()).unwrap();
        assert_eq!(journal_length(&folder), ends[1]);
        assert_eq!(last_row(&folder).unwrap(), Some(1));
    }
}
