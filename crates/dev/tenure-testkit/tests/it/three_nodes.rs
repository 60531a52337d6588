//! Three processes that are one cluster: it forms by itself, outlives any one of them, and lets in nobody else.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure_testkit::{ChildProcess, Cluster, binary, check, eventually};

use crate::load::{Follower, Keys, Load};
use crate::support::{CACHE, SOON, client, client_at, state_of};
use crate::trio::{HOME_GROUPS, Trio};

const KILLS: u32 = 6;
const CLIENTS: u32 = 8;
/// How long a failover may take here: under two seconds where nothing else runs.
const FAILOVER: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_nodes_find_each_other_and_all_of_them_answer_everything() {
    let mut trio = Trio::start().await;
    for writer in 1..=3 {
        let key = format!("by-{writer}");
        let through = client_at(trio.endpoint(writer)).await.cache(CACHE);
        let put = through.put(&key, "v").await.expect("the node answers");
        let version = put.done().expect("nothing stands in its way").version;
        for reader in 1..=3 {
            let cache = client_at(trio.endpoint(reader)).await.cache(CACHE);
            let entry = cache
                .get(&key)
                .await
                .expect("the node answers")
                .expect("it was written");
            assert_eq!(entry.version, version, "written at {writer}, read at {reader}");
        }
    }
    trio.cluster.kill();
    trio.cluster.restart();
    trio.wait_until_whole().await;
    let keys = trio
        .client
        .cache(CACHE)
        .list()
        .keys_only()
        .await
        .expect("the cluster answers");
    assert_eq!(
        keys.len(),
        3,
        "what was acknowledged outlives the loss of all processes"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leaders_killed_under_load_lose_nothing_that_was_acknowledged() {
    let mut trio = Trio::start().await;
    let endpoints = trio.endpoints.clone();
    let (one, other) = (
        Follower::start(&endpoints, 1).await,
        Follower::start(&endpoints, 1).await,
    );
    let mut load = Load::start(&endpoints, CLIENTS, Keys::Ending).await;
    for _ in 0..KILLS {
        load.wait_for_more(100).await;
        let leader = trio.leader().await;
        trio.cluster.node(leader).kill();
        load.wait_for_more(100).await;
        trio.cluster.node(leader).restart();
    }
    load.wait_for_more(100).await;
    let lost = load.stop().await;
    let (state, revision) = state_of(&trio.client.cache(CACHE)).await;
    load.mark().await;
    let (one, other) = (one.finish().await, other.finish().await);
    let counts = match check::everything(&load.history.calls(), &one, &state, revision) {
        Ok(counts) => counts,
        Err(violation) => panic!("{violation}"),
    };
    if let Err(violation) = check::watches_agree(&one, &other, 0, u64::MAX) {
        panic!("{violation}");
    }
    println!(
        "{KILLS} leaders killed, {CLIENTS} clients: {counts:?}, {} changes, {lost} sessions lost",
        one.len()
    );
    load.assert_settled();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_nodes_killed_at_once_under_load_lose_nothing_that_was_acknowledged() {
    let mut trio = Trio::start().await;
    let endpoints = trio.endpoints.clone();
    let follower = Follower::start(&endpoints, 1).await;
    let mut load = Load::start(&endpoints, CLIENTS, Keys::Ending).await;
    for _ in 0..KILLS {
        load.wait_for_more(200).await;
        trio.cluster.kill();
        trio.cluster.restart();
    }
    load.wait_for_more(200).await;
    let judged = load.judge(&trio.client.cache(CACHE), follower).await;
    println!(
        "all nodes killed {KILLS} times: {:?}, {} changes, {} sessions lost",
        judged.counts, judged.changes, judged.sessions_lost
    );
    load.assert_settled();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_holder_keeps_its_token_when_the_leader_is_killed() {
    let mut trio = Trio::start().await;
    let cache = trio.client.cache(CACHE);
    let session = trio
        .client
        .open_session(Duration::from_secs(3))
        .await
        .expect("the cluster answers");
    let put = cache
        .put("held", "mine")
        .if_absent()
        .owner(&session)
        .await
        .expect("the cluster answers");
    let token = put.done().expect("nobody has it").created;
    let leader = trio.leader().await;
    let began = Instant::now();
    trio.cluster.node(leader).kill();
    let put = cache.put("after", "v").await.expect("another node leads soon");
    let took = began.elapsed();
    assert!(put.is_done() && took < FAILOVER, "{took:?}");
    // Longer than the TTL: what was not renewed has ended by then.
    let until = began + Duration::from_secs(6);
    eventually("the holder outlives its TTL", SOON, async || {
        assert!(session.is_valid(), "the holder keeps its session");
        Instant::now() >= until
    })
    .await;
    let held = cache
        .get("held")
        .await
        .expect("the cluster answers")
        .expect("it is held");
    assert_eq!(held.created, token);
    println!("a write after the kill of the leader took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_frozen_leader_is_replaced_and_serves_nothing_old_when_it_wakes() {
    let mut trio = Trio::start().await;
    let cache = trio.client.cache(CACHE);
    let session = trio
        .client
        .open_session(Duration::from_secs(3))
        .await
        .expect("the cluster answers");
    let put = cache
        .put("held", "mine")
        .if_absent()
        .owner(&session)
        .await
        .expect("the cluster answers");
    let token = put.done().expect("nobody has it").created;
    let leader = trio.leader().await;
    let at_leader = client_at(trio.endpoint(leader)).await.cache(CACHE);
    assert!(at_leader.get("held").await.expect("the leader answers").is_some());
    trio.cluster.node(leader).pause();
    let began = Instant::now();
    let put = cache
        .put("held", "changed")
        .if_created(token)
        .await
        .expect("another node leads soon");
    let took = began.elapsed();
    let version = put.done().expect("the token still holds").version;
    assert!(took < FAILOVER, "{took:?}");
    trio.cluster.node(leader).resume();
    // From its first moment on it must not answer from what it knew.
    for _ in 0..50 {
        let entry = at_leader
            .get("held")
            .await
            .expect("the node answers")
            .expect("it is held");
        assert!(entry.version >= version, "the woken leader served an old value");
    }
    let put = at_leader
        .put("held", "again")
        .if_version(version)
        .await
        .expect("the node answers");
    let written = put.done().expect("nobody wrote in between");
    assert!(written.version > version && written.created == token);
    assert!(session.is_valid(), "the holder keeps its session");
    println!("a write after the freeze of the leader took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_of_another_cluster_is_refused_by_name() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut cluster = Cluster::start(&folder.path().join("ours"), 2, HOME_GROUPS);
    let endpoints = cluster.endpoints();
    let second = cluster.node(2).folder().to_owned();
    cluster.kill();
    // Another cluster at the place of the first node: the second one must not take it for that.
    let words = |folder: &std::path::Path, endpoint: &str| {
        ["start", "--home-groups", "2", "--listen", endpoint, "--data-dir"]
            .map(std::ffi::OsString::from)
            .into_iter()
            .chain([folder.into()])
            .collect::<Vec<_>>()
    };
    let theirs = ChildProcess::start("theirs", &binary(), words(&folder.path().join("theirs"), &endpoints[0]));
    assert!(theirs.next_line(SOON).is_some(), "{}", theirs.stderr());
    let mut ours = ChildProcess::start("ours", &binary(), words(&second, &endpoints[1]));
    eventually("it says what does not fit", SOON, async || {
        assert!(ours.try_status().is_none(), "{}", ours.stderr());
        ours.stderr().contains("cluster: node 1 belongs to another one")
    })
    .await;
    let stranger = client(&endpoints[0])
        .await
        .status()
        .await
        .expect("the other cluster answers");
    assert_eq!(stranger.nodes.len(), 1, "nobody was let in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_nodes_one_votes_and_the_other_follows() {
    let folder = TempDir::new().expect("a temporary folder");
    let cluster = Cluster::start(folder.path(), 2, HOME_GROUPS);
    let client = client_at(&cluster.endpoints()[1]).await;
    eventually("a voter and a learner in every group", SOON, async || {
        let Ok(status) = client.status().await else {
            return false;
        };
        let groups = &status.groups;
        groups.len() == 1 + HOME_GROUPS as usize
            && groups.iter().all(|group| group.voters == [1] && group.learners == [2])
    })
    .await;
}
