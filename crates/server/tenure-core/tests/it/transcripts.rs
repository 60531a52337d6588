//! Transcripts: commands and the full output, in `tests/transcripts/<area>/<a_sentence>.txt`.
//!
//! A block is some lines of input, a line `----`, and the output up to the next empty line. Everything else is
//! prose for the reader. `UPDATE_TRANSCRIPTS=1` rewrites the output, to be reviewed as a diff. The language is
//! described in `tests/transcripts/README.md`.

use std::fs;
use std::path::{Path, PathBuf};

mod language;
mod render;
mod transactions;
mod words;

use language::Script;

#[test]
fn transcripts_of_time_play_as_written() {
    play_area("time");
}

#[test]
fn transcripts_of_keys_play_as_written() {
    play_area("keys");
}

#[test]
fn transcripts_of_sessions_play_as_written() {
    play_area("sessions");
}

#[test]
fn transcripts_of_requests_play_as_written() {
    play_area("requests");
}

#[test]
fn transcripts_of_caches_play_as_written() {
    play_area("caches");
}

#[test]
fn transcripts_of_ends_play_as_written() {
    play_area("ends");
}

#[test]
fn transcripts_of_restores_play_as_written() {
    play_area("restores");
}

#[test]
fn transcripts_of_revisions_play_as_written() {
    play_area("revisions");
}

#[test]
fn transcripts_of_nodes_play_as_written() {
    play_area("nodes");
}

#[test]
fn transcripts_of_counters_play_as_written() {
    play_area("counters");
}

#[test]
fn transcripts_of_prefixes_play_as_written() {
    play_area("prefixes");
}

#[test]
fn transcripts_of_streams_play_as_written() {
    play_area("streams");
}

#[test]
fn transcripts_of_transactions_play_as_written() {
    play_area("transactions");
}

#[test]
fn every_area_with_transcripts_is_played() {
    let mut areas: Vec<String> = fs::read_dir(root())
        .expect("the folder exists")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.is_dir())
        .map(|path| file_name(&path))
        .collect();
    areas.sort();
    assert_eq!(
        areas,
        [
            "caches",
            "counters",
            "ends",
            "keys",
            "nodes",
            "prefixes",
            "requests",
            "restores",
            "revisions",
            "sessions",
            "streams",
            "time",
            "transactions"
        ]
    );
}

fn play_area(area: &str) {
    let mut paths: Vec<PathBuf> = fs::read_dir(root().join(area))
        .expect("the area has a folder")
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "an area without transcripts proves nothing");
    let update = std::env::var_os("UPDATE_TRANSCRIPTS").is_some();
    let mut differing = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("the transcript can be read");
        let played = play(&path, &text);
        if played == text {
            continue;
        }
        if update {
            fs::write(&path, &played).expect("the transcript can be written");
        } else {
            differing.push(difference(&path, &text, &played));
        }
    }
    assert!(
        differing.is_empty(),
        "{}\nIf this is meant, run with UPDATE_TRANSCRIPTS=1 and review the diff.",
        differing.join("\n")
    );
}

/// The transcript with the output as it is now.
fn play(path: &Path, text: &str) -> String {
    let mut script = Script::new();
    let mut played = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        played.push_str(line);
        played.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut input = vec![line];
        for line in lines.by_ref() {
            played.push_str(line);
            played.push('\n');
            if line == "----" {
                break;
            }
            assert!(!line.is_empty(), "{}: a block without ----", path.display());
            input.push(line);
        }
        while lines.next_if(|line| !line.is_empty()).is_some() {}
        let output = script
            .play(&input)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        played.push_str(&output);
    }
    script.finish();
    played
}

fn difference(path: &Path, text: &str, played: &str) -> String {
    let (mut at, mut shown) = (0, Vec::new());
    let (old, new): (Vec<_>, Vec<_>) = (text.lines().collect(), played.lines().collect());
    while at < old.len() && at < new.len() && old[at] == new[at] {
        at += 1;
    }
    shown.push(format!("{} differs from line {}:", path.display(), at + 1));
    shown.extend(old.iter().skip(at).take(6).map(|line| format!("  - {line}")));
    shown.extend(new.iter().skip(at).take(6).map(|line| format!("  + {line}")));
    shown.join("\n")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .expect("a folder has a name")
        .to_string_lossy()
        .into_owned()
}
