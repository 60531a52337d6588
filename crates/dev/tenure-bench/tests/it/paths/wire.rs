//! The messages of one write, both ways.

use std::hint::black_box;

use bytes::Bytes;
use prost::Message as _;
use tenure_api::v1::{
    ClientFrame, Guard, Header, PutDone, PutReply, PutRequest, RequestId, Scope, ServerFrame, SessionRef,
    SessionRequest, client_frame, guard, put_reply, request_id, server_frame,
};

/// Writes and reads a request and its answer.
pub(super) fn puts(operations: u64) {
    for id in 1..=operations {
        let request = ClientFrame {
            id,
            timeout_ms: 5_000,
            body: Some(client_frame::Body::Put(request(id))),
        };
        let bytes = Bytes::from(black_box(request).encode_to_vec());
        let read = ClientFrame::decode(bytes).expect("what was just written can be read");
        let answer = ServerFrame {
            id: read.id,
            body: Some(server_frame::Body::Put(answer(id))),
        };
        let bytes = Bytes::from(black_box(answer).encode_to_vec());
        black_box(ServerFrame::decode(bytes).expect("what was just written can be read"));
    }
}

fn request(number: u64) -> PutRequest {
    let session = SessionRef {
        id: 4_711,
        secret: Bytes::from_static(&[7; 16]),
    };
    PutRequest {
        scope: Some(Scope {
            tenant: "acme".to_owned(),
            namespace: "prod".to_owned(),
        }),
        cache: "leases".to_owned(),
        key: Bytes::from_static(b"jobs/nightly/00000042"),
        value: Bytes::from_static(b"10.0.0.7:8080, host 3"),
        ttl_ms: Some(30_000),
        guard: Some(Guard {
            condition: Some(guard::Condition::Absent(true)),
        }),
        owner: None,
        request: Some(RequestId {
            kind: Some(request_id::Kind::Session(SessionRequest {
                session: Some(session),
                seq: number,
                acknowledged_below: number,
                ..SessionRequest::default()
            })),
        }),
        ..PutRequest::default()
    }
}

fn answer(number: u64) -> PutReply {
    PutReply {
        header: Some(Header {
            group: 3,
            revision: number,
            ..Header::default()
        }),
        verdict: Some(put_reply::Verdict::Done(PutDone {
            version: number,
            created: number,
        })),
        remaining_us: Some(30_000_000),
        ..PutReply::default()
    }
}
