//! Transactions: one branch, all or nothing, once.

use bytes::Bytes;
use tenure_api::v1::WireError;
use tenure_client::{
    Client, ErrorCode, Guard, Operation, OperationResult, Outcome, Refusal, RequestMode, TxnGuard, Verdict,
};

use crate::counters::meets;
use crate::fake::{Ask, Fate};
use crate::world::{World, ms};

async fn objects(world: &World) -> Client {
    let client = world.client();
    create(world, &client).await;
    client
}

async fn create(world: &World, client: &Client) {
    world.cluster.state().objects.lenient = false;
    client.create_cache("c").await.unwrap().done().unwrap();
    client.stream("s").create().await.unwrap().done().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_branch_is_done_as_a_whole_at_one_revision_and_each_operation_sees_those_before_it() {
    let world = World::new(1);
    let client = objects(&world).await;
    let outcome = client
        .txn()
        .when(TxnGuard::key("c", "order", Guard::Absent))
        .when(TxnGuard::counter("c", "stock", ..=0))
        .when(TxnGuard::stream_tail("s", 0))
        .when(TxnGuard::session_alive(7))
        .then(Operation::put("c", "order", "one").ttl(ms(5_000)))
        .then(Operation::get("c", "order"))
        .then(Operation::add("c", "stock", -1))
        .then(
            Operation::append("s", ["a", "b"])
                .if_offset(0)
                .fence_token(3)
                .message_id("m"),
        )
        .then(Operation::delete("c", "nothing"))
        .await
        .unwrap()
        .done()
        .unwrap();
    assert!(outcome.applied);
    assert_eq!((outcome.failed_guard, outcome.repeated), (None, false));
    let revision = outcome.revision.unwrap();
    match outcome.results.as_slice() {
        [
            OperationResult::Put { version, created },
            OperationResult::Got(Some(entry)),
            OperationResult::Added { sum: -1, .. },
            OperationResult::Appended(appended),
            OperationResult::Deleted { removed: None },
        ] => {
            assert_eq!((*version, *created, entry.version), (revision, revision, revision));
            assert_eq!(entry.value, Bytes::from_static(b"one"));
            assert_eq!((appended.first, appended.count), (0, 2));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_does_not_hold_is_an_answer_with_the_results_of_the_other_branch() {
    let world = World::new(1);
    let client = objects(&world).await;
    let _ = client.cache("c").put("order", "one").await.unwrap();
    let outcome = client
        .txn()
        .when(TxnGuard::stream_tail("s", 0))
        .when(TxnGuard::key("c", "order", Guard::Absent))
        .then(Operation::put("c", "order", "two"))
        .otherwise(Operation::get("c", "order"))
        .await
        .unwrap()
        .done()
        .unwrap();
    assert_eq!((outcome.applied, outcome.failed_guard), (false, Some(1)));
    assert!(matches!(outcome.results.as_slice(), [OperationResult::Got(Some(entry))] if entry.value == "one"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_append_refuses_the_whole_transaction() {
    let world = World::new(1);
    let client = objects(&world).await;
    client.stream("s").seal(9).await.unwrap().done().unwrap();
    let verdict = client
        .txn()
        .then(Operation::put("c", "k", "v"))
        .then(Operation::append("s", ["x"]).fence_token(8))
        .await
        .unwrap();
    assert!(
        matches!(verdict, Verdict::Refused(Refusal::StaleToken { current: 9 })),
        "{verdict:?}"
    );
    assert!(client.cache("c").get("k").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_transaction_whose_answer_is_lost_runs_once() {
    for mode in [RequestMode::Numbered, RequestMode::OneShot, RequestMode::Anonymous] {
        let world = World::new(1);
        let client = world.builder(&["node-1:1"]).request_mode(mode).build().unwrap();
        create(&world, &client).await;
        meets(&world.cluster, |ask| matches!(ask, Ask::Txn(_)), [Fate::AnswerBroken]);
        let result = client.txn().then(Operation::add("c", "k", 1)).await;
        if mode == RequestMode::Anonymous {
            assert_eq!(result.unwrap_err().outcome(), Outcome::Unknown);
        } else {
            assert!(result.unwrap().done().unwrap().repeated, "{mode:?}");
        }
        assert_eq!(client.cache("c").counter("k").await.unwrap(), Some(1), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_may_have_run_makes_a_transaction_unknown_whatever_is_said_after_it() {
    let world = World::new(1);
    let client = objects(&world).await;
    let invalid = Fate::Error(WireError::invalid("then", "a test"));
    meets(
        &world.cluster,
        |ask| matches!(ask, Ask::Txn(_)),
        [Fate::AnswerBroken, invalid],
    );
    let error = client.txn().then(Operation::add("c", "k", 1)).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_lost_session_is_not_sent() {
    let world = World::new(1);
    let client = objects(&world).await;
    let session = client.open_session(ms(10_000)).await.unwrap();
    world.clock.suspend(ms(60_000));
    let error = client
        .txn()
        .then(Operation::put("c", "k", "v").owner(&session))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::SessionExpired, Outcome::NotApplied)
    );
    let sent = world
        .cluster
        .received(|received| matches!(received.body, Ask::Txn(_)).then_some(()));
    assert!(sent.is_empty());
}
