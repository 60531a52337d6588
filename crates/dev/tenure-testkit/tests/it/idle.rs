//! What is not asked for anything costs next to nothing.

use std::time::{Duration, Instant};

use tenure_client::{Client, RequestMode};
use tenure_testkit::observe::{cpu_time, metric};
use tenure_testkit::{eventually, wait_unchanged};
use tokio::task::JoinSet;

use crate::support::{CACHE, CALL_TIMEOUT, SOON, Site};

const KEYS: usize = 100_000;
const WRITERS: usize = 512;
const HOUR: Duration = Duration::from_secs(3_600);
/// How long the node is watched.
const WINDOW: Duration = Duration::from_secs(10);
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
