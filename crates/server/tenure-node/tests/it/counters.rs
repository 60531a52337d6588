//! Counters and deletion by prefix, and the rules that all requests share.

use bytes::Bytes;
use tenure_api::ErrorCode;
use tenure_api::v1::{self, kept_alive};

use crate::streams_door::{Door, error_in, hello, numbered, refused, says, with_wrong_secret};
use crate::support::{CACHE, TestNode};

fn add(key: &str, delta: i64) -> v1::AddRequest {
    v1::AddRequest {
        cache: CACHE.to_owned(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        delta,
        ..Default::default()
    }
}

fn prefix(prefix: &str) -> v1::DeletePrefixRequest {
    v1::DeletePrefixRequest {
        cache: CACHE.to_owned(),
        prefix: Bytes::copy_from_slice(prefix.as_bytes()),
        ..Default::default()
    }
}

fn elsewhere() -> Option<v1::Scope> {
    Some(v1::Scope {
        tenant: "acme".to_owned(),
        namespace: "nowhere".to_owned(),
    })
}

/// Writes so many keys that begin so.
async fn fill(door: &mut Door, begins: &str, count: usize) {
    let keys: Vec<String> = (0..count).map(|key| format!("{begins}{key:06}")).collect();
    for keys in keys.chunks(128) {
        let put = |key: &String| v1::TxnOperation {
            kind: Some(v1::txn_operation::Kind::Put(Box::new(v1::txn_operation::Put {
                cache: CACHE.to_owned(),
                key: Bytes::copy_from_slice(key.as_bytes()),
                ..Default::default()
            }))),
        };
        let request = v1::TxnRequest {
            then: keys.iter().map(put).collect(),
            ..Default::default()
        };
        door.txns.execute(request).await.expect("done");
    }
}

async fn keys(door: &mut Door) -> Vec<Bytes> {
    let request = v1::ListRequest {
        cache: CACHE.to_owned(),
        keys_only: true,
        ..Default::default()
    };
    let reply = door.keys.list(request).await.expect("answered").into_inner();
    reply.keys.into_iter().map(|key| key.key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_is_created_with_its_ttl_and_keeps_it_and_reads_as_text() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let with_ttl = |delta, ttl_ms| v1::AddRequest {
        ttl_ms,
        ..add("hits", delta)
    };
    let first = door
        .keys
        .add(with_ttl(-3, Some(60_000)))
        .await
        .expect("answered")
        .into_inner();
    let created = first.done.expect("done");
    assert_eq!((created.sum, created.version), (-3, created.created));
    assert_eq!(first.remaining_us, Some(60_000_000));
    assert_eq!(door.value("hits").await.as_deref(), Some(b"-3".as_slice()));
    let second = door
        .keys
        .add(with_ttl(5, Some(600_000)))
        .await
        .expect("answered")
        .into_inner();
    let changed = second.done.expect("done");
    assert_eq!((changed.sum, changed.created), (2, created.created));
    assert!(changed.version > created.version);
    assert!(second.remaining_us.is_some_and(|remaining| remaining <= 60_000_000));
    let endless = door.keys.add(add("endless", 0)).await.expect("answered").into_inner();
    assert_eq!((endless.done.expect("done").sum, endless.remaining_us), (0, None));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_added_is_refused_by_name_and_changes_nothing() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    door.put("text", Bytes::from_static(b"+1")).await;
    door.put("high", Bytes::from(i64::MAX.to_string())).await;
    let key = |key: Vec<u8>| v1::AddRequest {
        key: Bytes::from(key),
        ..add("", 1)
    };
    let cases = [
        (add("text", 1), says(ErrorCode::WrongType, "value")),
        (add("high", 1), says(ErrorCode::Invalid, "delta")),
        (key(Vec::new()), says(ErrorCode::Invalid, "key")),
        (key(vec![1; 4_097]), says(ErrorCode::Limit, "key bytes 4096")),
        (
            v1::AddRequest {
                ttl_ms: Some(0),
                ..add("k", 1)
            },
            says(ErrorCode::Invalid, "ttl_ms"),
        ),
        (
            v1::AddRequest {
                cache: "a b".to_owned(),
                ..add("k", 1)
            },
            says(ErrorCode::Invalid, "cache"),
        ),
        (
            v1::AddRequest {
                cache: "nosuch".to_owned(),
                ..add("k", 1)
            },
            says(ErrorCode::NotFound, "cache"),
        ),
        (
            v1::AddRequest {
                scope: elsewhere(),
                ..add("k", 1)
            },
            says(ErrorCode::NotFound, "namespace"),
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(refused(door.keys.add(request).await), expected);
    }
    assert_eq!(keys(&mut door).await, ["high", "text"]);
    assert_eq!(door.value("text").await.as_deref(), Some(b"+1".as_slice()));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_addition_is_answered_with_the_first_sum_and_another_under_its_id_is_refused() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let session = door.open(1, None).await;
    for request in [numbered(&session, 1), door.one_shot(9).await] {
        let asked = |delta| v1::AddRequest {
            request: request.clone(),
            ..add("n", delta)
        };
        let first = door.keys.add(asked(7)).await.expect("answered").into_inner();
        door.keys.add(add("n", 1)).await.expect("answered");
        let again = door.keys.add(asked(7)).await.expect("answered").into_inner();
        assert_eq!((first.repeated, again.repeated), (false, true));
        assert_eq!(first.done, again.done);
        assert_eq!(refused(door.keys.add(asked(8)).await).0, ErrorCode::RequestReused);
    }
    assert_eq!(door.value("n").await.as_deref(), Some(b"16".as_slice()));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_by_prefix_takes_at_most_4096_keys_a_step_in_order_and_says_whether_there_are_more() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    fill(&mut door, "a/", 5_000).await;
    door.put("b", Bytes::new()).await;
    let session = door.open(1, None).await;
    let step = |seq| v1::DeletePrefixRequest {
        request: numbered(&session, seq),
        ..prefix("a/")
    };
    let first = door.keys.delete_prefix(step(1)).await.expect("answered").into_inner();
    assert_eq!((first.removed, first.more, first.repeated), (4_096, true, false));
    assert_eq!(keys(&mut door).await[0], "a/004096");
    let again = door.keys.delete_prefix(step(1)).await.expect("answered").into_inner();
    assert_eq!(
        (again.removed, again.revision, again.repeated),
        (4_096, first.revision, true)
    );
    let last = door.keys.delete_prefix(step(2)).await.expect("answered").into_inner();
    assert_eq!((last.removed, last.more), (904, false));
    assert!(last.revision > first.revision);
    assert_eq!(keys(&mut door).await, ["b"]);
    let none = door
        .keys
        .delete_prefix(prefix("a/"))
        .await
        .expect("answered")
        .into_inner();
    assert_eq!((none.removed, none.revision, none.more), (0, None, false));
    let all = door
        .keys
        .delete_prefix(prefix(""))
        .await
        .expect("answered")
        .into_inner();
    assert_eq!((all.removed, all.more), (1, false));
    let cases = [
        (
            v1::DeletePrefixRequest {
                prefix: Bytes::from(vec![1; 4_097]),
                ..prefix("")
            },
            says(ErrorCode::Limit, "key bytes 4096"),
        ),
        (
            v1::DeletePrefixRequest {
                cache: "nosuch".to_owned(),
                ..prefix("")
            },
            says(ErrorCode::NotFound, "cache"),
        ),
        (
            v1::DeletePrefixRequest {
                scope: elsewhere(),
                ..prefix("")
            },
            says(ErrorCode::NotFound, "namespace"),
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(refused(door.keys.delete_prefix(request).await), expected);
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_watches_sees_a_deletion_by_prefix_as_one_step() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    fill(&mut door, "a/", 3).await;
    let watch = v1::WatchRequest {
        cache: CACHE.to_owned(),
        target: Some(v1::watch_request::Target::All(true)),
        ..Default::default()
    };
    let mut events = door.keys.watch(watch).await.expect("it begins").into_inner();
    events.message().await.expect("no error").expect("started");
    let deleted = door
        .keys
        .delete_prefix(prefix("a/"))
        .await
        .expect("answered")
        .into_inner();
    let event = events.message().await.expect("no error").expect("an event").event;
    let Some(v1::watch_event::Event::Changes(changes)) = event else {
        panic!("not changes: {event:?}")
    };
    let revisions: Vec<Option<u64>> = changes.changes.iter().map(|change| Some(change.revision)).collect();
    assert_eq!(revisions, [deleted.revision; 3]);
    drop(events);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_of_no_known_kind_is_refused_before_anything_is_done() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let request = Some(v1::RequestId { kind: None });
    let put = v1::PutRequest {
        cache: CACHE.to_owned(),
        key: Bytes::from_static(b"k"),
        request: request.clone(),
        ..Default::default()
    };
    assert_eq!(refused(door.keys.put(put).await), says(ErrorCode::Invalid, "request"));
    let asked = v1::AddRequest { request, ..add("k", 1) };
    assert_eq!(refused(door.keys.add(asked).await), says(ErrorCode::Invalid, "request"));
    assert_eq!(keys(&mut door).await, Vec::<Bytes>::new());
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_enums_that_this_node_does_not_know_are_refused() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let cache = |consistency, shards| v1::CreateCacheRequest {
        name: "other".to_owned(),
        consistency,
        shards,
        ..Default::default()
    };
    for consistency in [77, -1, v1::Consistency::Leader.into()] {
        let answer = door.catalog.create_cache(cache(consistency, None)).await;
        assert_eq!(refused(answer), says(ErrorCode::Invalid, "consistency"));
    }
    let answer = door.catalog.create_cache(cache(0, Some(2))).await;
    assert_eq!(refused(answer), says(ErrorCode::Invalid, "shards"));
    let answer = door.catalog.create_cache(v1::CreateCacheRequest {
        name: "a b".to_owned(),
        ..Default::default()
    });
    assert_eq!(refused(answer.await), says(ErrorCode::Invalid, "name"));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_without_a_protocol_is_refused_and_one_with_a_newer_is_taken() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let with = |protocol| v1::HelloRequest { protocol, ..hello() };
    assert_eq!(
        refused(door.cluster.hello(with(0)).await),
        says(ErrorCode::Invalid, "protocol")
    );
    for protocol in [1, 9] {
        let reply = door.cluster.hello(with(protocol)).await.expect("greeted").into_inner();
        assert_eq!(reply.protocol, 1);
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keep_alive_says_of_each_session_what_is_wrong_with_it() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let session = door.open(1, Some(60_000)).await;
    let asked = [
        (1, Some(session.clone())),
        (0, Some(session.clone())),
        (900, Some(session.clone())),
        (1, Some(with_wrong_secret(&session))),
        (1, None),
    ];
    let request = v1::KeepAliveRequest {
        sessions: asked
            .map(|(group, session)| v1::SessionInGroup { group, session })
            .into(),
        attempt: 4,
    };
    let reply = door.sessions.keep_alive(request).await.expect("answered").into_inner();
    let told: Vec<_> = reply
        .sessions
        .into_iter()
        .map(|kept| match kept.result {
            Some(kept_alive::Result::Renewed(_)) => ("renewed", None),
            Some(kept_alive::Result::Unknown(true)) => ("unknown", None),
            Some(kept_alive::Result::Failed(error)) => ("failed", Some(crate::streams_door::said(&error))),
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!(
        told,
        [
            ("renewed", None),
            ("failed", Some(says(ErrorCode::Invalid, "group"))),
            ("failed", Some(says(ErrorCode::NotFound, "group"))),
            ("unknown", None),
            ("failed", Some(says(ErrorCode::Invalid, "session"))),
        ]
    );
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_secret_is_invalid_in_the_field_in_which_it_stands() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let session = door.open(1, Some(60_000)).await;
    let other = door.open(2, Some(60_000)).await;
    let wrong = with_wrong_secret(&session);
    let put = |owner, request| v1::PutRequest {
        cache: CACHE.to_owned(),
        key: Bytes::from_static(b"k"),
        owner,
        request,
        ..Default::default()
    };
    let owner = door.keys.put(put(Some(wrong.clone()), None)).await;
    assert_eq!(refused(owner), says(ErrorCode::Invalid, "owner.secret"));
    let requester = door.keys.put(put(Some(other.clone()), numbered(&wrong, 1))).await;
    assert_eq!(
        refused(requester),
        says(ErrorCode::Invalid, "request.session.session.secret")
    );
    let operation = v1::txn_operation::Put {
        cache: CACHE.to_owned(),
        key: Bytes::from_static(b"k"),
        owner: Some(wrong.clone()),
        ..Default::default()
    };
    let txn = v1::TxnRequest {
        then: vec![v1::TxnOperation {
            kind: Some(v1::txn_operation::Kind::Put(Box::new(operation))),
        }],
        request: numbered(&other, 1),
        ..Default::default()
    };
    assert_eq!(
        refused(door.txns.execute(txn).await),
        says(ErrorCode::Invalid, "then[0].put.owner.secret")
    );
    let close = v1::CloseSessionRequest {
        session: Some(wrong.clone()),
        ..Default::default()
    };
    assert_eq!(
        refused(door.sessions.close(close).await),
        says(ErrorCode::Invalid, "session.secret")
    );
    let acknowledge = v1::AcknowledgeRequest {
        session: Some(wrong),
        below: 1,
        ..Default::default()
    };
    assert_eq!(
        refused(door.sessions.acknowledge(acknowledge).await),
        says(ErrorCode::Invalid, "session.secret")
    );
    let status = door.keys.get(v1::GetRequest::default()).await.expect_err("no cache");
    assert_eq!(error_in(&status).error_code(), Some(ErrorCode::Invalid));
    assert_eq!(keys(&mut door).await, Vec::<Bytes>::new());
    node.node.stop().await;
}
