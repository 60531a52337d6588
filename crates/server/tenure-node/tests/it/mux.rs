//! The multiplexed stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tenure_api::ErrorCode;
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::mux_client::MuxClient;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, ClientFrame, ServerFrame};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::overload_wire::spawn;
use crate::support::{CACHE, TestNode};

const PATIENCE: Duration = Duration::from_secs(20);

struct Stream {
    frames: mpsc::Sender<ClientFrame>,
    answers: Streaming<ServerFrame>,
}

impl Stream {
    async fn open(node: &TestNode) -> Stream {
        Stream::open_with(node, crate::streams_door::hello()).await
    }

    async fn open_with(node: &TestNode, hello: v1::HelloRequest) -> Stream {
        let (frames, receiver) = mpsc::channel(1_024);
        let mut client = MuxClient::new(node.channel().await);
        let answers = client
            .connect(ReceiverStream::new(receiver))
            .await
            .expect("the stream opens")
            .into_inner();
        let mut stream = Stream { frames, answers };
        stream.send(u64::MAX, Ask::Hello(hello)).await;
        let greeted = stream.next().await.expect("the hello is answered");
        assert!(matches!(greeted.body, Some(Reply::Hello(_))), "{greeted:?}");
        stream
    }

    async fn send(&self, id: u64, body: Ask) {
        self.frames
            .send(ClientFrame {
                id,
                timeout_ms: 0,
                body: Some(body),
            })
            .await
            .expect("the stream is open");
    }

    async fn next(&mut self) -> Option<ServerFrame> {
        tokio::time::timeout(PATIENCE, self.answers.message())
            .await
            .expect("an answer in time")
            .expect("no error")
    }
}

fn put(key: u64) -> Ask {
    Ask::Put(v1::PutRequest {
        cache: CACHE.to_owned(),
        key: Bytes::from(format!("k{key}")),
        value: Bytes::from_static(b"v"),
        ..Default::default()
    })
}

fn watch_all() -> Ask {
    Ask::Watch(v1::WatchRequest {
        cache: CACHE.to_owned(),
        target: Some(v1::watch_request::Target::All(true)),
        ..Default::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_of_one_stream_are_each_answered_under_their_id() {
    let node = TestNode::start().await;
    let mut stream = Stream::open(&node).await;
    for id in 1..=500 {
        stream.send(id, put(id)).await;
    }
    let mut versions = std::collections::BTreeMap::new();
    while versions.len() < 500 {
        let frame = stream.next().await.expect("the stream goes on");
        let Some(Reply::Put(reply)) = frame.body else {
            panic!("not a put: {frame:?}")
        };
        let Some(v1::put_reply::Verdict::Done(done)) = reply.verdict else {
            panic!("not done")
        };
        assert!(
            versions.insert(done.version, frame.id).is_none(),
            "a version was given twice"
        );
    }
    let ids: std::collections::BTreeSet<u64> = versions.into_values().collect();
    assert_eq!(ids.len(), 500);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_namespace_does_not_exist_goes_on_like_any_other() {
    let node = TestNode::start().await;
    let hello = v1::HelloRequest {
        scope: Some(v1::Scope {
            tenant: "nobody".to_owned(),
            namespace: "knows".to_owned(),
        }),
        ..crate::streams_door::hello()
    };
    let mut stream = Stream::open_with(&node, hello).await;
    for id in 1..=3 {
        stream.send(id, put(id)).await;
        let frame = stream.next().await.expect("the stream goes on");
        assert!(frame.id == id && matches!(frame.body, Some(Reply::Put(_))), "{frame:?}");
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_and_requests_share_a_stream_and_a_cancelled_watch_tells_nothing_more() {
    let node = TestNode::start().await;
    let mut stream = Stream::open(&node).await;
    stream.send(1, watch_all()).await;
    let started = stream.next().await.expect("the stream goes on");
    assert!(matches!(
        started,
        ServerFrame {
            id: 1,
            body: Some(Reply::WatchEvent(_))
        }
    ));
    stream.send(2, put(1)).await;
    let (mut answered, mut told) = (false, false);
    while !(answered && told) {
        match stream.next().await.expect("the stream goes on") {
            ServerFrame {
                id: 2,
                body: Some(Reply::Put(_)),
            } => answered = true,
            ServerFrame {
                id: 1,
                body: Some(Reply::WatchEvent(_)),
            } => told = true,
            other => panic!("unexpected {other:?}"),
        }
    }
    stream.send(1, Ask::Cancel(v1::Cancel {})).await;
    let ended = stream.next().await.expect("the stream goes on");
    assert!(matches!(
        ended,
        ServerFrame {
            id: 1,
            body: Some(Reply::WatchEnded(v1::WatchEnd { error: None }))
        }
    ));
    for id in 3..=50 {
        stream.send(id, put(id)).await;
        let frame = stream.next().await.expect("the stream goes on");
        assert_eq!(frame.id, id, "a cancelled watch told something: {frame:?}");
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_id_of_a_cancelled_watch_belongs_at_once_to_the_next_however_busy_it_was() {
    let node = TestNode::start().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for _ in 0..2 {
        let (mut writer, stop) = (Stream::open(&node).await, stop.clone());
        writers.push(spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                for id in 1..=16 {
                    writer.send(id, put(id)).await;
                }
                for _ in 0..16 {
                    writer.next().await.expect("the stream goes on");
                }
            }
        }));
    }
    let mut stream = Stream::open(&node).await;
    // What followed an end would be taken for an event of the next watch; that nothing does is proved at the outbox.
    for round in 0..100 {
        stream.send(1, watch_all()).await;
        let first = stream.next().await.expect("the stream goes on");
        let Some(Reply::WatchEvent(v1::WatchEvent { event: Some(first) })) = first.body else {
            panic!("round {round}: {first:?}")
        };
        assert!(
            matches!(first, v1::watch_event::Event::Started(_)),
            "round {round}: {first:?}"
        );
        let told = stream.next().await.expect("the stream goes on");
        assert!(
            matches!(told.body, Some(Reply::WatchEvent(_))),
            "round {round}: {told:?}"
        );
        stream.send(1, Ask::Cancel(v1::Cancel {})).await;
        while !matches!(
            stream.next().await.expect("the stream goes on").body,
            Some(Reply::WatchEnded(v1::WatchEnd { error: None }))
        ) {}
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("no panic");
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_without_a_known_body_is_refused_and_the_stream_goes_on() {
    let node = TestNode::start().await;
    let mut stream = Stream::open(&node).await;
    stream
        .frames
        .send(ClientFrame {
            id: 7,
            timeout_ms: 0,
            body: None,
        })
        .await
        .expect("the stream is open");
    let frame = stream.next().await.expect("the stream goes on");
    let Some(Reply::Error(error)) = frame.body else {
        panic!("no error")
    };
    assert_eq!((frame.id, error.error_code()), (7, Some(ErrorCode::Invalid)));
    stream.send(8, put(1)).await;
    assert_eq!(stream.next().await.expect("the stream goes on").id, 8);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_answers_what_is_under_way_and_tells_streams_to_go() {
    let node = TestNode::start().await;
    let mut stream = Stream::open(&node).await;
    for id in 1..=100 {
        stream.send(id, put(id)).await;
    }
    let first = stream.next().await.expect("the stream goes on");
    assert!(matches!(first.body, Some(Reply::Put(_))));
    let (mut done, mut refused, mut drained) = (1, 0, false);
    let read_to_the_end = async {
        while let Some(frame) = stream.next().await {
            match frame.body {
                Some(Reply::Put(_)) => done += 1,
                Some(Reply::Error(error)) => {
                    assert_eq!(error.known_outcome(), tenure_api::Outcome::NotApplied);
                    refused += 1;
                }
                Some(Reply::Drain(_)) => drained = true,
                other => panic!("unexpected {other:?}"),
            }
        }
    };
    tokio::join!(node.node.stop(), read_to_the_end);
    assert!(drained);
    assert!(done + refused <= 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_kept_alive_lives_and_one_that_is_not_ends() {
    let node = TestNode::start().await;
    let mut stream = Stream::open(&node).await;
    let open = |nonce: u8| {
        Ask::OpenSession(v1::OpenSessionRequest {
            nonce: Bytes::from(vec![nonce; 16]),
            ttl_ms: Some(1_000),
            ..Default::default()
        })
    };
    let mut opened = Vec::new();
    for nonce in [1, 2] {
        stream.send(u64::from(nonce), open(nonce)).await;
        let Some(Reply::OpenSession(reply)) = stream.next().await.expect("an answer").body else {
            panic!("not opened")
        };
        opened.push((reply.header.expect("a header").group, reply.session.expect("a session")));
    }
    let (group, kept) = opened[0].clone();
    let keep = |attempt| {
        let sessions = vec![v1::SessionInGroup {
            group,
            session: Some(kept.clone()),
        }];
        Ask::KeepAlive(v1::KeepAliveRequest { sessions, attempt })
    };
    let mut interval = tokio::time::interval(Duration::from_millis(150));
    for attempt in 1..=12 {
        interval.tick().await;
        stream.send(100 + attempt, keep(attempt)).await;
        let Some(Reply::KeepAlive(reply)) = stream.next().await.expect("an answer").body else {
            panic!("no answer")
        };
        assert_eq!(reply.attempt, attempt);
        let result = reply.sessions[0].result.clone();
        let Some(v1::kept_alive::Result::Renewed(renewed)) = result else {
            panic!("not renewed: {result:?}")
        };
        assert_eq!(renewed.remaining_us, Some(1_000_000));
    }
    stream
        .send(
            200,
            Ask::GetSession(v1::GetSessionRequest {
                session: opened[1].1.id,
                ..Default::default()
            }),
        )
        .await;
    let Some(Reply::GetSession(reply)) = stream.next().await.expect("an answer").body else {
        panic!("no answer")
    };
    let ended = reply.session.and_then(|session| session.ended).expect("it has ended");
    assert_eq!(ended.reason(), v1::EndReason::Expired);
    node.node.stop().await;
}

/// The answers to these frames on a stream of their own, until it ends.
async fn answers_to(node: &TestNode, frames: Vec<ClientFrame>) -> Vec<ServerFrame> {
    let mut client = MuxClient::new(node.channel().await);
    let mut stream = client
        .connect(tokio_stream::iter(frames))
        .await
        .expect("the stream opens")
        .into_inner();
    let mut answers = Vec::new();
    while let Some(frame) = stream.message().await.expect("no error") {
        answers.push(frame);
    }
    answers
}

fn frame(id: u64, body: Ask) -> ClientFrame {
    ClientFrame {
        id,
        timeout_ms: 0,
        body: Some(body),
    }
}

fn error_of(frame: &ServerFrame) -> Option<ErrorCode> {
    match &frame.body {
        Some(Reply::Error(error)) => error.error_code(),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_on_a_stream_without_a_hello_or_with_one_that_was_refused() {
    let node = TestNode::start().await;
    let answers = answers_to(&node, vec![frame(1, put(1))]).await;
    assert_eq!(
        answers.iter().map(error_of).collect::<Vec<_>>(),
        [Some(ErrorCode::Invalid)]
    );
    let elsewhere = v1::HelloRequest {
        cluster_id: Bytes::from_static(&[9; 16]),
        ..Default::default()
    };
    let answers = answers_to(&node, vec![frame(1, Ask::Hello(elsewhere)), frame(2, put(1))]).await;
    assert_eq!(
        answers.iter().map(error_of).collect::<Vec<_>>(),
        [Some(ErrorCode::WrongCluster)]
    );
    let mut stream = Stream::open(&node).await;
    stream
        .send(
            1,
            Ask::List(v1::ListRequest {
                cache: CACHE.to_owned(),
                ..Default::default()
            }),
        )
        .await;
    let Some(Reply::List(list)) = stream.next().await.expect("an answer").body else {
        panic!("no list")
    };
    assert!(list.keys.is_empty());
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_belongs_to_one_request_or_watch_at_a_time() {
    let node = TestNode::start().await;
    let mut stream = Stream::open(&node).await;
    stream.send(7, watch_all()).await;
    let started = stream.next().await.expect("the stream goes on");
    assert!(matches!(
        started,
        ServerFrame {
            id: 7,
            body: Some(Reply::WatchEvent(_))
        }
    ));
    for id in [7, 0] {
        stream.send(id, put(1)).await;
        let refused = stream.next().await.expect("the stream goes on");
        assert_eq!((refused.id, error_of(&refused)), (id, Some(ErrorCode::Invalid)));
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_have_ended_make_room_for_others() {
    let node = TestNode::start().await;
    let mut stream = Stream::open(&node).await;
    let nowhere = || {
        Ask::Watch(v1::WatchRequest {
            cache: "nowhere".to_owned(),
            target: Some(v1::watch_request::Target::All(true)),
            ..Default::default()
        })
    };
    for id in 1..=1_100 {
        stream.send(id, nowhere()).await;
        let ended = stream.next().await.expect("the stream goes on");
        let Some(Reply::WatchEnded(end)) = ended.body else {
            panic!("not ended: {ended:?}")
        };
        let code = end.error.and_then(|error| error.error_code());
        assert_eq!((ended.id, code), (id, Some(ErrorCode::NotFound)));
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_with_state_tells_what_is_there_and_then_what_changes() {
    let node = TestNode::start().await;
    let mut stream = Stream::open(&node).await;
    for id in 1..=2_500 {
        stream.send(id, put(id)).await;
        stream.next().await.expect("the stream goes on");
    }
    let with_state = Ask::Watch(v1::WatchRequest {
        cache: CACHE.to_owned(),
        target: Some(v1::watch_request::Target::Prefix(Bytes::from_static(b"k"))),
        with_state: true,
        ..Default::default()
    });
    stream.send(9_000, with_state).await;
    let (mut keys, mut at) = (Vec::new(), 0);
    loop {
        let Some(Reply::WatchEvent(event)) = stream.next().await.expect("the stream goes on").body else {
            panic!()
        };
        match event.event {
            Some(v1::watch_event::Event::Started(started)) => at = started.revision,
            Some(v1::watch_event::Event::State(state)) => {
                assert_eq!(state.revision, at);
                keys.extend(state.keys);
                if state.last {
                    break;
                }
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(keys.len(), 2_500);
    stream.send(9_001, put(1)).await;
    let mut told = None;
    while told.is_none() {
        if let Some(Reply::WatchEvent(event)) = stream.next().await.expect("the stream goes on").body
            && let Some(v1::watch_event::Event::Changes(changes)) = event.event
        {
            told = changes.changes.first().map(|change| change.revision);
        }
    }
    assert!(told > Some(at));
    node.node.stop().await;
}
