//! `tenure demo`: every story holds, and nothing is left behind, even if it is stopped in the middle.

use std::fs;

use rustix::process::Signal;

use crate::binary::{self, Running, folder};

const STORIES: [&str; 4] = ["nightly run", "payment", "paused writer", "stream takeover"];

#[test]
fn every_story_ends_with_what_was_checked() {
    let (_temporary, scratch) = folder();
    fs::create_dir(&scratch).unwrap();
    let ran = binary::run(binary::command().arg("demo").env("TMPDIR", &scratch), b"");
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let told: Vec<&str> = ran.text().lines().filter(|line| line.starts_with("ok ")).collect();
    assert_eq!(told.len(), STORIES.len(), "{ran:?}");
    for (line, story) in told.iter().zip(STORIES) {
        assert!(line.starts_with(&format!("ok {story}: ")), "{line}");
    }
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "the folder is removed");
}

#[test]
fn in_json_a_story_is_an_object() {
    let ran = binary::run(binary::command().args(["demo", "--output", "json"]), b"");
    assert_eq!(ran.status, 0, "{ran:?}");
    let told: Vec<serde_json::Value> = ran
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let stories: Vec<&str> = told.iter().map(|story| story["story"].as_str().unwrap()).collect();
    assert_eq!(stories, STORIES);
    assert!(
        told.iter()
            .all(|story| story["ok"] == true && story["checked"].is_string())
    );
}

#[test]
fn a_signal_in_the_middle_leaves_nothing() {
    for signal in [Signal::INT, Signal::TERM] {
        let (_temporary, scratch) = folder();
        fs::create_dir(&scratch).unwrap();
        let mut running = Running::start(binary::command().arg("demo").env("TMPDIR", &scratch));
        // Its writer is paused now.
        while !running.line().contains("its process is paused") {}
        running.send(signal);
        let (status, stderr) = running.end();
        assert_eq!(status, Some(1), "{stderr}");
        assert_eq!(stderr, "tenure: the demo was stopped before its end: start it again\n");
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "the folder is removed");
    }
}
