//! `tenure inspect` on folders that are whole, in use, damaged, or none at all.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::binary::{self, Ran, Server, folder};

/// Every file below a folder with its bytes.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files.insert(path.clone(), Vec::new());
                folders.push(path);
            } else {
                files.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Inspects a folder, and sees to it that nothing in it changes and nothing is left elsewhere.
fn inspect(data: &Path, more: &[&str]) -> Ran {
    let before = content(data);
    let (_temporary, scratch) = folder();
    fs::create_dir(&scratch).unwrap();
    let mut command = binary::command();
    command.arg("inspect").arg(data).args(more).env("TMPDIR", &scratch);
    let ran = binary::run(&mut command, b"");
    assert!(content(data) == before, "something in the folder has changed: {ran:?}");
    assert_eq!(content(&scratch), BTreeMap::new(), "something is left: {ran:?}");
    ran
}

/// A folder in which something was written, of a node that was ended this way.
fn used(signal: Signal) -> (tempfile::TempDir, PathBuf) {
    let (temporary, data) = folder();
    let server = Server::dev(&data);
    server.done(["cache", "create", "leases"]);
    for number in 0..40 {
        server.done([
            "cache",
            "put",
            "leases",
            &format!("key-{number}"),
            "a value of some length",
        ]);
    }
    server.stop(signal);
    (temporary, data)
}

fn flip(file: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
}

/// Where this stands in a file, first.
fn position(file: &Path, wanted: &[u8]) -> u64 {
    let bytes = fs::read(file).unwrap();
    let at = bytes.windows(wanted.len()).position(|window| window == wanted);
    at.unwrap_or_else(|| panic!("{} is not in {}", wanted.escape_ascii(), file.display())) as u64
}

#[test]
fn a_whole_folder_is_read_and_not_a_byte_of_it_changes() {
    for signal in [Signal::TERM, Signal::KILL] {
        let (_temporary, data) = used(signal);
        let ran = inspect(&data, &[]);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{ran:?}");
        let text = ran.text();
        for part in [
            "format     1\n",
            "node       1\n",
            "GROUP  FIRST  LAST",
            "ok  everything was read",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            !text.contains("note  "),
            "what is filled with zeros ahead is no news: {text}"
        );
        let ran = inspect(&data, &["--output", "json"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        let object: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(object["ok"], true);
        assert_eq!(object["damage"], serde_json::json!([]));
        let home = &object["groups"][1];
        let number = |field: &str| home[field].as_str().unwrap().parse::<u64>().unwrap();
        assert!(
            number("last_index") >= 40 && number("applied_index") <= number("last_index"),
            "{home}"
        );
        assert_eq!(
            number("last_index") - number("first_index") + 1,
            home["entries"].as_u64().unwrap()
        );
        assert!(home["changes"].as_u64().unwrap() <= 41, "{home}");

        // The node goes on where it stopped.
        let server = Server::dev(&data);
        assert_eq!(
            server.done(["cache", "get", "leases", "key-39"]),
            "a value of some length"
        );
    }
}

#[test]
fn a_folder_in_use_is_refused() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let refused = || {
        let ran = binary::run(binary::command().arg("inspect").arg(&data), b"");
        assert_eq!((ran.status, ran.text()), (1, ""), "{ran:?}");
        assert_eq!(
            ran.stderr,
            format!(
                "tenure: the data folder {} is in use by another process: stop the node first, or ask it with `tenure \
                 cluster status`\n",
                data.display()
            )
        );
    };
    refused();
    // Somebody takes its lock for a leftover.
    std::fs::remove_file(data.join("LOCK")).unwrap();
    refused();
    server.done(["cluster", "status"]);
}

#[test]
fn what_is_no_data_folder_is_named_and_left_alone() {
    let (_temporary, data) = folder();
    let mut command = binary::command();
    let ran = binary::run(command.arg("inspect").arg(&data), b"");
    assert_eq!(ran.status, 5, "{ran:?}");
    assert!(!data.exists(), "nothing is made");
    fs::create_dir(&data).unwrap();
    assert_eq!(inspect(&data, &[]).status, 5);
    fs::write(data.join("FORMAT"), "tenure data folder, format 999\n").unwrap();
    let ran = inspect(&data, &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.stderr.contains("has format 999"), "{ran:?}");
}

#[test]
fn damage_in_the_log_is_named_with_file_and_offset() {
    let (_temporary, data) = used(Signal::TERM);
    let segment = data.join("log/0000000001.seg");
    let offset = position(&segment, b"key-20");
    flip(&segment, offset);
    let ran = inspect(&data, &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    let line = ran.text().lines().find(|line| line.starts_with("damage  ")).unwrap();
    assert!(line.starts_with("damage  log/0000000001.seg at offset "), "{line}");
    assert!(line.contains(" (group 1): "), "{line}");
    let named: u64 = line.split(' ').nth(5).unwrap().parse().unwrap();
    assert!(
        (offset - 200..=offset).contains(&named),
        "{named} is not just before {offset}"
    );
    assert!(ran.text().ends_with("damaged\n"), "{ran:?}");
    assert!(ran.stderr.starts_with("tenure: "), "{ran:?}");

    let ran = inspect(&data, &["--output", "json"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    let object: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let damage = &object["damage"][0];
    assert_eq!(damage["part"], "log");
    assert_eq!(damage["offset"], named.to_string());
    assert_eq!(damage["group"], 1);
    assert!(ran.stderr.contains(r#""code":"damaged""#), "{ran:?}");
    // The state can be read all the same.
    assert!(object["groups"][1]["rows"].as_u64().unwrap() > 40, "{object}");
}

#[test]
fn damage_in_the_state_is_named_with_its_file() {
    let (_temporary, data) = used(Signal::TERM);
    let journal = data.join("state/0.jnl");
    let offset = position(&journal, b"key-5");
    flip(&journal, offset);
    let ran = inspect(&data, &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.text().contains("damage  state/"), "{ran:?}");
}

#[test]
fn damage_in_small_files_is_named() {
    let (_temporary, data) = used(Signal::TERM);
    let identity = fs::read(data.join("IDENTITY")).unwrap();
    flip(&data.join("IDENTITY"), 40);
    let ran = inspect(&data, &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.text().contains("damage  IDENTITY: "), "{ran:?}");
    fs::write(data.join("IDENTITY"), identity).unwrap();

    fs::remove_file(data.join("log/synced")).unwrap();
    let ran = inspect(&data, &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.text().contains("damage  log/synced at offset 0: "), "{ran:?}");

    fs::remove_dir_all(data.join("log")).unwrap();
    let ran = inspect(&data, &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.text().contains("damage  log: there is no log"), "{ran:?}");
}

#[test]
fn a_torn_end_of_the_journal_is_no_damage() {
    let (_temporary, data) = used(Signal::TERM);
    // The beginning of a batch behind the last one, as an interrupted write leaves it.
    let journal = data.join("state/0.jnl");
    let bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    let mut file = OpenOptions::new().read(true).write(true).open(&journal).unwrap();
    file.seek(SeekFrom::Start(end)).unwrap();
    let mut rest = [0; 4];
    file.read_exact(&mut rest).unwrap();
    assert_eq!(rest, [0; 4]);
    file.write_all_at(&[1, 9, 0, 0, 0, 7], end).unwrap();
    file.flush().unwrap();
    let ran = inspect(&data, &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(
        ran.text().contains(&format!("note  state/0.jnl at offset {end}: ")),
        "{ran:?}"
    );
}

/// The files of keyspaces of this kind.
fn keyspace_files(data: &Path, file: &str) -> Vec<PathBuf> {
    let keyspaces = fs::read_dir(data.join("state/keyspaces")).unwrap();
    let files = keyspaces.map(|keyspace| keyspace.unwrap().path().join(file));
    files.filter(|file| file.exists()).collect()
}

#[test]
fn what_the_next_start_would_lose_of_a_feed_is_damage() {
    let (_temporary, data) = used(Signal::TERM);
    let mut of_feeds = 0;
    for file in keyspace_files(&data, "current") {
        flip(&file, 0);
        let ran = inspect(&data, &[]);
        assert_eq!(ran.status, 1, "{}: {ran:?}", file.display());
        let is_of_feed = |line: &str| line.starts_with("damage  ") && line.contains("all changes in it are lost");
        of_feeds += ran.text().lines().filter(|line| is_of_feed(line)).count();
        flip(&file, 0);
    }
    assert_eq!(of_feeds, 2, "a feed of each of the two groups");
    assert_eq!(inspect(&data, &[]).status, 0);
}

#[test]
fn a_strange_byte_beside_the_marks_of_the_log_is_noted() {
    let (_temporary, data) = used(Signal::TERM);
    let synced = data.join("log/synced");
    for offset in [4096 + 20, 8192 + 3, 12_288 + 1_000] {
        flip(&synced, offset);
        let ran = inspect(&data, &[]);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(ran.text().contains("note  log/synced at offset "), "{offset}: {ran:?}");
        flip(&synced, offset);
    }
    assert!(!inspect(&data, &[]).text().contains("note  "));
}

#[test]
fn a_lost_identity_is_damage() {
    let (_temporary, data) = used(Signal::TERM);
    fs::remove_file(data.join("IDENTITY")).unwrap();
    let ran = inspect(&data, &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.text().contains("damage  IDENTITY: it is missing"), "{ran:?}");
}
