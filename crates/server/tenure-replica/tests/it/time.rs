//! Cluster time: it follows the leader's clock, and stands still while the group is stopped.

use std::time::Duration;

use tenure_core::time::{Span, Timestamp};

use crate::world::{VirtualNode, get, put, put_for, wait_virtually};

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_leader_under_load_keeps_up_with_its_clock() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let began = (node.runtime.clock.now(), replica.stamp_now().unwrap());
    let mut last = Timestamp(0);
    for number in 0..20_000 {
        let answer = replica.propose(put("k", &number.to_string()), None).await.unwrap();
        assert!(answer.time >= last);
        last = answer.time;
        if number % 2 == 0 {
            wait_virtually(Duration::from_millis(1)).await;
        }
    }
    let passed = micros(node.runtime.clock.now() - began.0);
    let told = (replica.stamp_now().unwrap() - began.1).0;
    assert!(passed >= 10_000_000);
    assert!(
        told <= passed && passed - told <= passed / 100,
        "{told} µs of {passed} µs"
    );
}

#[tokio::test(start_paused = true)]
async fn time_stands_still_while_the_group_is_stopped_and_nothing_ends_early() {
    let mut node = VirtualNode::new();
    let replica = node.start().await;
    replica
        .propose(put_for("lease", "v", Some(Span::from_secs(10))), None)
        .await
        .unwrap();
    let mut really_lived = Duration::ZERO;
    let mut replica = Some(replica);
    for round in 0..3 {
        let began = node.runtime.clock.now();
        let stamp = replica.as_ref().unwrap().stamp_now().unwrap();
        wait_virtually(Duration::from_millis(1_700)).await;
        replica
            .as_ref()
            .unwrap()
            .propose(put("other", "v"), None)
            .await
            .unwrap();
        wait_virtually(Duration::from_millis(300)).await;
        really_lived += node.runtime.clock.now() - began;
        let stopped_at = replica.as_ref().unwrap().stamp_now().unwrap();
        assert_eq!((stopped_at - stamp).0, micros(node.runtime.clock.now() - began));

        drop(replica.take());
        wait_virtually(Duration::from_secs(3_600)).await;
        node = node.after_kill(round);
        let began = node.runtime.clock.now();
        replica = Some(node.start().await);
        let restarted_at = replica.as_ref().unwrap().stamp_now().unwrap();
        let opening = micros(node.runtime.clock.now() - began);
        assert!(
            restarted_at.0 <= stopped_at.0 + opening,
            "never more than what really passed"
        );
        // What is lost is what passed since the last entry before the stop.
        assert!(stopped_at.0 - restarted_at.0.min(stopped_at.0) <= 300_000);
        assert!(
            get(replica.as_ref().unwrap(), "lease").is_some(),
            "it has {really_lived:?} of ten seconds behind it"
        );
    }
    let replica = replica.unwrap();
    let left = Duration::from_secs(10) - really_lived;
    wait_virtually(left - Duration::from_millis(10)).await;
    assert!(get(&replica, "lease").is_some());
    // Late by what the three restarts lost, no more.
    wait_virtually(Duration::from_millis(10 + 3 * 300 + 20)).await;
    assert!(get(&replica, "lease").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_polite_stop_loses_no_time() {
    let mut node = VirtualNode::new();
    let mut replica = node.start().await;
    let put = put_for("lease", "v", Some(Span::from_secs(60)));
    replica.propose(put, None).await.unwrap();
    for round in 0..3 {
        // Less than a tick of an idle group away from the last entry.
        wait_virtually(Duration::from_secs(8)).await;
        let before = replica.stamp_now().unwrap();
        replica.shutdown().await;
        let stopped_at = replica.status().time;
        assert!(stopped_at >= before, "{stopped_at:?} after {before:?}");
        drop(replica);
        wait_virtually(Duration::from_secs(3_600)).await;
        node = node.after_kill(round);
        replica = node.start().await;
        let restarted_at = replica.stamp_now().unwrap();
        assert!(restarted_at >= before, "{restarted_at:?} after {before:?}");
    }
    assert!(get(&replica, "lease").is_some(), "it stood still for the hours between");
    wait_virtually(Duration::from_secs(37)).await;
    assert!(
        get(&replica, "lease").is_none(),
        "and was told all the seconds that it ran"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_a_group_without_deadlines_proposes_nothing() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    replica.propose(put("key", "v"), None).await.unwrap();
    let before = replica.status().entries_proposed;
    wait_virtually(Duration::from_secs(8)).await;
    replica.shutdown().await;
    replica.shutdown().await;
    assert_eq!(replica.status().entries_proposed, before);
}
