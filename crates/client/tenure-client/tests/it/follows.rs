//! Following a stream: every record once and in order, or an end that says why.

use bytes::Bytes;
use tenure_api::v1::follow_event::{Event, Records, Started};
use tenure_api::v1::{self, FollowRequest, WireError, read_from};
use tenure_client::{ErrorCode, Follow, FollowEnd, Outcome};

use crate::fake::{Ask, Fate, FollowStep};
use crate::world::{World, ms};

const LIFE: u64 = 42;

fn started(next: u64) -> FollowStep {
    FollowStep::Send(Event::Started(Started {
        next,
        incarnation: LIFE,
    }))
}

fn records(offsets: impl IntoIterator<Item = u64>, bytes: usize) -> FollowStep {
    let record = |offset| v1::Record {
        offset,
        data: Bytes::from(vec![b'x'; bytes]),
        time_us: offset * 10,
        fence_token: None,
    };
    let records = offsets.into_iter().map(record).collect();
    FollowStep::Send(Event::Records(Records { records }))
}

fn script(world: &World, scripts: impl IntoIterator<Item = Vec<FollowStep>>) {
    world.cluster.state().follows.extend(scripts);
}

fn asked(world: &World) -> Vec<(u64, FollowRequest)> {
    world.cluster.received(|received| match &received.body {
        Ask::Follow(request) => Some((received.node, request.clone())),
        _ => None,
    })
}

fn from(request: &FollowRequest) -> read_from::From {
    request.from.unwrap().from.unwrap()
}

async fn take(follow: &mut Follow, count: usize) -> Vec<u64> {
    let mut offsets = Vec::new();
    while offsets.len() < count {
        let record = tokio::time::timeout(ms(60_000), follow.next())
            .await
            .expect("a record comes in time");
        offsets.push(record.expect("it goes on").expect("without an end").offset);
    }
    offsets
}

async fn end(follow: &mut Follow) -> FollowEnd {
    let record = tokio::time::timeout(ms(60_000), follow.next())
        .await
        .expect("the end comes in time");
    let end = record.expect("the end is told").expect_err("it is the end");
    assert!(follow.next().await.is_none(), "and then there is nothing");
    end
}

#[tokio::test(start_paused = true)]
async fn after_a_broken_stream_a_following_goes_on_on_another_node_at_the_next_offset() {
    let world = World::new(2);
    script(
        &world,
        [
            vec![started(3), records([3, 4], 1), FollowStep::Break],
            // The other node repeats what has come already.
            vec![started(5), records([4, 5, 6], 1)],
        ],
    );
    let client = world.builder(&["node-1:1", "node-2:1"]).build().unwrap();
    let mut follow = client.stream("s").follow().await.unwrap();
    assert_eq!((follow.started_at(), follow.incarnation()), (3, LIFE));
    assert_eq!(take(&mut follow, 4).await, [3, 4, 5, 6]);
    assert_eq!(follow.next_offset(), 7);
    let asked = asked(&world);
    assert_eq!(
        (from(&asked[0].1), asked[0].1.incarnation),
        (read_from::From::Earliest(true), None)
    );
    assert_eq!(
        (from(&asked[1].1), asked[1].1.incarnation),
        (read_from::From::Offset(5), Some(LIFE))
    );
    assert_eq!((asked[0].0, asked[1].0), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_following_from_the_end_does_not_miss_what_comes_while_it_changes_nodes() {
    let world = World::new(1);
    script(
        &world,
        [
            vec![started(10), FollowStep::Break],
            vec![started(10), records([10, 11], 1)],
        ],
    );
    let mut follow = world.client().stream("s").follow().from_latest().await.unwrap();
    assert_eq!(take(&mut follow, 2).await, [10, 11]);
    let asked = asked(&world);
    assert_eq!(from(&asked[0].1), read_from::From::Latest(true));
    assert_eq!(from(&asked[1].1), read_from::From::Offset(10));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_record_may_be_another_as_long_as_none_has_come() {
    let world = World::new(1);
    script(
        &world,
        [vec![started(0), FollowStep::Break], vec![started(4), records([4], 1)]],
    );
    let mut follow = world.client().stream("s").follow().from_earliest().await.unwrap();
    assert_eq!(take(&mut follow, 1).await, [4]);
    assert_eq!(from(&asked(&world)[1].1), read_from::From::Earliest(true));
}

#[tokio::test(start_paused = true)]
async fn a_slow_taker_loses_nothing_and_holds_up_nobody() {
    let world = World::new(1);
    // More than the buffer has room for; then the rest is asked for again.
    let mut first = vec![started(0)];
    first.extend((0..8).map(|offset| records([offset], 1 << 20)));
    script(&world, [first, vec![started(4), records(4..8, 1)]]);
    let client = world.client();
    let mut follow = client.stream("s").follow().await.unwrap();
    // The connection serves others while nobody takes the records.
    let written = client.cache("c").put("k", "v").await.unwrap();
    assert!(written.is_done());
    let taken = take(&mut follow, 8).await;
    assert_eq!(taken, (0..8).collect::<Vec<_>>());
    assert_eq!(from(&asked(&world)[1].1), read_from::From::Offset(4));
}

#[tokio::test(start_paused = true)]
async fn the_ends_of_a_following_are_told_apart() {
    let ends = [
        (
            WireError::object_deleted("the stream", 9),
            ErrorCode::ObjectDeleted,
            None,
        ),
        (WireError::compacted(70), ErrorCode::Compacted, Some(70)),
        (WireError::invalid("from", "a test"), ErrorCode::Invalid, None),
    ];
    for (error, code, resume_from) in ends {
        let world = World::new(1);
        script(&world, [vec![started(3), records([3], 1), FollowStep::End(error)]]);
        let mut follow = world.client().stream("s").follow().await.unwrap();
        assert_eq!(take(&mut follow, 1).await, [3]);
        let end = end(&mut follow).await;
        assert_eq!((end.code(), end.resume_from()), (code, resume_from));
        assert_eq!(end.into_error().outcome(), Outcome::NotApplied);
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_node_keeps_any_more_is_asked_of_every_node_first() {
    let world = World::new(2);
    script(
        &world,
        [
            vec![FollowStep::End(WireError::compacted(70))],
            vec![FollowStep::End(WireError::compacted(60))],
        ],
    );
    let client = world.builder(&["node-1:1", "node-2:1"]).build().unwrap();
    let error = client.stream("s").follow().from_offset(5).await.unwrap_err();
    assert_eq!(
        (error.code(), error.server().unwrap().resume_from()),
        (ErrorCode::Compacted, Some(60))
    );
    assert_eq!(asked(&world).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_life_of_the_stream_is_the_end_of_the_first() {
    let world = World::new(1);
    let other = FollowStep::Send(Event::Started(Started {
        next: 0,
        incarnation: 43,
    }));
    script(
        &world,
        [vec![started(0), records([0], 1), FollowStep::Break], vec![other]],
    );
    let mut follow = world.client().stream("s").follow().await.unwrap();
    assert_eq!(take(&mut follow, 1).await, [0]);
    assert!(matches!(
        end(&mut follow).await,
        FollowEnd::ObjectDeleted { revision: None }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_never_passed_over() {
    let world = World::new(1);
    script(&world, [vec![started(0), records([0, 2], 1)]]);
    let mut follow = world.client().stream("s").follow().await.unwrap();
    assert_eq!(take(&mut follow, 1).await, [0]);
    assert_eq!(end(&mut follow).await.code(), ErrorCode::Internal);
}

#[tokio::test(start_paused = true)]
async fn batches_give_what_has_come_together() {
    let world = World::new(1);
    script(&world, [vec![started(0), records(0..5, 1), records(5..6, 1)]]);
    let mut follow = world.client().stream("s").follow().await.unwrap();
    assert_eq!(take(&mut follow, 1).await, [0]);
    let batch = follow.next_batch().await.unwrap().unwrap();
    assert_eq!(
        batch.iter().map(|record| record.offset).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    assert_eq!(follow.next_offset(), 5);
    assert_eq!(follow.next_batch().await.unwrap().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_following_of_no_stream_says_so_and_dropping_one_tells_the_node() {
    let world = World::new(1);
    world.cluster.state().objects.lenient = false;
    let client = world.client();
    let error = client.stream("s").follow().await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::NotFound, Outcome::NotApplied)
    );
    world.cluster.fates(|_| Fate::Served);
    client.stream("s").create().await.unwrap().done().unwrap();
    drop(client.stream("s").follow().await.unwrap());
    let cancelled = || {
        world
            .cluster
            .received(|received| matches!(received.body, Ask::Cancel(_)).then_some(()))
    };
    for _ in 0..1_000 {
        if !cancelled().is_empty() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("nobody told the node");
}
