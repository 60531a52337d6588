//! Starting, stopping, and folders that cannot be used.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::binary::{self, Ran, Server, folder};

/// Runs `tenure dev` on a folder on which it cannot start.
fn refused(data: &Path, listen: &str) -> Ran {
    let mut command = binary::command();
    command.args(["dev", "--listen", listen, "--data-dir"]).arg(data);
    let ran = binary::run(&mut command, b"");
    assert_eq!(ran.text(), "", "only a node that serves says something");
    ran
}

/// The message among the lines of the log.
fn message(ran: &Ran) -> &str {
    ran.stderr
        .lines()
        .find(|line| line.starts_with("tenure: "))
        .unwrap_or_else(|| panic!("{ran:?}"))
}

#[test]
fn a_polite_signal_stops_it_and_a_second_start_goes_on() {
    for signal in [Signal::TERM, Signal::INT] {
        let (_temporary, data) = folder();
        let server = Server::dev(&data);
        server.done(["cache", "create", "leases"]);
        let version = server.done(["cache", "put", "leases", "k", "v"]);
        let (status, rest, log) = server.stop(signal);
        assert_eq!((status, rest), (Some(0), vec![]), "{log}");
        assert!(log.contains("the node has stopped"), "{log}");

        let server = Server::dev(&data);
        assert_eq!(server.done(["cache", "get", "leases", "k"]), "v");
        assert_eq!(version, "version 2");
        let version = server.done(["cache", "put", "leases", "k", "w", "--if-version", "2"]);
        assert_ne!(version, "version 2");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let (_temporary, data) = folder();
    let mut command = binary::command();
    command
        .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data);
    let mut running = binary::Running::start(&mut command);
    let address = running.line().strip_prefix("ready ").unwrap().to_owned();

    // A request that waits for its body, and so holds up the stop.
    let mut client = TcpStream::connect(address).unwrap();
    let head = "POST /tenure.v1.Keys/Put HTTP/1.1\r\nHost: node\r\nContent-Type: application/grpc\r\n\
                Expect: 100-continue\r\nContent-Length: 100\r\n\r\n";
    client.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");

    running.send(Signal::TERM);
    running.wait_for_error("a second signal ends the process at once");
    wait_for_a_second_thought();
    running.send(Signal::TERM);
    assert_eq!(running.status(), Some(1));
}

/// Waits for longer than two signals may lie apart and be one wish.
fn wait_for_a_second_thought() {
    std::thread::sleep(Duration::from_millis(150));
}

#[test]
fn two_signals_at_once_are_one_wish() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    server.done(["cache", "create", "leases"]);
    // While it is stopped both wait for it, however slow this machine is.
    server.send(Signal::STOP);
    server.send(Signal::TERM);
    server.send(Signal::INT);
    let (status, _, log) = server.stop(Signal::CONT);
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("the node has stopped"), "{log}");
}

#[test]
fn with_too_few_file_descriptors_it_is_refused_by_name() {
    let (_temporary, data) = folder();
    let program = binary::command().get_program().to_owned();
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "ulimit -n 24 && exec \"$@\"", "sh"])
        .arg(program)
        .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let ran = binary::run(&mut command, b"");
    assert_eq!((ran.status, ran.text()), (1, ""), "{ran:?}");
    assert_eq!(
        message(&ran),
        "tenure: the process may open 24 files, and a node needs 528: raise the limit on open files (ulimit -n)"
    );
    assert!(!data.exists(), "nothing is made");
}

#[test]
fn a_folder_without_its_identity_is_refused_and_nothing_is_written() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    server.done(["cache", "create", "leases"]);
    server.stop(Signal::TERM);
    let identity = data.join("IDENTITY");
    let aside = data.join("../identity");
    fs::rename(&identity, &aside).unwrap();
    let whole = data.join("state");
    let emptied = data.join("../state");
    for without_state in [false, true] {
        if without_state {
            fs::rename(&whole, &emptied).unwrap();
        }
        let ran = refused(&data, "127.0.0.1:0");
        assert_eq!(ran.status, 1);
        assert!(message(&ran).contains("there is no IDENTITY in"), "{ran:?}");
        assert!(message(&ran).contains("put that file back"), "{ran:?}");
        assert!(!identity.exists(), "no identity is invented");
    }
    fs::remove_dir(&whole).unwrap();
    fs::rename(&emptied, &whole).unwrap();
    fs::rename(&aside, &identity).unwrap();
    assert_eq!(Server::dev(&data).done(["cache", "ls"]), "leases");
}

#[test]
fn a_first_start_that_was_cut_short_is_gone_on_with() {
    let (_temporary, data) = folder();
    // As far as it may have come before the identity is written: the log is being made.
    let (_other, complete) = folder();
    Server::dev(&complete).stop(Signal::TERM);
    fs::create_dir_all(data.join("log")).unwrap();
    fs::create_dir_all(data.join("state")).unwrap();
    fs::copy(complete.join("FORMAT"), data.join("FORMAT")).unwrap();
    fs::write(data.join("log/0000000000.tmp"), "half a segment").unwrap();
    let server = Server::dev(&data);
    server.done(["cache", "create", "leases"]);
}

#[test]
fn a_damaged_version_of_the_state_is_named() {
    let (_temporary, data) = folder();
    Server::dev(&data).stop(Signal::TERM);
    let version = data.join("state/version");
    let whole = fs::read(&version).unwrap();
    for damaged in [
        &[whole[0] ^ 1, whole[1], whole[2], whole[3]][..],
        &whole[..2],
        b"FJL\x13",
    ] {
        fs::write(&version, damaged).unwrap();
        let ran = refused(&data, "127.0.0.1:0");
        assert_eq!(ran.status, 1);
        let message = message(&ran);
        assert!(message.contains("is damaged in"), "{message}");
        assert!(message.contains("state/version"), "{message}");
        assert!(message.contains("put the right file back"), "{message}");
    }
    fs::write(&version, whole).unwrap();
    Server::dev(&data).done(["cluster", "status"]);
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    server.done(["cache", "create", "leases"]);
    server.done(["cache", "put", "leases", "k", "v"]);
    let (status, rest, _) = server.stop(Signal::KILL);
    assert_eq!((status, rest), (None, vec![]));
    let server = Server::dev(&data);
    assert_eq!(server.done(["cache", "get", "leases", "k"]), "v");
}

#[test]
fn a_folder_has_one_process_at_a_time() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let ran = refused(&data, "127.0.0.1:0");
    assert_eq!(ran.status, 1);
    assert_eq!(
        message(&ran),
        format!(
            "tenure: the data folder {} is in use by another process: stop that one, or choose another folder",
            data.display()
        )
    );
    assert_eq!(
        server.done(["cluster", "status"]).lines().next().map(|line| &line[..7]),
        Some("cluster")
    );
}

#[test]
fn an_address_has_one_process_at_a_time() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let (_other, data) = folder();
    let ran = refused(&data, &server.address);
    assert_eq!(ran.status, 1);
    let expected = format!("tenure: cannot listen on {}: ", server.address);
    assert!(message(&ran).starts_with(&expected), "{ran:?}");
    assert!(
        message(&ran).ends_with(": free the address, or choose another with --listen"),
        "{ran:?}"
    );
    assert!(!data.exists(), "no cluster is founded where none can serve");
}

#[test]
fn a_folder_that_cannot_be_used_is_named_and_left_alone() {
    let (_temporary, data) = folder();
    fs::create_dir(&data).unwrap();
    fs::write(data.join("photo.jpg"), "not ours").unwrap();
    let ran = refused(&data, "127.0.0.1:0");
    assert_eq!(ran.status, 1);
    assert!(message(&ran).contains("is not a data folder of Tenure"), "{ran:?}");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);

    let (_temporary, data) = folder();
    let (status, ..) = Server::dev(&data).stop(Signal::TERM);
    assert_eq!(status, Some(0));
    let format = fs::read_to_string(data.join("FORMAT")).unwrap();
    fs::write(data.join("FORMAT"), "tenure data folder, format 999\n").unwrap();
    let ran = refused(&data, "127.0.0.1:0");
    assert_eq!(ran.status, 1);
    assert!(message(&ran).contains("has format 999"), "{ran:?}");

    fs::write(data.join("FORMAT"), format).unwrap();
    let identity = fs::read(data.join("IDENTITY")).unwrap();
    fs::write(data.join("IDENTITY"), &identity[..identity.len() / 2]).unwrap();
    let ran = refused(&data, "127.0.0.1:0");
    assert_eq!(ran.status, 1);
    assert!(message(&ran).contains("is damaged"), "{ran:?}");

    fs::write(data.join("IDENTITY"), identity).unwrap();
    Server::dev(&data).done(["cluster", "status"]);
}

#[test]
fn beyond_loopback_it_wants_the_word_insecure() {
    let (_temporary, data) = folder();
    let mut command = binary::command();
    command
        .args(["start", "--listen", "0.0.0.0:0", "--data-dir"])
        .arg(&data);
    let ran = binary::run(&mut command, b"");
    assert_eq!(ran.status, 2);
    assert!(message(&ran).contains("with --insecure"), "{ran:?}");
    assert!(!data.exists(), "nothing is made under wrong settings");
    let ran = refused(&data, "0.0.0.0:0");
    assert_eq!(ran.status, 2);
    assert!(!data.exists(), "nothing is made under wrong settings");
}

#[test]
fn a_node_that_was_not_let_in_founds_nothing() {
    let (_temporary, data) = folder();
    let start = |more: &[&str]| {
        let mut command = binary::command();
        command
            .args(["start", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data)
            .args(more);
        command
    };
    let mut asking = start(&["--join", "127.0.0.1:1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let said = BufReader::new(asking.stderr.take().expect("it is piped"));
    let refused = said
        .lines()
        .map_while(Result::ok)
        .any(|line| line.contains("not let in yet"));
    asking.kill().expect("it asks on");
    asking.wait().expect("it was killed");
    assert!(refused, "it says that nobody is there");
    let ran = binary::run(&mut start(&[]), b"");
    assert_eq!(ran.status, 1);
    assert!(message(&ran).contains("--join"), "{ran:?}");
}

#[test]
fn start_founds_a_cluster_and_ignores_join_once_it_belongs_to_one() {
    let (_temporary, data) = folder();
    let start = |more: &[&str]| {
        let mut command = binary::command();
        command
            .args(["start", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data)
            .args(more);
        command
    };
    let server = Server::ready(&mut start(&["--advertise", "127.0.0.1:7400"]));
    server.done(["cache", "create", "leases"]);
    let status = server.done(["cluster", "status"]);
    assert!(status.contains("1 at 127.0.0.1:7400"), "{status}");
    let (status, ..) = server.stop(Signal::TERM);
    assert_eq!(status, Some(0));

    let server = Server::ready(&mut start(&["--join", "127.0.0.1:1"]));
    assert_eq!(server.done(["cache", "ls"]), "leases");
    let (status, _, log) = server.stop(Signal::TERM);
    assert_eq!(status, Some(0));
    assert!(log.contains("--join is ignored"), "{log}");
}

#[test]
fn it_serves_on_when_nobody_reads_what_it_says() {
    let (_temporary, data) = folder();
    let mut command = binary::command();
    command
        .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data)
        .env("TENURE_LOG", "info");
    let mut running = binary::Running::start(&mut command);
    assert!(running.line().starts_with("ready "));
    running.close_output();
    running.wait_for_error("the node serves");
    // Both pipes are closed now, and what it logs while it stops goes nowhere.
    running.send(Signal::TERM);
    assert_eq!(running.status(), Some(0));
}

#[test]
fn ready_is_an_object_in_json_and_logs_go_where_they_are_asked_for() {
    let (_temporary, data) = folder();
    let mut command = binary::command();
    command
        .args(["dev", "--listen", "127.0.0.1:0", "--output", "json", "--data-dir"])
        .arg(&data);
    let mut running = binary::Running::start(command.env("TENURE_LOG", "off"));
    let line = running.line();
    assert!(
        line.starts_with("{\"ready\":[\"127.0.0.1:") && line.ends_with("\"]}"),
        "{line}"
    );
    running.send(Signal::TERM);
    assert_eq!(running.end(), (Some(0), String::new()));

    let ran = binary::run(
        binary::command()
            .args(["cache", "ls"])
            .env("TENURE_LOG", "tenure=nonsense"),
        b"",
    );
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.starts_with("tenure: TENURE_LOG cannot be read: "), "{ran:?}");
}
