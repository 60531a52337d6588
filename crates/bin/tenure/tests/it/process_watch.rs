//! Watches that go on while something changes.

use rustix::process::Signal;

use crate::binary::{Running, Server, folder};

/// A server with a cache and a key in it.
fn with_key() -> (tempfile::TempDir, Server) {
    let (temporary, data) = folder();
    let server = Server::dev(&data);
    server.done(["cache", "create", "leases"]);
    server.done(["cache", "put", "leases", "k", "v"]);
    (temporary, server)
}

/// A watch that has printed the key that is there, so it sees what changes from here on.
fn watching(server: &Server, more: &[&str]) -> Running {
    let mut command = server.command(["cache", "watch", "leases", "--with-state"]);
    let mut watch = Running::start(command.args(more));
    watch.line();
    watch
}

#[test]
fn each_change_is_a_line_as_soon_as_it_happens() {
    let (_temporary, server) = with_key();
    let mut watch = watching(&server, &[]);
    server.done(["cache", "put", "leases", "a\nb", "c\td"]);
    assert_eq!(watch.line(), "a\\nb\tc\\td");
    let opened = server.done(["session", "open", "--ttl", "1h"]);
    let session = opened.strip_prefix("session ").unwrap();
    server.done(["cache", "put", "leases", "owned", "x", "--session", session]);
    assert_eq!(watch.line(), "owned\tx");
    server.done(["session", "close", session]);
    assert_eq!(watch.line(), "owned\t(deleted)");
    // None of these is a change.
    server.run(["cache", "put", "leases", "k", "w", "--if-absent"]);
    server.done(["cache", "touch", "leases", "k", "--ttl-ms", "3600000"]);
    server.done(["cache", "get", "leases", "k"]);
    server.done(["cache", "delete", "leases", "nothing"]);
    server.done(["cache", "delete", "leases", "k"]);
    assert_eq!(watch.line(), "k\t(deleted)");
}

#[test]
fn every_end_has_its_reason() {
    let (_temporary, server) = with_key();
    let mut watch = watching(&server, &["--output", "json", "--count", "8"]);
    let opened = server.done(["session", "open", "--ttl", "500ms"]);
    let lapses = opened.strip_prefix("session ").unwrap().to_owned();
    server.done(["cache", "put", "leases", "lapses", "", "--session", &lapses]);
    assert!(watch.line().contains(r#""reason":"put","key":"lapses","value":"""#));
    assert!(
        watch
            .line()
            .contains(r#""reason":"session","key":"lapses","previous_version":"#)
    );
    server.done(["cache", "put", "leases", "expires", "", "--ttl-ms", "1"]);
    assert!(watch.line().contains(r#""reason":"put","key":"expires""#));
    assert!(watch.line().contains(r#""reason":"expired","key":"expires""#));
    let opened = server.done(["session", "open", "--ttl", "1h"]);
    let (id, _) = opened.strip_prefix("session ").unwrap().split_once(':').unwrap();
    let session = opened.strip_prefix("session ").unwrap();
    server.done(["cache", "put", "leases", "forced", "", "--session", session]);
    let put = watch.line();
    assert!(put.contains(&format!(r#""holder":"{id}""#)), "{put}");
    server.done(["session", "close", id, "--force", "--yes"]);
    assert!(watch.line().contains(r#""reason":"forced","key":"forced""#));
    server.done(["cache", "delete", "leases", "k"]);
    assert!(
        watch
            .line()
            .contains(r#""reason":"delete","key":"k","previous_version":"2""#)
    );
    // With the line of the state, this was the eighth.
    assert_eq!(watch.line(), "");
    assert_eq!(watch.end(), (Some(0), String::new()));
}

#[test]
fn only_what_is_asked_for_is_seen() {
    let (_temporary, server) = with_key();
    for key in ["job/1", "job/2", "other"] {
        server.done(["cache", "put", "leases", key, "x"]);
    }
    let seen = |more: &[&str]| {
        let words = ["cache", "watch", "leases", "--from", "1"];
        server.done(words.iter().chain(more))
    };
    assert_eq!(seen(&["--prefix", "job/", "--count", "2"]), "job/1\tx\njob/2\tx");
    assert_eq!(seen(&["--key", "other", "--count", "1"]), "other\tx");
    assert_eq!(seen(&["--count", "1"]), "k\tv");
}

#[test]
fn a_signal_ends_it_without_a_failure() {
    let (_temporary, server) = with_key();
    for signal in [Signal::INT, Signal::TERM] {
        let mut watch = watching(&server, &[]);
        watch.send(signal);
        assert_eq!(watch.end(), (Some(0), String::new()));
    }
}

#[test]
fn a_closed_pipe_ends_it_without_a_failure() {
    let (_temporary, server) = with_key();
    let mut watch = watching(&server, &[]);
    watch.close_output();
    server.done(["cache", "put", "leases", "k", "w"]);
    assert_eq!(watch.end(), (Some(0), String::new()));
}

#[test]
fn a_deleted_cache_ends_it_with_status_5() {
    let (_temporary, server) = with_key();
    let mut watch = watching(&server, &[]);
    server.done(["cache", "rm", "leases", "--yes"]);
    assert_eq!(watch.line(), "");
    let (status, message) = watch.end();
    assert_eq!(status, Some(5));
    assert!(message.starts_with("tenure: the cache was deleted"), "{message}");
}

#[test]
fn it_goes_on_when_the_node_comes_back() {
    let (_temporary, data) = folder();
    let mut server = Server::dev(&data);
    server.done(["cache", "create", "leases"]);
    server.done(["cache", "put", "leases", "k", "v"]);
    let mut watch = watching(&server, &[]);
    let address = server.address.clone();
    let (status, ..) = server.stop(Signal::TERM);
    assert_eq!(status, Some(0));
    let mut command = crate::binary::command();
    command.args(["dev", "--listen", &address, "--data-dir"]).arg(&data);
    server = Server::ready(&mut command);
    server.done(["cache", "put", "leases", "k", "w"]);
    assert_eq!(watch.line(), "k\tw");
}
