//! A call over its attempts: what is sent again, where, under which identity, and what is known in the end.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tenure_api::v1::{self, WireError, request_id};
use tenure_client::{Error, ErrorCode, Outcome, RequestMode, Verdict};

use crate::fake::{Ask, Cluster, Fate, HOME, Received};
use crate::world::{Door, World, ms, wait_virtually};

/// Meets the first so many puts with these fates and serves everything else.
fn puts_meet(cluster: &Cluster, fates: impl IntoIterator<Item = Fate>) {
    let mut fates: std::collections::VecDeque<Fate> = fates.into_iter().collect();
    cluster.fates(move |received| match received.body {
        Ask::Put(_) => fates.pop_front().unwrap_or(Fate::Served),
        _ => Fate::Served,
    });
}

fn every_put_meets(cluster: &Cluster, fate: Fate) {
    cluster.fates(move |received| match received.body {
        Ask::Put(_) => fate.clone(),
        _ => Fate::Served,
    });
}

fn puts(received: &Received) -> Option<(u64, v1::PutRequest)> {
    match &received.body {
        Ask::Put(put) => Some((received.node, put.clone())),
        _ => None,
    }
}

fn numbers(cluster: &Cluster) -> Vec<u64> {
    let number = |received: &Received| match &puts(received)?.1.request.as_ref()?.kind {
        Some(request_id::Kind::Session(numbered)) => Some(numbered.seq),
        _ => None,
    };
    cluster.received(number)
}

fn acknowledged_below(cluster: &Cluster) -> Vec<u64> {
    cluster.received(|received| match &received.body {
        Ask::Acknowledge(request) => Some(request.below),
        _ => None,
    })
}

/// Meets the first so many touches with these fates and serves everything else.
fn touches_meet(cluster: &Cluster, fates: impl IntoIterator<Item = Fate>) {
    let mut fates: std::collections::VecDeque<Fate> = fates.into_iter().collect();
    cluster.fates(move |received| match received.body {
        Ask::Touch(_) => fates.pop_front().unwrap_or(Fate::Served),
        _ => Fate::Served,
    });
}

fn touches(cluster: &Cluster) -> Vec<v1::TouchRequest> {
    cluster.received(|received| match &received.body {
        Ask::Touch(touch) => Some(touch.clone()),
        _ => None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_put_is_done_once_and_read_back() {
    let world = World::new(1);
    let cache = world.client().cache("leases");
    let written = cache
        .put("reconcile", "me")
        .if_absent()
        .ttl(ms(10_000))
        .await
        .unwrap()
        .done()
        .unwrap();
    assert_eq!(written.version, written.token());
    assert!(!written.repeated);
    assert_eq!(written.remaining, Some(ms(10_000)));
    let deadline = written.deadline.unwrap();
    assert!(
        deadline.remaining() <= ms(8_000),
        "0.8 of what the server said is believed"
    );
    wait_virtually(ms(8_001)).await;
    assert!(deadline.has_passed());
    let entry = cache.get("reconcile").await.unwrap().expect("it was written");
    assert_eq!(entry.value, Bytes::from_static(b"me"));
    assert!(cache.get("nothing").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_answer_that_says_what_stood_in_the_way() {
    let world = World::new(1);
    let cache = world.client().cache("leases");
    let _ = cache.put("k", "mine").await.unwrap();
    let verdict = cache.put("k", "yours").if_absent().await.unwrap();
    let refusal = verdict.refusal().expect("the key is there");
    assert_eq!(refusal.code(), ErrorCode::ConditionFailed);
    let version = refusal.key().unwrap().version;
    assert_eq!(
        refusal.to_string(),
        format!("version {version}, held by s-9, 812 ms left")
    );
    let error = verdict.done().unwrap_err();
    assert_eq!((error.outcome(), error.exit_code()), (Outcome::Refused, 4));
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_answer_the_same_number_is_asked_again_and_the_write_runs_once() {
    let world = World::new(1);
    puts_meet(&world.cluster, [Fate::AnswerLost]);
    let written = world
        .client()
        .cache("c")
        .put("k", "v")
        .if_absent()
        .await
        .unwrap()
        .done()
        .unwrap();
    assert!(written.repeated);
    assert_eq!(world.cluster.state().runs, 1);
    assert_eq!(numbers(&world.cluster), [1, 1]);
    assert!(
        world.clock.elapsed() >= ms(1_250) && world.clock.elapsed() < ms(1_500),
        "after a quarter of the time"
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_broken_stream_the_same_number_is_asked_again_on_a_new_one() {
    let world = World::new(1);
    puts_meet(&world.cluster, [Fate::AnswerBroken, Fate::AnswerBroken]);
    let written = world
        .client()
        .cache("c")
        .put("k", "v")
        .if_absent()
        .await
        .unwrap()
        .done()
        .unwrap();
    assert!(written.repeated);
    assert_eq!(world.cluster.state().runs, 1);
    assert_eq!(world.network.connections("node-1:1"), 3);
    assert!(world.clock.elapsed() < ms(500), "a break is known at once");
}

#[tokio::test(start_paused = true)]
async fn an_error_whose_outcome_is_unknown_is_followed_by_the_same_number() {
    let world = World::new(1);
    puts_meet(
        &world.cluster,
        [
            Fate::Error(WireError::quorum_timeout()),
            Fate::Error(WireError::leadership_lost()),
        ],
    );
    let written = world.client().cache("c").put("k", "v").await.unwrap().done().unwrap();
    assert!(!written.repeated);
    assert_eq!(numbers(&world.cluster), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn without_an_identity_a_broken_stream_leaves_the_outcome_unknown_and_nothing_is_sent_twice() {
    let world = World::new(1);
    puts_meet(&world.cluster, [Fate::AnswerBroken]);
    let client = world
        .builder(&["node-1:1"])
        .request_mode(RequestMode::Anonymous)
        .build()
        .unwrap();
    let error = client.cache("c").put("k", "v").await.unwrap_err();
    assert_eq!((error.outcome(), error.exit_code()), (Outcome::Unknown, 6));
    assert_eq!(world.cluster.received(puts).len(), 1);
    assert!(world.cluster.received(puts)[0].1.request.is_none());
}

#[tokio::test(start_paused = true)]
async fn without_an_identity_what_was_not_applied_is_tried_again() {
    let world = World::new(1);
    puts_meet(
        &world.cluster,
        [Fate::Error(WireError::overloaded("proposals", 300_000))],
    );
    let client = world
        .builder(&["node-1:1"])
        .request_mode(RequestMode::Anonymous)
        .build()
        .unwrap();
    let _ = client.cache("c").put("k", "v").await.unwrap().done().unwrap();
    assert!(world.clock.elapsed() >= ms(300), "not before the node said");
}

#[tokio::test(start_paused = true)]
async fn a_touch_that_is_refused_after_an_attempt_without_an_answer_is_unknown() {
    for lost in [Fate::AnswerBroken, Fate::AnswerLost] {
        let world = World::new(1);
        let cache = world.client().cache("c");
        let version = cache.put("k", "v").await.unwrap().done().unwrap().version;
        touches_meet(&world.cluster, [lost]);
        let touching = async { cache.touch("k", ms(10_000)).if_version(version).await };
        let overwriting = async {
            while touches(&world.cluster).is_empty() {
                wait_virtually(ms(1)).await;
            }
            cache.put("k", "w").await.unwrap().done().unwrap()
        };
        let (touched, _) = tokio::join!(touching, overwriting);
        let error = touched.unwrap_err();
        assert_eq!((error.outcome(), error.exit_code()), (Outcome::Unknown, 6));
        assert_eq!(touches(&world.cluster).len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_touch_that_is_refused_beside_a_late_refusal_is_refused() {
    let world = World::new(1);
    let cache = world.client().cache("c");
    let _ = cache.put("k", "v").await.unwrap();
    touches_meet(&world.cluster, [Fate::Late(ms(2_000))]);
    let verdict = cache.touch("k", ms(10_000)).if_version(1).await.unwrap();
    assert!(verdict.refusal().is_some());
    assert_eq!(touches(&world.cluster).len(), 2);
    assert!(
        world.clock.elapsed() >= ms(2_000),
        "it is known once both attempts are answered"
    );
}

#[tokio::test(start_paused = true)]
async fn a_touch_is_sent_again_without_an_identity_in_every_mode() {
    for mode in [RequestMode::Numbered, RequestMode::OneShot, RequestMode::Anonymous] {
        let world = World::new(1);
        let client = world.builder(&["node-1:1"]).request_mode(mode).build().unwrap();
        let cache = client.cache("c");
        let _ = cache.put("k", "v").await.unwrap();
        touches_meet(&world.cluster, [Fate::AnswerBroken]);
        let _ = cache.touch("k", ms(10_000)).await.unwrap().done().unwrap();
        let touches = touches(&world.cluster);
        assert_eq!(touches.len(), 2, "{mode:?}");
        assert!(touches.iter().all(|touch| touch.request.is_none()), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_unknown_of_the_preparation_of_a_call_is_not_unknown_of_the_call() {
    let fates = [Fate::Lost, Fate::AnswerBroken, Fate::Error(WireError::quorum_timeout())];
    for fate in fates {
        let world = World::new(1);
        let (session, hello) = (fate.clone(), fate.clone());
        world.cluster.fates(move |received| match received.body {
            Ask::OpenSession(_) => session.clone(),
            _ => Fate::Served,
        });
        let error = world.client().cache("c").put("k", "v").await.unwrap_err();
        assert_eq!(
            (error.outcome(), error.exit_code()),
            (Outcome::NotApplied, 3),
            "{error:?}"
        );
        assert_ne!(error.code(), ErrorCode::Overloaded, "{error:?}");
        assert!(world.cluster.received(puts).is_empty());

        let world = World::new(1);
        world.cluster.fates(move |received| match received.body {
            Ask::Hello(_) => hello.clone(),
            _ => Fate::Served,
        });
        let client = world.client().namespace("acme", "prod");
        let error = client.create_cache("c").await.unwrap_err();
        assert_eq!(
            (error.outcome(), error.exit_code()),
            (Outcome::NotApplied, 3),
            "{error:?}"
        );
        let error = client.open_session(ms(10_000)).detached().await.unwrap_err();
        assert_eq!(
            (error.outcome(), error.exit_code()),
            (Outcome::NotApplied, 3),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_identity_cannot_be_opened_many_calls_are_told_why_and_none_that_the_client_is_busy() {
    let world = World::new(1);
    let client = world.client();
    client.hello().await.unwrap();
    world.cluster.fates(|received| match received.body {
        Ask::OpenSession(_) => Fate::Error(WireError::unavailable("no leader")),
        _ => Fate::Served,
    });
    let cache = client.cache("c");
    for result in join_all((0..20).map(|_| async { cache.put("k", "v").await })).await {
        let error = result.unwrap_err();
        assert_eq!(error.outcome(), Outcome::NotApplied);
        assert!(!matches!(error, Error::Busy { .. }), "{error:?}");
    }
    assert_eq!(world.clock.elapsed().as_millis(), 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_one_shot_request_keeps_its_id_over_its_attempts_and_is_dated_by_the_group() {
    let world = World::new(1);
    puts_meet(&world.cluster, [Fate::AnswerBroken]);
    let client = world
        .builder(&["node-1:1"])
        .request_mode(RequestMode::OneShot)
        .build()
        .unwrap();
    client.hello().await.unwrap();
    wait_virtually(ms(7_000)).await;
    let now_us = world.cluster.time_us();
    let written = client.cache("c").put("k", "v").await.unwrap().done().unwrap();
    assert!(written.repeated);
    let ids = world
        .cluster
        .received(|received| match puts(received)?.1.request?.kind? {
            request_id::Kind::OneShot(one_shot) => Some(one_shot),
            request_id::Kind::Session(_) => None,
        });
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0].not_after_us, now_us + 60_000_000);
    assert!(world.cluster.state().sessions.is_empty(), "no session is opened for it");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_attempt_followed_by_refusals_to_serve_stays_unknown() {
    let world = World::new(1);
    let mut attempts = 0;
    world.cluster.fates(move |received| match received.body {
        Ask::Put(_) => {
            attempts += 1;
            if attempts == 1 {
                Fate::AnswerBroken
            } else {
                Fate::Error(WireError::overloaded("proposals", 100_000))
            }
        }
        _ => Fate::Served,
    });
    let error = world.client().cache("c").put("k", "v").await.unwrap_err();
    assert_eq!((error.outcome(), error.exit_code()), (Outcome::Unknown, 6));
    assert_ne!(
        error.code(),
        ErrorCode::Overloaded,
        "the code is that of the worst attempt"
    );
    assert!(numbers(&world.cluster).iter().all(|number| *number == 1));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_only_refuses_to_serve_leaves_nothing_applied() {
    let world = World::new(1);
    every_put_meets(&world.cluster, Fate::Error(WireError::unavailable("no leader")));
    let error = world.client().cache("c").put("k", "v").await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome(), error.exit_code()),
        (ErrorCode::Unavailable, Outcome::NotApplied, 3)
    );
    assert!(
        world.clock.elapsed() >= ms(5_000),
        "it was tried for as long as there was time"
    );
    assert!(
        world.cluster.received(puts).len() < 40,
        "with pauses between the attempts"
    );
}

#[tokio::test(start_paused = true)]
async fn what_trying_again_cannot_help_is_answered_at_once() {
    let world = World::new(1);
    every_put_meets(&world.cluster, Fate::Error(WireError::not_found("cache", "c")));
    let error = world.client().cache("c").put("k", "v").await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome(), error.exit_code()),
        (ErrorCode::NotFound, Outcome::NotApplied, 5)
    );
    assert_eq!(world.cluster.received(puts).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_is_unknown_and_is_acknowledged_so_that_a_late_copy_runs_nowhere() {
    let world = World::new(1);
    every_put_meets(&world.cluster, Fate::Lost);
    let client = world.client();
    let error = client.cache("c").put("k", "v").await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::QuorumTimeout, Outcome::Unknown)
    );
    assert_eq!(world.clock.elapsed().as_millis(), 5_000);
    wait_virtually(ms(10)).await;
    assert_eq!(acknowledged_below(&world.cluster), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_future_is_dropped_is_acknowledged_at_once_so_that_a_late_copy_runs_nowhere() {
    let world = World::new(1);
    let cache = world.client().cache("c");
    every_put_meets(&world.cluster, Fate::Lost);
    let gave_up = tokio::time::timeout(ms(100), async { cache.put("a", "v").await }).await;
    assert!(gave_up.is_err());
    wait_virtually(ms(10)).await;
    assert_eq!(acknowledged_below(&world.cluster), [2]);
    let cancels = world
        .cluster
        .received(|received| matches!(received.body, Ask::Cancel(_)).then_some(()));
    assert!(cancels.is_empty(), "a node stops watches, not requests");
}

#[tokio::test(start_paused = true)]
async fn calls_dropped_while_an_acknowledgement_is_on_its_way_are_acknowledged_after_it() {
    let world = World::new(1);
    let cache = world.client().cache("c");
    world.cluster.fates(|received| match received.body {
        Ask::Put(_) => Fate::Lost,
        Ask::Acknowledge(_) => Fate::Late(ms(50)),
        _ => Fate::Served,
    });
    let give_up = |time| {
        let put = cache.put("a", "v");
        async move { assert!(tokio::time::timeout(time, async { put.await }).await.is_err()) }
    };
    tokio::join!(give_up(ms(100)), give_up(ms(110)), give_up(ms(120)), give_up(ms(130)));
    wait_virtually(ms(200)).await;
    let below = acknowledged_below(&world.cluster);
    assert_eq!((below.len(), below.last()), (2, Some(&5)), "one on its way at a time");
}

#[tokio::test(start_paused = true)]
async fn a_read_without_an_answer_has_no_effect_to_be_unsure_of() {
    let world = World::new(1);
    world.cluster.fates(|received| {
        if matches!(received.body, Ask::Get(_)) {
            Fate::Lost
        } else {
            Fate::Served
        }
    });
    let error = world.client().cache("c").get("k").await.unwrap_err();
    assert_eq!((error.outcome(), error.exit_code()), (Outcome::NotApplied, 3));
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_moves_on_to_the_next_endpoint_at_once() {
    let world = World::new(2);
    world.network.door("node-1:1", Door::Refuses);
    let client = world.builder(&["nowhere:1", "node-1:1", "node-2:1"]).build().unwrap();
    client.status().await.unwrap();
    assert!(world.clock.elapsed() < ms(5));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_does_not_answer_is_tried_beside_the_next_after_a_quarter_of_the_time() {
    let world = World::new(2);
    world.network.door("node-1:1", Door::Silent);
    let client = world.builder(&["node-1:1", "node-2:1"]).build().unwrap();
    client.status().await.unwrap();
    assert_eq!(world.clock.elapsed().as_millis(), 1_250);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_answering_is_asked_beside_the_next_and_the_write_runs_once() {
    let world = World::new(2);
    world.cluster.fates(|received| match received.body {
        Ask::Put(_) if received.node == 1 => Fate::AnswerLost,
        _ => Fate::Served,
    });
    let client = world.builder(&["node-1:1", "node-2:1"]).build().unwrap();
    let written = client.cache("c").put("k", "v").await.unwrap().done().unwrap();
    assert!(written.repeated);
    assert_eq!(world.cluster.state().runs, 1);
    let nodes: Vec<u64> = world.cluster.received(puts).into_iter().map(|(node, _)| node).collect();
    assert_eq!(nodes, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn where_nobody_ever_listened_a_call_ends_soon_and_nothing_was_applied() {
    let world = World::new(0);
    let client = world.builder(&["nowhere:1", "elsewhere:1"]).build().unwrap();
    let error = client.cache("c").put("k", "v").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_eq!((error.outcome(), error.exit_code()), (Outcome::NotApplied, 3));
    let first = world.clock.elapsed();
    assert!(first < ms(500), "{first:?}");
    // The next one does not trust what the first found, and so may wait for the endpoints' backoff.
    client.cache("c").put("k", "v").await.unwrap_err();
    let second = world.clock.elapsed() - first;
    assert!(second < ms(1_000), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_its_node_finds_it_in_the_time_of_a_call() {
    let world = World::new(0);
    let client = world.builder(&["node-1:1"]).wait_for_node(true).build().unwrap();
    let late = async {
        wait_virtually(ms(3_000)).await;
        world.network.start("node-1:1", 1, &world.cluster);
    };
    let (written, ()) = tokio::join!(client.cache("c").put("k", "v").into_future(), late);
    assert!(written.unwrap().is_done());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_met_its_node_finds_it_again_soon_after_it_is_back() {
    let world = World::new(1);
    let client = world.client();
    let cache = client.cache("c");
    let _ = cache.put("k", "v").await.unwrap();
    world.network.door("node-1:1", Door::Refuses);
    every_put_meets(&world.cluster, Fate::AnswerBroken);
    cache.put("k", "w").await.unwrap_err();
    every_put_meets(&world.cluster, Fate::Served);
    let begun = world.clock.elapsed();
    let back = async {
        wait_virtually(ms(4_000)).await;
        world.network.door("node-1:1", Door::Open);
    };
    let (written, ()) = tokio::join!(cache.put("k", "x").into_future(), back);
    assert!(written.unwrap().is_done());
    // The call and the connection do not both wait for a backoff of their own.
    let found = world.clock.elapsed() - begun;
    assert!(found <= ms(5_000), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn when_no_endpoint_can_be_reached_nothing_was_applied() {
    let world = World::new(0);
    let client = world
        .builder(&["nowhere:1", "elsewhere:1"])
        .timeout(ms(700))
        .wait_for_node(true)
        .build()
        .unwrap();
    let error = client.cache("c").put("k", "v").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_eq!((error.outcome(), error.exit_code()), (Outcome::NotApplied, 3));
    assert_eq!(world.clock.elapsed().as_millis(), 700);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_meets_another_cluster_says_so_and_never_goes_on_there() {
    let world = World::new(1);
    let client = world.client();
    let _ = client.cache("c").put("k", "v").await.unwrap();
    let other = Cluster::new(Arc::clone(&world.clock));
    other.state().id = Bytes::from_static(&[8; 16]);
    // The first node's stream breaks, and another cluster has taken its address.
    every_put_meets(&world.cluster, Fate::AnswerBroken);
    world.network.start("node-1:1", 1, &other);
    let first = client.cache("c").put("k", "w").await.unwrap_err();
    assert_eq!(
        first.outcome(),
        Outcome::Unknown,
        "the attempt that broke may have been applied"
    );
    wait_virtually(ms(2_000)).await;
    let second = client.cache("c").put("k", "w").await.unwrap_err();
    assert!(matches!(second, Error::WrongCluster { .. }), "{second:?}");
    assert_eq!((second.code(), second.exit_code()), (ErrorCode::WrongCluster, 2));
    assert_eq!(other.state().runs, 0);
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_the_server_ended_is_replaced_and_the_call_goes_on() {
    let world = World::new(1);
    let client = world.client();
    let _ = client.cache("c").put("a", "v").await.unwrap();
    let end = v1::SessionEnd {
        reason: v1::EndReason::Forced.into(),
        revision: 1,
    };
    world
        .cluster
        .state()
        .sessions
        .values_mut()
        .for_each(|session| session.ended = Some(end));
    let _ = client.cache("c").put("b", "v").await.unwrap().done().unwrap();
    assert_eq!(world.cluster.state().sessions.len(), 2);
    assert_eq!(world.cluster.state().runs, 2);
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_was_idle_for_long_is_replaced_before_the_server_has_forgotten_it() {
    let world = World::new(1);
    let client = world.client();
    let _ = client.cache("c").put("a", "v").await.unwrap();
    world.clock.suspend(Duration::from_secs(31 * 60));
    let _ = client.cache("c").put("b", "v").await.unwrap();
    assert_eq!(world.cluster.state().sessions.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn many_writers_at_once_stay_within_the_window_and_each_write_runs_once() {
    let world = World::new(1);
    let mut count = 0_u64;
    world.cluster.fates(move |received| match received.body {
        Ask::Put(_) => {
            count += 1;
            match count % 17 {
                0 => Fate::AnswerLost,
                3 => Fate::Twice,
                5 => Fate::Late(ms(40)),
                _ => Fate::Served,
            }
        }
        _ => Fate::Served,
    });
    let cache = world.client().cache("c");
    let writes = (0..3_000).map(|number| {
        let cache = cache.clone();
        async move { cache.put(format!("k{number}"), "v").if_absent().await }
    });
    for verdict in join_all(writes).await {
        assert!(verdict.unwrap().is_done());
    }
    assert_eq!(world.cluster.state().runs, 3_000);
    let kept = world.cluster.state().results_kept_max;
    assert!(kept <= 1_024, "{kept} results were kept at once");
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_does_not_hold_up_those_behind_it() {
    let world = World::new(1);
    let cache = world.client().cache("c");
    puts_meet(&world.cluster, [Fate::Late(ms(1_000))]);
    let slow = async {
        let _ = cache.put("slow", "v").await.unwrap();
        world.clock.elapsed()
    };
    let quick = async {
        wait_virtually(ms(10)).await;
        cache.get("other").await.unwrap();
        world.clock.elapsed()
    };
    let (slow, quick) = tokio::join!(slow, quick);
    assert!(quick < ms(20) && slow >= ms(1_000), "{quick:?} {slow:?}");
}

#[tokio::test(start_paused = true)]
async fn only_what_creates_brings_a_namespace_into_being() {
    let world = World::new(1);
    let client = world.client().namespace("acme", "prod");
    let error = client.cache("c").put("k", "v").await.unwrap_err();
    assert_eq!((error.code(), error.exit_code()), (ErrorCode::NotFound, 5));
    assert!(
        !world
            .cluster
            .state()
            .namespaces
            .contains(&("acme".to_owned(), "prod".to_owned()))
    );
    let created = client.create_cache("c").await.unwrap().done().unwrap();
    assert_eq!(created.info.name, "c");
    assert!(
        world
            .cluster
            .state()
            .namespaces
            .contains(&("acme".to_owned(), "prod".to_owned()))
    );
    assert!(matches!(
        client.cache("c").put("k", "v").await.unwrap(),
        Verdict::Done(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_stale_read_asks_for_nothing_older_than_what_this_client_has_seen() {
    let world = World::new(1);
    let cache = world.client().cache("c");
    let written = cache.put("k", "v").await.unwrap().done().unwrap();
    cache.get("k").stale().await.unwrap();
    cache.get("k").await.unwrap();
    let wishes = world.cluster.received(|received| match &received.body {
        Ask::Get(get) => Some((get.stale, get.min_revision)),
        _ => None,
    });
    assert_eq!(wishes, [(true, written.version), (false, 0)]);
    let read = cache.get("k").with_revision().await.unwrap();
    assert_eq!((read.group, read.revision), (HOME, written.version));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_group_does_not_say_where_a_namespace_lives() {
    for name in ["default", "other"] {
        let world = World::new(1);
        let scope = ("default".to_owned(), name.to_owned());
        world.cluster.state().namespaces.insert(scope);
        world.cluster.state().answering = 0;
        let client = world.client().namespace("default", name);
        client.cache("c").get("k").await.unwrap();
        world.cluster.state().answering = HOME;
        let key = client.open_session(ms(10_000)).detached().await.unwrap().key;
        client.renew_session(&key).await.unwrap();
        let groups = world.cluster.received(|received| match &received.body {
            Ask::KeepAlive(request) => Some(request.sessions[0].group),
            _ => None,
        });
        assert_eq!(groups, [HOME], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_read_of_a_client_that_has_only_read_asks_for_nothing_older_than_it_has_seen() {
    for name in ["default", "other"] {
        let world = World::new(1);
        let scope = ("default".to_owned(), name.to_owned());
        world.cluster.state().namespaces.insert(scope);
        let cache = world.client().namespace("default", name).cache("c");
        let seen = cache.get("k").with_revision().await.unwrap().revision;
        cache.get("k").stale().await.unwrap();
        cache.list().stale().await.unwrap();
        let wishes = world.cluster.received(|received| match &received.body {
            Ask::Get(get) => Some(get.min_revision),
            Ask::List(list) => Some(list.min_revision),
            _ => None,
        });
        assert_eq!(wishes, [0, seen, seen], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_read_page_by_page_within_its_limit() {
    let world = World::new(1);
    for number in 0..2_500 {
        let key = Bytes::from(format!("k{number:05}"));
        world.cluster.state().keys.insert(key, (Bytes::new(), 1, 1));
    }
    let cache = world.client().cache("c");
    assert_eq!(cache.list().await.unwrap().len(), 2_500);
    assert_eq!(cache.list().limit(1_200).await.unwrap().len(), 1_200);
    assert_eq!(cache.list().prefix("k0200").await.unwrap().len(), 10);
    let page = cache.list().limit(3).page().await.unwrap().value;
    assert!(page.more);
    assert_eq!(page.entries[2].key, Bytes::from_static(b"k00002"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_too_large_for_the_wire_is_not_sent_and_harms_no_other() {
    let world = World::new(1);
    let cache = world.client().cache("c");
    let _ = cache.put("k", "v").await.unwrap();
    let error = cache.put("k", vec![0; 5 << 20]).await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::Invalid, Outcome::NotApplied)
    );
    let _ = cache.put("k", vec![0; 1 << 20]).await.unwrap().done().unwrap();
    assert_eq!(world.network.connections("node-1:1"), 1);
}

#[tokio::test]
async fn endpoints_that_are_none_are_refused_before_anything_is_sent() {
    let world = World::new(1);
    for endpoints in [&[][..], &["localhost"], &["http://x:1"], &["a b:1"]] {
        let error = world.builder(endpoints).build().unwrap_err();
        assert_eq!(
            (error.code(), error.exit_code()),
            (ErrorCode::Invalid, 2),
            "{endpoints:?}"
        );
    }
}
