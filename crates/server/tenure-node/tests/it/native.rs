//! Our own protocol, unary.

use bytes::Bytes;
use tenure_api::ErrorCode;
use tenure_api::v1::cluster_client::ClusterClient;
use tenure_api::v1::keys_client::KeysClient;
use tenure_api::v1::sessions_client::SessionsClient;
use tenure_api::v1::{self, WireError, put_reply};

use crate::support::{CACHE, TestNode};

fn put(key: &str, value: &str) -> v1::PutRequest {
    v1::PutRequest {
        cache: CACHE.to_owned(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ..Default::default()
    }
}

fn get(key: &str) -> v1::GetRequest {
    v1::GetRequest {
        cache: CACHE.to_owned(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        ..Default::default()
    }
}

fn done(reply: v1::PutReply) -> v1::PutDone {
    match reply.verdict {
        Some(put_reply::Verdict::Done(done)) => done,
        other => panic!("the write was not done: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_put_is_read_back_also_after_a_restart() {
    let node = TestNode::start().await;
    let mut keys = KeysClient::new(node.channel().await);
    let written = done(
        keys.put(put("reconcile", "worker-1"))
            .await
            .expect("the put is answered")
            .into_inner(),
    );
    assert_eq!(written.version, written.created);
    let read = keys
        .get(get("reconcile"))
        .await
        .expect("the get is answered")
        .into_inner()
        .key
        .expect("the key is there");
    assert_eq!(
        (read.value.as_ref(), read.version),
        (b"worker-1".as_slice(), written.version)
    );

    let node = node.restart().await;
    let mut keys = KeysClient::new(node.channel().await);
    let read = keys
        .get(get("reconcile"))
        .await
        .expect("the get is answered")
        .into_inner()
        .key
        .expect("the key is there");
    assert_eq!(
        (read.value.as_ref(), read.version),
        (b"worker-1".as_slice(), written.version)
    );
    let again = done(
        keys.put(put("other", "x"))
            .await
            .expect("the put is answered")
            .into_inner(),
    );
    assert!(again.version > written.version);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_claim_is_refused_and_told_what_stands_in_the_way() {
    let node = TestNode::start().await;
    let mut sessions = SessionsClient::new(node.channel().await);
    let open = v1::OpenSessionRequest {
        nonce: Bytes::from_static(&[7; 16]),
        ttl_ms: Some(10_000),
        ..Default::default()
    };
    let session = sessions
        .open(open)
        .await
        .expect("the session is opened")
        .into_inner()
        .session
        .expect("a session");
    let mut keys = KeysClient::new(node.channel().await);
    let absent = v1::Guard {
        condition: Some(v1::guard::Condition::Absent(true)),
    };
    let claim = |owner| v1::PutRequest {
        guard: Some(absent.clone()),
        owner,
        ..put("job", "me")
    };
    let first = keys
        .put(claim(Some(session.clone())))
        .await
        .expect("the claim is answered")
        .into_inner();
    assert!(
        first
            .remaining_us
            .is_some_and(|remaining| (9_000_000..=10_000_000).contains(&remaining))
    );
    let first = done(first);
    let second = keys.put(claim(None)).await.expect("the claim is answered").into_inner();
    let Some(put_reply::Verdict::Refused(refusal)) = second.verdict else {
        panic!("it was not refused")
    };
    assert_eq!(refusal.code, ErrorCode::ConditionFailed.name());
    let Some(v1::refusal::Detail::ConditionFailed(detail)) = refusal.detail else {
        panic!("no detail")
    };
    let facts = detail.key.expect("the key stood in the way");
    assert_eq!((facts.version, facts.holder), (first.version, Some(session.id)));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_gets_a_named_error_and_nothing_is_done() {
    let node = TestNode::start().await;
    let mut keys = KeysClient::new(node.channel().await);
    let code_of = |status: tonic::Status| {
        let error = WireError::from_status(&status)
            .expect("a well formed trailer")
            .expect("an error of ours");
        error.error_code().expect("a known code")
    };
    let cases = [
        (put("", "x"), ErrorCode::Invalid),
        (
            v1::PutRequest {
                key: Bytes::from(vec![1; 4_097]),
                ..put("k", "x")
            },
            ErrorCode::Limit,
        ),
        (
            v1::PutRequest {
                value: Bytes::from(vec![1; (1 << 20) + 1]),
                ..put("k", "x")
            },
            ErrorCode::Limit,
        ),
        (
            v1::PutRequest {
                ttl_ms: Some(0),
                ..put("k", "x")
            },
            ErrorCode::Invalid,
        ),
        (
            v1::PutRequest {
                cache: "no such".to_owned(),
                ..put("k", "x")
            },
            ErrorCode::Invalid,
        ),
        (
            v1::PutRequest {
                cache: "nosuch".to_owned(),
                ..put("k", "x")
            },
            ErrorCode::NotFound,
        ),
        (
            v1::PutRequest {
                scope: Some(v1::Scope {
                    tenant: "acme".to_owned(),
                    namespace: "prod".to_owned(),
                }),
                ..put("k", "x")
            },
            ErrorCode::NotFound,
        ),
        (
            v1::PutRequest {
                owner: Some(v1::SessionRef {
                    id: 1,
                    secret: Bytes::from_static(b"short"),
                }),
                ..put("k", "x")
            },
            ErrorCode::Invalid,
        ),
    ];
    for (request, expected) in cases {
        let status = keys.put(request).await.expect_err("it is refused");
        assert_eq!(code_of(status), expected);
    }
    assert!(
        keys.get(get("k"))
            .await
            .expect("the get is answered")
            .into_inner()
            .key
            .is_none()
    );
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_names_another_cluster_is_told_both_names() {
    let node = TestNode::start().await;
    let mut cluster = ClusterClient::new(node.channel().await);
    let hello = v1::HelloRequest {
        cluster_id: Bytes::from_static(&[9; 16]),
        ..Default::default()
    };
    let status = cluster.hello(hello).await.expect_err("it is another cluster");
    let error = WireError::from_status(&status)
        .expect("well formed")
        .expect("an error of ours");
    assert_eq!(error.error_code(), Some(ErrorCode::WrongCluster));
    let status = cluster
        .status(v1::StatusRequest {})
        .await
        .expect("answered")
        .into_inner();
    assert!(status.serving);
    assert_eq!(status.groups.len(), 2);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_writes_and_ends_with_the_cache() {
    let node = TestNode::start().await;
    let mut keys = KeysClient::new(node.channel().await);
    let watch = v1::WatchRequest {
        cache: CACHE.to_owned(),
        target: Some(v1::watch_request::Target::All(true)),
        ..Default::default()
    };
    let mut events = keys.watch(watch).await.expect("the watch begins").into_inner();
    let started = events.message().await.expect("no error").expect("an event");
    assert!(matches!(started.event, Some(v1::watch_event::Event::Started(_))));
    let written = done(
        keys.put(v1::PutRequest {
            ttl_ms: Some(50),
            ..put("short", "lived")
        })
        .await
        .expect("answered")
        .into_inner(),
    );
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let event = events.message().await.expect("no error").expect("an event");
        if let Some(v1::watch_event::Event::Changes(changes)) = event.event {
            seen.extend(changes.changes);
        }
    }
    assert_eq!(seen[0].revision, written.version);
    assert!(matches!(
        &seen[1].kind,
        Some(v1::change::Kind::Removed(removed)) if removed.reason() == v1::EndReason::Expired
    ));
    let mut catalog = v1::catalog_client::CatalogClient::new(node.channel().await);
    let delete = v1::DeleteCacheRequest {
        name: CACHE.to_owned(),
        ..Default::default()
    };
    catalog.delete_cache(delete).await.expect("the cache is deleted");
    let ended = loop {
        match events.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the watch ended without a reason"),
            Err(status) => break status,
        }
    };
    let error = WireError::from_status(&ended)
        .expect("well formed")
        .expect("an error of ours");
    assert_eq!(error.error_code(), Some(ErrorCode::ObjectDeleted));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_whose_identity_was_lost_is_not_served_under_a_new_one() {
    let TestNode { node, folder } = TestNode::start().await;
    node.stop().await;
    std::fs::remove_file(folder.path().join("IDENTITY")).expect("the identity was there");
    let error = crate::support::try_start_on(&folder)
        .await
        .expect_err("the state belongs to another cluster");
    let lost = |error: &tenure_storage::error::OpenError| {
        matches!(error, tenure_storage::error::OpenError::IdentityMissing { .. })
    };
    assert!(
        matches!(&error, tenure_node::StartError::Folder(folder) if lost(folder)),
        "{error}"
    );
}
