//! Sessions: kept alive, lost in time and for good, and never kept alive beyond their handles.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use tenure_api::v1::{self, WireError};
use tenure_client::{EndCause, Error, ErrorCode, LostReason, Outcome, Session, SessionState};

use crate::fake::{Ask, Fate};
use crate::world::{Door, World, ms, wait_virtually};

/// Meets every keep-alive that comes within this time with the fate, and serves everything else.
fn keep_alives_meet(world: &World, from: Duration, to: Duration, fate: Fate) {
    world.cluster.fates(move |received| match received.body {
        Ask::KeepAlive(_) if received.at >= from && received.at < to => fate.clone(),
        _ => Fate::Served,
    });
}

const EVER: Duration = Duration::from_secs(1_000_000);

async fn open(world: &World, ttl_ms: u64) -> Session {
    world.client().open_session(ms(ttl_ms)).await.unwrap()
}

fn is_lost(session: &Session) -> bool {
    matches!(session.state(), SessionState::Lost { .. })
}

#[tokio::test(start_paused = true)]
async fn when_every_renewal_is_lost_the_holder_is_told_before_the_end_of_its_belief() {
    let world = World::new(1);
    keep_alives_meet(&world, Duration::ZERO, EVER, Fate::AnswerLost);
    let session = open(&world, 9_000).await;
    let opened = world.clock.elapsed();
    assert_eq!(session.lost().await, LostReason::Unconfirmed);
    let lost_after = world.clock.elapsed() - opened;
    assert!(lost_after <= ms(7_200) && lost_after >= ms(7_150), "{lost_after:?}");
    assert!(!session.is_valid());
    assert_eq!(session.remaining(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_does_not_keep_the_loss_from_being_told() {
    let world = World::new(1);
    let session = open(&world, 15_000).await;
    // The third renewal is at 7.5 s; everything after it vanishes without a word.
    keep_alives_meet(&world, ms(7_600), EVER, Fate::Lost);
    assert_eq!(session.lost().await, LostReason::Unconfirmed);
    let lost = world.clock.elapsed();
    assert!(lost <= ms(7_500 + 12_000) && lost >= ms(7_500 + 11_900), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn the_loss_is_told_though_no_connection_can_be_made() {
    let world = World::new(1);
    let session = open(&world, 9_000).await;
    world.network.door("node-1:1", Door::Silent);
    keep_alives_meet(&world, Duration::ZERO, EVER, Fate::AnswerBroken);
    assert_eq!(session.lost().await, LostReason::Unconfirmed);
    assert!(world.clock.elapsed() <= ms(7_200));
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_nothing_is_sent_for_the_session_and_another_lives() {
    let world = World::new(1);
    let client = world.client();
    let session = client.open_session(ms(1_000)).await.unwrap();
    keep_alives_meet(&world, Duration::ZERO, ms(2_000), Fate::AnswerLost);
    session.lost().await;
    wait_virtually(ms(2_500)).await;
    let sent = world.cluster.keep_alives().len();
    wait_virtually(ms(20_000)).await;
    assert_eq!(world.cluster.keep_alives().len(), sent);
    assert!(is_lost(&session), "it stays lost though the server would renew it");
    let fresh = client.open_session(ms(1_000)).await.unwrap();
    wait_virtually(ms(5_000)).await;
    assert!(fresh.is_valid());
    assert!(world.cluster.keep_alives().len() >= sent + 25);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_with_an_error_for_good_leaves_the_next_session_unharmed() {
    let world = World::new(1);
    let client = world.client();
    let first = client.open_session(ms(9_000)).await.unwrap();
    keep_alives_meet(&world, ms(1_000), ms(2_000), Fate::AnswerBroken);
    wait_virtually(ms(2_000)).await;
    let second = client.open_session(ms(9_000)).await.unwrap();
    wait_virtually(ms(60_000)).await;
    assert!(first.is_valid() && second.is_valid());
    assert_eq!(first.state(), SessionState::Live);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_never_looks_at_its_session_changes_nothing_about_its_renewals() {
    let world = World::new(1);
    let session = open(&world, 9_000).await;
    wait_virtually(ms(60_100)).await;
    assert_eq!(world.cluster.keep_alives().len(), 40, "one in a sixth of the TTL");
    assert!(session.is_valid());
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_for_four_seconds_of_ten_are_no_loss() {
    let world = World::new(1);
    let session = open(&world, 10_000).await;
    keep_alives_meet(
        &world,
        ms(3_100),
        ms(7_100),
        Fate::Error(WireError::unavailable("no leader")),
    );
    let lost = session.lost();
    tokio::select! {
        reason = lost => panic!("lost: {reason:?}"),
        () = wait_virtually(ms(60_000)) => {}
    }
    assert_eq!(session.state(), SessionState::Live);
    // The same session as ever: what it owns keeps its token.
    assert_eq!(world.cluster.state().sessions.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_left_for_the_next_endpoint_within_one_attempt() {
    let world = World::new(2);
    let client = world.builder(&["node-1:1", "node-2:1"]).build().unwrap();
    let session = client.open_session(ms(3_000)).await.unwrap();
    wait_virtually(ms(1_600)).await;
    world
        .cluster
        .fates(|received| if received.node == 1 { Fate::Lost } else { Fate::Served });
    wait_virtually(ms(1_000)).await;
    assert_eq!(session.state(), SessionState::Live);
    assert!(session.remaining() > ms(1_700), "{:?}", session.remaining());
    let on_second = world
        .cluster
        .received(|received| (received.node == 2 && matches!(received.body, Ask::KeepAlive(_))).then_some(received.at));
    assert!(on_second[0] <= ms(2_000 + 250 + 5), "{on_second:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_that_come_late_twice_or_for_an_earlier_attempt_count_from_their_own_sending() {
    let world = World::new(1);
    let session = open(&world, 6_000).await;
    // An answer takes longer than an attempt is waited for, so it always answers an earlier attempt.
    keep_alives_meet(&world, Duration::ZERO, EVER, Fate::Late(ms(700)));
    wait_virtually(ms(30_000)).await;
    assert!(session.is_valid());
    assert!(session.remaining() <= ms(4_800 - 700), "{:?}", session.remaining());
    keep_alives_meet(&world, Duration::ZERO, EVER, Fate::Twice);
    wait_virtually(ms(30_000)).await;
    assert_eq!(session.state(), SessionState::Live);
}

#[tokio::test(start_paused = true)]
async fn a_long_suspension_is_a_loss_at_the_next_look_and_is_told() {
    let world = World::new(1);
    let session = open(&world, 10_000).await;
    wait_virtually(ms(3_000)).await;
    let mut lost = Box::pin(session.lost());
    assert!(tokio::time::timeout(ms(0), &mut lost).await.is_err());
    world.clock.suspend(ms(60_000));
    wait_virtually(ms(5)).await;
    assert!(!session.is_valid());
    assert_eq!(lost.await, LostReason::Unconfirmed);
    assert!(world.clock.elapsed() < ms(3_010), "at once");
}

#[tokio::test(start_paused = true)]
async fn a_long_suspension_is_told_even_if_nobody_looks() {
    let world = World::new(1);
    let session = open(&world, 100_000).await;
    wait_virtually(ms(3_000)).await;
    let lost = session.lost();
    world.clock.suspend(ms(600_000));
    assert_eq!(lost.await, LostReason::Unconfirmed);
    assert!(world.clock.elapsed() <= ms(3_300), "{:?}", world.clock.elapsed());
}

#[tokio::test(start_paused = true)]
async fn after_a_short_suspension_the_session_is_not_valid_until_the_server_confirmed_it() {
    let world = World::new(1);
    let session = open(&world, 60_000).await;
    wait_virtually(ms(3_000)).await;
    world.clock.suspend(ms(5_000));
    assert!(!session.is_valid());
    assert_eq!(session.state(), SessionState::Suspect);
    let error = world
        .client()
        .cache("c")
        .put("k", "v")
        .owner(&session)
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        Error::SessionLost {
            outcome: Outcome::NotApplied,
            ..
        }
    ));
    wait_virtually(ms(300)).await;
    assert!(session.is_valid(), "it was confirmed as soon as the driver noticed");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_server_reports_is_a_loss_with_its_reason() {
    let world = World::new(1);
    let session = open(&world, 9_000).await;
    let end = v1::SessionEnd {
        reason: v1::EndReason::Forced.into(),
        revision: 777,
    };
    world
        .cluster
        .state()
        .sessions
        .values_mut()
        .for_each(|session| session.ended = Some(end));
    assert_eq!(
        session.lost().await,
        LostReason::Ended {
            cause: EndCause::Forced,
            revision: 777
        }
    );
    assert!(world.clock.elapsed() <= ms(1_510));
}

#[tokio::test(start_paused = true)]
async fn closing_ends_the_session_on_the_server_and_its_renewals_here() {
    let world = World::new(1);
    let session = open(&world, 3_000).await;
    let lost = session.lost();
    session.close().await.unwrap();
    assert_eq!(lost.await, LostReason::Closed);
    assert!(!session.is_valid());
    let sent = world.cluster.keep_alives().len();
    wait_virtually(ms(30_000)).await;
    assert_eq!(world.cluster.keep_alives().len(), sent);
    assert!(world.cluster.state().sessions[&session.id()].ended.is_some());
}

#[tokio::test(start_paused = true)]
async fn closing_is_tried_until_the_server_confirms_it() {
    let world = World::new(1);
    let session = open(&world, 20_000).await;
    world.cluster.fates(|received| match received.body {
        Ask::CloseSession(_) if received.at < ms(9_000) => Fate::Error(WireError::unavailable("no leader")),
        _ => Fate::Served,
    });
    session.close().await.unwrap();
    assert!(world.clock.elapsed() >= ms(9_000), "longer than one call may take");
}

#[tokio::test(start_paused = true)]
async fn closing_after_a_lost_answer_finds_the_session_closed() {
    let world = World::new(1);
    let session = open(&world, 20_000).await;
    let mut closes = 0;
    world.cluster.fates(move |received| match received.body {
        Ask::CloseSession(_) => {
            closes += 1;
            if closes == 1 { Fate::AnswerBroken } else { Fate::Served }
        }
        _ => Fate::Served,
    });
    session.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_stops_renewals_and_tells_the_server_if_it_can() {
    let world = World::new(1);
    let session = open(&world, 3_000).await;
    let (id, lost) = (session.id(), session.lost());
    let clone = session.clone();
    drop(session);
    wait_virtually(ms(6_000)).await;
    assert!(clone.is_valid(), "a clone is the same session");
    drop(clone);
    assert_eq!(lost.await, LostReason::Closed);
    wait_virtually(ms(100)).await;
    assert!(world.cluster.state().sessions[&id].ended.is_some());
    let sent = world.cluster.keep_alives().len();
    wait_virtually(ms(30_000)).await;
    assert_eq!(world.cluster.keep_alives().len(), sent);
}

#[tokio::test(start_paused = true)]
async fn opening_and_closing_over_and_over_leaves_no_renewal_behind() {
    let world = World::new(1);
    let client = world.client();
    for round in 0..2_000 {
        let session = client.open_session(ms(3_000)).await.unwrap();
        match round % 3 {
            0 => session.close().await.unwrap(),
            1 => drop(session),
            _ => drop(tokio::time::timeout(ms(round % 7), session.close()).await),
        }
    }
    wait_virtually(ms(100)).await;
    let sent = world.cluster.keep_alives().len();
    wait_virtually(ms(9_000)).await;
    assert_eq!(world.cluster.keep_alives().len(), sent);
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_is_dropped_at_any_moment_leaves_no_renewal_behind() {
    let world = World::new(1);
    let client = world.client();
    world.cluster.fates(|received| match received.body {
        Ask::OpenSession(_) => Fate::Late(ms(50)),
        _ => Fate::Served,
    });
    for patience in 0..60 {
        drop(tokio::time::timeout(ms(patience), client.open_session(ms(3_000)).detached()).await);
        drop(tokio::time::timeout(ms(patience), async { client.open_session(ms(3_000)).await }).await);
    }
    wait_virtually(ms(100)).await;
    let sent = world.cluster.keep_alives().len();
    wait_virtually(ms(9_000)).await;
    assert_eq!(world.cluster.keep_alives().len(), sent);
}

#[tokio::test(start_paused = true)]
async fn opening_after_a_lost_answer_finds_the_session_that_was_opened() {
    let world = World::new(1);
    let mut opens = 0;
    world.cluster.fates(move |received| match received.body {
        Ask::OpenSession(_) => {
            opens += 1;
            if opens == 1 { Fate::AnswerBroken } else { Fate::Served }
        }
        _ => Fate::Served,
    });
    let session = open(&world, 3_000).await;
    assert_eq!(world.cluster.state().sessions.len(), 1);
    assert!(session.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_session_is_imported_only_once_the_server_has_confirmed_it() {
    let world = World::new(1);
    let session = open(&world, 9_000).await;
    let text = session.export();
    let other = world.client();
    let imported = other.import_session(&text).await.unwrap();
    assert_eq!((imported.id(), imported.ttl()), (session.id(), ms(9_000)));
    assert!(imported.is_valid());
    session.close().await.unwrap();
    assert!(matches!(
        imported.lost().await,
        LostReason::Ended {
            cause: EndCause::Closed,
            ..
        }
    ));
    let error = other.import_session(&text).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::SessionExpired);
    let forged = format!("{}:{}", session.id(), "00".repeat(16));
    assert_eq!(
        other.import_session(&forged).await.unwrap_err().code(),
        ErrorCode::SessionUnknown
    );
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_answer_comes_after_the_session_was_lost_is_not_held() {
    let world = World::new(1);
    let client = world.client().with_timeout(ms(60_000));
    let session = client.open_session(ms(5_000)).await.unwrap();
    world.cluster.fates(|received| match received.body {
        Ask::Put(_) => Fate::Late(ms(20_000)),
        Ask::KeepAlive(_) => Fate::Lost,
        _ => Fate::Served,
    });
    let error = client
        .cache("c")
        .put("lock", "me")
        .if_absent()
        .owner(&session)
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::SessionLost {
                outcome: Outcome::Unknown,
                ..
            }
        ),
        "{error:?}"
    );
    let again = client.cache("c").put("lock", "me").owner(&session).await.unwrap_err();
    assert!(
        matches!(
            again,
            Error::SessionLost {
                outcome: Outcome::NotApplied,
                ..
            }
        ),
        "{again:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_for_an_owner_that_the_server_ended_is_not_applied() {
    let world = World::new(1);
    let client = world.client();
    let opened = client.open_session(ms(5_000)).detached().await.unwrap();
    let end = v1::SessionEnd {
        reason: v1::EndReason::Expired.into(),
        revision: 5,
    };
    world
        .cluster
        .state()
        .sessions
        .values_mut()
        .for_each(|session| session.ended = Some(end));
    let error = client.cache("c").put("k", "v").owner(&opened.key).await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::SessionExpired, Outcome::NotApplied)
    );
    assert_eq!(world.cluster.state().runs, 0);
}

#[tokio::test(start_paused = true)]
async fn many_sessions_share_messages_and_all_live() {
    let world = World::new(1);
    let client = world.client();
    let opening = (0..500).map(|_| client.open_session(ms(6_000)).into_future());
    let sessions: Vec<_> = futures_util::future::join_all(opening).await;
    wait_virtually(ms(60_000)).await;
    assert!(sessions.iter().all(|session| session.as_ref().unwrap().is_valid()));
    let messages = world.cluster.keep_alives().len();
    assert!(messages < 200, "{messages} messages for 500 sessions over 60 s");
}

#[tokio::test(start_paused = true)]
async fn a_session_outlives_the_client_that_opened_it_and_no_longer_than_its_handle() {
    let world = World::new(1);
    let session = world.client().open_session(ms(3_000)).await.unwrap();
    let shared = Arc::strong_count(&world.cluster);
    wait_virtually(ms(10_000)).await;
    assert!(session.is_valid());
    drop(session);
    wait_virtually(ms(2_000)).await;
    assert!(
        Arc::strong_count(&world.cluster) < shared,
        "the client's connections have gone"
    );
}
