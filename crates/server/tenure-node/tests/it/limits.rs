//! Each bound that a client can meet, met through the wire and answered by its name.
//!
//! | bound | test |
//! |---|---|
//! | names, keys, values, labels, TTLs, prefixes, acknowledgements, sessions of a keep-alive, `not_after` | `what_is_too_large_for_one_request_is_refused_by_name` |
//! | parts and bytes of a transaction, records, bytes and message id of an append, window of message ids | the same |
//! | requests that a session has remembered | `a_session_remembers_a_bounded_number_of_requests` |
//! | what a session owns | `a_session_owns_a_bounded_number_of_keys` |
//! | caches and streams of a namespace | `a_namespace_has_a_bounded_number_of_objects` |
//! | namespaces of a cluster | `a_cluster_has_a_bounded_number_of_namespaces` |
//! | requests under way on a stream | `a_stream_has_a_bounded_number_of_requests_under_way` |
//! | watches of a stream, watchers of a connection | `a_connection_has_a_share_of_the_watchers_of_a_node` |
//! | watchers of a node | `follow_frames` |
//! | what waits for a watcher | `a_watcher_that_does_not_read_is_told_where_to_resume_and_the_writers_go_on` |
//! | a message, connections of a node, answers that wait | `hostile` |
//! | requests that wait, and how long | `overload` |
//! | keys and bytes of one step of a deletion by prefix | `counters` |
//!
//! Commands and bytes of an entry, ends of an entry, and remembered one-shot requests are bounds that no single client
//! can see the edge of; they are met in the tests of the replica's line and of the machine.

use std::time::Duration;

use bytes::Bytes;
use tenure_api::ErrorCode;
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::keys_client::KeysClient;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, WireError, request_id, txn_operation, watch_event, watch_request};
use tenure_node::config::CONNECTIONS_MAX;

use crate::overload_wire::{Answers, Asking, open, slow_world, start};
use crate::streams_door::{append_request, record_of};
use crate::support::{CACHE, TestNode};

fn put(key: &str) -> v1::PutRequest {
    v1::PutRequest {
        cache: CACHE.to_owned(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::from_static(b"v"),
        ..Default::default()
    }
}

fn put_bytes(key: usize, value: usize) -> Ask {
    Ask::Put(v1::PutRequest {
        key: Bytes::from(vec![b'k'; key]),
        value: Bytes::from(vec![b'v'; value]),
        ..put("")
    })
}

fn put_ttl(ttl_ms: u64) -> Ask {
    Ask::Put(v1::PutRequest {
        ttl_ms: Some(ttl_ms),
        ..put("k")
    })
}

fn session_of(ttl_ms: u64, label: usize) -> Ask {
    Ask::OpenSession(v1::OpenSessionRequest {
        nonce: Bytes::from_static(&[9; 16]),
        ttl_ms: Some(ttl_ms),
        label: "l".repeat(label),
        ..Default::default()
    })
}

fn append(append: v1::Append) -> Ask {
    Ask::Append(append_request(append))
}

fn txn(operations: usize, value: usize) -> Ask {
    let put = |number| v1::TxnOperation {
        kind: Some(txn_operation::Kind::Put(Box::new(txn_operation::Put {
            cache: CACHE.to_owned(),
            key: Bytes::from(format!("k{number}")),
            value: Bytes::from(vec![1; value]),
            ..Default::default()
        }))),
    };
    Ask::Txn(v1::TxnRequest {
        then: (0..operations).map(put).collect(),
        ..Default::default()
    })
}

fn one_shot(id: u8, not_after_us: u64) -> Ask {
    let one_shot = v1::OneShot {
        id: Bytes::from(vec![id; 16]),
        not_after_us,
    };
    Ask::Put(v1::PutRequest {
        request: Some(v1::RequestId {
            kind: Some(request_id::Kind::OneShot(one_shot)),
        }),
        ..put("k")
    })
}

fn error_of(reply: Option<Reply>) -> Option<WireError> {
    match reply {
        Some(Reply::Error(error)) => Some(error),
        _ => None,
    }
}

/// Asks one thing, and returns by which name it was refused, if it was.
async fn ask(wire: &mut (Asking, Answers), id: u64, ask: Ask) -> (Option<ErrorCode>, Option<Reply>) {
    assert!(wire.0.send(id, ask).await, "the stream is open");
    let frame = wire.1.next().await.expect("the stream goes on");
    assert_eq!(frame.id, id);
    let code = error_of(frame.body.clone()).and_then(|error| error.error_code());
    (code, frame.body)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_for_one_request_is_refused_by_name() {
    use ErrorCode::{Invalid, Limit};
    let node = TestNode::start().await;
    let mut wire = open(node.channel().await).await;
    let (_, hello) = ask(&mut wire, 1, Ask::Hello(crate::streams_door::hello())).await;
    let Some(Reply::Hello(hello)) = hello else {
        panic!("no hello")
    };
    let create_stream = |dedup_window_ms| {
        Ask::CreateStream(v1::CreateStreamRequest {
            name: "windows".to_owned(),
            settings: Some(v1::StreamSettings {
                dedup_window_ms: Some(dedup_window_ms),
                ..Default::default()
            }),
            ..Default::default()
        })
    };
    let stream = v1::CreateStreamRequest {
        name: crate::streams_door::STREAM.to_owned(),
        ..Default::default()
    };
    assert_eq!(ask(&mut wire, 2, Ask::CreateStream(stream)).await.0, None);
    let cache_of = |length: usize| {
        Ask::CreateCache(v1::CreateCacheRequest {
            name: "n".repeat(length),
            ..Default::default()
        })
    };
    let prefix_of = |length: usize| {
        Ask::List(v1::ListRequest {
            cache: CACHE.to_owned(),
            prefix: Bytes::from(vec![1; length]),
            ..Default::default()
        })
    };
    let acknowledge = |count: usize| {
        Ask::Acknowledge(v1::AcknowledgeRequest {
            session: Some(v1::SessionRef {
                id: 1,
                secret: Bytes::from_static(&[1; 16]),
            }),
            also: vec![1; count],
            ..Default::default()
        })
    };
    let keep_alive = |count: usize| {
        Ask::KeepAlive(v1::KeepAliveRequest {
            attempt: 1,
            sessions: vec![v1::SessionInGroup::default(); count],
        })
    };
    let message_id = |length: usize| v1::Append {
        message_id: Some(Bytes::from(vec![1; length])),
        ..record_of(1)
    };
    let many = v1::Append {
        records: vec![Bytes::new(); 1_025],
        ..Default::default()
    };
    let heavy = v1::Append {
        records: vec![Bytes::from(vec![1; 1 << 20]); 3],
        ..Default::default()
    };
    let ten_years_ms = 10 * 365 * 24 * 3_600_000;
    // What is within the bound and what is beyond it.
    let cases = [
        ("a name", Some(cache_of(128)), cache_of(129), Invalid),
        ("no name", None, cache_of(0), Invalid),
        ("a key", Some(put_bytes(4_096, 1)), put_bytes(4_097, 1), Limit),
        ("no key", None, put_bytes(0, 1), Invalid),
        (
            "a value",
            Some(put_bytes(1, 1 << 20)),
            put_bytes(1, (1 << 20) + 1),
            Limit,
        ),
        ("a prefix", Some(prefix_of(4_096)), prefix_of(4_097), Limit),
        ("a short TTL", Some(put_ttl(1)), put_ttl(0), Invalid),
        (
            "a long TTL",
            Some(put_ttl(ten_years_ms)),
            put_ttl(ten_years_ms + 1),
            Invalid,
        ),
        ("a short session", Some(session_of(500, 1)), session_of(499, 1), Invalid),
        ("a long session", None, session_of(24 * 3_600_000 + 1, 1), Invalid),
        ("a label", None, session_of(1_000, 257), Limit),
        ("acknowledgements", None, acknowledge(1_025), Limit),
        (
            "sessions of a keep-alive",
            Some(keep_alive(1_024)),
            keep_alive(1_025),
            Limit,
        ),
        (
            "a request remembered for long",
            Some(one_shot(1, hello.time_us + 60_000_000)),
            one_shot(2, hello.time_us + 180_000_000),
            Invalid,
        ),
        ("operations of a transaction", Some(txn(128, 1)), txn(129, 1), Limit),
        ("bytes of a transaction", None, txn(3, 1 << 20), Limit),
        ("records of an append", None, append(many), Limit),
        (
            "a record",
            Some(append(record_of(1 << 20))),
            append(record_of((1 << 20) + 1)),
            Limit,
        ),
        ("bytes of an append", None, append(heavy), Limit),
        (
            "a message id",
            Some(append(message_id(255))),
            append(message_id(256)),
            Limit,
        ),
        (
            "a window",
            Some(create_stream(24 * 3_600_000)),
            create_stream(24 * 3_600_000 + 1),
            Invalid,
        ),
    ];
    let mut id = 10;
    for (what, within, beyond, code) in cases {
        id += 2;
        if let Some(within) = within {
            let answered = ask(&mut wire, id, within).await;
            assert_eq!(answered.0, None, "{what} within its bound: {:?}", answered.1);
        }
        assert_eq!(
            ask(&mut wire, id + 1, beyond).await.0,
            Some(code),
            "{what} beyond its bound"
        );
    }
    node.node.stop().await;
}

async fn open_session(wire: &mut (Asking, Answers)) -> v1::SessionRef {
    let (_, reply) = ask(wire, 1, session_of(60_000, 1)).await;
    match reply {
        Some(Reply::OpenSession(reply)) => reply.session.expect("a session"),
        other => panic!("not opened: {other:?}"),
    }
}

/// Asks for all of these at once and returns how many were refused by which name.
async fn ask_all(wire: &mut (Asking, Answers), asks: impl ExactSizeIterator<Item = Ask>) -> Vec<(ErrorCode, usize)> {
    let count = asks.len();
    let (asking, answers) = (wire.0.clone(), &mut wire.1);
    let send = async {
        for (id, ask) in (1_000..).zip(asks) {
            assert!(asking.send(id, ask).await, "the stream is open");
        }
    };
    let collect = async {
        let mut refused: Vec<(ErrorCode, usize)> = Vec::new();
        for _ in 0..count {
            let frame = answers.next().await.expect("the stream goes on");
            let Some(error) = error_of(frame.body) else { continue };
            let code = error.error_code().expect("a name that is known");
            match refused.iter_mut().find(|(known, _)| *known == code) {
                Some((_, count)) => *count += 1,
                None => refused.push((code, 1)),
            }
        }
        refused
    };
    tokio::join!(send, collect).1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_remembers_a_bounded_number_of_requests() {
    let node = TestNode::start().await;
    let mut wire = open(node.channel().await).await;
    let session = open_session(&mut wire).await;
    let numbered = |seq| {
        let numbered = v1::SessionRequest {
            session: Some(session.clone()),
            seq,
            ..Default::default()
        };
        Ask::Put(v1::PutRequest {
            request: Some(v1::RequestId {
                kind: Some(request_id::Kind::Session(numbered)),
            }),
            ..put("k")
        })
    };
    let asks: Vec<Ask> = (1..=1_030).map(numbered).collect();
    assert_eq!(ask_all(&mut wire, asks.into_iter()).await, [(ErrorCode::WindowFull, 6)]);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_owns_a_bounded_number_of_keys() {
    let node = TestNode::start().await;
    let mut wire = open(node.channel().await).await;
    let session = open_session(&mut wire).await;
    let owned = |number| {
        Ask::Put(v1::PutRequest {
            owner: Some(session.clone()),
            ..put(&format!("k{number}"))
        })
    };
    for half in [0..2_048, 2_048..4_096] {
        let asks: Vec<Ask> = half.map(owned).collect();
        assert_eq!(ask_all(&mut wire, asks.into_iter()).await, []);
    }
    assert_eq!(ask(&mut wire, 2, owned(4_096)).await.0, Some(ErrorCode::Limit));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_has_a_bounded_number_of_objects() {
    let node = TestNode::start().await;
    let mut wire = open(node.channel().await).await;
    let caches: Vec<Ask> = (0..1_023)
        .map(|number| {
            Ask::CreateCache(v1::CreateCacheRequest {
                name: format!("c{number}"),
                ..Default::default()
            })
        })
        .collect();
    // One is there already.
    assert_eq!(ask_all(&mut wire, caches.into_iter()).await, []);
    let stream = v1::CreateStreamRequest {
        name: "s".to_owned(),
        ..Default::default()
    };
    let refused = ask(&mut wire, 2, Ask::CreateStream(stream)).await.0;
    assert_eq!(refused, Some(ErrorCode::Limit));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_has_a_bounded_number_of_namespaces() {
    let node = TestNode::start().await;
    let mut wire = open(node.channel().await).await;
    let namespace = |number| {
        Ask::Hello(v1::HelloRequest {
            scope: Some(crate::overload_wire::scope(&format!("n{number}"))),
            create_namespace: true,
            ..crate::streams_door::hello()
        })
    };
    for part in 0..9_999_u32.div_ceil(1_000) {
        let asks: Vec<Ask> = (part * 1_000..(part * 1_000 + 1_000).min(9_999))
            .map(namespace)
            .collect();
        assert_eq!(ask_all(&mut wire, asks.into_iter()).await, []);
    }
    assert_eq!(ask(&mut wire, 2, namespace(10_000)).await.0, Some(ErrorCode::Limit));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_a_bounded_number_of_requests_under_way() {
    let (world, slowness) = slow_world();
    let node = start(CONNECTIONS_MAX, world).await;
    // So slow that none is answered while they are sent.
    slowness.set(Duration::from_secs(1));
    let mut wire = open(node.channel().await).await;
    let asks: Vec<Ask> = (0..4_296).map(|_| Ask::Put(put("k"))).collect();
    let refused = ask_all(&mut wire, asks.into_iter()).await;
    assert_eq!(refused, [(ErrorCode::Overloaded, 200)]);
    slowness.set(Duration::ZERO);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_has_a_share_of_the_watchers_of_a_node() {
    let node = TestNode::start().await;
    let watch = || {
        Ask::Watch(v1::WatchRequest {
            cache: CACHE.to_owned(),
            target: Some(watch_request::Target::Key(Bytes::from_static(b"k"))),
            ..Default::default()
        })
    };
    // Of one stream.
    let channel = node.channel().await;
    let mut streams = [
        open(channel.clone()).await,
        open(channel.clone()).await,
        open(channel).await,
    ];
    for (stream, count) in streams.iter_mut().zip([1_024, 1_024, 452]) {
        let asks: Vec<Ask> = (0..count).map(|_| watch()).collect();
        assert_eq!(ask_all(stream, asks.into_iter()).await, []);
    }
    for stream in [0, 2] {
        assert_eq!(ask(&mut streams[stream], 2, watch()).await.0, Some(ErrorCode::Limit));
    }
    // Another connection has its own share.
    let mut other = open(node.channel().await).await;
    assert_eq!(ask(&mut other, 2, watch()).await.0, None);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_does_not_read_is_told_where_to_resume_and_the_writers_go_on() {
    let node = TestNode::start().await;
    let mut keys = KeysClient::new(node.channel().await);
    let watch = v1::WatchRequest {
        cache: CACHE.to_owned(),
        target: Some(watch_request::Target::All(true)),
        ..Default::default()
    };
    let mut events = keys.watch(watch).await.expect("it begins").into_inner();
    let mut writer = KeysClient::new(node.channel().await);
    for _ in 0..40 {
        let large = v1::PutRequest {
            value: Bytes::from(vec![1; 512 << 10]),
            ..put("k")
        };
        writer.put(large).await.expect("it is written");
    }
    let mut last = 0;
    let ended = loop {
        match events.message().await {
            Ok(Some(event)) => {
                if let Some(watch_event::Event::Changes(changes)) = event.event {
                    last = changes.revision;
                }
            }
            Ok(None) => panic!("it ended without a word"),
            Err(status) => break status,
        }
    };
    let error = WireError::from_status(&ended)
        .expect("a trailer of ours")
        .expect("an error of ours");
    assert_eq!(error.error_code(), Some(ErrorCode::Lagged));
    // From there on a watch misses nothing.
    let resume_from = match error.detail {
        Some(v1::wire_error::Detail::ResumeFrom(revision)) => revision,
        other => panic!("it does not say where to resume: {other:?}"),
    };
    let rest = v1::WatchRequest {
        cache: CACHE.to_owned(),
        target: Some(watch_request::Target::All(true)),
        from: Some(resume_from),
        ..Default::default()
    };
    assert_eq!(resume_from, last + 1);
    let mut events = keys.watch(rest).await.expect("it goes on").into_inner();
    assert!(events.message().await.expect("no error").is_some());
    node.node.stop().await;
}
