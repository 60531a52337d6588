//! `tenure bench`: it measures a node that it finds, and says of each work what came out.

use rustix::process::Signal;

use crate::binary::{self, Running, Server, closed_address, folder, wait_until};

#[test]
fn each_work_that_is_named_is_measured_and_told() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let ran = server.run([
        "bench",
        "claim",
        "watch",
        "--workers",
        "2",
        "--connections",
        "1",
        "--seconds",
        "1",
        "--output",
        "json",
    ]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let told: Vec<serde_json::Value> = ran
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let works: Vec<&str> = told.iter().map(|work| work["work"].as_str().unwrap()).collect();
    assert_eq!(works, ["claim", "watch"]);
    for work in &told {
        assert_eq!(
            (&work["workers"], &work["connections"], &work["errors"]),
            (&2.into(), &1.into(), &0.into())
        );
        assert!(work["ops_per_second"].as_u64().unwrap() > 0, "{work}");
        assert!(work["p50_us"].as_u64() <= work["p99_us"].as_u64(), "{work}");
    }
}

#[test]
fn a_work_that_does_not_exist_is_refused_and_nothing_is_measured() {
    let ran = binary::run(binary::command().args(["bench", "telepathy"]), b"");
    assert_eq!((ran.status, ran.text()), (2, ""), "{ran:?}");
    assert!(ran.stderr.contains("telepathy"), "{ran:?}");
}

#[test]
fn without_a_node_it_says_so() {
    let ran = binary::run(
        binary::command().args(["bench", "--endpoints", &closed_address(), "--timeout", "1s"]),
        b"",
    );
    assert_eq!((ran.status, ran.text()), (3, ""), "{ran:?}");
}

#[test]
fn nothing_is_left_behind_and_what_was_there_stays() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let quick = ["--workers", "2", "--connections", "2", "--seconds", "1"];
    let left = || ["cache", "stream", "session"].map(|what| server.done([what, "ls", "--output", "json"]));
    let words = ["bench", "claim", "publish"];
    assert_eq!(server.run(words.iter().chain(&quick)).status, 0);
    assert_eq!(left(), ["", "", ""]);
    // Stopped in the middle.
    let mut stopped = Running::start(server.command(["bench", "claim", "unique"]).args(["--seconds", "600"]));
    wait_until(|| left()[2].lines().count() > 3);
    stopped.send(Signal::TERM);
    let (status, errors) = stopped.end();
    assert_eq!(status, Some(1), "{errors}");
    assert_eq!(left(), ["", "", ""]);
    // What somebody else made stays, with the session of somebody else.
    server.done(["cache", "create", "tenure-bench"]);
    server.done(["session", "open", "--ttl", "1h", "--label", "tenure-bench"]);
    assert_eq!(server.run(words.iter().chain(&quick)).status, 0);
    let left = left();
    assert!(left[0].contains("tenure-bench") && left[1].is_empty(), "{left:?}");
    assert_eq!(left[2].lines().count(), 1);
}
