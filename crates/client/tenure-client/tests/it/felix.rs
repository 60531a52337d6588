//! The drop-in shape: the result table row by row, what comes into being by itself, watches, and the queue.

use std::sync::Arc;

use bytes::Bytes;
use tenure_api::v1::watch_event::{Changes, Event, Started, StateChunk};
use tenure_api::v1::{self, WireError};
use tenure_client::felix::{
    AckMode, CacheCondition, CacheConditionResult, CacheWatchFilter, CacheWatchItem, ClusterCacheWatch, ClusterClient,
    CommitOp, ConditionalWrite,
};
use tenure_client::{ErrorCode, Outcome, WatchEnd};

use crate::counters::meets;
use crate::fake::{Ask, Fate, WatchStep};
use crate::felix_program;
use crate::world::{World, ms, wait_virtually};

fn world() -> World {
    let world = World::new(1);
    world.cluster.state().objects.lenient = false;
    world
}

fn client(world: &World) -> Arc<ClusterClient> {
    Arc::new(ClusterClient::over(world.client()))
}

/// What was said to be a condition's result.
fn result(applied: bool, version: impl Into<Option<u64>>) -> CacheConditionResult {
    CacheConditionResult {
        applied,
        version: version.into(),
    }
}

async fn put_if(client: &ClusterClient, key: &str, condition: CacheCondition) -> CacheConditionResult {
    let value = Bytes::from_static(b"v");
    let put = client.cache_put_if("default", "default", "c", key, value, Some(5_000), condition);
    put.await.unwrap()
}

async fn delete_if(client: &ClusterClient, key: &str, version: u64) -> CacheConditionResult {
    let delete = client.cache_delete_if("default", "default", "c", key, version);
    delete.await.unwrap()
}

async fn version(client: &ClusterClient, key: &str) -> u64 {
    let value = client
        .cache_get_versioned("default", "default", "c", key)
        .await
        .unwrap();
    value.expect("it is there").version
}

#[tokio::test(start_paused = true)]
async fn a_program_of_that_shape_runs_unchanged() {
    fn sendable<T: Send>(future: T) -> T {
        future
    }
    let world = world();
    sendable(felix_program::everything(client(&world))).await.unwrap();
}

#[tokio::test]
async fn seeds_where_nobody_listens_are_an_error_that_says_what_is_known() {
    let seeds = ["127.0.0.1:1".parse().unwrap()];
    let error = felix_program::connect(&seeds).await.unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("no endpoint can be reached"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_put_that_is_applied_says_the_version_that_it_wrote() {
    let world = world();
    let client = client(&world);
    let first = put_if(&client, "k", CacheCondition::Absent).await;
    assert_eq!(first, result(true, version(&client, "k").await));
    let second = put_if(&client, "k", CacheCondition::Version(first.version.unwrap())).await;
    assert_eq!(second, result(true, version(&client, "k").await));
    assert!(second.version > first.version);
}

#[tokio::test(start_paused = true)]
async fn a_put_that_wants_nothing_there_is_refused_with_the_version_that_is() {
    let world = world();
    let client = client(&world);
    let written = put_if(&client, "k", CacheCondition::Absent).await;
    assert_eq!(
        put_if(&client, "k", CacheCondition::Absent).await,
        result(false, written.version)
    );
}

#[tokio::test(start_paused = true)]
async fn a_put_that_wants_another_version_is_refused_with_the_one_that_is() {
    let world = world();
    let client = client(&world);
    let written = put_if(&client, "k", CacheCondition::Absent).await;
    assert_eq!(
        put_if(&client, "k", CacheCondition::Version(1)).await,
        result(false, written.version)
    );
}

#[tokio::test(start_paused = true)]
async fn a_put_that_wants_a_version_of_nothing_is_refused_without_one() {
    let world = world();
    let client = client(&world);
    // The cache does not exist before the first of them, and does before the second.
    for _ in 0..2 {
        assert_eq!(
            put_if(&client, "k", CacheCondition::Version(7)).await,
            result(false, None)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_says_whether_it_was_applied_and_which_version_stood_in_its_way() {
    let world = world();
    let client = client(&world);
    assert_eq!(
        delete_if(&client, "k", 7).await,
        result(false, None),
        "there is no cache"
    );
    let written = put_if(&client, "k", CacheCondition::Absent).await.version;
    assert_eq!(delete_if(&client, "k", 1).await, result(false, written));
    assert_eq!(delete_if(&client, "k", written.unwrap()).await, result(true, None));
    assert_eq!(delete_if(&client, "k", written.unwrap()).await, result(false, None));
}

#[tokio::test(start_paused = true)]
async fn a_conditional_write_whose_answer_is_lost_gets_its_original_verdict() {
    let world = world();
    let client = client(&world);
    put_if(&client, "other", CacheCondition::Absent).await;
    meets(&world.cluster, |ask| matches!(ask, Ask::Put(_)), [Fate::AnswerBroken]);
    assert!(put_if(&client, "k", CacheCondition::Absent).await.applied);
    meets(&world.cluster, |ask| matches!(ask, Ask::Delete(_)), [Fate::AnswerLost]);
    let written = version(&client, "k").await;
    assert_eq!(delete_if(&client, "k", written).await, result(true, None));
}

#[tokio::test(start_paused = true)]
async fn reading_creates_nothing_and_writing_creates_what_it_needs_also_in_a_new_namespace() {
    let world = world();
    let client = client(&world);
    assert_eq!(client.cache_get("acme", "new", "c", "k").await.unwrap(), None);
    assert_eq!(client.cache_delete("acme", "new", "c", "k").await.unwrap(), None);
    assert_eq!(client.counter_get("acme", "new", "c", "k").await.unwrap(), None);
    assert!(world.cluster.state().objects.caches.is_empty());
    client
        .cache_put("acme", "new", "c", "k", Bytes::new(), None)
        .await
        .unwrap();
    assert_eq!(
        client.cache_get("acme", "new", "c", "k").await.unwrap(),
        Some(Bytes::new())
    );
    let ops = vec![CommitOp::publish("s", "a"), CommitOp::put("s", "k", "v")];
    let written = client.commit_if("acme", "new", b"entity", ops, 0).await.unwrap();
    assert_eq!(written, ConditionalWrite::Written { offset: 0 });
    let state = world.cluster.state();
    assert_eq!(state.objects.caches.keys().collect::<Vec<_>>(), ["c", "s.state"]);
    let (key, row) = state.objects.caches["s.state"].first_key_value().unwrap();
    assert_eq!(
        (&key[..], &row.value[..]),
        (&b"\0\0\0\x06entityk"[..], &b"\0\0\0\0\0\0\0\0v"[..])
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_typed() {
    let world = world();
    let client = client(&world);
    client
        .cache_put("default", "default", "c", "k", Bytes::new(), None)
        .await
        .unwrap();
    world.cluster.fates(|received| match received.body {
        Ask::Add(_) => Fate::AnswerLost,
        _ => Fate::Served,
    });
    let error = client.counter_add("default", "default", "c", "n", 1).await.unwrap_err();
    let error = error.downcast_ref::<tenure_client::Error>().expect("it is typed");
    assert_eq!(error.outcome(), Outcome::Unknown);
}

fn change(revision: u64, key: &str) -> v1::Change {
    let put = v1::change::Put {
        value: Bytes::from_static(b"v"),
        version: revision,
        created: revision,
        ..Default::default()
    };
    v1::Change {
        revision,
        key: Bytes::copy_from_slice(key.as_bytes()),
        kind: Some(v1::change::Kind::Put(put)),
        previous_version: None,
    }
}

fn started(revision: u64) -> WatchStep {
    let incarnation = 1;
    WatchStep::Send(Event::Started(Started { revision, incarnation }))
}

fn changes(revision: u64, keys: &[&str]) -> WatchStep {
    WatchStep::Send(Event::Changes(Changes {
        changes: keys.iter().map(|key| change(revision, key)).collect(),
        revision,
        more: false,
    }))
}

fn state(revision: u64, keys: &[(&str, u64)], last: bool) -> WatchStep {
    let keys = keys.iter().map(|(key, version)| v1::KeyValue {
        key: Bytes::copy_from_slice(key.as_bytes()),
        version: *version,
        ..Default::default()
    });
    WatchStep::Send(Event::State(StateChunk {
        keys: keys.collect(),
        revision,
        last,
    }))
}

async fn watch(world: &World, from: Option<u64>, scripts: Vec<Vec<WatchStep>>) -> ClusterCacheWatch {
    world.cluster.state().objects.caches.entry("c".to_owned()).or_default();
    world.cluster.state().watches.extend(scripts);
    let filter = CacheWatchFilter::Prefix(String::new());
    let watching = client(world);
    watching
        .watch_cache("default", "default", "c", filter, from)
        .await
        .unwrap()
}

async fn items(watch: &mut ClusterCacheWatch, count: usize) -> Vec<(String, u64)> {
    let mut items = Vec::new();
    while items.len() < count {
        match watch.recv().await {
            Some(CacheWatchItem::Change(change)) => items.push((change.key, change.offset)),
            other => panic!("{other:?}"),
        }
    }
    items
}

fn of(items: &[(&str, u64)]) -> Vec<(String, u64)> {
    items.iter().map(|(key, offset)| ((*key).to_owned(), *offset)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_behind_any_change_of_a_watch_misses_nothing() {
    let world = world();
    let script = vec![
        started(100),
        changes(103, &["a"]),
        changes(107, &["b", "c", "d"]),
        changes(109, &["e"]),
    ];
    let mut watch = watch(&world, None, vec![script]).await;
    // Of several changes of one step only the last says that the step is done.
    let expected = of(&[("a", 103), ("b", 103), ("c", 103), ("d", 107), ("e", 109)]);
    assert_eq!(items(&mut watch, 5).await, expected);
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_is_not_kept_any_more_is_answered_with_the_present_state_first() {
    let world = world();
    let scripts = vec![
        vec![WatchStep::End(WireError::compacted(90))],
        vec![started(99), state(99, &[("a", 80), ("b", 20)], false), WatchStep::Break],
        // The state begins anew on another connection.
        vec![
            started(100),
            state(100, &[("a", 80), ("b", 20)], false),
            state(100, &[("c", 95)], false),
            state(100, &[], true),
            changes(101, &["d"]),
        ],
    ];
    let mut watch = watch(&world, Some(50), scripts).await;
    assert!(watch.resnapshot());
    let mut items = items(&mut watch, 3).await;
    // What was taken of the first state may come twice; what counts is where one could go on.
    while items.last() != Some(&("d".to_owned(), 101)) {
        items.extend(self::items(&mut watch, 1).await);
    }
    let whole = of(&[("a", 49), ("b", 49), ("c", 100), ("d", 101)]);
    assert_eq!(items[items.len() - 4..], whole);
    assert!(
        items.iter().all(|(_, offset)| [49, 100, 101].contains(offset)),
        "{items:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_go_on_without_a_gap_says_so_and_ends() {
    for (error, resume_from) in [(WireError::lagged(104), 104), (WireError::compacted(200), 104)] {
        let world = world();
        let script = vec![started(100), changes(103, &["a"]), WatchStep::End(error)];
        let mut watch = watch(&world, Some(101), vec![script]).await;
        assert!(!watch.resnapshot());
        assert_eq!(items(&mut watch, 1).await, of(&[("a", 103)]));
        assert_eq!(watch.recv().await, Some(CacheWatchItem::Lagged { resume_from }));
        assert_eq!(watch.recv().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_deleted_cache_ends_and_says_why() {
    let world = world();
    let script = vec![
        started(100),
        WatchStep::End(WireError::object_deleted("the cache", 105)),
    ];
    let mut watch = watch(&world, None, vec![script]).await;
    assert_eq!(watch.recv().await, None);
    assert!(matches!(
        watch.end(),
        Some(WatchEnd::ObjectDeleted { revision: Some(105) })
    ));
}

#[tokio::test(start_paused = true)]
async fn records_without_acknowledgement_are_appended_in_order_and_before_what_is_acknowledged() {
    let world = world();
    let client = client(&world);
    for number in 0..3_000 {
        let record = format!("{number}").into_bytes();
        let published = client
            .publish("default", "default", "s", record, AckMode::None)
            .await
            .unwrap();
        assert_eq!(published, None);
    }
    let last = client
        .publish("default", "default", "s", b"last".to_vec(), AckMode::PerMessage)
        .await
        .unwrap();
    assert_eq!(last, Some(3_000));
    let state = world.cluster.state();
    let records = &state.objects.streams["s"].records;
    assert!(
        records[..3_000]
            .iter()
            .enumerate()
            .all(|(number, record)| record.data == format!("{number}"))
    );
}

#[tokio::test(start_paused = true)]
async fn the_queue_of_records_without_acknowledgement_is_bounded() {
    let world = world();
    let client = client(&world);
    world.cluster.fates(|received| match received.body {
        Ask::Append(_) => Fate::Lost,
        _ => Fate::Served,
    });
    let mut published: usize = 0;
    let record = vec![0; 100_000];
    loop {
        let publishing = client.publish("default", "default", "s", record.clone(), AckMode::None);
        // It takes no time as long as there is room.
        match tokio::time::timeout(ms(1), publishing).await {
            Ok(result) => assert_eq!(result.unwrap(), None),
            Err(_) => break,
        }
        published += 1;
        assert!(published < 1_000, "it is bounded");
    }
    assert!(published > 50, "{published}");
    // Whoever wants an acknowledgement waits for a bounded time, and nothing of his is sent.
    let begun = world.clock.elapsed();
    let error = client
        .publish("default", "default", "s", b"x".to_vec(), AckMode::PerBatch)
        .await
        .unwrap_err();
    let error = error.downcast_ref::<tenure_client::Error>().unwrap();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::Deadline, Outcome::NotApplied)
    );
    assert!(world.clock.elapsed() - begun <= ms(5_001));
    // Once they are lost, there is room again.
    world.cluster.fates(|_| Fate::Served);
    wait_virtually(ms(60_000)).await;
    let written = client
        .publish("default", "default", "s", b"x".to_vec(), AckMode::PerMessage)
        .await;
    assert!(written.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_for_an_append_is_said_at_once() {
    let world = world();
    let client = client(&world);
    let record = vec![0; (1 << 20) + 1];
    let error = client
        .publish("default", "default", "s", record, AckMode::None)
        .await
        .unwrap_err();
    let error = error.downcast_ref::<tenure_client::Error>().unwrap();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::Invalid, Outcome::NotApplied)
    );
    assert_eq!(
        client
            .publish_batch("default", "default", "s", vec![], AckMode::None)
            .await
            .unwrap(),
        None
    );
}
