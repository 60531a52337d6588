//! What is not asked for anything costs next to nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure_client::{Client, RequestMode};
use tenure_testkit::observe::{cpu_time, metric, metrics, resident_bytes};
use tenure_testkit::{Cluster, eventually, wait_unchanged};
use tokio::task::JoinSet;

use crate::support::{CACHE, CALL_TIMEOUT, SOON, Site, client_at};

const KEYS: usize = 100_000;
const WRITERS: usize = 512;
const HOUR: Duration = Duration::from_secs(3_600);
/// How long the node is watched.
const WINDOW: Duration = Duration::from_secs(10);
/// Home groups of a cluster, and what nodes with so many may cost that nobody asks anything. The build of the tests takes twice
/// the time of one that is shipped, since the consensus library checks itself in it.
const MANY_GROUPS: u32 = 300;
const SHARE_MAX: f64 = 0.4;
const RESIDENT_BYTES_MAX: u64 = 320 << 20;
/// How long these are watched.
const LONG_WINDOW: Duration = Duration::from_secs(30);
/// Home groups unless somebody says otherwise, and how long they may take to have their voters: less than three seconds where
/// nothing else runs.
const FEW_GROUPS: u32 = 8;
const VOTERS_WITHIN: Duration = Duration::from_secs(15);
/// What is left to tidy up after the load may fall into the first of these.
const WINDOWS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_thousand_keys_with_an_hour_to_live_cost_an_idle_node_under_a_hundredth_of_a_core() {
    let site = Site::start().await;
    let connecting = Client::builder()
        .endpoints([site.node.endpoint()])
        .timeout(CALL_TIMEOUT)
        .request_mode(RequestMode::Anonymous)
        .connect();
    let cache = connecting.await.expect("the node can be reached").cache(CACHE);
    let started = Instant::now();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let cache = cache.clone();
        writers.spawn(async move {
            for number in (writer..KEYS).step_by(WRITERS) {
                let put = cache.put(format!("lease-{number:06}"), "holder").ttl(HOUR).await;
                assert!(put.expect("the node answers").is_done());
            }
        });
    }
    writers.join_all().await;
    let took = started.elapsed();
    let pending = "tenure_group_state_pending_bytes{group=\"1\"}";
    eventually("the state is written", SOON, async || {
        metric(site.node.address(), pending).await == 0.0
    })
    .await;
    wait_unchanged("the log", Duration::from_secs(1), SOON, async || {
        metric(site.node.address(), "tenure_log_syncs_total").await.to_bits()
    })
    .await;
    drop((cache, site.client));
    let mut least = f64::MAX;
    for _ in 0..WINDOWS {
        let share = wait_and_measure(site.node.pid()).await;
        println!(
            "{KEYS} keys written in {took:?}; idle: {:.2} % of a core",
            share * 100.0
        );
        least = least.min(share);
        if least < 0.01 {
            break;
        }
    }
    assert!(least < 0.01, "{:.2} % of a core", least * 100.0);
}

/// The part of a core that a process uses while nobody asks it for anything.
async fn wait_and_measure(pid: u32) -> f64 {
    let (before, started) = (cpu_time(pid), Instant::now());
    tokio::time::sleep(WINDOW).await;
    (cpu_time(pid) - before).as_secs_f64() / started.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_hundred_groups_cost_an_idle_node_less_than_two_fifths_of_a_core_and_320_mebibytes() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut cluster = Cluster::start(folder.path(), 3, MANY_GROUPS);
    let began = Instant::now();
    wait_for_voters(&cluster, MANY_GROUPS, 4 * SOON).await;
    println!("{MANY_GROUPS} groups have their voters after {:?}", began.elapsed());
    let pids = [1, 2, 3].map(|node| cluster.node(node).pid());
    let (mut shares, mut resident) = ([f64::MAX; 3], [0; 3]);
    for _ in 0..WINDOWS {
        let measured = wait_and_measure_all(pids).await;
        resident = pids.map(resident_bytes);
        let percent = measured.map(|share| format!("{:.1} %", share * 100.0));
        let mebibytes = resident.map(|bytes| bytes >> 20);
        println!("idle: {percent:?} of a core, {mebibytes:?} MiB");
        // What is left to tidy up may fall into the first of these.
        for (least, share) in shares.iter_mut().zip(measured) {
            *least = least.min(share);
        }
        if shares.iter().all(|share| *share < SHARE_MAX) && resident.iter().all(|bytes| *bytes < RESIDENT_BYTES_MAX) {
            return;
        }
    }
    panic!("of a core {shares:?}, in bytes {resident:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_of_three_go_on_leading_a_hundred_and_fifty_groups_each() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut cluster = Cluster::start(folder.path(), 3, MANY_GROUPS);
    wait_for_voters(&cluster, MANY_GROUPS, 4 * SOON).await;
    cluster.node(3).kill();
    let left = [1, 2].map(|node| cluster.node(node).address());
    let led = async || {
        let mut led = BTreeMap::new();
        for (node, address) in left.into_iter().enumerate() {
            for (name, leads) in metrics(address).await {
                if leads > 0.0 && name.starts_with("tenure_group_leads{") {
                    led.insert(name, node);
                }
            }
        }
        led
    };
    let all = 1 + MANY_GROUPS as usize;
    eventually("every group is led", 4 * SOON, async || led().await.len() == all).await;
    // Longer than a group without heartbeats keeps its leader.
    let stays = wait_unchanged("who leads", Duration::from_secs(3), 4 * SOON, led).await;
    assert_eq!(stays.len(), all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_the_third_node_every_group_soon_has_three_voters() {
    let folder = TempDir::new().expect("a temporary folder");
    let cluster = Cluster::start(folder.path(), 3, FEW_GROUPS);
    let began = Instant::now();
    wait_for_voters(&cluster, FEW_GROUPS, VOTERS_WITHIN).await;
    println!(
        "{FEW_GROUPS} groups have three voters {:?} after the third node was ready",
        began.elapsed()
    );
}

/// Waits until three nodes vote in each group, as every node says.
async fn wait_for_voters(cluster: &Cluster, home_groups: u32, limit: Duration) {
    for endpoint in cluster.endpoints() {
        let one = client_at(&endpoint).await;
        eventually("three voters in every group", limit, async || {
            let Ok(status) = one.status().await else { return false };
            let groups = &status.groups;
            let whole = groups
                .iter()
                .all(|group| group.voters.len() == 3 && group.leader.is_some());
            groups.len() == 1 + home_groups as usize && whole
        })
        .await;
    }
}

/// The same of several processes in one longer window.
async fn wait_and_measure_all<const COUNT: usize>(pids: [u32; COUNT]) -> [f64; COUNT] {
    let (before, started) = (pids.map(cpu_time), Instant::now());
    tokio::time::sleep(LONG_WINDOW).await;
    let took = started.elapsed();
    std::array::from_fn(|place| (cpu_time(pids[place]) - before[place]).as_secs_f64() / took.as_secs_f64())
}
