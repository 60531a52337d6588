//! Following a stream: nothing is missed, nothing comes twice, and nobody pays for a slow reader.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tenure_api::ErrorCode;
use tenure_api::v1::follow_event::Event;
use tenure_api::v1::{self, WireError};
use tonic::{Status, Streaming};

use crate::streams_door::{Door, STREAM, at, earliest, error_in, latest, record_of, records, refused, said, says};
use crate::support::TestNode;

const PATIENCE: Duration = Duration::from_secs(30);

fn follow(from: Option<v1::ReadFrom>) -> v1::FollowRequest {
    v1::FollowRequest {
        stream: STREAM.to_owned(),
        from,
        ..Default::default()
    }
}

/// A follower that checks that offsets follow each other.
struct Follower {
    events: Streaming<v1::FollowEvent>,
    next: u64,
    incarnation: u64,
}

impl Follower {
    async fn begin(door: &mut Door, request: v1::FollowRequest) -> Result<Follower, Status> {
        let mut events = door.streams.follow(request).await?.into_inner();
        let event = events.message().await?.expect("an event").event;
        let Some(Event::Started(started)) = event else {
            panic!("not started: {event:?}")
        };
        Ok(Follower {
            events,
            next: started.next,
            incarnation: started.incarnation,
        })
    }

    /// The records of the next message, or why there is none.
    async fn more(&mut self) -> Result<Vec<v1::Record>, WireError> {
        let message = tokio::time::timeout(PATIENCE, self.events.message()).await;
        let event = match message.expect("something is told in time") {
            Ok(event) => event.expect("it ends only with an error").event,
            Err(status) => return Err(error_in(&status)),
        };
        let Some(Event::Records(records)) = event else {
            panic!("not records: {event:?}")
        };
        assert!(!records.records.is_empty());
        for record in &records.records {
            assert_eq!(record.offset, self.next);
            self.next += 1;
        }
        Ok(records.records)
    }

    /// Reads until it has come to this offset.
    async fn until(&mut self, offset: u64) -> Vec<v1::Record> {
        let mut records = Vec::new();
        while self.next < offset {
            records.extend(self.more().await.expect("it goes on"));
        }
        records
    }

    /// Reads to the end, and returns why it ended.
    async fn end(&mut self) -> WireError {
        loop {
            if let Err(error) = self.more().await {
                return error;
            }
        }
    }
}

async fn started() -> (TestNode, Door) {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    door.create(v1::StreamSettings::default()).await;
    (node, door)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_what_is_there_and_then_what_comes() {
    let (node, mut door) = started().await;
    door.append(records(["a", "b"])).await;
    let mut from_the_first = Follower::begin(&mut door, follow(None)).await.expect("it begins");
    let mut behind_the_last = Follower::begin(&mut door, follow(latest())).await.expect("it begins");
    let mut in_between = Follower::begin(&mut door, follow(at(1))).await.expect("it begins");
    let mut ahead = Follower::begin(&mut door, follow(at(4))).await.expect("it begins");
    assert_eq!(
        [from_the_first.next, behind_the_last.next, in_between.next, ahead.next],
        [0, 2, 1, 4]
    );
    let fenced = v1::Append {
        fence_token: Some(8),
        ..records(["c"])
    };
    door.append(fenced).await;
    door.append(records(["d", "e"])).await;
    let all = from_the_first.until(5).await;
    let data: Vec<&[u8]> = all.iter().map(|record| record.data.as_ref()).collect();
    assert_eq!(data, [b"a", b"b", b"c", b"d", b"e"]);
    assert_eq!((all[1].fence_token, all[2].fence_token), (None, Some(8)));
    assert_eq!(behind_the_last.until(5).await.len(), 3);
    assert_eq!(in_between.until(5).await.len(), 4);
    assert_eq!(ahead.until(5).await.len(), 1);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_append_wakes_fifty_followers() {
    let (node, mut door) = started().await;
    let mut followers = Vec::new();
    for _ in 0..50 {
        followers.push(Follower::begin(&mut door, follow(earliest())).await.expect("it begins"));
    }
    door.append(records(["a"])).await;
    for follower in &mut followers {
        assert_eq!(follower.more().await.expect("it is told").len(), 1);
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_that_come_while_records_come_miss_none() {
    let (node, mut door) = started().await;
    let (appended, come) = tokio::sync::watch::channel(0_u64);
    let appending = async {
        for count in 1..=300 {
            door.append(records(["r"])).await;
            appended.send_replace(count);
        }
    };
    // All read at once: a client that leaves many messages of one connection unread is cut off by its own transport.
    let following = join_all((0..60).map(|place| {
        let (node, mut come) = (&node, come.clone());
        async move {
            let mut door = Door::of(node).await;
            come.wait_for(|count| *count >= 4 * place).await.expect("it goes on");
            let mut follower = Follower::begin(&mut door, follow(at(2 * place)))
                .await
                .expect("it begins");
            assert_eq!(follower.until(300).await.len() as u64, 300 - 2 * place);
        }
    }));
    tokio::join!(appending, following);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_holds_up_nobody_and_is_told_what_was_trimmed_behind_it() {
    let (node, mut door) = started().await;
    let mut slow = Follower::begin(&mut door, follow(None)).await.expect("it begins");
    let mut other = Door::of(&node).await;
    let mut quick = Follower::begin(&mut other, follow(None)).await.expect("it begins");
    // More than fits into the windows of the slow reader's connection.
    for count in 1..=40 {
        other.append(record_of(1 << 20)).await;
        quick.until(count).await;
    }
    other.trim(40).await;
    other.append(records(["behind"])).await;
    quick.until(41).await;
    let end = slow.end().await;
    assert_eq!(said(&end), says(ErrorCode::Compacted, "40"));
    assert!(slow.next < 40, "the slow reader had all of it");
    let again = v1::FollowRequest {
        incarnation: Some(slow.incarnation),
        ..follow(at(slow.next))
    };
    let refusal = Follower::begin(&mut other, again).await.map(|_| ());
    assert_eq!(refused(refusal), says(ErrorCode::Compacted, "40"));
    let mut resumed = Follower::begin(&mut other, follow(at(40))).await.expect("it begins");
    assert_eq!(resumed.until(41).await[0].data, Bytes::from_static(b"behind"));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trim_of_what_was_read_disturbs_no_follower() {
    let (node, mut door) = started().await;
    let mut follower = Follower::begin(&mut door, follow(None)).await.expect("it begins");
    for round in 1..=20 {
        door.append(records(["a", "b"])).await;
        follower.until(2 * round).await;
        door.trim(2 * round).await;
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_stream_ends_its_followers_and_its_next_life_is_another() {
    let (node, mut door) = started().await;
    door.append(records(["a"])).await;
    let mut waiting = Follower::begin(&mut door, follow(None)).await.expect("it begins");
    waiting.until(1).await;
    let revision = door.delete_stream().await;
    assert_eq!(
        said(&waiting.end().await),
        says(ErrorCode::ObjectDeleted, &revision.to_string())
    );
    let resuming = || v1::FollowRequest {
        incarnation: Some(waiting.incarnation),
        ..follow(at(1))
    };
    let gone = Follower::begin(&mut door, resuming()).await.map(|_| ());
    assert_eq!(refused(gone), says(ErrorCode::ObjectDeleted, "0"));
    let unknown = Follower::begin(&mut door, follow(None)).await.map(|_| ());
    assert_eq!(refused(unknown), says(ErrorCode::NotFound, "stream"));
    door.create(v1::StreamSettings::default()).await;
    door.append(records(["a", "b"])).await;
    let gone = Follower::begin(&mut door, resuming()).await.map(|_| ());
    assert_eq!(refused(gone), says(ErrorCode::ObjectDeleted, "0"));
    let mut fresh = Follower::begin(&mut door, follow(None)).await.expect("it begins");
    assert_ne!(fresh.incarnation, waiting.incarnation);
    assert_eq!(fresh.until(2).await.len(), 2);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_is_far_behind_is_told_of_a_deletion_with_its_revision() {
    let (node, mut door) = started().await;
    for _ in 0..30 {
        door.append(record_of(1 << 20)).await;
    }
    let mut slow = Follower::begin(&mut door, follow(None)).await.expect("it begins");
    let mut other = Door::of(&node).await;
    let revision = other.delete_stream().await;
    // Its next life has records where the reader is.
    other.create(v1::StreamSettings::default()).await;
    for _ in 0..3 {
        other.append(records(["x", "y", "z"])).await;
    }
    let end = slow.end().await;
    assert_eq!(said(&end), says(ErrorCode::ObjectDeleted, &revision.to_string()));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_followed_is_refused_by_name() {
    let (node, mut door) = started().await;
    let cases = [
        (
            v1::FollowRequest {
                stream: String::new(),
                ..follow(None)
            },
            says(ErrorCode::Invalid, "stream"),
        ),
        (
            follow(Some(v1::ReadFrom { from: None })),
            says(ErrorCode::Invalid, "from"),
        ),
        (
            v1::FollowRequest {
                min_revision: u64::MAX,
                ..follow(None)
            },
            says(ErrorCode::Behind, ""),
        ),
    ];
    for (request, expected) in cases {
        let begun = Follower::begin(&mut door, request).await.map(|_| ());
        assert_eq!(refused(begun), expected);
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_tells_its_followers() {
    let (node, mut door) = started().await;
    let mut follower = Follower::begin(&mut door, follow(None)).await.expect("it begins");
    let (end, ()) = tokio::join!(follower.end(), node.node.stop());
    assert_eq!(end.error_code(), Some(ErrorCode::Unavailable));
}
