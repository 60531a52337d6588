//! A cluster of which one node is left: it goes on alone by the command of an operator, and finds new nodes.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure_client::{Client, ErrorCode};
use tenure_testkit::{ChildProcess, Cluster, StartFailure, binary, check, eventually};

use crate::load::{Keys, Load};
use crate::support::{CACHE, SOON, client};

const HOME_GROUPS: u32 = 2;
const CLIENTS: u32 = 6;
/// Seconds since 2025 times this are the lowest revision after a recovery.
const REVISIONS_OF_A_SECOND: u64 = 1 << 32;
/// How often a recovery is killed, each time somewhat later.
const KILLS: u32 = 12;
const KILLED_LATER_BY: Duration = Duration::from_millis(15);

/// What a command said.
#[derive(Debug)]
struct Said {
    status: Option<i32>,
    output: String,
    errors: String,
}

/// Runs `tenure recover` on a folder.
fn recover(folder: &Path, more: &[&str]) -> Said {
    let mut child = begin(folder, more);
    let lines: Vec<String> = std::iter::from_fn(|| child.next_line(2 * SOON)).collect();
    let status = child.wait(SOON).and_then(|status| status.code());
    Said {
        status,
        output: lines.join("\n"),
        errors: child.stderr(),
    }
}

fn begin(folder: &Path, more: &[&str]) -> ChildProcess {
    let folder = folder.to_str().expect("a name in plain letters");
    let words = ["recover", "--data-dir", folder];
    ChildProcess::start("the recovery", &binary(), words.iter().chain(more))
}

fn recovered(folder: &Path, more: &[&str]) -> String {
    let said = recover(folder, more);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.output.contains("recovered groups"), "{said:?}");
    said.output
}

/// Three voters in every group, as all of the clients' node says.
async fn wait_for_voters(client: &Client, voters: &[u64]) {
    eventually("all of them vote everywhere", SOON, async || {
        let Ok(status) = client.status().await else {
            return false;
        };
        let whole = |group: &tenure_client::GroupInfo| group.voters == voters && group.leader.is_some();
        status.groups.len() == 1 + HOME_GROUPS as usize && status.groups.iter().all(whole)
    })
    .await;
}

/// A cluster of three voters with one cache.
async fn trio(folder: &Path) -> (Cluster, Client) {
    let cluster = Cluster::start(folder, 3, HOME_GROUPS);
    let client = client(&cluster.endpoints().join(",")).await;
    wait_for_voters(&client, &[1, 2, 3]).await;
    let created = client.create_cache(CACHE).await.expect("the cluster answers");
    assert!(created.is_done());
    (cluster, client)
}

async fn put(client: &Client, key: &str) -> u64 {
    let put = client.cache(CACHE).put(key, "v").await.expect("the cluster answers");
    put.done().expect("nothing stands in its way").version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_the_node_that_is_left_has_stays_while_clients_work_and_three_vote_again() {
    let folder = TempDir::new().expect("a temporary folder");
    let (mut cluster, _) = trio(folder.path()).await;
    let endpoints = cluster.endpoints();
    // Without the third one, nothing is acknowledged that the second one does not have.
    cluster.node(3).kill();
    let held = client(&endpoints[1]).await;
    let session = held.open_session(Duration::from_secs(60)).await;
    let session = session.expect("two of three answer");
    let owned = held.cache(CACHE).put("held", "mine").if_absent().owner(&session);
    let owned = owned.await.expect("two of three answer");
    let token = owned.done().expect("nobody has it").created;
    let mut load = Load::start(&endpoints[..2].join(","), CLIENTS, Keys::Lasting).await;
    load.wait_for_more(300).await;
    cluster.kill();
    let before = load.history.acknowledged();
    for lost in [1, 3] {
        let lost = cluster.node(lost).folder().to_owned();
        std::fs::remove_dir_all(lost).expect("it can be removed");
    }
    let left = cluster.node(2).folder().to_owned();
    let began = Instant::now();
    let told = recovered(&left, &["--yes"]);
    let took = began.elapsed();
    for part in [
        "GIVEN UP",
        "1,3",
        "out of the cluster for good: node 1 at ",
        "may be lost: ",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    cluster.node(2).restart();
    load.wait_for_more(200).await;
    assert!(session.is_valid(), "the session lives on");
    let entry = held.cache(CACHE).get("held").await.expect("the node answers");
    assert_eq!(entry.expect("it is owned").created, token);
    cluster.add(folder.path(), HOME_GROUPS);
    cluster.add(folder.path(), HOME_GROUPS);
    // Ids that the lost nodes may have given to others are passed over.
    wait_for_voters(&held, &[2, 1_004, 1_005]).await;
    load.wait_for_more(200).await;
    let lost = load.stop().await;
    let calls = load.history.calls();
    let rules = check::versions_are_unique(&calls).and_then(|()| check::versions_agree_with_real_time(&calls));
    if let Err(violation) = rules {
        panic!("{violation}");
    }
    load.assert_linearizable();
    let after = put(&held, "after").await;
    assert!(after > REVISIONS_OF_A_SECOND, "revisions go on far above: {after}");
    let from_before = held.cache(CACHE).watch().from(token).await;
    let error = from_before.map(|_| ()).expect_err("it missed something");
    assert_eq!(error.code(), ErrorCode::Compacted, "{error}");
    // The new nodes have all of it: one of them may be lost now, and be it the one that was left.
    cluster.node(2).kill();
    let others = client(&cluster.endpoints()[3..].join(",")).await;
    assert!(put(&others, "later").await > after);
    println!(
        "{before} calls before and {} after, {lost} sessions lost; recovered in {took:?}",
        calls.len() - before
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_old_nodes_are_refused_when_they_come_back_with_their_folders() {
    let folder = TempDir::new().expect("a temporary folder");
    let (mut cluster, first) = trio(folder.path()).await;
    put(&first, "k").await;
    cluster.kill();
    recovered(cluster.node(3).folder(), &["--yes"]);
    cluster.node(3).restart();
    let left = client(&cluster.endpoints()[2]).await;
    let version = put(&left, "k").await;
    // Together they would be a majority of what was.
    let failures = std::thread::scope(|scope| {
        let (one, two) = cluster.both(1, 2);
        let starting = [one, two].map(|node| scope.spawn(|| node.restart_refused()));
        starting.map(|started| started.join().expect("it is refused"))
    });
    for (node, StartFailure { status, stderr }) in [1, 2].into_iter().zip(failures) {
        assert_eq!(status.and_then(|status| status.code()), Some(1), "{stderr}");
        let why = format!("tenure: node {node} was removed from the cluster");
        assert!(stderr.contains(&why), "{stderr}");
    }
    let entry = left.cache(CACHE).get("k").await.expect("the node answers");
    assert_eq!(entry.expect("it was written").version, version);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_group_alone_goes_on_and_the_other_replicas_of_it_begin_anew() {
    let folder = TempDir::new().expect("a temporary folder");
    let (mut cluster, first) = trio(folder.path()).await;
    // The second one has less than the others.
    let kept = put(&first, "kept").await;
    wait_until_applied(&mut cluster, kept).await;
    cluster.node(2).kill();
    let others = client(
        &[&cluster.endpoints()[0], &cluster.endpoints()[2]]
            .map(String::as_str)
            .join(","),
    )
    .await;
    for number in 0..50 {
        put(&others, &format!("given-up-{number}")).await;
    }
    cluster.kill();
    let told = recovered(cluster.node(2).folder(), &["--group", "1", "--yes"]);
    assert!(
        told.contains("stays in the cluster until it is removed: node 1"),
        "{told}"
    );
    cluster.restart();
    wait_for_voters(&first, &[1, 2, 3]).await;
    let after = put(&first, "after").await;
    assert!(after > REVISIONS_OF_A_SECOND, "{after}");
    // Every replica says the same, whatever was in it.
    for endpoint in cluster.endpoints() {
        let cache = client(&endpoint).await.cache(CACHE);
        let keys = cache.list().keys_only().await.expect("the node answers");
        let keys: Vec<&[u8]> = keys.iter().map(|entry| &entry.key[..]).collect();
        assert_eq!(keys, [&b"after"[..], b"kept"], "{endpoint}");
    }
    for lost in [1, 3] {
        cluster.node(lost).kill();
        cluster.node(lost).restart();
    }
    wait_for_voters(&first, &[1, 2, 3]).await;
    assert!(put(&first, "after").await > after);
}

/// Every node has applied a write.
async fn wait_until_applied(cluster: &mut Cluster, version: u64) {
    for endpoint in cluster.endpoints() {
        let cache = client(&endpoint).await.cache(CACHE);
        eventually("the node has it", SOON, async || {
            let entry = cache.get("kept").await.expect("the node answers");
            entry.is_some_and(|entry| entry.version == version)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_recovery_that_is_killed_anywhere_is_done_again() {
    let folder = TempDir::new().expect("a temporary folder");
    let (mut cluster, first) = trio(folder.path()).await;
    let kept = put(&first, "kept").await;
    wait_until_applied(&mut cluster, kept).await;
    cluster.kill();
    let mut cut_short = 0;
    for kill in 1..=KILLS {
        let copy = folder.path().join("copy");
        let _ = std::fs::remove_dir_all(&copy);
        copy_folder(cluster.node(2).folder(), &copy);
        let mut running = begin(&copy, &["--yes"]);
        wait_before_the_kill(KILLED_LATER_BY * kill).await;
        cut_short += u32::from(running.try_status().is_none());
        running.kill();
        let said = recover(&copy, &["--yes"]);
        assert_eq!(said.status, Some(0), "{said:?}");
        let again = recover(&copy, &[]);
        assert_eq!(again.status, Some(0), "{again:?}");
        assert!(again.output.contains("there is nothing to recover"), "{again:?}");
        if kill % 4 == 0 {
            let _ = std::fs::remove_dir_all(cluster.node(2).folder().with_extension("whole"));
            let whole = cluster.node(2).folder().to_owned();
            std::fs::rename(&whole, whole.with_extension("whole")).expect("it can be moved");
            std::fs::rename(&copy, &whole).expect("it can be moved");
            cluster.node(2).restart();
            let alone = client(&cluster.endpoints()[1]).await;
            let entry = alone.cache(CACHE).get("kept").await.expect("the node answers");
            assert_eq!(entry.expect("it is kept").version, kept);
            assert!(put(&alone, "after").await > REVISIONS_OF_A_SECOND);
            cluster.node(2).kill();
            std::fs::remove_dir_all(&whole).expect("it can be removed");
            std::fs::rename(whole.with_extension("whole"), &whole).expect("it can be moved");
        }
    }
    assert!(cut_short > 0, "none was killed in its middle");
    println!("{cut_short} of {KILLS} recoveries were killed before their end");
}

/// A recovery is killed after a time, wherever it is then: the proof is made for each.
async fn wait_before_the_kill(time: Duration) {
    let begun = Instant::now();
    eventually("the time is over", SOON, async || begun.elapsed() >= time).await;
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("it can be made");
    for entry in std::fs::read_dir(from).expect("it can be read") {
        let entry = entry.expect("it can be read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("it has a type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("it can be copied");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_changed_where_a_recovery_is_refused_or_not_confirmed() {
    let folder = TempDir::new().expect("a temporary folder");
    let (mut cluster, first) = trio(folder.path()).await;
    put(&first, "k").await;
    let left = cluster.node(2).folder().to_owned();
    let said = recover(&left, &["--yes"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(
        said.errors
            .contains("is in use by another process: stop the node first"),
        "{said:?}"
    );
    cluster.kill();
    let said = recover(&left, &[]);
    assert_eq!(said.status, Some(2), "{said:?}");
    assert!(said.output.contains("GIVEN UP"), "{said:?}");
    assert!(said.errors.contains("nothing was changed: say --yes"), "{said:?}");
    for (more, status, why) in [
        (["--group", "9"], 5, "group 9 does not exist: name one of 0 to 2"),
        (["--revision-floor", "1"], 2, "does not lie above"),
        (
            ["--revision-floor", "18446744073709551615"],
            2,
            "the highest that can be used",
        ),
    ] {
        let said = recover(&left, &[more[0], more[1], "--yes"]);
        assert_eq!(said.status, Some(status), "{said:?}");
        assert!(said.errors.contains(why), "{said:?}");
    }
    let said = recover(&folder.path().join("none"), &["--yes"]);
    assert_eq!(said.status, Some(5), "{said:?}");
    assert!(!folder.path().join("none").exists(), "nothing is made");
    damage_and_look(&left);
    cluster.restart();
    wait_for_voters(&first, &[1, 2, 3]).await;
    assert!(put(&first, "k").await < REVISIONS_OF_A_SECOND, "nobody was recovered");
}

/// A bit of the log is not as it was written.
fn damage_and_look(folder: &Path) {
    let segment = folder.join("log/0000000001.seg");
    let whole = std::fs::read(&segment).expect("there is a log");
    let mut damaged = whole.clone();
    damaged[200] ^= 0x40;
    std::fs::write(&segment, &damaged).expect("it can be written");
    let said = recover(folder, &["--yes"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(said.errors.contains(" is damaged, in "), "{said:?}");
    std::fs::write(&segment, &whole).expect("it can be written");
}
