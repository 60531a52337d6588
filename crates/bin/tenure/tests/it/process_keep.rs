//! `tenure session keep` and the README's nightly job around it: what becomes of the claim and of the job when one of
//! them, or whoever started them, ends in another way than planned.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, test_kill_process};

use crate::binary::{self, Ran, Running, Server, folder, wait_until};

/// A job that says its id and then waits to be told how to end.
const JOB: &str = "#!/bin/sh
echo $$ >started
while [ -e started ] && [ ! -e status ]; do sleep 0.05; done
exit $(cat status)
";

/// What each test needs: a node, the claim's cache, a folder with the program and the job.
struct Place {
    _temporary: tempfile::TempDir,
    folder: std::path::PathBuf,
}

impl Place {
    fn new() -> Place {
        let (temporary, _) = folder();
        let folder = temporary.path().to_owned();
        fs::create_dir(folder.join("bin")).unwrap();
        symlink(binary::command().get_program(), folder.join("bin/tenure")).unwrap();
        script(&folder.join("bin/run_the_job"), JOB);
        Place {
            _temporary: temporary,
            folder,
        }
    }

    /// The README's block as a worker, with sessions of this length.
    fn worker(&self, endpoint: &str, ttl: &str) -> Command {
        let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../README.md")).unwrap();
        let section = page.split("## A nightly job").nth(1).unwrap();
        let block = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
        assert!(block.contains("--ttl 30s"), "{block}");
        let mut command = Command::new("sh");
        command
            .args(["-c", &block.replace("--ttl 30s", &format!("--ttl {ttl}"))])
            .current_dir(&self.folder)
            .env("TENURE_ENDPOINTS", endpoint)
            .env(
                "PATH",
                format!(
                    "{}:{}",
                    self.folder.join("bin").display(),
                    std::env::var("PATH").unwrap()
                ),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Waits until the job runs; returns its id.
    fn wait_for_the_job(&self) -> Pid {
        let started = self.folder.join("started");
        let id = || {
            fs::read_to_string(&started)
                .ok()?
                .trim()
                .parse()
                .ok()
                .and_then(Pid::from_raw)
        };
        wait_until(|| id().is_some());
        id().unwrap()
    }

    fn end_the_job(&self, status: &str) {
        let written = self.folder.join("status.new");
        fs::write(&written, status).unwrap();
        fs::rename(written, self.folder.join("status")).unwrap();
    }
}

fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn runs(id: Pid) -> bool {
    // A process that has ended and was not reaped is there, too.
    let state = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_pid())).unwrap_or_default();
    test_kill_process(id).is_ok() && !state.contains(") Z ")
}

fn keys(server: &Server) -> String {
    server.done(["cache", "ls-keys", "jobs", "--output", "json"])
}

fn open_sessions(server: &Server) -> usize {
    server.done(["session", "ls", "--output", "json"]).lines().count()
}

#[test]
fn a_job_that_is_done_leaves_its_mark_and_a_second_worker_does_nothing() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let place = Place::new();
    let mut worker = Running::start(&mut place.worker(&server.address, "30s"));
    let job = place.wait_for_the_job();
    let second: Ran = binary::run(&mut place.worker(&server.address, "30s"), b"");
    assert_eq!(second.status, 0, "{second:?}");
    assert!(runs(job), "the second worker did not disturb the first");
    place.end_the_job("0");
    assert_eq!(worker.end().0, Some(0));
    assert!(keys(&server).contains("\"holder\":null"), "{}", keys(&server));
    assert_eq!(open_sessions(&server), 0, "both have closed theirs");
}

#[test]
fn the_status_of_a_job_that_fails_comes_out_and_the_night_is_free_again() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let place = Place::new();
    let mut worker = Running::start(&mut place.worker(&server.address, "30s"));
    place.wait_for_the_job();
    place.end_the_job("23");
    assert_eq!(worker.end().0, Some(23));
    assert_eq!((keys(&server).as_str(), open_sessions(&server)), ("", 0));
}

#[test]
fn a_node_that_is_away_is_an_error_and_not_somebody_else() {
    let place = Place::new();
    let mut worker = place.worker(&binary::closed_address(), "30s");
    let ran = binary::run(worker.env("TENURE_TIMEOUT", "300ms"), b"");
    assert_eq!(ran.status, 3, "{ran:?}");
    assert!(!place.folder.join("started").exists());
}

#[test]
fn a_worker_that_is_killed_takes_its_job_and_its_claim_along() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let place = Place::new();
    let worker = Running::start(&mut place.worker(&server.address, "2s"));
    let job = place.wait_for_the_job();
    worker.send(Signal::KILL);
    wait_until(|| !runs(job));
    wait_until(|| keys(&server).is_empty());
}

#[test]
fn a_session_that_is_lost_stops_the_job_and_what_that_started() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let place = Place::new();
    // Deaf to polite requests, and so is what it starts.
    script(
        &place.folder.join("bin/run_the_job"),
        "#!/bin/sh\ntrap '' TERM\nsleep 100 & echo $! >child\necho $$ >started\nwhile [ -e started ]; do sleep 1; done\n",
    );
    let mut worker = Running::start(&mut place.worker(&server.address, "5s"));
    let job = place.wait_for_the_job();
    let child = fs::read_to_string(place.folder.join("child")).unwrap();
    let child = Pid::from_raw(child.trim().parse().unwrap()).unwrap();
    let sessions = server.done(["session", "ls", "--output", "json"]);
    let session: serde_json::Value = serde_json::from_str(sessions.lines().next().unwrap()).unwrap();
    server.done([
        "session",
        "close",
        session["session"].as_str().unwrap(),
        "--force",
        "--yes",
    ]);
    let (status, errors) = worker.end();
    assert_eq!(status, Some(4), "{errors}");
    assert!(errors.contains("is lost, and the command was stopped"), "{errors}");
    wait_until(|| !runs(job) && !runs(child));
}

#[test]
fn a_keeper_that_is_killed_takes_its_job_along() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let place = Place::new();
    let opened = server.done(["session", "open", "--ttl", "5s"]);
    let session = opened.strip_prefix("session ").unwrap();
    let mut keeper = server.command(["session", "keep", session, "--"]);
    keeper
        .arg(place.folder.join("bin/run_the_job"))
        .current_dir(&place.folder);
    let keeper = Running::start(&mut keeper);
    let job = place.wait_for_the_job();
    keeper.send(Signal::KILL);
    wait_until(|| !runs(job));
}

#[test]
fn a_polite_signal_goes_to_the_job_and_the_session_stays() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let place = Place::new();
    let opened = server.done(["session", "open", "--ttl", "1h"]);
    let session = opened.strip_prefix("session ").unwrap();
    let mut keeper = server.command(["session", "keep"]);
    keeper.env("TENURE_SESSION", session).arg("--");
    keeper
        .arg(place.folder.join("bin/run_the_job"))
        .current_dir(&place.folder);
    let mut keeper = Running::start(&mut keeper);
    let job = place.wait_for_the_job();
    keeper.send(Signal::TERM);
    assert_eq!(keeper.end().0, Some(128 + 15));
    assert!(!runs(job));
    assert_eq!(open_sessions(&server), 1);
    let missing = server.run(["session", "keep", session, "--", "./no-such-program"]);
    assert_eq!(missing.status, 1, "{missing:?}");
    assert!(
        missing.stderr.contains("./no-such-program cannot be run"),
        "{missing:?}"
    );
    server.done(["session", "close", session]);
    let closed = server.run(["session", "keep", session, "--", "true"]);
    assert_eq!(closed.status, 4, "{closed:?}");
}

#[test]
fn a_restart_of_the_node_does_not_disturb_the_job() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let address = server.address.clone();
    let place = Place::new();
    let mut worker = Running::start(&mut place.worker(&address, "15s"));
    let job = place.wait_for_the_job();
    server.stop(Signal::KILL);
    assert!(runs(job));
    let mut again = binary::command();
    again.args(["dev", "--listen", &address, "--data-dir"]).arg(&data);
    let server = Server::ready(&mut again);
    // Only a renewal makes more of what is left.
    let left = || {
        let listed = server.done(["session", "ls", "--output", "json"]);
        let session: serde_json::Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
        session["remaining_ms"].as_u64().unwrap()
    };
    let before = Cell::new(left());
    wait_until(|| {
        let now = left();
        now > before.replace(now)
    });
    assert!(runs(job));
    place.end_the_job("0");
    let (status, errors) = worker.end();
    assert_eq!(status, Some(0), "{errors}");
    assert!(keys(&server).contains("\"holder\":null"), "{}", keys(&server));
}
