//! Streams, transactions and following in frames: the same handler, and each under the id of its frame.

use std::time::Duration;

use bytes::Bytes;
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::follow_event::Event;
use tenure_api::v1::mux_client::MuxClient;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, ClientFrame, ServerFrame, WatchEnd};
use tenure_api::{ErrorCode, v1::txn_operation};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::streams_door::{Door, STREAM, append_request, hello, record_of, records, said, says};
use crate::support::{CACHE, TestNode};

const PATIENCE: Duration = Duration::from_secs(30);
/// What one node takes, and what one stream of frames takes of it.
const FOLLOWERS_MAX: usize = 10_000;
const FOLLOWERS_OF_A_STREAM: usize = 1_000;

struct Frames {
    frames: mpsc::Sender<ClientFrame>,
    answers: Streaming<ServerFrame>,
}

impl Frames {
    async fn open(node: &TestNode) -> Frames {
        let (frames, receiver) = mpsc::channel(1_024);
        let mut client = MuxClient::new(node.channel().await);
        let opened = client.connect(ReceiverStream::new(receiver)).await;
        let answers = opened.expect("the stream opens").into_inner();
        let mut opened = Frames { frames, answers };
        opened.send(u64::MAX, Ask::Hello(hello())).await;
        let greeted = opened.next().await;
        assert!(matches!(greeted.body, Some(Reply::Hello(_))), "{greeted:?}");
        opened
    }

    async fn send(&self, id: u64, body: Ask) {
        let frame = ClientFrame {
            id,
            timeout_ms: 0,
            body: Some(body),
        };
        self.frames.send(frame).await.expect("the stream is open");
    }

    async fn next(&mut self) -> ServerFrame {
        let message = tokio::time::timeout(PATIENCE, self.answers.message()).await;
        message
            .expect("in time")
            .expect("no error")
            .expect("the stream goes on")
    }

    async fn ask(&mut self, id: u64, body: Ask) -> Reply {
        self.send(id, body).await;
        let frame = self.next().await;
        assert_eq!(frame.id, id);
        frame.body.expect("a body")
    }
}

fn follow(stream: &str) -> Ask {
    Ask::Follow(v1::FollowRequest {
        stream: stream.to_owned(),
        ..Default::default()
    })
}

fn append(append: v1::Append) -> Ask {
    Ask::Append(append_request(append))
}

async fn started() -> (TestNode, Door) {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    door.create(v1::StreamSettings::default()).await;
    (node, door)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_streams_counters_and_transactions_is_answered_in_frames() {
    let node = TestNode::start().await;
    let mut frames = Frames::open(&node).await;
    let stream = || STREAM.to_owned();
    let create = Ask::CreateStream(v1::CreateStreamRequest {
        name: stream(),
        ..Default::default()
    });
    assert!(matches!(frames.ask(1, create).await, Reply::CreateStream(reply) if !reply.existed));
    let list = Ask::ListStreams(v1::ListStreamsRequest::default());
    assert!(matches!(frames.ask(2, list).await, Reply::ListStreams(reply) if reply.streams.len() == 1));
    let reply = frames.ask(3, append(records(["a", "b"]))).await;
    assert!(matches!(
        reply,
        Reply::Append(v1::AppendReply {
            verdict: Some(v1::append_reply::Verdict::Done(v1::AppendDone {
                first: 0,
                count: 2,
                ..
            })),
            ..
        })
    ));
    let read = Ask::ReadRecords(v1::ReadRecordsRequest {
        stream: stream(),
        ..Default::default()
    });
    assert!(matches!(frames.ask(4, read).await, Reply::ReadRecords(reply) if reply.next == 2));
    let trim = Ask::TrimStream(v1::TrimStreamRequest {
        stream: stream(),
        before: 1,
        ..Default::default()
    });
    assert!(matches!(frames.ask(5, trim).await, Reply::TrimStream(reply) if reply.first == 1));
    let get = Ask::GetStream(v1::GetStreamRequest {
        name: stream(),
        ..Default::default()
    });
    assert!(matches!(frames.ask(6, get).await, Reply::GetStream(reply) if (reply.first, reply.tail) == (1, 2)));
    let add = Ask::Add(v1::AddRequest {
        cache: CACHE.to_owned(),
        key: Bytes::from_static(b"n"),
        delta: 4,
        ..Default::default()
    });
    assert!(matches!(frames.ask(7, add).await, Reply::Add(reply) if reply.done.is_some_and(|done| done.sum == 4)));
    let operation = txn_operation::Kind::Get(Box::new(txn_operation::Get {
        cache: CACHE.to_owned(),
        key: Bytes::from_static(b"n"),
    }));
    let txn = Ask::Txn(v1::TxnRequest {
        then: vec![v1::TxnOperation { kind: Some(operation) }],
        ..Default::default()
    });
    let reply = frames.ask(8, txn).await;
    assert!(matches!(
        reply,
        Reply::Txn(v1::TxnReply {
            verdict: Some(v1::txn_reply::Verdict::Done(v1::TxnDone { applied: true, .. })),
            ..
        })
    ));
    let prefix = Ask::DeletePrefix(v1::DeletePrefixRequest {
        cache: CACHE.to_owned(),
        ..Default::default()
    });
    assert!(matches!(frames.ask(9, prefix).await, Reply::DeletePrefix(reply) if reply.removed == 1));
    let delete = || {
        Ask::DeleteStream(v1::DeleteStreamRequest {
            name: stream(),
            ..Default::default()
        })
    };
    assert!(matches!(frames.ask(10, delete()).await, Reply::DeleteStream(_)));
    let Reply::Error(error) = frames.ask(11, delete()).await else {
        panic!("no error")
    };
    assert_eq!(said(&error), says(ErrorCode::NotFound, "stream"));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn following_and_requests_share_a_stream_until_it_is_cancelled() {
    let (node, _) = started().await;
    let mut frames = Frames::open(&node).await;
    let begun = frames.ask(1, follow(STREAM)).await;
    assert!(matches!(
        begun,
        Reply::FollowEvent(v1::FollowEvent {
            event: Some(Event::Started(_))
        })
    ));
    let Reply::Error(error) = frames.ask(1, append(records(["a"]))).await else {
        panic!("the id is in use")
    };
    assert_eq!(said(&error), says(ErrorCode::Invalid, "id"));
    frames.send(2, append(records(["a"]))).await;
    let (mut answered, mut told) = (false, false);
    while !(answered && told) {
        let frame = frames.next().await;
        match (frame.id, frame.body) {
            (2, Some(Reply::Append(_))) => answered = true,
            (1, Some(Reply::FollowEvent(_))) => told = true,
            other => panic!("unexpected {other:?}"),
        }
    }
    let ended = frames.ask(1, Ask::Cancel(v1::Cancel {})).await;
    assert_eq!(ended, Reply::WatchEnded(WatchEnd { error: None }));
    // Nothing of it follows, and its id is free.
    for id in 3..=40 {
        let reply = frames.ask(id, append(records(["a"]))).await;
        assert!(matches!(reply, Reply::Append(_)));
    }
    assert!(matches!(frames.ask(1, follow(STREAM)).await, Reply::FollowEvent(_)));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn following_ends_with_the_reason_under_its_id() {
    let (node, mut door) = started().await;
    let mut frames = Frames::open(&node).await;
    let Reply::WatchEnded(ended) = frames.ask(1, follow("nosuch")).await else {
        panic!("not ended")
    };
    assert_eq!(
        said(&ended.error.expect("a reason")),
        says(ErrorCode::NotFound, "stream")
    );
    assert!(matches!(frames.ask(1, follow(STREAM)).await, Reply::FollowEvent(_)));
    let revision = door.delete_stream().await;
    let frame = frames.next().await;
    let (1, Some(Reply::WatchEnded(ended))) = (frame.id, frame.body) else {
        panic!("not ended")
    };
    let expected = says(ErrorCode::ObjectDeleted, &revision.to_string());
    assert_eq!(said(&ended.error.expect("a reason")), expected);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_its_frames_holds_up_no_other() {
    let (node, mut door) = started().await;
    let mut stuck = Frames::open(&node).await;
    for id in 1..=8 {
        stuck.send(id, follow(STREAM)).await;
    }
    let mut quick = Frames::open(&node).await;
    assert!(matches!(quick.ask(1, follow(STREAM)).await, Reply::FollowEvent(_)));
    for _ in 0..12 {
        door.append(record_of(1 << 20)).await;
        let frame = quick.next().await;
        assert!(matches!(frame.body, Some(Reply::FollowEvent(_))), "{frame:?}");
    }
    // When it reads at last, nothing is missing.
    let mut next = [0_u64; 9];
    while next[1..].iter().any(|next| *next < 12) {
        let frame = stuck.next().await;
        let Some(Reply::FollowEvent(event)) = frame.body else {
            panic!("unexpected {frame:?}")
        };
        if let Some(Event::Records(records)) = event.event {
            let next = &mut next[usize::try_from(frame.id).expect("a small id")];
            for record in records.records {
                assert_eq!(record.offset, *next);
                *next += 1;
            }
        }
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_takes_ten_thousand_followers_and_refuses_the_next() {
    let (node, mut door) = started().await;
    let mut open = Vec::new();
    for _ in 0..FOLLOWERS_MAX / FOLLOWERS_OF_A_STREAM {
        let mut frames = Frames::open(&node).await;
        for id in 1..=FOLLOWERS_OF_A_STREAM as u64 {
            let begun = frames.ask(id, follow(STREAM)).await;
            assert!(matches!(begun, Reply::FollowEvent(_)), "{begun:?}");
        }
        open.push(frames);
    }
    let mut frames = Frames::open(&node).await;
    let Reply::WatchEnded(ended) = frames.ask(1, follow(STREAM)).await else {
        panic!("not refused")
    };
    let expected = says(ErrorCode::Limit, "watchers of a node 10000");
    assert_eq!(said(&ended.error.expect("a reason")), expected);
    door.append(records(["a"])).await;
    for frames in &mut open {
        for _ in 0..FOLLOWERS_OF_A_STREAM {
            assert!(matches!(frames.next().await.body, Some(Reply::FollowEvent(_))));
        }
    }
    // One that goes makes room.
    let ended = open[0].ask(1, Ask::Cancel(v1::Cancel {})).await;
    assert!(matches!(ended, Reply::WatchEnded(_)));
    let mut id = 2;
    while matches!(frames.ask(id, follow(STREAM)).await, Reply::WatchEnded(_)) {
        id += 1;
    }
    drop(open);
    node.node.stop().await;
}
