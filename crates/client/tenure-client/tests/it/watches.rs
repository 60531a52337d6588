//! Watches: no gap, no repetition, whole revisions, and an end that says where to go on.

use bytes::Bytes;
use tenure_api::v1::watch_event::{Changes, Event, Progress, Started, StateChunk};
use tenure_api::v1::{self, WatchRequest, WireError};
use tenure_client::{ErrorCode, Outcome, Watch, WatchEnd, WatchItem};

use crate::fake::{Ask, Fate, WatchStep};
use crate::world::{World, ms, wait_virtually};

const LIFE: u64 = 42;

fn started(revision: u64) -> WatchStep {
    WatchStep::Send(Event::Started(Started {
        revision,
        incarnation: LIFE,
    }))
}

fn change(revision: u64, key: &str) -> v1::Change {
    let put = v1::change::Put {
        value: Bytes::new(),
        version: revision,
        created: revision,
        ..Default::default()
    };
    let kind = Some(v1::change::Kind::Put(put));
    v1::Change {
        revision,
        key: Bytes::copy_from_slice(key.as_bytes()),
        kind,
        previous_version: None,
    }
}

fn changes(changes: impl IntoIterator<Item = (u64, &'static str)>, revision: u64, more: bool) -> WatchStep {
    let changes = changes
        .into_iter()
        .map(|(revision, key)| change(revision, key))
        .collect();
    WatchStep::Send(Event::Changes(Changes {
        changes,
        revision,
        more,
    }))
}

fn state(keys: &[&str], revision: u64, last: bool) -> WatchStep {
    let keys = keys.iter().map(|key| v1::KeyValue {
        key: Bytes::copy_from_slice(key.as_bytes()),
        ..Default::default()
    });
    WatchStep::Send(Event::State(StateChunk {
        keys: keys.collect(),
        revision,
        last,
    }))
}

fn script(world: &World, scripts: impl IntoIterator<Item = Vec<WatchStep>>) {
    world.cluster.state().watches.extend(scripts);
}

fn asked(world: &World) -> Vec<(u64, WatchRequest)> {
    world.cluster.received(|received| match &received.body {
        Ask::Watch(request) => Some((received.node, request.clone())),
        _ => None,
    })
}

/// An item in short: the revision and the keys.
fn brief(item: &WatchItem) -> String {
    let keys = |keys: Vec<&Bytes>| {
        keys.iter()
            .map(|key| key.escape_ascii().to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    match item {
        WatchItem::Changes { revision, changes } => {
            format!(
                "{revision}:{}",
                keys(changes.iter().map(|change| &change.key).collect())
            )
        }
        WatchItem::State {
            entries,
            revision,
            first,
            last,
        } => {
            let keys = keys(entries.iter().map(|entry| &entry.key).collect());
            format!(
                "state {revision}:{keys}{}{}",
                if *first { " first" } else { "" },
                if *last { " last" } else { "" }
            )
        }
        WatchItem::Progress { revision } => format!("progress {revision}"),
    }
}

async fn take(watch: &mut Watch, count: usize) -> Vec<String> {
    let mut items = Vec::new();
    while items.len() < count {
        let item = tokio::time::timeout(ms(60_000), watch.next())
            .await
            .expect("an item comes in time");
        items.push(brief(&item.expect("the watch goes on").expect("without an end")));
    }
    items
}

async fn end(watch: &mut Watch) -> WatchEnd {
    let item = tokio::time::timeout(ms(60_000), watch.next())
        .await
        .expect("the end comes in time");
    let end = item.expect("the end is told").expect_err("it is the end");
    assert!(watch.next().await.is_none(), "and then there is nothing");
    end
}

#[tokio::test(start_paused = true)]
async fn after_a_broken_stream_a_watch_goes_on_behind_the_last_revision_it_has_seen() {
    let world = World::new(1);
    script(
        &world,
        [
            vec![
                started(100),
                changes([(101, "a"), (103, "b")], 103, false),
                WatchStep::Break,
            ],
            vec![started(103), changes([(104, "c")], 104, false)],
        ],
    );
    let mut watch = world.client().cache("c").watch().prefix("p").await.unwrap();
    assert_eq!(watch.started_after(), 100);
    assert_eq!(take(&mut watch, 3).await, ["101:a", "103:b", "104:c"]);
    let asked = asked(&world);
    assert_eq!((asked[0].1.from, asked[0].1.incarnation), (None, None));
    assert_eq!((asked[1].1.from, asked[1].1.incarnation), (Some(104), Some(LIFE)));
    assert_eq!(
        asked[1].1.target,
        Some(v1::watch_request::Target::Prefix(Bytes::from_static(b"p")))
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_before_its_first_event_misses_nothing() {
    let world = World::new(1);
    script(
        &world,
        [
            vec![started(100), WatchStep::Break],
            vec![started(100), changes([(101, "a")], 101, false)],
        ],
    );
    let mut watch = world.client().cache("c").watch().key("a").await.unwrap();
    assert_eq!(take(&mut watch, 1).await, ["101:a"]);
    assert_eq!(asked(&world)[1].1.from, Some(101));
}

#[tokio::test(start_paused = true)]
async fn what_a_node_repeats_is_not_given_twice() {
    let world = World::new(1);
    script(
        &world,
        [
            vec![
                started(99),
                changes([(100, "a"), (101, "b")], 101, false),
                WatchStep::Break,
            ],
            vec![started(99), changes([(100, "a"), (101, "b"), (102, "c")], 102, false)],
        ],
    );
    let mut watch = world.client().cache("c").watch().from(100).await.unwrap();
    assert_eq!(take(&mut watch, 3).await, ["100:a", "101:b", "102:c"]);
}

#[tokio::test(start_paused = true)]
async fn the_changes_of_one_step_come_together_however_they_were_sent() {
    let world = World::new(1);
    script(
        &world,
        [
            vec![
                started(99),
                changes([(100, "a"), (101, "b")], 100, true),
                WatchStep::Break,
            ],
            vec![
                started(100),
                changes([(101, "b")], 100, true),
                changes([(101, "c")], 100, true),
                changes([(101, "d")], 101, false),
            ],
        ],
    );
    let mut watch = world.client().cache("c").watch().from(100).await.unwrap();
    assert_eq!(take(&mut watch, 2).await, ["100:a", "101:b,c,d"]);
    assert_eq!(
        asked(&world)[1].1.from,
        Some(101),
        "the part of 101 that had come is asked for again"
    );
}

#[tokio::test(start_paused = true)]
async fn progress_moves_the_place_from_which_a_watch_goes_on() {
    let world = World::new(1);
    let progress = WatchStep::Send(Event::Progress(Progress { revision: 5_000 }));
    script(
        &world,
        [
            vec![started(100), progress.clone(), progress, WatchStep::Break],
            vec![started(5_000)],
        ],
    );
    let client = world.client();
    let mut watch = client.cache("c").watch().await.unwrap();
    assert_eq!(take(&mut watch, 1).await, ["progress 5000"]);
    assert!(tokio::time::timeout(ms(1_000), watch.next()).await.is_err());
    let asked = asked(&world);
    assert_eq!((asked[1].1.from, asked[1].1.min_revision), (Some(5_001), 5_000));
}

#[tokio::test(start_paused = true)]
async fn a_state_that_breaks_off_begins_anew_and_says_so() {
    let world = World::new(1);
    script(
        &world,
        [
            vec![started(100), state(&["a"], 100, false), WatchStep::Break],
            vec![
                started(105),
                state(&["b"], 105, false),
                state(&["c"], 105, true),
                changes([(106, "d")], 106, false),
            ],
            vec![],
        ],
    );
    let mut watch = world.client().cache("c").watch().with_state().await.unwrap();
    let items = take(&mut watch, 4).await;
    assert_eq!(
        items,
        ["state 100:a first", "state 105:b first", "state 105:c last", "106:d"]
    );
    let asked = asked(&world);
    assert!(asked[0].1.with_state && asked[1].1.with_state && asked[1].1.from.is_none());
    assert_eq!(watch.next_revision(), 107);
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_one_node_does_not_keep_is_asked_of_the_others_before_the_watch_ends() {
    let world = World::new(3);
    script(
        &world,
        [
            vec![started(100), changes([(101, "a")], 101, false), WatchStep::Break],
            vec![WatchStep::End(WireError::compacted(500))],
            vec![started(101), changes([(102, "b")], 102, false), WatchStep::Break],
            vec![WatchStep::End(WireError::compacted(900))],
            vec![WatchStep::End(WireError::compacted(700))],
            vec![WatchStep::End(WireError::compacted(800))],
        ],
    );
    let client = world.builder(&["node-1:1", "node-2:1", "node-3:1"]).build().unwrap();
    let mut watch = client.cache("c").watch().await.unwrap();
    assert_eq!(take(&mut watch, 2).await, ["101:a", "102:b"]);
    let end = end(&mut watch).await;
    assert!(matches!(end, WatchEnd::Compacted { resume_from: 700 }), "{end:?}");
    let mut nodes: Vec<u64> = asked(&world)[3..].iter().map(|(node, _)| *node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn what_one_node_dropped_is_asked_of_the_others_before_the_watch_ends() {
    let world = World::new(3);
    script(
        &world,
        [
            // It made its state anew, as after a snapshot.
            vec![
                started(100),
                changes([(101, "a")], 101, false),
                WatchStep::End(WireError::lagged(500)),
            ],
            vec![WatchStep::End(WireError::compacted(900))],
            vec![
                started(101),
                changes([(102, "b"), (103, "c")], 103, false),
                WatchStep::Break,
            ],
            vec![WatchStep::End(WireError::lagged(700))],
            vec![WatchStep::End(WireError::compacted(800))],
            vec![WatchStep::End(WireError::compacted(600))],
        ],
    );
    let client = world.builder(&["node-1:1", "node-2:1", "node-3:1"]).build().unwrap();
    let mut watch = client.cache("c").watch().await.unwrap();
    assert_eq!(take(&mut watch, 3).await, ["101:a", "102:b", "103:c"]);
    let end = end(&mut watch).await;
    assert!(matches!(end, WatchEnd::Lagged { resume_from: 600 }), "{end:?}");
    let asked = asked(&world);
    let places: Vec<_> = asked.iter().map(|(node, request)| (*node, request.from)).collect();
    assert_eq!(places[..3], [(1, None), (2, Some(102)), (3, Some(102))]);
    let mut nodes: Vec<u64> = places[3..].iter().map(|(node, _)| *node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn the_ends_of_a_watch_are_told_apart() {
    let world = World::new(1);
    script(
        &world,
        [
            vec![
                started(100),
                changes([(101, "a")], 101, false),
                WatchStep::End(WireError::lagged(300)),
            ],
            vec![started(100), WatchStep::End(WireError::object_deleted("cache c", 222))],
            vec![started(100), WatchStep::End(WireError::compacted(400))],
            vec![WatchStep::End(WireError::not_found("cache", "c"))],
        ],
    );
    let cache = world.client().cache("c");
    let mut watch = cache.watch().await.unwrap();
    assert_eq!(
        take(&mut watch, 1).await,
        ["101:a"],
        "what came before the end is given first"
    );
    assert!(matches!(end(&mut watch).await, WatchEnd::Lagged { resume_from: 300 }));
    let mut watch = cache.watch().await.unwrap();
    assert!(matches!(
        end(&mut watch).await,
        WatchEnd::ObjectDeleted { revision: Some(222) }
    ));
    let mut watch = cache.watch().await.unwrap();
    let compacted = end(&mut watch).await;
    assert_eq!(
        (compacted.code(), compacted.resume_from()),
        (ErrorCode::Compacted, Some(400))
    );
    let error = cache.watch().await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::NotFound, Outcome::NotApplied)
    );
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_was_created_anew_is_another() {
    let world = World::new(1);
    let other_life = WatchStep::Send(Event::Started(Started {
        revision: 200,
        incarnation: LIFE + 1,
    }));
    script(&world, [vec![started(100), WatchStep::Break], vec![other_life]]);
    let mut watch = world.client().cache("c").watch().await.unwrap();
    assert!(matches!(
        end(&mut watch).await,
        WatchEnd::ObjectDeleted { revision: None }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_go_on_is_left_for_another() {
    let world = World::new(2);
    script(
        &world,
        [
            vec![started(100), WatchStep::End(WireError::unavailable("stopping"))],
            vec![WatchStep::End(WireError::behind(90, 100))],
            vec![started(100), changes([(101, "a")], 101, false)],
        ],
    );
    let client = world.builder(&["node-1:1", "node-2:1"]).build().unwrap();
    let mut watch = client.cache("c").watch().await.unwrap();
    assert_eq!(take(&mut watch, 1).await, ["101:a"]);
    let nodes: Vec<u64> = asked(&world).iter().map(|(node, _)| *node).collect();
    assert_eq!(nodes, [1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_slower_than_its_buffer_misses_nothing_and_holds_up_nobody() {
    let world = World::new(1);
    let burst = |from: u64, to: u64| (from..=to).map(|revision| changes([(revision, "k")], revision, false));
    let first = std::iter::once(started(100)).chain(burst(101, 3_000)).collect();
    world.cluster.state().watches.push_back(first);
    let cache = world.client().cache("c");
    let mut watch = cache.watch().await.unwrap();
    wait_virtually(ms(100)).await;
    cache.get("k").await.unwrap();
    assert!(
        world.clock.elapsed() < ms(200),
        "a read goes past the watch that nobody takes from"
    );
    let cancels = || {
        world
            .cluster
            .received(|received| matches!(received.body, Ask::Cancel(_)).then_some(()))
            .len()
    };
    assert_eq!(cancels(), 1, "the node is told at once, and once");
    // What the buffer held comes first, then the rest from there.
    let mut next = 101;
    while next <= 1_124 {
        assert_eq!(take(&mut watch, 1).await, [format!("{next}:k")]);
        next += 1;
    }
    let second = std::iter::once(started(next - 1)).chain(burst(next, 1_500)).collect();
    world.cluster.state().watches.push_back(second);
    while next <= 1_500 {
        assert_eq!(take(&mut watch, 1).await, [format!("{next}:k")]);
        next += 1;
    }
    assert_eq!(asked(&world)[1].1.from, Some(1_125));
    assert_eq!(cancels(), 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_watch_tells_the_node() {
    let world = World::new(1);
    script(&world, [vec![started(100)]]);
    let client = world.client();
    drop(client.cache("c").watch().await.unwrap());
    wait_virtually(ms(10)).await;
    let cancels = world
        .cluster
        .received(|received| matches!(received.body, Ask::Cancel(_)).then_some(()));
    assert_eq!(cancels.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_item_can_be_given_up_at_any_moment_without_losing_one() {
    let world = World::new(1);
    let steps = (101..=200).map(|revision| changes([(revision, "k")], revision, false));
    let mut first: Vec<WatchStep> = std::iter::once(started(100)).chain(steps.clone().take(50)).collect();
    first.push(WatchStep::Break);
    script(
        &world,
        [first, std::iter::once(started(150)).chain(steps.skip(50)).collect()],
    );
    let mut watch = world.client().cache("c").watch().await.unwrap();
    let mut next = 101;
    let mut patience = 0;
    while next <= 200 {
        patience = (patience + 1) % 40;
        if let Ok(item) = tokio::time::timeout(ms(patience), watch.next()).await {
            assert_eq!(brief(&item.unwrap().unwrap()), format!("{next}:k"));
            next += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_never_waits_long_still_gets_over_a_broken_stream() {
    let world = World::new(1);
    script(
        &world,
        [
            vec![started(100), WatchStep::Break],
            vec![WatchStep::End(WireError::unavailable("starting"))],
            vec![WatchStep::End(WireError::unavailable("starting"))],
            vec![started(100), changes([(101, "a")], 101, false)],
        ],
    );
    let mut watch = world.client().cache("c").watch().await.unwrap();
    let mut looks = 0;
    let item = loop {
        looks += 1;
        assert!(looks < 100, "it never gets anywhere");
        if let Ok(item) = tokio::time::timeout(ms(1), watch.next()).await {
            break item.unwrap().unwrap();
        }
        wait_virtually(ms(20)).await;
    };
    assert_eq!(brief(&item), "101:a");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_says_nothing_to_a_watch_is_left_for_another() {
    let world = World::new(2);
    world.cluster.fates(|received| match received.body {
        Ask::Watch(_) if received.node == 1 => Fate::Lost,
        _ => Fate::Served,
    });
    script(&world, [vec![started(100), changes([(101, "a")], 101, false)]]);
    let client = world.builder(&["node-1:1", "node-2:1"]).build().unwrap();
    let mut watch = client.cache("c").watch().await.unwrap();
    assert_eq!(take(&mut watch, 1).await, ["101:a"]);
    assert!(world.clock.elapsed() < ms(1_500));
}

#[tokio::test(start_paused = true)]
async fn a_watch_in_a_namespace_that_does_not_exist_is_told_so() {
    let world = World::new(1);
    let error = world
        .client()
        .namespace("acme", "prod")
        .cache("c")
        .watch()
        .await
        .unwrap_err();
    assert_eq!((error.code(), error.exit_code()), (ErrorCode::NotFound, 5));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_no_node_takes_up_fails_in_the_time_of_a_call() {
    let world = World::new(0);
    let client = world.builder(&["nowhere:1"]).wait_for_node(true).build().unwrap();
    let error = client.cache("c").watch().await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::Unavailable, Outcome::NotApplied)
    );
    assert_eq!(world.clock.elapsed().as_millis(), 5_000);
}
