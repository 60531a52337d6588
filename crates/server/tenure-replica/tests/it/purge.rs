//! The log is purged behind what the state holds durably, and never beyond it.

use std::time::Duration;

use futures_util::future::join_all;

use tenure_replica::{OpenError, PurgeLimits, Replica};
use tenure_storage::feed::FeedLimits;
use tenure_storage::mem::MemEngine;

use crate::world::{VirtualNode, get, put, start, wait_virtually};

async fn put_one_by_one(replica: &Replica, numbers: std::ops::Range<u64>) {
    for number in numbers {
        replica.propose(put(&format!("k{number}"), "v"), None).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_stays_short_and_a_kill_after_a_purge_loses_nothing() {
    let limits = PurgeLimits {
        entries_max: 100,
        bytes_max: u64::MAX,
        entries_kept: 20,
    };
    let node = VirtualNode::new();
    let mut options = node.options();
    options.purge = limits;
    let replica = start(options).await;
    for round in 0..10 {
        put_one_by_one(&replica, round * 100..(round + 1) * 100).await;
        wait_virtually(Duration::from_millis(500)).await;
    }
    let status = replica.status();
    let (first, durable) = (status.first_index.unwrap(), status.durable_index.unwrap());
    assert!(first > 700, "the log begins at {first} of {:?}", status.last_index);
    assert!(
        first <= durable + 1,
        "{first} was purged, and only {durable} is durable"
    );
    assert!(status.last_index.unwrap() - first <= 220);
    drop(replica);
    for lost in 0..2 {
        let node = if lost == 0 {
            node.after_kill(0)
        } else {
            node.after_power_loss()
        };
        let replica = node.start().await;
        for number in 0..1_000 {
            assert!(get(&replica, &format!("k{number}")).is_some());
        }
        replica.propose(put("next", "v"), None).await.unwrap();
        drop(replica);
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_of_many_bytes_is_purged_however_few_its_entries_are() {
    let node = VirtualNode::new();
    let mut options = node.options();
    options.purge = PurgeLimits {
        entries_max: 50_000,
        bytes_max: 4 << 20,
        entries_kept: 10_000,
    };
    let replica = start(options).await;
    let value = "v".repeat(200_000);
    for round in 0..80 {
        let puts = (0..2).map(|number| replica.propose(put(&format!("{round}-{number}"), &value), None));
        assert!(join_all(puts).await.iter().all(Result::is_ok));
        wait_virtually(Duration::from_millis(50)).await;
    }
    wait_virtually(Duration::from_secs(1)).await;
    assert!(replica.status().first_index.unwrap() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_state_was_lost_after_a_purge_is_not_opened() {
    let node = VirtualNode::new();
    let mut options = node.options();
    options.purge = PurgeLimits {
        entries_max: 100,
        bytes_max: u64::MAX,
        entries_kept: 20,
    };
    let replica = start(options).await;
    put_one_by_one(&replica, 0..200).await;
    wait_virtually(Duration::from_secs(1)).await;
    let first = replica.status().first_index.unwrap();
    assert!(first > 0, "nothing was purged");
    drop(replica);
    let mut node = node.after_kill(0);
    let engine = std::mem::replace(&mut node.engine, MemEngine::with_crashes(FeedLimits::default()));
    let refused = Replica::open(node.options()).await.unwrap_err();
    assert!(
        matches!(refused, OpenError::StateBehindLog { applied: None, purged, .. } if purged + 1 == first),
        "{refused}"
    );
    // With its state it is opened.
    node.engine = engine;
    assert!(get(&node.start().await, "k0").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_purge_that_is_asked_for_is_done_soon_also_on_an_idle_group() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    put_one_by_one(&replica, 0..1_000).await;
    wait_virtually(Duration::from_secs(1)).await;
    assert!(replica.status().first_index.unwrap() < 10, "no limit is reached");
    for _ in 0..2 {
        replica.purge_soon();
        wait_virtually(Duration::from_secs(1)).await;
        let status = replica.status();
        let (first, last) = (status.first_index.unwrap(), status.last_index.unwrap());
        assert!(last - first <= 64, "the log begins at {first} of {last}");
        assert!(first <= status.durable_index.unwrap() + 1);
    }
    drop(replica);
    let replica = node.after_power_loss().start().await;
    for number in 0..1_000 {
        assert!(get(&replica, &format!("k{number}")).is_some());
    }
}
