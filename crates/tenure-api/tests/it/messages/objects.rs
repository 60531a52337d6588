//! Messages about counters, streams and transactions.

use bytes::Bytes;
use tenure_api::v1::{self, client_frame, read_from, refusal, server_frame, txn_guard, txn_operation, txn_result};
use tenure_api::v1::{append_reply, create_stream_reply, follow_event, txn_reply};

use super::{Meaning, answer, check, frame, header, key_value, put, scope, session};

fn append() -> v1::Append {
    v1::Append {
        records: vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")],
        expected_offset: Some(3),
        fence_token: Some(17),
        message_id: Some(Bytes::from_static(b"order-9")),
    }
}

fn settings() -> v1::StreamSettings {
    v1::StreamSettings {
        retention_ms: Some(60_000),
        retention_bytes: Some(1 << 20),
        fence: v1::FenceMode::Mandatory.into(),
        dedup_window_ms: Some(120_000),
        shards: Some(1),
        replication: Some(3),
        consistency: v1::Consistency::Quorum.into(),
    }
}

fn stream() -> v1::StreamInfo {
    v1::StreamInfo {
        scope: scope(),
        name: "orders".into(),
        settings: Some(settings()),
        replication_actual: 1,
        incarnation: 2,
    }
}

fn record() -> v1::Record {
    v1::Record {
        offset: 3,
        data: Bytes::from_static(b"one"),
        time_us: 1_000_000,
        fence_token: Some(17),
    }
}

fn from_offset() -> Option<v1::ReadFrom> {
    Some(v1::ReadFrom {
        from: Some(read_from::From::Offset(3)),
    })
}

fn guards() -> Vec<v1::TxnGuard> {
    [
        txn_guard::Kind::Key(Box::new(txn_guard::KeyGuard {
            cache: "leases".into(),
            key: Bytes::from_static(b"k"),
            guard: put().guard,
        })),
        txn_guard::Kind::Counter(Box::new(txn_guard::CounterGuard {
            cache: "counts".into(),
            key: Bytes::from_static(b"n"),
            min: Some(-1),
            max: Some(9),
        })),
        txn_guard::Kind::StreamTail(Box::new(txn_guard::StreamTailGuard {
            stream: "orders".into(),
            tail: 3,
        })),
        txn_guard::Kind::SessionAlive(9),
    ]
    .into_iter()
    .map(|kind| v1::TxnGuard { kind: Some(kind) })
    .collect()
}

fn operations() -> Vec<v1::TxnOperation> {
    let (cache, key) = (|| String::from("leases"), || Bytes::from_static(b"k"));
    [
        txn_operation::Kind::Put(Box::new(txn_operation::Put {
            cache: cache(),
            key: key(),
            value: Bytes::from_static(b"v"),
            ttl_ms: Some(1_000),
            owner: Some(session()),
        })),
        txn_operation::Kind::Delete(Box::new(txn_operation::Delete {
            cache: cache(),
            key: key(),
        })),
        txn_operation::Kind::Add(Box::new(txn_operation::Add {
            cache: cache(),
            key: key(),
            delta: -2,
            ttl_ms: None,
        })),
        txn_operation::Kind::Append(Box::new(txn_operation::AppendTo {
            stream: "orders".into(),
            append: Some(append()),
        })),
        txn_operation::Kind::Get(Box::new(txn_operation::Get {
            cache: cache(),
            key: key(),
        })),
    ]
    .into_iter()
    .map(|kind| v1::TxnOperation { kind: Some(kind) })
    .collect()
}

/// What is asked.
pub(super) fn requests() -> Vec<(&'static str, Meaning)> {
    use client_frame::Body;
    let (cache, request, timeout_ms) = (|| String::from("leases"), || put().request, 5_000);
    let bodies = [
        (
            "add",
            Body::Add(v1::AddRequest {
                scope: scope(),
                cache: cache(),
                key: Bytes::from_static(b"n"),
                delta: -2,
                ttl_ms: Some(1_000),
                request: request(),
                timeout_ms,
            }),
        ),
        (
            "delete_prefix",
            Body::DeletePrefix(v1::DeletePrefixRequest {
                scope: scope(),
                cache: cache(),
                prefix: Bytes::from_static(b"jobs/"),
                request: request(),
                timeout_ms,
            }),
        ),
        (
            "txn",
            Body::Txn(v1::TxnRequest {
                scope: scope(),
                guards: guards(),
                then: operations(),
                otherwise: operations()[4..].to_vec(),
                request: request(),
                timeout_ms,
            }),
        ),
        (
            "create_stream",
            Body::CreateStream(v1::CreateStreamRequest {
                scope: scope(),
                name: "orders".into(),
                settings: Some(settings()),
                request: request(),
                timeout_ms,
            }),
        ),
        (
            "append",
            Body::Append(v1::AppendRequest {
                scope: scope(),
                stream: "orders".into(),
                append: Some(append()),
                request: request(),
                timeout_ms,
            }),
        ),
    ];
    let reading = reading();
    let all = bodies.into_iter().chain(reading);
    all.map(|(name, body)| (name, check(frame(7, body)))).collect()
}

fn reading() -> [(&'static str, client_frame::Body); 3] {
    use client_frame::Body;
    [
        (
            "read_records",
            Body::ReadRecords(v1::ReadRecordsRequest {
                scope: scope(),
                stream: "orders".into(),
                from: from_offset(),
                limit: 10,
                stale: true,
                min_revision: 41,
                incarnation: Some(2),
                timeout_ms: 5_000,
            }),
        ),
        (
            "follow",
            Body::Follow(v1::FollowRequest {
                scope: scope(),
                stream: "orders".into(),
                from: from_offset(),
                incarnation: Some(2),
                min_revision: 41,
            }),
        ),
        (
            "trim_stream",
            Body::TrimStream(v1::TrimStreamRequest {
                scope: scope(),
                stream: "orders".into(),
                before: 3,
                request: put().request,
                timeout_ms: 5_000,
            }),
        ),
    ]
}

/// What is answered.
pub(super) fn answers() -> Vec<(&'static str, Meaning)> {
    use server_frame::Body;
    let bodies = [
        (
            "add_done",
            Body::Add(v1::AddReply {
                header: header(),
                repeated: true,
                remaining_us: Some(5),
                done: Some(added()),
            }),
        ),
        (
            "delete_prefix_done",
            Body::DeletePrefix(v1::DeletePrefixReply {
                header: header(),
                repeated: true,
                removed: 4_096,
                revision: Some(41),
                more: true,
            }),
        ),
        (
            "txn_done",
            Body::Txn(v1::TxnReply {
                header: header(),
                repeated: true,
                verdict: Some(txn_reply::Verdict::Done(txn_done())),
            }),
        ),
        (
            "stream_created",
            Body::CreateStream(v1::CreateStreamReply {
                header: header(),
                repeated: true,
                existed: true,
                verdict: Some(create_stream_reply::Verdict::Done(stream())),
            }),
        ),
        ("appended", appended(append_reply::Verdict::Done(append_done()))),
        (
            "append_stale_token",
            appended(append_reply::Verdict::Refused(v1::Refusal {
                code: "stale_token".into(),
                detail: Some(refusal::Detail::StaleToken(18)),
            })),
        ),
        (
            "append_wrong_tail",
            appended(append_reply::Verdict::Refused(v1::Refusal {
                code: "wrong_tail".into(),
                detail: Some(refusal::Detail::WrongTail(5)),
            })),
        ),
    ];
    let all = bodies.into_iter().chain(reads());
    all.map(|(name, body)| (name, check(answer(7, body)))).collect()
}

fn reads() -> [(&'static str, server_frame::Body); 5] {
    use server_frame::Body;
    let follow = |event| Body::FollowEvent(v1::FollowEvent { event: Some(event) });
    [
        (
            "stream_read",
            Body::GetStream(v1::GetStreamReply {
                header: header(),
                stream: Some(stream()),
                first: 1,
                tail: 4,
                bytes: 9,
                fence_token: Some(17),
            }),
        ),
        (
            "records_read",
            Body::ReadRecords(v1::ReadRecordsReply {
                header: header(),
                records: vec![record()],
                first: 1,
                tail: 4,
                next: 4,
                incarnation: 2,
                age_us: Some(9),
            }),
        ),
        (
            "follow_started",
            follow(follow_event::Event::Started(follow_event::Started {
                next: 3,
                incarnation: 2,
            })),
        ),
        (
            "follow_records",
            follow(follow_event::Event::Records(follow_event::Records {
                records: vec![record()],
            })),
        ),
        (
            "stream_trimmed",
            Body::TrimStream(v1::TrimStreamReply {
                header: header(),
                repeated: true,
                first: 3,
            }),
        ),
    ]
}

fn added() -> v1::AddDone {
    v1::AddDone {
        sum: -2,
        version: 41,
        created: 40,
    }
}

fn append_done() -> v1::AppendDone {
    v1::AppendDone {
        first: 3,
        count: 2,
        duplicate: true,
    }
}

fn appended(verdict: append_reply::Verdict) -> server_frame::Body {
    server_frame::Body::Append(v1::AppendReply {
        header: header(),
        repeated: true,
        verdict: Some(verdict),
    })
}

fn txn_done() -> v1::TxnDone {
    let results = [
        txn_result::Kind::Put(v1::PutDone {
            version: 41,
            created: 40,
        }),
        txn_result::Kind::Deleted(v1::DeleteDone { removed: None }),
        txn_result::Kind::Added(added()),
        txn_result::Kind::Appended(append_done()),
        txn_result::Kind::Got(txn_result::GetDone { key: Some(key_value()) }),
    ];
    v1::TxnDone {
        applied: false,
        failed_guard: Some(2),
        revision: Some(41),
        results: results
            .into_iter()
            .map(|kind| v1::TxnResult { kind: Some(kind) })
            .collect(),
    }
}
