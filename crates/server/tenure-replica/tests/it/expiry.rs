//! Ends: told within milliseconds with nobody speaking, and cheap while nothing ends.

use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::future::join_all;

use tenure_core::command::Command;
use tenure_core::table::TableRead;
use tenure_core::time::Span;
use tenure_storage::state::StateEngine;

use crate::world::{
    GROUP, VirtualNode, anonymous, cache, get, open_session, put, put_for, put_owned, start, wait_virtually,
};

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
    wait_virtually(Duration::from_secs(6)).await;
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
    wait_virtually(Duration::from_secs(600)).await;
    let ticks = replica.status().entries_proposed - before;
    assert!((59..=60).contains(&ticks), "{ticks} ticks in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn an_idle_group_without_deadlines_proposes_nothing() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let before = replica.status().entries_proposed;
    wait_virtually(Duration::from_secs(600)).await;
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
    wait_virtually(Duration::from_millis(5_100)).await;
    let removed = node.sink.removed();
    assert_eq!(removed.len(), 20_000);
    assert!(removed.iter().all(|(told, _)| *told <= due + Duration::from_millis(50)));
    assert!(
        removed.is_sorted_by_key(|(_, key)| key.clone()),
        "sessions in the order of their deadlines"
    );
    assert!(get(&replica, "0-0000").is_none());
}

fn rows(node: &VirtualNode) -> usize {
    let mut rows = 0;
    let state = node.engine.group(GROUP).unwrap();
    let count = |table: &dyn TableRead| {
        table.scan(&[], &[u8::MAX; 2], &mut |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        });
    };
    state.read(count).unwrap();
    rows
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stopped_in_the_middle_of_a_sweep_goes_on_with_it() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    for part in 0..10 {
        let puts = (0..2_000).map(|number| replica.propose(put(&format!("{part}-{number}"), "v"), None));
        assert!(join_all(puts).await.iter().all(Result::is_ok));
    }
    // The log can be synced once more, for the end of the cache and not for what sweeps it.
    node.disk.fail_sync_after(1);
    let delete = anonymous(Command::DeleteCache { name: cache() });
    replica.propose(delete, None).await.unwrap();
    wait_virtually(Duration::from_secs(1)).await;
    let applied = replica.status().applied_index;
    let state = node.engine.group(GROUP).unwrap();
    assert_eq!(state.make_durable(applied.unwrap()).unwrap(), applied);
    drop((replica, state));
    let node = node.after_power_loss();
    assert!(rows(&node) > 10_000, "the sweep was over already");
    let replica = start(node.options()).await;
    wait_virtually(Duration::from_secs(1)).await;
    assert!(rows(&node) < 100, "{} rows were left", rows(&node));
    let before = replica.status().entries_proposed;
    assert!(before > 0);
    wait_virtually(Duration::from_secs(60)).await;
    assert_eq!(replica.status().entries_proposed, before, "nothing is left to do");
}
