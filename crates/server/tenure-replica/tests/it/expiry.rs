//! Ends: told within milliseconds with nobody speaking, and cheap while nothing ends.

use std::time::Duration;

use futures_util::future::join_all;

use tenure_core::time::Span;

use crate::world::{VirtualNode, get, open_session, put_for, put_owned};

#[tokio::test(start_paused = true)]
async fn a_key_ends_within_20_ms_of_its_deadline_with_nobody_speaking() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let mut due = Vec::new();
    for number in 0..50u64 {
        let ttl = Duration::from_micros(300_000 + number * 77_777);
        let span = Span::from_micros(u64::try_from(ttl.as_micros()).unwrap());
        let asked = node.runtime.clock.now();
        replica
            .propose(put_for(&format!("k{number}"), "v", Some(span)), None)
            .await
            .unwrap();
        due.push(asked + ttl);
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    let removed = node.sink.removed();
    assert_eq!(removed.len(), 50);
    for ((told, key), due) in removed.into_iter().zip(due) {
        assert!(told >= due, "{key} ended early");
        assert!(
            told - due <= Duration::from_millis(20),
            "{key} ended {:?} late",
            told - due
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_group_with_a_hundred_thousand_deadlines_ticks_once_in_ten_seconds() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    for part in 0..10 {
        let puts = (0..10_000).map(|number| {
            replica.propose(
                put_for(&format!("{part}-{number}"), "v", Some(Span::from_secs(3_600))),
                None,
            )
        });
        assert!(join_all(puts).await.iter().all(Result::is_ok));
    }
    let before = replica.status().entries_proposed;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let ticks = replica.status().entries_proposed - before;
    assert!((59..=60).contains(&ticks), "{ticks} ticks in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn an_idle_group_without_deadlines_proposes_nothing() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let before = replica.status().entries_proposed;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(replica.status().entries_proposed, before);
}

#[tokio::test(start_paused = true)]
async fn twenty_thousand_that_end_in_the_same_moment_are_all_told_at_once_and_in_order() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    // Five sessions, because one may own four thousand keys.
    let mut sessions = Vec::new();
    for number in 0..5 {
        sessions.push(open_session(&replica, number + 1, Span::from_secs(5)).await);
    }
    for (number, session) in sessions.iter().enumerate() {
        let puts = (0..4_000).map(|key| {
            replica.propose(
                put_owned(&format!("{number}-{key:04}"), "v", None, Some(*session)),
                None,
            )
        });
        assert!(join_all(puts).await.iter().all(Result::is_ok));
    }
    let due = node.runtime.clock.now() + Duration::from_secs(5);
    tokio::time::sleep(Duration::from_millis(5_100)).await;
    let removed = node.sink.removed();
    assert_eq!(removed.len(), 20_000);
    assert!(removed.iter().all(|(told, _)| *told <= due + Duration::from_millis(50)));
    assert!(
        removed.is_sorted_by_key(|(_, key)| key.clone()),
        "sessions in the order of their deadlines"
    );
    assert!(get(&replica, "0-0000").is_none());
}
