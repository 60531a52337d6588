//! Every command with its whole output, in text and in JSON, and every exit status.

use std::io::Write as _;

use tempfile::NamedTempFile;

use crate::binary::{self, Server, closed_address, folder};
use crate::transcript::Transcript;

/// Plays a transcript in text and in JSON, each on a fresh server.
fn play(name: &str, script: impl Fn(&mut Transcript<'_>, &Server)) {
    for (json, format) in [(false, "text"), (true, "json")] {
        let (_temporary, data) = folder();
        let server = Server::dev(&data);
        let mut transcript = Transcript::new(Some(&server), json);
        script(&mut transcript, &server);
        transcript.check(&format!("{name}.{format}"));
    }
}

#[test]
fn caches_are_created_listed_and_removed() {
    play("caches", |transcript, _| {
        transcript.run("cache ls");
        transcript.run("cache create leases");
        transcript.run("cache create leases");
        transcript.run("cache create leases --replication 2");
        transcript.run("cache create jobs --replication 1 --shards 1 --consistency quorum");
        transcript.run("cache create wide --shards 2");
        transcript.run("cache create quick --consistency leader");
        transcript.run("cache create sl/ash");
        transcript.run("cache ls");
        transcript.run("cache info leases");
        transcript.run("cache info nothing");
        transcript.run("cache rm leases");
        transcript.run("cache rm leases --yes");
        transcript.run("cache rm leases --yes");
        transcript.run("cache ls");
    });
}

#[test]
fn keys_are_written_read_and_deleted() {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(b"from a file").unwrap();
    let path = file.path().to_str().unwrap();
    play("keys", |transcript, _| {
        transcript.name(path, "FILE");
        transcript.run("cache put leases k v");
        transcript.run("cache create leases");
        transcript.run("cache put leases k v");
        transcript.run("cache get leases k");
        transcript.run("cache get leases k --with-meta");
        transcript.run("cache put leases k w --ttl-ms 3600000");
        transcript.run("cache touch leases k --ttl-ms 7200000");
        transcript.run("cache touch leases k --ttl-ms 7200000 --if-version 3");
        transcript.run("cache touch leases k --ttl-ms 7200000 --if-version 2");
        transcript.run("cache touch leases nothing --ttl-ms 1000");
        transcript.run("cache put leases number -5");
        transcript.run_with(&["cache", "put", "leases", "from-input"], b"two\nlines\n");
        transcript.run("cache get leases from-input");
        transcript.run(&format!("cache put leases from-file --file {path}"));
        transcript.run("cache get leases from-file");
        transcript.run_with(&["cache", "put", "leases", "a\tb\\c", ""], b"");
        transcript.run_with(&["cache", "put", "leases", "schlüssel", "wert"], b"");
        transcript.run("cache ls-keys leases");
        transcript.run("cache ls-keys leases --prefix from-");
        transcript.run("cache ls-keys leases --limit 1");
        transcript.run("cache ls-keys leases --limit 0");
        transcript.run("cache ls-keys nothing --limit 0");
        transcript.run("cache delete leases number --if-version 1");
        transcript.run("cache delete leases number");
        transcript.run("cache delete leases number");
        transcript.run("cache delete leases --prefix from- --yes");
        transcript.run("cache delete leases --prefix from-");
        transcript.run("cache delete leases --prefix from- --yes");
        transcript.run("cache delete leases --yes");
        transcript.run_with(&["cache", "put", "leases", "tab", "a\tb\n"], b"");
        transcript.run("cache get leases tab --with-meta");
        transcript.run("cache get leases number");
        transcript.run("cache watch leases --from 1 --count 8");
        transcript.run("cache watch leases --with-state --prefix k --count 1");
    });
}

#[test]
fn conditions_refuse_and_name_what_stood_in_the_way() {
    play("conditions", |transcript, _| {
        transcript.run("cache create leases");
        transcript.run("cache put leases k v --if-present");
        transcript.run("cache put leases k v --if-version 7");
        transcript.run("cache put leases k v --if-value v");
        transcript.run("cache put leases k v --if-absent");
        transcript.run("cache put leases k w --if-absent");
        transcript.run("cache put leases k w --if-version 1");
        transcript.run("cache put leases k w --if-value x");
        transcript.run("cache put leases k w --if-value v --ttl-ms 3600000");
        transcript.run("cache put leases k x --if-version 1");
        transcript.run("cache put leases k x --if-version 3");
        transcript.run("cache put leases k x --if-present");
        transcript.run("cache delete leases nothing --if-version 1");
        transcript.run("cache put leases k y --if-created 3");
        transcript.run("cache put leases k y --if-created 2");
        transcript.run("cache touch leases k --ttl-ms 7200000 --if-created 3");
        transcript.run("cache touch leases k --ttl-ms 7200000 --if-created 2");
        transcript.run("cache delete leases k --if-created 3");
        transcript.run("cache delete leases k --if-created 2");
    });
}

#[test]
fn counters_count() {
    play("counters", |transcript, _| {
        transcript.run("counter add limits requests 1");
        transcript.run("cache create limits");
        transcript.run("counter get limits requests");
        transcript.run("counter add limits requests 5");
        transcript.run("counter add limits requests -7");
        transcript.run("counter get limits requests");
        transcript.run("counter add limits minute 1 --ttl-ms 3600000");
        transcript.run("counter add limits minute 1");
        transcript.run("cache get limits requests");
        transcript.run("cache put limits requests 9223372036854775807");
        transcript.run("counter add limits requests 1");
        transcript.run("cache put limits requests 007");
        transcript.run("counter add limits requests 1");
        transcript.run("counter get limits requests");
        transcript.run("counter add limits requests 1.5");
        transcript.run("cache watch limits --from 1 --count 4");
    });
}

#[test]
fn streams_are_created_listed_and_removed() {
    play("streams", |transcript, _| {
        transcript.run("stream ls");
        transcript.run("stream create events");
        transcript.run("stream create events");
        transcript.run("stream create events --fence mandatory");
        transcript.run(
            "stream create audit --retention-secs 3600 --retention-bytes 1000000 --fence mandatory --replication 1 \
             --shards 1 --consistency quorum --dedup-window-ms 0",
        );
        transcript.run("stream create wide --shards 2");
        transcript.run("stream create quick --consistency leader");
        transcript.run("stream create sl/ash");
        transcript.run("stream ls");
        transcript.run("stream info events");
        transcript.run("stream info audit");
        transcript.run("stream info nothing");
        transcript.run("stream rm events");
        transcript.run("stream rm events --yes");
        transcript.run("stream rm events --yes");
        transcript.run("stream ls");
    });
}

#[test]
fn records_are_published_read_and_trimmed() {
    play("records", |transcript, _| {
        transcript.run("stream publish events one");
        transcript.run("stream create events");
        transcript.run("stream read events");
        transcript.run("stream publish events one");
        transcript.run("stream publish events two three -4");
        transcript.run_with(&["stream", "publish", "events"], b"by\tline\nnext\n");
        transcript.run("stream read events");
        transcript.run("stream read events --with-offsets");
        transcript.run("stream read events --from 2 --limit 1");
        transcript.run("stream read events --from latest");
        transcript.run("stream read events --from 99");
        transcript.run("stream read events --limit 0");
        transcript.run("stream read nothing --limit 0");
        transcript.run("stream read events --from nowhere");
        transcript.run("stream publish events seven --if-offset 6");
        transcript.run("stream publish events seven --if-offset 6");
        transcript.run("stream publish events eight --dedup-id order-8");
        transcript.run("stream publish events again --dedup-id order-8");
        transcript.run("stream publish events nine --fence-token 9");
        transcript.run("stream publish events late --fence-token 8");
        transcript.run("stream publish events --seal --fence-token 12");
        transcript.run("stream publish events late --fence-token 9");
        transcript.run("stream publish events --seal");
        transcript.run("stream publish events ten --fence-token 0");
        transcript.run("stream trim events --before 3");
        transcript.run("stream read events --from 2");
        transcript.run("stream read events --limit 2 --with-offsets");
        transcript.run("stream info events");
        transcript.run("stream create audit --fence mandatory");
        transcript.run("stream publish audit x");
        transcript.run("stream publish audit x --fence-token 1");
    });
}

#[test]
fn transactions_do_one_branch_or_the_other() {
    play("transactions", |transcript, _| {
        transcript.run("cache create stock");
        transcript.run("stream create orders");
        let order = br#"{"guards":[{"cache":"stock","key":"order-1","absent":true},
{"cache":"stock","key":"apples","min":1}],
"then":[{"add":{"cache":"stock","key":"apples","delta":-1}},{"put":{"cache":"stock","key":"order-1","value":"apple"}},
{"publish":{"stream":"orders","records":["order-1"]}},{"get":{"cache":"stock","key":"apples"}}],
"else":[{"get":{"cache":"stock","key":"order-1"}},{"get":{"cache":"stock","key":"apples"}}]}"#;
        transcript.run_with(&["txn"], order);
        transcript.run("counter add stock apples 2");
        transcript.run_with(&["txn"], order);
        transcript.run_with(&["txn"], order);
        transcript.run("cache put stock plain pear");
        for text in [
            &br#"{}"#[..],
            br#"{"then":[{"delete":{"cache":"stock","key":"order-1"}},{"delete":{"cache":"stock","key":"nothing"}}]}"#,
            br#"{"guards":[{"stream":"orders","tail":"1"},{"session":"99","alive":true}],"then":[]}"#,
            br#"{"then":[{"publish":{"stream":"orders","records":["x"],"if_offset":"7"}}]}"#,
            br#"{"then":[{"publish":{"stream":"orders","records":["x"],"fence_token":"7","dedup_id":"a"}}]}"#,
            br#"{"then":[{"publish":{"stream":"orders","records":["y"],"fence_token":6}}]}"#,
            br#"{"then":[{"add":{"cache":"stock","key":"plain","delta":"1"}}]}"#,
            br#"{"then":[{"put":{"cache":"nothing","key":"k","value":"v"}}]}"#,
            br#"{"then":[{"put":{"cache":"stock","key":"k","value":"v"}},{"delete":{"cache":"stock","key":"k"}}]}"#,
            br#"{"then":[{"put":{"cache":"stock","key":"k","value":"v","ttl":1}}]}"#,
            br#"{"guards":[{"cache":"stock","key":"k"}]}"#,
            br#"{"guards":[{"stream":"orders","tail":9007199254740992}]}"#,
            br#"{"then":[{"put":{"cache":"stock","key_base64":"/w==","value_base64":"/v0="}},{"get":{"cache":"stock","key_base64":"/w=="}}]}"#,
            br#"{"guards":[{"cache":"stock","key":"plain","max":1}],"then":[{"add":{"cache":"stock","key":"n","delta":1}}]}"#,
            b"[]",
            b"",
            b"nonsense",
        ] {
            transcript.run_with(&["txn"], text);
        }
        transcript.run("stream read orders");
        transcript.run("cache ls-keys stock");
    });
}

#[test]
fn sessions_own_keys_and_take_them_along() {
    play("sessions", |transcript, server| {
        transcript.run("cache create leases");
        let ran = transcript.run("session open --ttl 1h --label worker-7");
        assert_eq!(ran.status, 0, "{ran:?}");
        // The same opening for everything below: the transcript shows its secret under a name.
        let session = server.done(["session", "open", "--ttl", "1h", "--label", "worker-8"]);
        let session = session.strip_prefix("session ").unwrap();
        let (id, _) = session.split_once(':').unwrap();
        transcript.run(&format!("cache put leases k v --if-absent --session {session}"));
        transcript.run("cache put leases k w --if-absent");
        transcript.run("cache get leases k");
        transcript.run("cache ls-keys leases");
        // Of the other session: a node drops a second renewal at once.
        transcript.run("session renew 2:00000000000000000000000000000001");
        transcript.run(&format!("session renew {session}"));
        transcript.run(&format!("session show {id}"));
        transcript.run(&format!("session show s-{id}"));
        transcript.run("session ls");
        transcript.run(&format!(
            "cache put leases k v --session {id}:00000000000000000000000000000001"
        ));
        transcript.run("session show 999");
        transcript.run("session show nonsense");
        transcript.run("session renew nonsense");
        transcript.run("session renew 999:00000000000000000000000000000000");
        transcript.run("session open --ttl 1ms");
        transcript.run(&format!("session close {session}"));
        transcript.run(&format!("session close {session}"));
        transcript.run(&format!("cache put leases k v --session {session}"));
        transcript.run("cache get leases k");
        transcript.run("cache watch leases --from 1 --count 2");
        transcript.run("session close 2 --force");
        transcript.run("session close 2 --force --yes");
        transcript.run("session ls");
        transcript.run("session ls --all");
    });
}

#[test]
fn the_cluster_is_looked_at() {
    play("cluster", |transcript, _| {
        transcript.run("tenant ls");
        transcript.run("namespace ls");
        transcript.run("--tenant acme -n prod cache ls");
        transcript.run("--tenant acme -n prod cache create leases");
        transcript.run("--tenant acme -n prod cache ls");
        transcript.run("tenant ls");
        transcript.run("namespace ls");
        transcript.run("--tenant acme namespace ls");
        transcript.run("--tenant nobody namespace ls");
        transcript.run("cluster status");
    });
}

#[test]
fn nobody_there_is_status_3_and_nothing_was_applied() {
    for (json, format) in [(false, "text"), (true, "json")] {
        let mut transcript = Transcript::new(None, json);
        let endpoint = closed_address();
        transcript.run(&format!("--timeout 300ms --endpoints {endpoint} cache put leases k v"));
        transcript.run(&format!("--timeout 300ms --endpoints {endpoint} cache get leases k"));
        transcript.run(&format!("--timeout 300ms --endpoints {endpoint} cache watch leases"));
        transcript.run(&format!("--timeout 300ms --endpoints {endpoint} cluster status"));
        transcript.check(&format!("nobody.{format}"));
    }
}

#[test]
fn wrong_arguments_and_settings_are_status_2() {
    for (json, format) in [(false, "text"), (true, "json")] {
        let mut transcript = Transcript::new(None, json);
        transcript.run("nonsense");
        transcript.run("lock run nightly -- true");
        transcript.run("cache put leases k v --if-absent --if-present");
        transcript.run("cache put leases k v --ttl-ms 5s");
        transcript.run("cache watch leases --from 1 --with-state");
        transcript.run("--timeout 5 cache ls");
        transcript.run("--timeout 0s cache ls");
        transcript.run("--timeout 1s");
        transcript.run("--timeout 1s cache");
        transcript.run("cache crate leases");
        transcript.run("cache ls --output xml");
        transcript.run("cache get leases");
        transcript.run("--endpoints nonsense cache ls");
        transcript.run("dev --nodes 10");
        transcript.run("dev --nodes 0");
        transcript.run("start --insecure --listen 0.0.0.0:0 --data-dir nothing --join 127.0.0.1:1");
        transcript.run("start --listen 127.0.0.1:0 --data-dir nothing --config settings.toml");
        transcript.run("start --listen 0.0.0.0:0 --data-dir nothing");
        transcript.run("start --listen nonsense --data-dir nothing");
        transcript.run("cache put leases k --file nothing");
        transcript.check(&format!("arguments.{format}"));
    }
}

#[test]
fn a_value_may_be_any_bytes() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    server.done(["cache", "create", "leases"]);
    let bytes: Vec<u8> = (0..=255).collect();
    let ran = binary::run(&mut server.command(["cache", "put", "leases", "k"]), &bytes);
    assert_eq!(ran.status, 0, "{ran:?}");
    let mut printed = bytes.clone();
    printed.push(b'\n');
    assert_eq!(server.run(["cache", "get", "leases", "k"]).stdout, printed);
    let object = server.done(["cache", "get", "leases", "k", "--output", "json"]);
    assert!(object.contains("\"value_base64\":\"AAECAwQFBgcICQoL"), "{object}");

    let ran = binary::run(
        &mut server.command(["cache", "put", "leases", "k"]),
        &vec![0; (1 << 20) + 1],
    );
    assert_eq!(ran.status, 4, "{ran:?}");
    assert_eq!(ran.stderr, "tenure: value bytes: at most 1048576: make it smaller\n");
    let ran = binary::run(&mut server.command(["cache", "put", "leases", "k"]), &vec![0; 1 << 20]);
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn a_flag_goes_before_the_environment() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let run = |words: &[&str]| {
        let mut command = server.command(words);
        command
            .env("TENURE_TENANT", "acme")
            .env("TENURE_NAMESPACE", "prod")
            .env("TENURE_TIMEOUT", "20s");
        let ran = binary::run(&mut command, b"");
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.text().to_owned()
    };
    run(&["cache", "create", "by-environment"]);
    run(&["cache", "create", "by-flag", "--namespace", "test"]);
    assert_eq!(run(&["cache", "ls"]), "by-environment\n");
    assert_eq!(run(&["cache", "ls", "-n", "test"]), "by-flag\n");
    assert_eq!(
        server.done(["--tenant", "acme", "-n", "prod", "cache", "ls"]),
        "by-environment"
    );

    let ran = server.run(["--timeout", "300ms", "--endpoints", &closed_address(), "cache", "ls"]);
    assert_eq!(ran.status, 3, "{ran:?}");
    let reached = format!("{},{}", closed_address(), server.address);
    assert_eq!(
        server.done(["--endpoints", &reached, "-n", "prod", "--tenant", "acme", "cache", "ls"]),
        "by-environment"
    );
}

#[test]
fn a_session_is_taken_from_the_environment_if_it_is_left_out() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let opened = server.done(["session", "open", "--ttl", "1h"]);
    let session = opened.strip_prefix("session ").unwrap();
    for (words, answer) in [
        (["session", "renew"], "session "),
        (["session", "show"], "session "),
        (["session", "close"], "closed, 0 keys removed"),
    ] {
        let ran = binary::run(server.command(words).env("TENURE_SESSION", session), b"");
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(ran.text().starts_with(answer), "{ran:?}");
    }
    let help = binary::run(
        server
            .command(["session", "renew", "--help"])
            .env("TENURE_SESSION", session),
        b"",
    );
    assert!(!help.text().contains(session), "{help:?}");
}

#[test]
fn a_message_never_repeats_a_secret() {
    let secret = "0123456789abcdef0123456789abcdeX";
    for words in [
        vec!["session", "renew", secret],
        vec!["session", "close", secret],
        vec!["cache", "put", "leases", "k", "v", "--session", secret],
    ] {
        let ran = binary::run(binary::command().args(words), b"");
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(!ran.stderr.contains("0123456789"), "{ran:?}");
    }
}
