//! Proposing: answers by position, batches, deadlines, bounds, and requests that are given up.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;

use tenure_core::response::KeptAlive;
use tenure_core::time::Span;
use tenure_replica::{Outcome, QueueLimits, Unavailable};

use crate::world::{VirtualNode, get, open_session, put, put_if_absent, put_owned, start, version, wait_virtually};

#[tokio::test(start_paused = true)]
async fn each_of_many_concurrent_proposers_gets_its_own_answer() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let answers = join_all((0..2_000).map(|number| {
        let replica = replica.clone();
        async move {
            replica
                .propose(put(&format!("k{number}"), &number.to_string()), None)
                .await
                .unwrap()
        }
    }))
    .await;
    let versions: BTreeSet<u64> = answers.iter().map(version).collect();
    assert_eq!(versions.len(), 2_000, "each write has a revision of its own");
    for (number, answer) in answers.iter().enumerate() {
        let found = get(&replica, &format!("k{number}")).unwrap();
        assert_eq!(found.value, number.to_string());
        assert_eq!(found.version, version(answer));
    }
    replica.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_together_goes_into_one_entry() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let before = replica.status().entries_proposed;
    for round in 0..10 {
        let answers = join_all((0..64).map(|number| replica.propose(put(&format!("{round}-{number}"), "v"), None)));
        assert!(answers.await.iter().all(Result::is_ok));
    }
    let entries = replica.status().entries_proposed - before;
    assert!(entries <= 20, "640 requests went into {entries} entries");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_deadline_has_passed_is_refused_and_never_applied() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let now = node.runtime.clock.now();
    let late = replica
        .propose(put("late", "v"), Some(now - Duration::from_millis(1)))
        .await
        .unwrap_err();
    assert_eq!(late, Unavailable::Deadline);
    assert_eq!(late.outcome(), Outcome::NotApplied);
    replica
        .propose(put("in time", "v"), Some(now + Duration::from_secs(1)))
        .await
        .unwrap();
    assert!(get(&replica, "late").is_none() && get(&replica, "in time").is_some());
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_a_request_waits_until_its_deadline_or_is_told_that_there_is_none() {
    let node = VirtualNode::new();
    let replica = tenure_replica::Replica::open(node.options()).await.unwrap();
    let now = node.runtime.clock.now();
    let timed = replica
        .propose(put("a", "v"), Some(now + Duration::from_millis(100)))
        .await;
    assert_eq!(timed, Err(Unavailable::Deadline));
    assert_eq!(node.runtime.clock.now() - now, Duration::from_millis(100));
    let untimed = replica.propose(put("b", "v"), None).await;
    assert_eq!(untimed, Err(Unavailable::NoLeader));
    assert_eq!(replica.read_index().await, Err(Unavailable::NoLeader));
    replica.found().await.unwrap();
    replica.wait_until_ready(Duration::from_secs(5)).await.unwrap();
    assert_eq!(
        replica.status().applied_index,
        Some(1),
        "the founding and the leader's own first entry"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_line_refuses_and_what_it_holds_is_still_done() {
    let node = VirtualNode::new();
    let mut options = node.options();
    options.queue = QueueLimits {
        // Whoever is alone gets half of it.
        queue_len_max: 8,
        ..QueueLimits::default()
    };
    let replica = start(options).await;
    // All are asked before the proposer has run once.
    let answers = join_all((0..6).map(|number| replica.propose(put(&format!("k{number}"), "v"), None))).await;
    assert!(answers[..4].iter().all(Result::is_ok));
    for refused in &answers[4..] {
        let refused = refused.as_ref().unwrap_err();
        assert!(matches!(refused, Unavailable::Overloaded { .. }));
        assert_eq!(refused.outcome(), Outcome::NotApplied);
    }
    assert!(get(&replica, "k4").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_given_up_before_it_was_proposed_does_not_run() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let given_up = replica.propose(put("given up", "v"), None).now_or_never();
    assert!(given_up.is_none());
    replica.propose(put("later", "v"), None).await.unwrap();
    assert!(get(&replica, "given up").is_none() && get(&replica, "later").is_some());
}

#[tokio::test(start_paused = true)]
async fn keep_alives_that_wait_together_are_one_entry_and_keep_the_session() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let session = open_session(&replica, 9, Span::from_millis(500)).await;
    replica
        .propose(put_owned("mine", "v", None, Some(session)), None)
        .await
        .unwrap();
    let before = replica.status().entries_proposed;
    for _ in 0..10 {
        wait_virtually(Duration::from_millis(400)).await;
        for kept in join_all((0..5).map(|_| replica.keep_alive(session))).await {
            let (kept, time) = kept.unwrap();
            assert_eq!(
                kept,
                KeptAlive::Renewed {
                    session: session.id,
                    remaining: Some(Span::from_millis(500))
                }
            );
            assert!(time <= replica.stamp_now().unwrap());
        }
    }
    assert!(replica.status().entries_proposed - before <= 12);
    assert!(get(&replica, "mine").is_some());
    wait_virtually(Duration::from_millis(520)).await;
    assert!(get(&replica, "mine").is_none());
    let (kept, _) = replica.keep_alive(session).await.unwrap();
    assert!(matches!(kept, KeptAlive::Ended { .. }), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn only_one_of_many_wins_a_race() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let answers =
        join_all((0..200).map(|number| replica.propose(put_if_absent("one", &number.to_string()), None))).await;
    let won = answers
        .iter()
        .flatten()
        .filter(|answer| matches!(answer.response, tenure_core::response::Response::Done(_)));
    assert_eq!(won.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_the_shutdown_requests_are_refused_and_known_not_to_be_applied() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let answers = join_all((0..100).map(|number| replica.propose(put(&format!("k{number}"), "v"), None)));
    let (answers, ()) = tokio::join!(answers, replica.shutdown());
    assert!(answers.iter().all(Result::is_ok), "what was taken in is finished first");
    let refused = replica.propose(put("late", "v"), None).await.unwrap_err();
    assert!(matches!(refused, Unavailable::Stopped { proposed: false, .. }));
    assert_eq!(refused.outcome(), Outcome::NotApplied);
    assert!(replica.read_index().await.is_err());
    assert!(
        node.sink
            .all()
            .iter()
            .all(|(_, told)| !matches!(told, crate::world::Told::Stopped(_)))
    );
}
