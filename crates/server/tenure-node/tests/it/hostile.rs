//! Clients that break the protocol, say nothing, or do not read: each is told by name or let go, and the node goes on.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tenure_api::ErrorCode;
use tenure_api::limits::MESSAGE_BYTES_MAX;
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, ServerFrame, WireError};
use tenure_node::config::CONNECTIONS_MAX;
use tenure_replica::Runtime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};

use crate::overload_wire::{connect, http_get, metric, now, open, start};
use crate::streams_door::Door;
use crate::support::{CACHE, TestNode};

const PATIENCE: Duration = Duration::from_secs(40);

/// Messages as they are, whatever they hold.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// What a unary call is answered that carries these bytes.
async fn call(node: &TestNode, path: &'static str, message: Bytes) -> Result<Bytes, WireError> {
    let mut client = tonic::client::Grpc::new(node.channel().await);
    client.ready().await.expect("the node takes calls");
    let path = PathAndQuery::from_static(path);
    let answered = client.unary(Request::new(message), path, Raw).await;
    answered.map(tonic::Response::into_inner).map_err(|status| {
        let error = WireError::from_status(&status).expect("a trailer of ours");
        error.unwrap_or_else(|| panic!("no error of ours: {status:?}"))
    })
}

/// What a stream is answered on which these messages are sent.
async fn stream(node: &TestNode, messages: Vec<Bytes>) -> Vec<ServerFrame> {
    let mut client = tonic::client::Grpc::new(node.channel().await);
    client.ready().await.expect("the node takes calls");
    let path = PathAndQuery::from_static("/tenure.v1.Mux/Connect");
    let asked = Request::new(tokio_stream::iter(messages));
    let mut answers = client
        .streaming(asked, path, Raw)
        .await
        .expect("the stream opens")
        .into_inner();
    let mut frames = Vec::new();
    while let Ok(Ok(Some(answer))) = tokio::time::timeout(PATIENCE, answers.message()).await {
        frames.push(prost::Message::decode(answer).expect("a frame"));
    }
    frames
}

fn encoded(id: u64, body: Ask) -> Bytes {
    let frame = v1::ClientFrame {
        id,
        timeout_ms: 0,
        body: Some(body),
    };
    prost::Message::encode_to_vec(&frame).into()
}

fn hello() -> Bytes {
    encoded(1, Ask::Hello(crate::streams_door::hello()))
}

fn codes(frames: &[ServerFrame]) -> Vec<(u64, Option<ErrorCode>)> {
    let code = |frame: &ServerFrame| match &frame.body {
        Some(Reply::Error(error)) => error.error_code(),
        _ => None,
    };
    frames.iter().map(|frame| (frame.id, code(frame))).collect()
}

async fn is_well(node: &TestNode) {
    assert!(http_get(node, "/readyz").await.ends_with("ready\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_none_or_too_long_is_answered_by_name_on_every_door() {
    let node = TestNode::start().await;
    let too_long = Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]);
    // Field 1 with wire type 7, which there is not.
    let garbage = Bytes::from_static(&[0x0f, 0xff, 0xff]);
    for path in [
        "/tenure.v1.Keys/Put",
        "/tenure.v1.Sessions/Open",
        "/tenure.v1.Cluster/Hello",
    ] {
        let refused = call(&node, path, too_long.clone()).await.expect_err("it is too long");
        assert_eq!(refused.error_code(), Some(ErrorCode::Limit), "{path}");
        let refused = call(&node, path, garbage.clone()).await.expect_err("it is no message");
        assert_eq!(refused.error_code(), Some(ErrorCode::Invalid), "{path}");
    }
    for (message, code) in [(too_long, ErrorCode::Limit), (garbage, ErrorCode::Invalid)] {
        let first = stream(&node, vec![message.clone()]).await;
        assert_eq!(codes(&first), [(0, Some(code))]);
        let later = stream(&node, vec![hello(), message]).await;
        assert_eq!(codes(&later), [(1, None), (0, Some(code))]);
    }
    is_well(&node).await;
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_breaks_a_rule_is_answered_by_name_and_the_stream_goes_on() {
    let node = TestNode::start().await;
    let put = v1::PutRequest {
        cache: CACHE.to_owned(),
        key: Bytes::from_static(b"k"),
        ..Default::default()
    };
    let hello = crate::streams_door::hello;
    let keep_alive = |group| {
        let session = v1::SessionRef {
            id: 1,
            secret: Bytes::from_static(&[1; 16]),
        };
        Ask::KeepAlive(v1::KeepAliveRequest {
            attempt: 1,
            sessions: vec![v1::SessionInGroup {
                group,
                session: Some(session),
            }],
        })
    };
    let cases = [
        (
            "an identity of no kind",
            Ask::Put(v1::PutRequest {
                request: Some(v1::RequestId { kind: None }),
                ..put.clone()
            }),
            ErrorCode::Invalid,
        ),
        (
            "a consistency that there is not",
            Ask::CreateCache(v1::CreateCacheRequest {
                name: "other".to_owned(),
                consistency: 77,
                ..Default::default()
            }),
            ErrorCode::Invalid,
        ),
        (
            "no protocol",
            Ask::Hello(v1::HelloRequest { protocol: 0, ..hello() }),
            ErrorCode::Invalid,
        ),
        (
            "another cluster",
            Ask::Hello(v1::HelloRequest {
                cluster_id: Bytes::from_static(&[9; 16]),
                ..hello()
            }),
            ErrorCode::WrongCluster,
        ),
        (
            "a keep-alive in a group that there is not",
            keep_alive(99),
            ErrorCode::NotFound,
        ),
        ("a keep-alive in the system group", keep_alive(0), ErrorCode::Invalid),
    ];
    let (asking, mut answers) = open(node.channel().await).await;
    for (id, (what, ask, code)) in (1..).zip(cases) {
        assert!(asking.send(id, ask).await);
        let answer = answers.next().await.expect("the stream goes on");
        let found = match answer.body {
            Some(Reply::Error(error)) => error.error_code(),
            Some(Reply::KeepAlive(reply)) => match reply.sessions.into_iter().next().and_then(|kept| kept.result) {
                Some(v1::kept_alive::Result::Failed(error)) => error.error_code(),
                _ => None,
            },
            _ => None,
        };
        assert_eq!((answer.id, found), (id, Some(code)), "{what}");
    }
    node.node.stop().await;
}

/// Waits until the node closes a connection, or the patience is over.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 1_024];
    let closed = async { while matches!(stream.read(&mut buffer).await, Ok(1..)) {} };
    tokio::time::timeout(PATIENCE, closed).await.is_ok()
}

/// A connection whose peer is gone once it has said this and was answered: it reads, and says nothing more.
async fn gone_after_its_first_words(node: &TestNode, words: &[u8]) -> TcpStream {
    let mut stream = connect(node).await;
    stream.write_all(words).await.expect("it is sent");
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).await.expect("it is answered");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_or_hardly_anything_are_closed_in_time() {
    let node = TestNode::start().await;
    let began = now();
    let mut silent = connect(&node).await;
    let mut half = connect(&node).await;
    half.write_all(b"PRI * HTTP/2.0\r\n").await.expect("it is sent");
    // A byte now and then, for as long as the node takes them.
    let mut slow = connect(&node).await;
    let drip = async {
        for byte in b"GET / HTTP/1.1\r\nx: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"
            .iter()
            .cycle()
        {
            if slow.write_all(&[*byte]).await.is_err() {
                return;
            }
            wait_between_looks(Duration::from_millis(200)).await;
        }
    };
    let dripped = tokio::time::timeout(PATIENCE, drip);
    let mut mute = gone_after_its_first_words(&node, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let mut idle = gone_after_its_first_words(&node, b"GET /healthz HTTP/1.1\r\nhost: node\r\n\r\n").await;
    let (silent, half, mute, idle, dripped) = tokio::join!(
        is_closed(&mut silent),
        is_closed(&mut half),
        is_closed(&mut mute),
        is_closed(&mut idle),
        dripped
    );
    assert!(silent && half && dripped.is_ok());
    assert!(mute, "it answered no ping");
    assert!(idle, "it asked nothing more");
    assert!(now() - began < PATIENCE);
    is_well(&node).await;
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_too_many_is_closed_at_once_and_makes_room_when_another_goes() {
    let node = start(4, Runtime::system()).await;
    let mut taken = Vec::new();
    while taken.len() < 4 {
        let mut stream = connect(&node).await;
        // The one that created the cache may not be gone yet.
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: node\r\n\r\n")
            .await
            .expect("it is sent");
        let mut answer = [0; 12];
        if stream.read_exact(&mut answer).await.is_ok() {
            taken.push(stream);
        }
    }
    let mut refused = connect(&node).await;
    let mut nothing = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, refused.read_to_end(&mut nothing)).await;
    assert!(ended.is_ok() && nothing.is_empty());
    taken.pop();
    let began = now();
    loop {
        let mut stream = connect(&node).await;
        let asked = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: node\r\n\r\n").await;
        let mut answer = [0; 12];
        if asked.is_ok() && stream.read_exact(&mut answer).await.is_ok() {
            break;
        }
        assert!(now() - began < PATIENCE, "there is no room");
    }
    drop(taken);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_a_bounded_number_of_bytes_and_then_loses_its_connection() {
    let node = start(CONNECTIONS_MAX, Runtime::system()).await;
    let (asking, mut answers) = open(node.channel().await).await;
    let put = v1::PutRequest {
        cache: CACHE.to_owned(),
        key: Bytes::from_static(b"large"),
        value: Bytes::from(vec![1; 1 << 20]),
        ..Default::default()
    };
    assert!(asking.send(1, Ask::Put(put)).await);
    assert!(answers.next().await.is_some());
    for id in 2..=300 {
        let get = v1::GetRequest {
            cache: CACHE.to_owned(),
            key: Bytes::from_static(b"large"),
            ..Default::default()
        };
        assert!(asking.send(id, Ask::Get(get)).await);
    }
    let began = now();
    let mut most = 0.0_f64;
    while metric(&node, "tenure_connections_stalled_total").await < 1.0 {
        most = most.max(metric(&node, "tenure_answer_bytes").await);
        assert!(now() - began < PATIENCE, "it was not let go");
        wait_between_looks(Duration::from_millis(50)).await;
    }
    assert!(
        most > 1_000_000.0 && most <= f64::from((4 << 20) + (64 << 10)),
        "{most} bytes waited"
    );
    assert_eq!(metric(&node, "tenure_answer_bytes").await, 0.0);
    // What was on its way may still be read, then the stream is over.
    let mut read = 0;
    while answers.next().await.is_some() {
        read += 1;
    }
    assert!(read < 299, "it was let go");
    is_well(&node).await;
    node.node.stop().await;
}

/// A client of HTTP/2 that answers pings and makes no room for what it is sent.
struct Unreading {
    stream: TcpStream,
    calls: u32,
}

/// A frame of HTTP/2.
fn h2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

impl Unreading {
    async fn connect(node: &TestNode) -> Unreading {
        let mut stream = connect(node).await;
        let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        first.extend(h2_frame(4, 0, 0, &[]));
        stream.write_all(&first).await.expect("it is sent");
        Unreading { stream, calls: 0 }
    }

    /// Begins a call, if the connection is still there.
    async fn call(&mut self, path: &str, message: &impl prost::Message) {
        let mut headers = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "node"),
            (":path", path),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            headers.push(0);
            for text in [name, value] {
                headers.push(u8::try_from(text.len()).expect("it is short"));
                headers.extend(text.as_bytes());
            }
        }
        let message = message.encode_to_vec();
        let mut body = vec![0];
        body.extend(u32::try_from(message.len()).expect("it is short").to_be_bytes());
        body.extend(message);
        let id = 1 + 2 * self.calls;
        self.calls += 1;
        let mut frames = h2_frame(1, 4, id, &headers);
        frames.extend(h2_frame(0, 1, id, &body));
        let _ = self.stream.write_all(&frames).await;
    }

    /// Answers pings until the connection is over, and returns how many bytes of answers came.
    async fn until_it_is_closed(mut self) -> usize {
        let mut data = 0;
        loop {
            let mut head = [0; 9];
            if self.stream.read_exact(&mut head).await.is_err() {
                return data;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).expect("it is short")];
            if self.stream.read_exact(&mut payload).await.is_err() {
                return data;
            }
            match (head[3], head[4]) {
                (0, _) => data += payload.len(),
                (6, 0) => {
                    let _ = self.stream.write_all(&h2_frame(6, 1, 0, &payload)).await;
                }
                _ => {}
            }
        }
    }
}

/// A megabyte under a key and in a stream, and a session whose TTL is short.
async fn large_things(door: &mut Door) -> v1::SessionInGroup {
    let value = Bytes::from(vec![1; 1 << 20]);
    door.create(v1::StreamSettings::default()).await;
    door.append(v1::Append {
        records: vec![value.clone()],
        ..Default::default()
    })
    .await;
    for key in [&b"large"[..], b"larger"] {
        let put = v1::PutRequest {
            cache: CACHE.to_owned(),
            key: Bytes::copy_from_slice(key),
            value: value.clone(),
            ..Default::default()
        };
        door.keys.put(put).await.expect("it is put");
    }
    let opening = v1::OpenSessionRequest {
        nonce: Bytes::from_static(&[7; 16]),
        ttl_ms: Some(4_000),
        ..Default::default()
    };
    let opened = door.sessions.open(opening).await.expect("it is opened").into_inner();
    v1::SessionInGroup {
        group: opened.header.expect("a header").group,
        session: opened.session,
    }
}

async fn is_renewed(door: &mut Door, session: &v1::SessionInGroup, attempt: u64) -> bool {
    let request = v1::KeepAliveRequest {
        attempt,
        sessions: vec![session.clone()],
    };
    let reply = door.sessions.keep_alive(request).await.expect("it is answered");
    let kept = reply
        .into_inner()
        .sessions
        .into_iter()
        .next()
        .and_then(|kept| kept.result);
    matches!(kept, Some(v1::kept_alive::Result::Renewed(_)))
}

/// So many calls of each kind whose answers are large, each kind over a connection of its own.
async fn call_and_read_nothing(node: &TestNode, calls: usize) -> Vec<Unreading> {
    let (cache, key) = (CACHE.to_owned(), Bytes::from_static(b"large"));
    let stream = crate::streams_door::STREAM.to_owned();
    let earliest = Some(v1::ReadFrom {
        from: Some(v1::read_from::From::Earliest(true)),
    });
    let get = v1::GetRequest {
        cache: cache.clone(),
        key,
        ..Default::default()
    };
    let list = v1::ListRequest {
        cache: cache.clone(),
        ..Default::default()
    };
    let read = v1::ReadRecordsRequest {
        stream: stream.clone(),
        from: earliest,
        ..Default::default()
    };
    let follow = v1::FollowRequest {
        stream,
        from: earliest,
        ..Default::default()
    };
    let watch = v1::WatchRequest {
        cache,
        target: Some(v1::watch_request::Target::All(true)),
        with_state: true,
        ..Default::default()
    };
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(Unreading::connect(node).await);
    }
    for _ in 0..calls {
        clients[0].call("/tenure.v1.Keys/Get", &get).await;
        clients[1].call("/tenure.v1.Keys/List", &list).await;
        clients[2].call("/tenure.v1.Streams/Read", &read).await;
        clients[3].call("/tenure.v1.Streams/Follow", &follow).await;
        clients[4].call("/tenure.v1.Keys/Watch", &watch).await;
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn unary_answers_that_are_not_read_are_bounded_and_the_connection_is_lost_whatever_was_called() {
    let node = start(CONNECTIONS_MAX, Runtime::system()).await;
    let mut door = Door::of(&node).await;
    let session = large_things(&mut door).await;
    let clients = call_and_read_nothing(&node, 200).await;
    let count = clients.len();
    let closed = futures_util::future::join_all(clients.into_iter().map(Unreading::until_it_is_closed));
    let closed = tokio::time::timeout(PATIENCE, closed);
    let mut closed = std::pin::pin!(closed);
    let (mut most, mut attempt) = (0.0_f64, 0);
    let came = loop {
        tokio::select! {
            came = &mut closed => break came.expect("each loses its connection"),
            () = wait_between_looks(Duration::from_millis(300)) => {}
        }
        attempt += 1;
        assert!(
            is_renewed(&mut door, &session, attempt).await,
            "another client's session"
        );
        most = most.max(metric(&node, "tenure_answer_bytes").await);
    };
    assert!(
        came.iter().all(|bytes| *bytes < 1 << 16),
        "no more than the window: {came:?}"
    );
    // What is beyond is the few bytes around each message.
    let bound = count * ((4 << 20) + (64 << 10));
    assert!(
        most > 5_000_000.0 && most <= f64::from(u32::try_from(bound).expect("it fits")),
        "{most} bytes waited"
    );
    assert_eq!(metric(&node, "tenure_connections_stalled_total").await, 5.0);
    // A client sees its end before the node has dropped the last of its calls.
    let let_go = tokio::time::timeout(PATIENCE, wait_until_nothing_waits(&node));
    let_go.await.expect("what waited is dropped with its connection");
    // One that follows the last too soon is refused.
    wait_between_looks(Duration::from_millis(300)).await;
    assert!(
        is_renewed(&mut door, &session, attempt + 1).await,
        "it is kept alive after all"
    );
    is_well(&node).await;
    node.node.stop().await;
}

/// Until no answer waits to be written any more; whoever calls it has a limit.
async fn wait_until_nothing_waits(node: &TestNode) {
    while metric(node, "tenure_answer_bytes").await > 0.0 {
        wait_between_looks(Duration::from_millis(20)).await;
    }
}

/// Lets the node go on for a moment; whoever calls it has a limit.
async fn wait_between_looks(time: Duration) {
    tokio::time::sleep(time).await;
}
