//! Processes that stand still and go on: the holder, and the node.

use std::path::Path;
use std::time::{Duration, Instant};

use tenure_client::SessionState;
use tenure_testkit::{ChildProcess, eventually};

use crate::loss::claim_when_free;
use crate::support::{CACHE, SOON, Site, client};

const HOLDER: &str = env!("CARGO_BIN_EXE_tenure-testkit-holder");

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_paused_holder_cannot_write_with_its_old_token() {
    let site = Site::start().await;
    let ttl = Duration::from_secs(1);
    let arguments = [
        site.node.endpoint(),
        CACHE.to_owned(),
        "seat".to_owned(),
        ttl.as_millis().to_string(),
    ];
    let mut holder = ChildProcess::start("the holder", Path::new(HOLDER), arguments);
    let holding = holder.next_line(SOON).expect("the holder claims the key");
    let token: u64 = holding
        .strip_prefix("holding ")
        .expect("a token")
        .parse()
        .expect("a number");
    let ask = |holder: &mut ChildProcess, command: &str| {
        holder.write_line(command);
        holder.next_line(SOON).expect("the holder answers")
    };
    assert_eq!(ask(&mut holder, "state"), "valid");
    assert!(ask(&mut holder, "guarded first").starts_with("written "));
    // The next line is that of the loss; nobody asked for it, and it comes once.
    holder.pause();
    let paused = Instant::now();
    let (higher, _) = claim_when_free(&site.cache, "seat").await;
    assert!(higher > token);
    wait_until(paused + 2 * ttl).await;
    holder.resume();
    assert!(
        holder.next_line(SOON).is_some_and(|line| line.starts_with("lost ")),
        "it learns of its loss by itself"
    );
    assert_eq!(ask(&mut holder, "state"), "invalid");
    let refused = ask(&mut holder, "write second");
    assert!(
        refused.starts_with("refused "),
        "the write with the old token: {refused}"
    );
    let unsent = ask(&mut holder, "guarded third");
    assert!(
        unsent.starts_with("error "),
        "a write in the name of the lost session: {unsent}"
    );
    let entry = site
        .cache
        .get("seat")
        .await
        .expect("the node answers")
        .expect("it is held");
    assert_eq!(
        (entry.token(), entry.value.as_ref()),
        (higher, b"taken over".as_slice())
    );
    println!("token {token}, then {higher} while it was paused; its write: {refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_stood_still_for_three_seconds_ends_no_session_of_six_or_more() {
    let site = Site::start().await;
    let mut long = Vec::new();
    for number in 0..12 {
        let ttl = Duration::from_secs([6, 8, 10][number % 3]);
        let client = client(&site.node.endpoint()).await;
        let session = client.open_session(ttl).await.expect("the node answers");
        let key = format!("long-{number}");
        let put = client.cache(CACHE).put(&key, "held").if_absent().owner(&session).await;
        let token = put.expect("the node answers").done().expect("the key is free").token();
        long.push((key, session, token));
    }
    let mut short = Vec::new();
    for number in 0..4 {
        let client = client(&site.node.endpoint()).await;
        let session = client
            .open_session(Duration::from_secs(1))
            .await
            .expect("the node answers");
        let key = format!("short-{number}");
        let put = client.cache(CACHE).put(&key, "held").if_absent().owner(&session).await;
        assert!(put.expect("the node answers").is_done());
        let lost = session.lost();
        let told = tokio::spawn(async move {
            lost.await;
            Instant::now()
        });
        short.push((key, session, told));
    }
    let stood = Duration::from_secs(3);
    site.node.pause();
    wait_until(Instant::now() + stood).await;
    site.node.resume();
    for (key, session, told) in short {
        let (_, claimed) = claim_when_free(&site.cache, &key).await;
        let lost = told.await.expect("no panic");
        assert!(lost < claimed, "{key}: its holder believed longer than the node");
        assert!(!session.is_valid());
    }
    for (key, session, token) in &long {
        eventually("the session is confirmed", SOON, async || {
            matches!(session.state(), SessionState::Live)
        })
        .await;
        let entry = site
            .cache
            .get(key)
            .await
            .expect("the node answers")
            .expect("it is held");
        assert_eq!(
            (entry.token(), entry.owner_session),
            (*token, Some(session.id())),
            "{key}"
        );
    }
    println!(
        "{} sessions live through {stood:?}, 4 shorter ones knew their end first",
        long.len()
    );
}

async fn wait_until(instant: Instant) {
    tokio::time::sleep_until(instant.into()).await;
}
