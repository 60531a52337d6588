//! What the node tells of itself is what the page says, and the last transitions are told with their reasons.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use tenure_api::v1;

use crate::overload_wire::{http_get, metric, now};
use crate::streams_door::Door;
use crate::support::{CACHE, TestNode};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_metrics_and_the_metrics_of_a_node_name_the_same() {
    let node = TestNode::start().await;
    let metrics = http_get(&node, "/metrics").await;
    let told: BTreeSet<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let documented: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split('`').next())
        .collect();
    assert_eq!(told, documented);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_end_in_total_and_nothing_else_does() {
    let node = TestNode::start().await;
    let metrics = http_get(&node, "/metrics").await;
    let kinds: Vec<(&str, &str)> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    assert!(kinds.len() > 40, "{kinds:?}");
    for (name, kind) in kinds {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn syncs_of_the_log_are_counted_with_their_time_and_their_bytes() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let before = metric(&node, "tenure_log_sync_seconds_count").await;
    for _ in 0..5 {
        door.put("key", Bytes::from(vec![1; 10_000])).await;
    }
    // Something may still be written behind the last answer, so the looks are repeated until one has met nothing.
    let began = now();
    loop {
        let metrics = http_get(&node, "/metrics").await;
        let of = |name: &str| sample(&metrics, name);
        let syncs = of("tenure_log_syncs_total");
        assert!(syncs >= before + 5.0);
        assert!(of("tenure_log_batch_bytes_sum") >= 50_000.0);
        assert!(of("tenure_log_sync_seconds_sum") > 0.0);
        let counted = [of("tenure_log_sync_seconds_count"), of("tenure_log_batch_bytes_count")];
        if counted == [syncs, syncs] && of("tenure_log_batch_bytes_sum") == of("tenure_log_written_bytes_total") {
            break;
        }
        assert!(now() - began < PATIENCE, "{metrics}");
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_group_remembers_and_keeps_of_its_changes_is_told() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let session = door.open(1, Some(60_000)).await;
    for (key, ttl_ms) in [("a", Some(60_000)), ("b", Some(60_000)), ("c", None)] {
        let put = v1::PutRequest {
            cache: CACHE.to_owned(),
            key: Bytes::from_static(key.as_bytes()),
            value: Bytes::from_static(b"value"),
            ttl_ms,
            request: Some(v1::RequestId {
                kind: Some(v1::request_id::Kind::Session(v1::SessionRequest {
                    session: Some(session.clone()),
                    seq: u64::from(key.as_bytes()[0]),
                    ..Default::default()
                })),
            }),
            ..Default::default()
        };
        door.keys.put(put).await.expect("written");
    }
    let metrics = http_get(&node, "/metrics").await;
    let of = |name: &str| sample(&metrics, &format!("tenure_group_{name}{{group=\"1\"}}"));
    assert_eq!(of("sessions"), 1.0);
    assert_eq!(of("keys_with_deadlines"), 2.0);
    assert_eq!(of("remembered_results"), 3.0);
    assert_eq!(of("remembered_one_shots"), 0.0);
    assert_eq!(of("remembered_one_shot_bytes"), 0.0);
    // The feed is written behind.
    let began = now();
    loop {
        let metrics = http_get(&node, "/metrics").await;
        let of = |name: &str| sample(&metrics, &format!("tenure_group_{name}{{group=\"1\"}}"));
        assert!(of("feed_age_seconds") < 600.0);
        if of("feed_bytes") > 0.0 {
            break;
        }
        assert!(now() - began < PATIENCE, "{metrics}");
    }
    node.node.stop().await;
}

/// The value of a sample, labels included in its name.
fn sample(metrics: &str, name: &str) -> f64 {
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("{name} is missing in {metrics}"));
    value.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_transitions_of_a_session_and_a_key_are_told_with_their_reasons() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let open = v1::OpenSessionRequest {
        nonce: Bytes::from_static(&[3; 16]),
        ttl_ms: Some(60_000),
        ..Default::default()
    };
    let opened = door.sessions.open(open).await.expect("opened").into_inner();
    let session = opened.session.expect("a session");
    let put = v1::PutRequest {
        cache: CACHE.to_owned(),
        key: Bytes::from_static(b"jobs/1"),
        value: Bytes::from_static(b"not shown"),
        owner: Some(session.clone()),
        ..Default::default()
    };
    door.keys.put(put).await.expect("written");
    let close = v1::CloseSessionRequest {
        session: Some(session.clone()),
        ..Default::default()
    };
    door.sessions.close(close).await.expect("closed");

    let of_key = http_get(&node, &format!("/debug/transitions?cache={CACHE}&key=jobs%2F1")).await;
    let of_session = http_get(&node, &format!("/debug/transitions?session={}", session.id)).await;
    for answer in [&of_key, &of_session] {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("\"what\":\"put\",\"key\":\"jobs/1\""), "{answer}");
        assert!(!answer.contains("not shown"), "{answer}");
    }
    assert!(
        of_key.contains("\"what\":\"removed\",\"key\":\"jobs/1\",\"reason\":\"closed\""),
        "{of_key}"
    );
    assert!(
        of_session.contains(&format!("\"session\":{},\"reason\":\"closed\"", session.id)),
        "{of_session}"
    );
    for (path, status) in [
        ("/debug/transitions", "400"),
        ("/debug/transitions?session=x", "400"),
        ("/debug/transitions?cache=none&key=k", "404"),
        ("/debug/transitions?session=1&namespace=none", "404"),
    ] {
        let answer = http_get(&node, path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    node.node.stop().await;
}
