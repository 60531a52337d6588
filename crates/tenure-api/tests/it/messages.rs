//! Messages as an older program encoded them: they must decode to the same meaning for ever, and encode to the same
//! bytes.

use std::fmt::Debug;

use bytes::Bytes;
use prost::Message;
use tenure_api::v1::{self, client_frame, guard, refusal, request_id, server_frame, watch_event, watch_request};
use tenure_api::v1::{change, delete_done, delete_reply, kept_alive, put_reply, wire_error};

use crate::fixtures;

mod objects;

/// One message: its bytes of today, and a check that other bytes mean the same.
struct Meaning {
    encoded: Vec<u8>,
    assert_decoded_from: Assertion,
}

type Assertion = Box<dyn Fn(&[u8])>;

fn check<M: Message + Default + PartialEq + Debug + 'static>(expected: M) -> Meaning {
    Meaning {
        encoded: expected.encode_to_vec(),
        assert_decoded_from: Box::new(move |bytes| {
            assert_eq!(M::decode(bytes).expect("an old message"), expected);
        }),
    }
}

fn scope() -> Option<v1::Scope> {
    Some(v1::Scope {
        tenant: "acme".into(),
        namespace: "prod".into(),
    })
}

fn session() -> v1::SessionRef {
    v1::SessionRef {
        id: 9,
        secret: Bytes::from_static(&[7; 16]),
    }
}

fn header() -> Option<v1::Header> {
    Some(v1::Header {
        group: 3,
        revision: 41,
        time_us: 1_000_000,
    })
}

fn key_value() -> v1::KeyValue {
    v1::KeyValue {
        key: Bytes::from_static(b"k"),
        value: Bytes::from_static(b"v"),
        version: 17,
        created: 16,
        owner_session: Some(9),
        remaining_us: Some(812_000),
    }
}

fn put() -> v1::PutRequest {
    v1::PutRequest {
        scope: scope(),
        cache: "leases".into(),
        key: Bytes::from_static(b"k"),
        value: Bytes::from_static(b"v"),
        ttl_ms: Some(1_000),
        guard: Some(v1::Guard {
            condition: Some(guard::Condition::Absent(true)),
        }),
        owner: Some(session()),
        request: Some(v1::RequestId {
            kind: Some(request_id::Kind::Session(v1::SessionRequest {
                session: Some(session()),
                seq: 5,
                acknowledged_below: 3,
                acknowledged: vec![4, 7],
            })),
        }),
        timeout_ms: 5_000,
    }
}

fn refused() -> v1::Refusal {
    v1::Refusal {
        code: "condition_failed".into(),
        detail: Some(refusal::Detail::ConditionFailed(refusal::ConditionFailed {
            key: Some(v1::KeyFacts {
                version: 17,
                created: 16,
                holder: Some(9),
                remaining_us: Some(812_000),
                value: Some(Bytes::from_static(b"v")),
                value_len: 1,
            }),
        })),
    }
}

fn cache() -> v1::CacheInfo {
    v1::CacheInfo {
        scope: scope(),
        name: "leases".into(),
        shards: 1,
        replication: 3,
        replication_actual: 1,
        consistency: v1::Consistency::Quorum.into(),
        incarnation: 2,
    }
}

fn frame(id: u64, body: client_frame::Body) -> v1::ClientFrame {
    v1::ClientFrame {
        id,
        timeout_ms: 250,
        body: Some(body),
    }
}

fn answer(id: u64, body: server_frame::Body) -> v1::ServerFrame {
    v1::ServerFrame { id, body: Some(body) }
}

/// Each fixture by name, with what it means.
fn meanings() -> Vec<(&'static str, Meaning)> {
    let mut all = requests();
    all.extend(answers());
    all.extend(watching());
    all.extend(objects::requests());
    all.extend(objects::answers());
    all
}

fn requests() -> Vec<(&'static str, Meaning)> {
    use client_frame::Body;
    vec![
        ("put_of_a_session", check(frame(7, Body::Put(put())))),
        (
            "delete_by_one_shot",
            check(frame(
                8,
                Body::Delete(v1::DeleteRequest {
                    scope: scope(),
                    cache: "leases".into(),
                    key: Bytes::from_static(b"k"),
                    guard: Some(v1::Guard {
                        condition: Some(guard::Condition::Version(17)),
                    }),
                    request: Some(v1::RequestId {
                        kind: Some(request_id::Kind::OneShot(v1::OneShot {
                            id: Bytes::from_static(&[1; 16]),
                            not_after_us: 61_000_000,
                        })),
                    }),
                    timeout_ms: 1,
                }),
            )),
        ),
        (
            "keep_alive",
            check(frame(
                9,
                Body::KeepAlive(v1::KeepAliveRequest {
                    sessions: vec![v1::SessionInGroup {
                        group: 3,
                        session: Some(session()),
                    }],
                    attempt: 12,
                }),
            )),
        ),
        (
            "hello",
            check(frame(
                1,
                Body::Hello(v1::HelloRequest {
                    scope: scope(),
                    create_namespace: true,
                    cluster_id: Bytes::from_static(&[2; 16]),
                    client: "worker".into(),
                    protocol: 1,
                    timeout_ms: 1,
                }),
            )),
        ),
        (
            "open_session",
            check(frame(
                2,
                Body::OpenSession(v1::OpenSessionRequest {
                    scope: scope(),
                    nonce: Bytes::from_static(&[3; 16]),
                    ttl_ms: Some(10_000),
                    label: "worker-1".into(),
                    timeout_ms: 1,
                }),
            )),
        ),
        ("cancel", check(frame(7, Body::Cancel(v1::Cancel {})))),
    ]
}

fn answers() -> Vec<(&'static str, Meaning)> {
    use server_frame::Body;
    let put_reply = |verdict| v1::PutReply {
        header: header(),
        repeated: true,
        remaining_us: Some(5),
        verdict,
    };
    let error = v1::WireError {
        code: "not_leader".into(),
        message: "go there".into(),
        outcome: v1::Outcome::NotApplied.into(),
        retry_after_us: Some(1_000),
        leader: Some(Box::new(v1::LeaderHint {
            group: 3,
            node_id: 2,
            address: "127.0.0.1:7401".into(),
            term: 0,
        })),
        detail: Some(wire_error::Detail::ResumeFrom(42)),
    };
    let done = v1::PutDone {
        version: 17,
        created: 16,
    };
    let removed = v1::DeleteDone {
        removed: Some(delete_done::Removal {
            revision: 18,
            version: 17,
        }),
    };
    let exists = v1::Refusal {
        code: "exists_otherwise".into(),
        detail: Some(refusal::Detail::ExistsOtherwise(refusal::ExistsOtherwise {
            cache: Some(cache()),
            stream: None,
        })),
    };
    let kept = |session, result| v1::KeptAlive {
        group: 3,
        session,
        result: Some(result),
    };
    let ended = v1::SessionEnd {
        reason: v1::EndReason::Expired.into(),
        revision: 30,
    };
    vec![
        (
            "put_done",
            check(answer(7, Body::Put(put_reply(Some(put_reply::Verdict::Done(done)))))),
        ),
        (
            "put_refused",
            check(answer(
                7,
                Body::Put(put_reply(Some(put_reply::Verdict::Refused(refused())))),
            )),
        ),
        (
            "delete_done",
            check(answer(
                8,
                Body::Delete(v1::DeleteReply {
                    header: header(),
                    repeated: false,
                    verdict: Some(delete_reply::Verdict::Done(removed)),
                }),
            )),
        ),
        (
            "create_cache_refused",
            check(answer(
                4,
                Body::CreateCache(v1::CreateCacheReply {
                    header: header(),
                    repeated: false,
                    verdict: Some(v1::create_cache_reply::Verdict::Refused(exists)),
                    existed: true,
                }),
            )),
        ),
        (
            "kept_alive",
            check(answer(
                9,
                Body::KeepAlive(v1::KeepAliveReply {
                    attempt: 12,
                    sessions: vec![
                        kept(
                            9,
                            kept_alive::Result::Renewed(kept_alive::Renewed {
                                remaining_us: Some(10_000_000),
                            }),
                        ),
                        kept(8, kept_alive::Result::Ended(ended)),
                        kept(7, kept_alive::Result::Unknown(true)),
                        kept(6, kept_alive::Result::Failed(error.clone())),
                    ],
                    headers: header().into_iter().collect(),
                }),
            )),
        ),
        ("error", check(answer(7, Body::Error(error)))),
        (
            "drain",
            check(answer(
                0,
                Body::Drain(v1::Drain {
                    endpoints: vec!["127.0.0.1:7401".into()],
                }),
            )),
        ),
        (
            "status",
            check(answer(
                3,
                Body::Status(v1::StatusReply {
                    cluster_id: Bytes::from_static(&[2; 16]),
                    node_id: 1,
                    address: "127.0.0.1:7400".into(),
                    version: "0.1.0".into(),
                    serving: true,
                    not_serving_reason: String::new(),
                    home_groups: 1,
                    nodes: vec![v1::NodeInfo {
                        id: 1,
                        address: "127.0.0.1:7400".into(),
                    }],
                    groups: vec![v1::GroupInfo {
                        group: 1,
                        leader: Some(1),
                        term: 2,
                        last_index: 20,
                        applied_index: 19,
                        revision: 41,
                        time_us: 5,
                        voters: vec![1, 2, 3],
                        learners: vec![4],
                        stopped_reason: String::new(),
                    }],
                }),
            )),
        ),
    ]
}

fn watching() -> Vec<(&'static str, Meaning)> {
    use server_frame::Body;
    use watch_event::Event;
    let event = |event| check(answer(5, Body::WatchEvent(v1::WatchEvent { event: Some(event) })));
    let change = |revision, kind, previous_version| v1::Change {
        revision,
        key: Bytes::from_static(b"k"),
        kind: Some(kind),
        previous_version,
    };
    let put = change::Put {
        value: Bytes::from_static(b"v"),
        version: 17,
        created: 16,
        owner_session: Some(9),
        ttl_ms: Some(1_000),
    };
    let removed = change::Removed {
        reason: v1::EndReason::Session.into(),
    };
    vec![
        (
            "watch",
            check(frame(
                5,
                client_frame::Body::Watch(v1::WatchRequest {
                    scope: scope(),
                    cache: "leases".into(),
                    target: Some(watch_request::Target::Prefix(Bytes::from_static(b"k"))),
                    from: Some(17),
                    with_state: false,
                    incarnation: Some(2),
                    min_revision: 41,
                }),
            )),
        ),
        (
            "watch_started",
            event(Event::Started(watch_event::Started {
                revision: 16,
                incarnation: 2,
            })),
        ),
        (
            "watch_changes",
            event(Event::Changes(watch_event::Changes {
                changes: vec![
                    change(17, change::Kind::Put(put), Some(15)),
                    change(18, change::Kind::Removed(removed), Some(17)),
                ],
                revision: 18,
                more: false,
            })),
        ),
        (
            "watch_state",
            event(Event::State(watch_event::StateChunk {
                keys: vec![key_value()],
                revision: 17,
                last: true,
            })),
        ),
        (
            "watch_progress",
            event(Event::Progress(watch_event::Progress { revision: 40 })),
        ),
        (
            "watch_ended",
            check(answer(
                5,
                Body::WatchEnded(v1::WatchEnd {
                    error: Some(v1::WireError::lagged(19)),
                }),
            )),
        ),
    ]
}

#[test]
fn old_messages_keep_their_meaning_and_their_bytes() {
    let fixture = fixtures::read("messages.txt");
    let meanings = meanings();
    for line in fixture.lines() {
        let (name, digits) = line.split_once(' ').expect("a name and digits");
        let meaning = meanings.iter().find(|(known, _)| *known == name);
        let (_, meaning) = meaning.unwrap_or_else(|| panic!("nothing says what {name} means"));
        (meaning.assert_decoded_from)(&fixtures::from_hex(digits));
    }
    let today: String = meanings
        .iter()
        .map(|(name, meaning)| {
            format!(
                "{name} {}
",
                fixtures::to_hex(&meaning.encoded)
            )
        })
        .collect();
    fixtures::assert_equal("messages.txt", &today);
}

#[test]
fn fields_from_a_newer_program_are_passed_over() {
    let mut bytes = put().encode_to_vec();
    // Field 2,000, a string.
    bytes.extend_from_slice(&[0x82, 0x7d, 0x03, b'n', b'e', b'w']);
    assert_eq!(v1::PutRequest::decode(&bytes[..]).expect("readable"), put());
}

#[test]
fn a_body_from_a_newer_program_is_absent_and_not_an_error() {
    let bytes = [0x08, 0x07, 0x82, 0x7d, 0x00];
    let frame = v1::ClientFrame::decode(&bytes[..]).expect("readable");
    assert_eq!((frame.id, frame.body), (7, None));
}

#[test]
fn a_secret_is_not_in_the_debug_form_of_a_request() {
    let shown = format!("{:?}", put());
    assert!(shown.contains("SessionRef { id: 9, .. }"), "{shown}");
    assert!(!shown.contains("\\x07"), "{shown}");
}

#[test]
fn a_nonce_which_opens_the_same_session_again_is_not_in_the_debug_form_either() {
    let request = v1::OpenSessionRequest {
        nonce: Bytes::from_static(&[7; 16]),
        label: "w".into(),
        ..Default::default()
    };
    let shown = format!("{request:?}");
    assert!(shown.contains("label: \"w\"") && !shown.contains("\\x07"), "{shown}");
}

#[test]
fn the_largest_write_fits_a_message() {
    let value = Bytes::from(vec![0; tenure_api::limits::VALUE_BYTES_MAX]);
    let largest = v1::PutRequest {
        key: Bytes::from(vec![0; tenure_api::limits::KEY_BYTES_MAX]),
        value: value.clone(),
        guard: Some(v1::Guard {
            condition: Some(guard::Condition::Value(value)),
        }),
        ..put()
    };
    let framed = frame(u64::MAX, client_frame::Body::Put(largest));
    assert!(framed.encoded_len() <= tenure_api::limits::MESSAGE_BYTES_MAX);
}
