//! Renewals end with the handle, and sessions with their renewals.

use std::time::Duration;

use tenure_testkit::observe::metric;
use tenure_testkit::{eventually, wait_unchanged};
use tokio::task::JoinSet;

use crate::support::{Dice, SOON, Site, client};

const KEEP_ALIVES: &str = "tenure_keep_alives_total";
const LOOPS: u64 = 3_000;
const WORKERS: u64 = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_session_is_dropped_or_closed_nothing_is_renewed_any_more() {
    let site = Site::start().await;
    let ttl = Duration::from_millis(500);
    let renewals = async || metric(site.node.address(), KEEP_ALIVES).await;
    for close in [false, true] {
        let session = site.client.open_session(ttl).await.expect("the node answers");
        let id = session.id();
        let before = renewals().await;
        eventually("renewals", SOON, async || renewals().await >= before + 3.0).await;
        if close {
            session.close().await.expect("the node answers");
        } else {
            drop(session);
        }
        // A renewal that was on its way may still arrive; then there is silence for three times the TTL.
        wait_unchanged("renewals", 3 * ttl, SOON, async || renewals().await.to_bits()).await;
        let info = site.client.session_info(id).await.expect("the node answers");
        assert!(info.is_none_or(|info| info.ended.is_some()), "the session has ended");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thousands_of_sessions_opened_and_left_in_every_way_leave_none_alive() {
    let site = Site::start().await;
    let ttl = Duration::from_secs(1);
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let client = client(&site.node.endpoint()).await;
        workers.spawn(async move {
            let mut dice = Dice::new(worker + 100);
            let mut aborted = 0;
            for _ in 0..LOOPS / WORKERS {
                let opening = client.open_session(ttl);
                if dice.below(4) == 0 {
                    // Given up somewhere on its way.
                    let patience = Duration::from_micros(dice.below(12_000));
                    if tokio::time::timeout(patience, opening).await.is_err() {
                        aborted += 1;
                    }
                    continue;
                }
                let session = opening.await.expect("the node answers");
                match dice.below(3) {
                    0 => session.close().await.expect("the node answers"),
                    1 => drop(session),
                    _ => {
                        let cache = client.cache(crate::support::CACHE);
                        let put = cache.put(format!("of {}", session.id()), "owned").owner(&session).await;
                        assert!(put.expect("the node answers").is_done());
                    }
                }
            }
            aborted
        });
    }
    let aborted: u64 = workers.join_all().await.into_iter().sum();
    eventually("no session is left", SOON, async || {
        let sessions = site.client.sessions().await.expect("the node answers");
        // What has no TTL is the identity under which a client asks.
        !sessions
            .iter()
            .any(|session| session.ended.is_none() && session.ttl_ms.is_some())
    })
    .await;
    let keys = site.cache.list().keys_only().await.expect("the node answers");
    assert!(keys.is_empty(), "what they owned went with them");
    let renewals = async || metric(site.node.address(), KEEP_ALIVES).await.to_bits();
    wait_unchanged("renewals", 3 * ttl, SOON, renewals).await;
    println!("{LOOPS} sessions opened and left, {aborted} of them while they were being opened; none is alive");
}
