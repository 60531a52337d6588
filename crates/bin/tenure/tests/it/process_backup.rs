//! `tenure backup` and `tenure restore`: what is brought back, what is left behind, and what is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;
use tenure_api::v1::keys_client::KeysClient;
use tenure_api::v1::request_id::Kind;
use tenure_api::v1::sessions_client::SessionsClient;
use tenure_api::v1::{
    OneShot, OpenSessionRequest, PutReply, PutRequest, RequestId, SessionRef, SessionRequest, WireError,
};
use tenure_client::{Client, ErrorCode, Operation};
use tonic::transport::{Channel, Endpoint};

use crate::binary::{self, LIMIT, Ran, Running, Server, folder, wait_until};

/// How far behind its tail a stream goes on.
const GAP: u64 = 1 << 32;
/// Attempts at stopping something in its middle.
const ATTEMPTS: usize = 20;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
        .block_on(async { tokio::time::timeout(LIMIT, future).await.expect("it comes to its end") })
}

/// Folders of one test: two for data, one for the backup.
struct Folders {
    _temporary: tempfile::TempDir,
    old: PathBuf,
    new: PathBuf,
    backup: PathBuf,
}

impl Folders {
    fn new() -> Folders {
        let (temporary, old) = folder();
        let (new, backup) = (temporary.path().join("new"), temporary.path().join("backup"));
        Folders {
            _temporary: temporary,
            old,
            new,
            backup,
        }
    }

    fn file(&self) -> PathBuf {
        self.backup.join("backup.tenure")
    }

    fn unfinished(&self) -> PathBuf {
        self.backup.join("backup.tenure.tmp")
    }
}

fn backup(server: &Server, folder: &Path, more: &[&str]) -> Ran {
    let mut command = server.command(["backup"]);
    command.arg(folder).args(more);
    binary::run(&mut command, b"")
}

fn restore_command(from: &Path, data: &Path, more: &[&str]) -> std::process::Command {
    let mut command = binary::command();
    command
        .arg("restore")
        .arg("--from")
        .arg(from)
        .arg("--data-dir")
        .arg(data);
    command.args(more);
    command
}

fn restore(from: &Path, data: &Path, more: &[&str]) -> Ran {
    binary::run(&mut restore_command(from, data, more), b"")
}

/// Restores what must be possible to restore, and returns what was said as JSON.
fn restored(from: &Path, data: &Path, more: &[&str]) -> Value {
    let more: Vec<&str> = more.iter().copied().chain(["--output", "json"]).collect();
    let ran = restore(from, data, &more);
    assert_eq!(ran.status, 0, "{ran:?}");
    serde_json::from_slice(&ran.stdout).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

async fn channel(server: &Server) -> Channel {
    let node = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    node.connect().await.unwrap()
}

/// A put as a program sends it.
async fn put(server: &Server, key: &str, request: Option<Kind>) -> Result<PutReply, WireError> {
    let mut keys = KeysClient::new(channel(server).await);
    let request = PutRequest {
        cache: "c".to_owned(),
        key: key.as_bytes().to_vec().into(),
        value: b"v".to_vec().into(),
        request: request.map(|kind| RequestId { kind: Some(kind) }),
        ..PutRequest::default()
    };
    match keys.put(request).await {
        Ok(reply) => Ok(reply.into_inner()),
        Err(status) => Err(WireError::from_status(&status).unwrap().expect("an error of ours")),
    }
}

async fn open_session(server: &Server, nonce: u8) -> SessionRef {
    let mut sessions = SessionsClient::new(channel(server).await);
    let opened = sessions.open(OpenSessionRequest {
        nonce: vec![nonce; 16].into(),
        ttl_ms: Some(60_000),
        ..OpenSessionRequest::default()
    });
    opened.await.unwrap().into_inner().session.unwrap()
}

fn numbered(session: &SessionRef, seq: u64) -> Option<Kind> {
    Some(Kind::Session(SessionRequest {
        session: Some(session.clone()),
        seq,
        acknowledged_below: 1,
        acknowledged: Vec::new(),
    }))
}

fn code(result: Result<PutReply, WireError>) -> Option<ErrorCode> {
    result.expect_err("it is answered by an error").error_code()
}

#[test]
fn what_was_backed_up_is_there_again() {
    let folders = Folders::new();
    let server = Server::dev(&folders.old);
    for words in [
        &["cache", "create", "c"][..],
        &["cache", "put", "c", "plain", "value"],
        &["cache", "put", "c", "brief", "value", "--ttl-ms", "3600000"],
        &["counter", "add", "c", "n", "41"],
        &["stream", "create", "s"],
        &["stream", "publish", "s", "a", "b", "--fence-token", "7"],
        &["--namespace", "other", "cache", "create", "c2"],
        &["--namespace", "other", "cache", "put", "c2", "k", "there"],
    ] {
        server.done(words);
    }
    let listed = server.done(["cache", "ls-keys", "c"]);
    let ran = backup(&server, &folders.backup, &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.text().starts_with("backup "), "{ran:?}");
    assert!(ran.stderr.contains("group 0: "), "{ran:?}");
    assert!(!folders.unfinished().exists());
    let mode = fs::metadata(folders.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds secrets of sessions");

    // What is written now is not in it.
    server.done(["cache", "put", "c", "late", "value"]);
    let cluster = server.done(["cluster", "status"]);
    server.stop(Signal::TERM);
    let ran = restore(&folders.backup, &folders.new, &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
    for part in ["\nbackup of cluster ", " s old\n", "not known: every write"] {
        assert!(ran.text().contains(part), "{part}: {ran:?}");
    }
    let ran = binary::run(binary::command().arg("inspect").arg(&folders.new), b"");
    assert_eq!(ran.status, 0, "{ran:?}");

    let server = Server::dev(&folders.new);
    assert_eq!(server.done(["cache", "ls-keys", "c"]), listed);
    assert_eq!(server.done(["cache", "get", "c", "plain"]), "value");
    let brief = server.done(["cache", "get", "c", "brief", "--with-meta", "--output", "json"]);
    let brief: Value = serde_json::from_str(&brief).unwrap();
    let left = brief["ttl_ms"].as_u64().unwrap();
    assert!((3_000_000..=3_600_000).contains(&left), "{brief}");
    assert_eq!(server.done(["counter", "get", "c", "n"]), "41");
    assert_eq!(
        server.done(["--namespace", "other", "cache", "get", "c2", "k"]),
        "there"
    );
    assert_ne!(
        server.done(["cluster", "status"]).lines().next(),
        cluster.lines().next()
    );
    // The token of a stream stays, and it goes on after another restart.
    let ran = server.run(["stream", "publish", "s", "x", "--fence-token", "6"]);
    assert_eq!(ran.status, 4, "{ran:?}");
    server.stop(Signal::KILL);
    let server = Server::dev(&folders.new);
    assert_eq!(server.done(["cache", "get", "c", "plain"]), "value");
    server.done(["cache", "put", "c", "plain", "again"]);
}

#[test]
fn a_cluster_of_many_groups_is_restored_for_start() {
    let folders = Folders::new();
    let start = |data: &Path| {
        let mut command = binary::command();
        command
            .args(["start", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data);
        Server::ready(&mut command)
    };
    let server = start(&folders.old);
    let namespaces: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    for namespace in &namespaces {
        server.done(["-n", namespace, "cache", "create", "c"]);
        server.done(["-n", namespace, "cache", "put", "c", "k", namespace]);
    }
    let listed = server.done(["namespace", "ls"]);
    assert_eq!(backup(&server, &folders.backup, &[]).status, 0);
    server.stop(Signal::TERM);
    let report = restored(&folders.file(), &folders.new, &[]);
    assert_eq!(report["groups"].as_array().unwrap().len(), 9);
    let floor = number(&report["revision_floor"]);
    let server = start(&folders.new);
    assert_eq!(server.done(["namespace", "ls"]), listed);
    let mut versions = Vec::new();
    for namespace in &namespaces {
        assert_eq!(server.done(["-n", namespace, "cache", "get", "c", "k"]), *namespace);
        let version = server.done(["-n", namespace, "cache", "put", "c", "k", "w"]);
        versions.push(version.strip_prefix("version ").unwrap().parse::<u64>().unwrap());
    }
    assert!(versions.iter().all(|version| *version >= floor), "{versions:?}");
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), namespaces.len(), "no two groups hand out the same");
}

#[test]
fn a_backup_under_load_has_all_of_a_transaction_or_nothing() {
    let folders = Folders::new();
    let server = Server::dev(&folders.old);
    server.done(["cache", "create", "c"]);
    let (written, begun, ends) = (
        Arc::new(AtomicI64::new(0)),
        Arc::new(AtomicI64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (before, ran) = block_on(async {
        let client = Client::builder().endpoints([server.address.as_str()]);
        let client = client.connect().await.unwrap();
        let mut writers = Vec::new();
        for _ in 0..8 {
            let (client, written, begun, ends) = (client.clone(), written.clone(), begun.clone(), ends.clone());
            writers.push(tokio::spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let both = client.txn().then(Operation::add("c", "left", 1));
                    both.then(Operation::add("c", "right", 1))
                        .await
                        .unwrap()
                        .done()
                        .unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        while written.load(Ordering::SeqCst) < 200 {
            tokio::task::yield_now().await;
        }
        let before = written.load(Ordering::SeqCst);
        let mut command = server.command(["backup"]);
        command.arg(&folders.backup);
        let ran = tokio::task::spawn_blocking(move || binary::run(&mut command, b""))
            .await
            .unwrap();
        ends.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.unwrap();
        }
        (before, ran)
    });
    assert_eq!(ran.status, 0, "{ran:?}");
    server.stop(Signal::TERM);
    restored(&folders.backup, &folders.new, &[]);
    let server = Server::dev(&folders.new);
    let count = |key: &str| server.done(["counter", "get", "c", key]).parse::<i64>().unwrap();
    let (left, right) = (count("left"), count("right"));
    assert_eq!(left, right, "a transaction is whole");
    assert!(
        left >= before,
        "{left}: {before} were acknowledged before the backup began"
    );
    assert!(left <= begun.load(Ordering::SeqCst));
}

#[test]
fn requests_and_sessions_from_before_are_unknown_and_tokens_rise() {
    let folders = Folders::new();
    let server = Server::dev(&folders.old);
    server.done(["cache", "create", "c"]);
    let single = Some(Kind::OneShot(OneShot {
        id: vec![9; 16].into(),
        not_after_us: 100_000_000,
    }));
    let (session, before) = block_on(async {
        let session = open_session(&server, 1).await;
        put(&server, "numbered", numbered(&session, 1)).await.unwrap();
        put(&server, "single", single.clone()).await.unwrap();
        let again = put(&server, "numbered", numbered(&session, 1)).await.unwrap();
        assert!(again.repeated, "it is remembered as long as there is one cluster");
        (session, again.header.unwrap().revision)
    });
    let owned = server.run(["session", "open", "--ttl", "60s"]);
    let owner = owned.text().trim().strip_prefix("session ").unwrap().to_owned();
    server.done(["cache", "put", "c", "claim", "mine", "--session", &owner]);
    assert_eq!(backup(&server, &folders.backup, &[]).status, 0);
    // After the backup tokens go on for a while, which the backup cannot know.
    let highest = (0..20).map(|number| {
        let done = server.done(["cache", "put", "c", "token", &number.to_string()]);
        done.strip_prefix("version ").unwrap().parse::<u64>().unwrap()
    });
    let highest = highest.max().unwrap();
    server.stop(Signal::TERM);
    let report = restored(&folders.backup, &folders.new, &[]);
    let home = &report["groups"][0];
    assert_eq!(number(&home["sessions_forgotten"]), 2, "{report}");
    assert_eq!(number(&home["keys_of_sessions_removed"]), 1, "{report}");
    assert!(number(&home["requests_forgotten"]) >= 2, "{report}");

    let server = Server::dev(&folders.new);
    block_on(async {
        // The known one, and one that the old cluster may have run after the backup.
        for seq in [1, 2] {
            let repeated = put(&server, "numbered", numbered(&session, seq)).await;
            assert_eq!(code(repeated), Some(ErrorCode::SessionUnknown), "{seq}");
        }
        assert_eq!(code(put(&server, "single", single).await), Some(ErrorCode::TooLate));
    });
    assert_eq!(server.run(["cache", "get", "c", "claim"]).status, 5);
    let token = server.done(["cache", "put", "c", "claim", "theirs", "--if-absent"]);
    let token: u64 = token.strip_prefix("version ").unwrap().parse().unwrap();
    assert!(token > highest && token >= number(&report["revision_floor"]), "{token}");
    let ran = server.run(["cache", "watch", "c", "--count", "1", "--from", &before.to_string()]);
    assert_eq!(ran.status, 4, "{ran:?}");
    assert!(
        ran.stderr.contains("compacted") || ran.stderr.contains("not kept"),
        "{ran:?}"
    );
    let from = report["revision_floor"].as_str().unwrap();
    let ran = server.run(["cache", "watch", "c", "--count", "1", "--from", from]);
    assert_eq!((ran.status, ran.text()), (0, "claim\ttheirs\n"), "{ran:?}");
}

#[test]
fn a_stream_goes_on_behind_a_gap_that_readers_are_told() {
    let folders = Folders::new();
    let server = Server::dev(&folders.old);
    server.done(["stream", "create", "s"]);
    server.done(["stream", "create", "none"]);
    server.done(["stream", "publish", "s", "a", "b", "c"]);
    assert_eq!(backup(&server, &folders.backup, &[]).status, 0);
    server.stop(Signal::TERM);
    restored(&folders.backup, &folders.new, &[]);
    let server = Server::dev(&folders.new);
    let told = format!("a gap: offsets 3 to {}", GAP + 2);
    let ran = server.run(["stream", "read", "s"]);
    assert_eq!((ran.status, ran.text()), (0, "a\nb\nc\n"), "{ran:?}");
    assert!(ran.stderr.starts_with(&told), "{ran:?}");
    assert_eq!(
        server.done(["stream", "publish", "s", "d"]),
        format!("offset {}", GAP + 3)
    );
    let ran = server.run(["stream", "read", "s", "--with-offsets"]);
    let records = format!("0\ta\n1\tb\n2\tc\n{}\td\n", GAP + 3);
    assert_eq!((ran.status, ran.text()), (0, records.as_str()), "{ran:?}");
    assert!(ran.stderr.starts_with(&told), "{ran:?}");
    let ran = server.run(["stream", "read", "s", "--follow", "--limit", "4"]);
    assert_eq!((ran.status, ran.text()), (0, "a\nb\nc\nd\n"), "{ran:?}");
    assert!(ran.stderr.starts_with(&told), "{ran:?}");

    // A reader that comes back with the offset that is next for it, or one of what is lost, is told too.
    for from in [3, 4, 4_000_000_000] {
        for more in [&[][..], &["--follow", "--limit", "1"]] {
            let from = from.to_string();
            let words = ["stream", "read", "s", "--from", &from];
            let ran = server.run(words.iter().chain(more));
            assert_eq!((ran.status, ran.text()), (0, "d\n"), "{from}: {ran:?}");
            assert!(ran.stderr.starts_with(&format!("a gap: offsets {from} to ")), "{ran:?}");
        }
        block_on(async {
            let client = Client::builder().endpoints([server.address.as_str()]);
            let stream = client.connect().await.unwrap().stream("s");
            let error = stream.read().from_offset(from).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::Compacted);
            assert_eq!(error.server().unwrap().resume_from(), Some(GAP + 3));
            let mut following = stream.follow().from_offset(from).await.unwrap();
            let end = following.next().await.unwrap().unwrap_err();
            assert_eq!((end.code(), end.resume_from()), (ErrorCode::Compacted, Some(GAP + 3)));
        });
    }
    let resumed = (GAP + 3).to_string();
    assert_eq!(server.done(["stream", "read", "s", "--from", &resumed]), "d");
    assert_eq!(server.done(["stream", "publish", "none", "x"]), format!("offset {GAP}"));
    assert_eq!(server.done(["stream", "read", "none"]), "x");
    server.done(["stream", "trim", "s", "--before", "3"]);
    assert_eq!(server.done(["stream", "read", "s"]), "d");
}

#[test]
fn a_backup_that_is_restored_twice_begins_higher_the_second_time() {
    let folders = Folders::new();
    let server = Server::dev(&folders.old);
    server.done(["cache", "create", "c"]);
    assert_eq!(backup(&server, &folders.backup, &[]).status, 0);
    server.stop(Signal::TERM);
    let mut tokens = Vec::new();
    for data in [folders.new.clone(), folders.new.with_extension("again")] {
        let report = restored(&folders.backup, &data, &[]);
        let server = Server::dev(&data);
        let grants = (0..10).map(|key| {
            let done = server.done(["cache", "put", "c", &format!("k{key}"), "v", "--if-absent"]);
            done.strip_prefix("version ").unwrap().parse::<u64>().unwrap()
        });
        tokens.push((report["cluster"].clone(), grants.collect::<Vec<_>>()));
        server.stop(Signal::TERM);
        let restored_in = seconds();
        wait_until(|| seconds() > restored_in);
    }
    let [(first, earlier), (second, later)] = &tokens[..] else {
        panic!("there are two")
    };
    assert_ne!(first, second, "each is a cluster of its own");
    assert!(earlier.iter().max() < later.iter().min(), "{tokens:?}");

    // A backup of what was restored knows a floor that must be exceeded.
    let server = Server::dev(&folders.new);
    let again = folders.backup.with_extension("again");
    assert_eq!(backup(&server, &again, &[]).status, 0);
    let last = folders.new.with_extension("last");
    let ran = restore(&again, &last, &["--revision-floor", &earlier[0].to_string()]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.stderr.contains("--revision-floor"), "{ran:?}");
    assert!(!last.exists(), "nothing was written");
    let floor = later[9] + 1;
    let report = restored(&again, &last, &["--revision-floor", &floor.to_string()]);
    assert_eq!(number(&report["revision_floor"]), floor);
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A backup with a few keys.
fn small_backup(folders: &Folders) -> Vec<u8> {
    let server = Server::dev(&folders.old);
    server.done(["cache", "create", "c"]);
    for key in 0..20 {
        server.done(["cache", "put", "c", &format!("k{key}"), "a value of some length"]);
    }
    assert_eq!(backup(&server, &folders.backup, &[]).status, 0);
    server.stop(Signal::TERM);
    fs::read(folders.file()).unwrap()
}

#[test]
fn a_damaged_file_is_refused_and_nothing_is_written() {
    let folders = Folders::new();
    let whole = small_backup(&folders);
    let file = folders.backup.join("damaged");
    let mut seen = Vec::new();
    for part in 0..24 {
        let at = whole.len() * part / 24;
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        for bytes in [&flipped[..], &whole[..at], &[&whole[..], &whole[at..]].concat()] {
            if bytes == &whole[..] {
                continue;
            }
            fs::write(&file, bytes).unwrap();
            let ran = restore(&file, &folders.new, &[]);
            assert_eq!((ran.status, ran.text()), (1, ""), "{at}: {ran:?}");
            let named = ["is damaged at byte", "before its end", "not a backup"];
            assert!(named.iter().any(|part| ran.stderr.contains(part)), "{at}: {ran:?}");
            assert!(!folders.new.exists(), "nothing was written");
            seen.push(ran.stderr);
        }
    }
    assert!(seen.len() >= 60, "{}", seen.len());
    let foreign = restore(&folders.old.join("FORMAT"), &folders.new, &[]);
    assert_eq!(foreign.status, 1, "{foreign:?}");
    assert!(foreign.stderr.contains("is not a backup of Tenure") || foreign.stderr.contains("not a backup"));
    let missing = restore(&folders.new, &folders.new, &[]);
    assert_eq!(missing.status, 5, "{missing:?}");
    let used = restore(&folders.backup, &folders.old, &[]);
    assert_eq!(used.status, 2, "{used:?}");
    assert!(used.stderr.contains("is not empty"), "{used:?}");
    restored(&folders.backup, &folders.new, &[]);
}

#[test]
fn a_backup_is_not_written_over_another_unless_it_is_said() {
    let folders = Folders::new();
    let server = Server::dev(&folders.old);
    server.done(["cache", "create", "c"]);
    assert_eq!(backup(&server, &folders.backup, &[]).status, 0);
    let before = fs::read(folders.file()).unwrap();
    server.done(["cache", "put", "c", "k", "v"]);
    let ran = backup(&server, &folders.backup, &[]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.stderr.contains("--replace"), "{ran:?}");
    assert!(fs::read(folders.file()).unwrap() == before);
    assert_eq!(backup(&server, &folders.backup, &["--replace"]).status, 0);
    assert!(fs::read(folders.file()).unwrap() != before);
    server.stop(Signal::TERM);
    let mut command = binary::command();
    let nobody = binary::closed_address();
    command.args(["--endpoints", &nobody, "--timeout", "500ms", "backup"]);
    let ran = binary::run(command.arg(folders.backup.join("none")), b"");
    assert_eq!(ran.status, 3, "{ran:?}");
}

/// A server with a state that takes a while to read.
fn large(folders: &Folders) -> Server {
    let server = Server::dev(&folders.old);
    server.done(["cache", "create", "c"]);
    let value = Arc::new(vec![b'x'; 1 << 20]);
    block_on(async {
        let client = Client::builder().endpoints([server.address.as_str()]);
        let client = client.connect().await.unwrap();
        for key in 0..48 {
            let put = client.cache("c").put(format!("k{key}"), value.as_slice()).await;
            put.unwrap().done().unwrap();
        }
    });
    server
}

#[test]
fn a_backup_that_is_killed_leaves_nothing_under_its_name() {
    let folders = Folders::new();
    let server = large(&folders);
    let mut cut_short = false;
    for _ in 0..ATTEMPTS {
        let mut command = server.command(["backup"]);
        let mut running = Running::start(command.arg(&folders.backup));
        wait_until(|| folders.unfinished().exists() || folders.file().exists());
        // A stopped server sends nothing more.
        server.send(Signal::STOP);
        running.send(Signal::KILL);
        let ended = running.status();
        server.send(Signal::CONT);
        cut_short = ended.is_none() && !folders.file().exists() && folders.unfinished().exists();
        if cut_short {
            break;
        }
        let _ = fs::remove_dir_all(&folders.backup);
    }
    assert!(cut_short, "it was cut short in its middle");
    let ran = restore(&folders.backup, &folders.new, &[]);
    assert_eq!(ran.status, 5, "{ran:?}");
    let ran = restore(&folders.unfinished(), &folders.new, &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(!folders.new.exists());
    let ran = backup(&server, &folders.backup, &["--timeout", "30s"]);
    assert_eq!(ran.status, 0, "what was left is in nobody's way: {ran:?}");
    restored(&folders.backup, &folders.new, &[]);
}

#[test]
fn a_restore_that_is_killed_is_never_started_as_if_it_were_whole() {
    let folders = Folders::new();
    let server = large(&folders);
    assert_eq!(backup(&server, &folders.backup, &[]).status, 0);
    server.stop(Signal::TERM);
    let marker = folders.new.join("RESTORE");
    let mut cut_short = false;
    for _ in 0..ATTEMPTS {
        let mut running = Running::start(&mut restore_command(&folders.backup, &folders.new, &[]));
        wait_until(|| folders.new.exists());
        wait_until(|| marker.exists() || folders.new.join("IDENTITY").exists());
        running.send(Signal::KILL);
        cut_short = running.status().is_none() && marker.exists();
        if cut_short {
            break;
        }
        fs::remove_dir_all(&folders.new).unwrap();
    }
    assert!(cut_short, "it was cut short in its middle");
    let refused = |words: &[&str]| {
        let mut command = binary::command();
        let ran = binary::run(command.args(words).arg(&folders.new), b"");
        assert_eq!(ran.status, 1, "{ran:?}");
        assert!(ran.stderr.contains("was cut short"), "{ran:?}");
    };
    refused(&["dev", "--listen", "127.0.0.1:0", "--data-dir"]);
    refused(&["start", "--listen", "127.0.0.1:0", "--data-dir"]);
    refused(&["inspect"]);
    let ran = restore(&folders.backup, &folders.new, &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    fs::remove_dir_all(&folders.new).unwrap();
    restored(&folders.backup, &folders.new, &[]);
    let server = Server::dev(&folders.new);
    assert_eq!(server.done(["cache", "ls-keys", "c"]).lines().count(), 48);
}
