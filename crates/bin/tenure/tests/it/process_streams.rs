//! Streams, counters and transactions: what does not fit into a transcript.

use crate::binary::{self, Ran, Running, Server, folder};

fn publish(server: &Server, more: &[&str], input: &[u8]) -> Ran {
    let mut words = vec!["stream", "publish", "events"];
    words.extend(more);
    binary::run(&mut server.command(words), input)
}

fn serving() -> (tempfile::TempDir, Server) {
    let (temporary, data) = folder();
    let server = Server::dev(&data);
    server.done(["stream", "create", "events"]);
    (temporary, server)
}

#[test]
fn lines_of_standard_input_are_records_in_batches() {
    let (_temporary, server) = serving();
    let input: String = (0..2_500).map(|number| format!("line {number}\n")).collect();
    let ran = publish(&server, &[], input.as_bytes());
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.text(), "offsets 0-1023\noffsets 1024-2047\noffsets 2048-2499\n");
    assert_eq!(server.run(["stream", "read", "events"]).text(), input);
    let last = server.done(["stream", "read", "events", "--from", "2499", "--with-offsets"]);
    assert_eq!(last, "2499\tline 2499");

    // The batches of one call follow each other, so the condition holds for each of them or stops all that come.
    let ran = publish(&server, &["--if-offset", "2500"], input.as_bytes());
    assert_eq!((ran.status, ran.text().lines().count()), (0, 3), "{ran:?}");
    let ran = publish(&server, &["--if-offset", "2500"], input.as_bytes());
    assert_eq!((ran.status, ran.text()), (4, ""), "{ran:?}");
    assert_eq!(ran.stderr, "refused: tail 5000\n");
}

#[test]
fn long_lines_are_batched_by_their_bytes_and_one_that_is_too_long_is_named() {
    let (_temporary, server) = serving();
    let line = vec![b'x'; 900_000];
    let input = [&line[..], b"\n"].concat().repeat(5);
    let ran = publish(&server, &[], &input);
    assert_eq!(ran.text(), "offsets 0-1\noffsets 2-3\noffset 4\n", "{ran:?}");
    let ran = publish(&server, &[], &vec![b'x'; (1 << 20) + 1]);
    assert_eq!((ran.status, ran.text()), (4, ""), "{}", ran.stderr);
    let ran = publish(&server, &[], &vec![b'x'; 1 << 20]);
    assert_eq!((ran.status, ran.text()), (0, "offset 5\n"), "{}", ran.stderr);
}

#[test]
fn a_dedup_id_names_one_batch() {
    let (_temporary, server) = serving();
    for _ in 0..2 {
        let ran = publish(&server, &["--dedup-id", "import-7"], b"one\ntwo\n");
        assert_eq!((ran.status, ran.text()), (0, "offsets 0-1\n"), "{ran:?}");
    }
    let input = "line\n".repeat(1_025);
    let ran = publish(&server, &["--dedup-id", "import-8"], input.as_bytes());
    assert_eq!((ran.status, ran.text()), (2, ""), "{ran:?}");
    assert!(ran.stderr.contains("--dedup-id names one"), "{ran:?}");
    assert_eq!(server.done(["stream", "read", "events"]), "one\ntwo");
    let input = "line\n".repeat(1_024);
    let ran = publish(&server, &["--dedup-id", "import-8"], input.as_bytes());
    assert_eq!((ran.status, ran.text()), (0, "offsets 2-1025\n"), "{ran:?}");
}

#[test]
fn records_are_bytes_and_the_last_line_may_have_no_end() {
    let (_temporary, server) = serving();
    let ran = publish(&server, &[], b"\xff\xfe\n\nlast");
    assert_eq!((ran.status, ran.text()), (0, "offsets 0-2\n"), "{ran:?}");
    assert_eq!(server.run(["stream", "read", "events"]).stdout, b"\xff\xfe\n\nlast\n");
    let object = server.done(["stream", "read", "events", "--limit", "1", "--output", "json"]);
    assert!(object.contains(r#""value_base64":"//4=""#), "{object}");
}

#[test]
fn a_reader_that_follows_gets_what_comes() {
    let (_temporary, server) = serving();
    server.done(["stream", "publish", "events", "one"]);
    let mut reader = Running::start(&mut server.command(["stream", "read", "events", "--follow", "--limit", "3"]));
    assert_eq!(reader.line(), "one");
    server.done(["stream", "publish", "events", "two", "three", "four"]);
    assert_eq!(reader.line(), "two");
    assert_eq!(reader.line(), "three");
    assert_eq!(reader.end(), (Some(0), String::new()));
    server.done(["stream", "trim", "events", "--before", "2"]);
    let ran = server.run(["stream", "read", "events", "--from", "1"]);
    assert_eq!(ran.status, 4, "{ran:?}");
    assert!(ran.stderr.contains('2'), "{ran:?}");
}

#[test]
fn standard_input_that_is_closed_gives_nothing() {
    let (_temporary, server) = serving();
    server.done(["cache", "create", "leases"]);
    for words in ["cache put leases k", "stream publish events", "txn"] {
        // The shell closes it; a test cannot.
        let mut shell = std::process::Command::new("sh");
        let tenure = binary::command().get_program().to_owned();
        shell
            .args(["-c", &format!("\"$0\" {words} <&-")])
            .arg(tenure)
            .env("TENURE_ENDPOINTS", &server.address)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let ran = shell.output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{ran:?}");
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert!(stderr.contains("standard input is closed"), "{stderr}");
    }
    // Something empty is something.
    let ran = binary::run(&mut server.command(["cache", "put", "leases", "k"]), b"");
    assert_eq!(ran.status, 0, "{ran:?}");
    let ran = publish(&server, &[], b"");
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.stderr.contains("has no line"), "{ran:?}");
}

#[test]
fn what_is_no_transaction_is_status_2_and_nothing_is_sent() {
    let (_temporary, server) = serving();
    server.done(["cache", "create", "leases"]);
    let good = br#"{"then":[{"put":{"cache":"leases","key":"k","value":"v"}}]}"#;
    for length in 0..good.len() {
        let ran = binary::run(&mut server.command(["txn"]), &good[..length]);
        assert_eq!((ran.status, ran.text()), (2, ""), "{ran:?}");
        assert!(
            ran.stderr.starts_with("tenure: the transaction cannot be read: "),
            "{ran:?}"
        );
    }
    assert_eq!(server.run(["cache", "get", "leases", "k"]).status, 5);
    let ran = binary::run(&mut server.command(["txn"]), good);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(server.done(["cache", "get", "leases", "k"]), "v");
}

#[test]
fn many_keys_are_deleted_by_their_prefix_step_after_step() {
    let (_temporary, server) = serving();
    server.done(["cache", "create", "leases"]);
    let mut operations = Vec::new();
    for batch in 0..40 {
        let puts: Vec<String> = (0..120)
            .map(|key| format!(r#"{{"put":{{"cache":"leases","key":"job/{batch}/{key}","value":"v"}}}}"#))
            .collect();
        operations.push(format!(r#"{{"then":[{}]}}"#, puts.join(",")));
    }
    for operation in &operations {
        let ran = binary::run(&mut server.command(["txn"]), operation.as_bytes());
        assert_eq!(ran.status, 0, "{ran:?}");
    }
    server.done(["cache", "put", "leases", "jobs", "stays"]);
    let ran = server.run(["cache", "delete", "leases", "--prefix", "job/"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    // More than one step removes.
    assert_eq!(
        server.done(["cache", "delete", "leases", "--prefix", "job/", "--yes"]),
        "deleted 4800"
    );
    assert_eq!(
        server.done(["cache", "delete", "leases", "--prefix", "job/", "--yes"]),
        "deleted 0"
    );
    assert_eq!(server.done(["cache", "ls-keys", "leases"]), "jobs");
}
