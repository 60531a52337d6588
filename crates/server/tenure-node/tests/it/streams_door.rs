//! Every unary client of a node, and short words for what tests ask most.

use bytes::Bytes;
use tenure_api::ErrorCode;
use tenure_api::v1::catalog_client::CatalogClient;
use tenure_api::v1::cluster_client::ClusterClient;
use tenure_api::v1::keys_client::KeysClient;
use tenure_api::v1::sessions_client::SessionsClient;
use tenure_api::v1::streams_client::StreamsClient;
use tenure_api::v1::transactions_client::TransactionsClient;
use tenure_api::v1::wire_error::Detail;
use tenure_api::v1::{self, WireError};
use tonic::Status;
use tonic::transport::Channel;

use crate::support::{CACHE, TestNode};

/// The stream that most tests use.
pub(crate) const STREAM: &str = "events";

pub(crate) struct Door {
    pub(crate) keys: KeysClient<Channel>,
    pub(crate) streams: StreamsClient<Channel>,
    pub(crate) txns: TransactionsClient<Channel>,
    pub(crate) sessions: SessionsClient<Channel>,
    pub(crate) catalog: CatalogClient<Channel>,
    pub(crate) cluster: ClusterClient<Channel>,
}

impl Door {
    /// Clients over one connection of their own.
    pub(crate) async fn of(node: &TestNode) -> Door {
        let channel = node.channel().await;
        Door {
            keys: KeysClient::new(channel.clone()),
            streams: StreamsClient::new(channel.clone()),
            txns: TransactionsClient::new(channel.clone()),
            sessions: SessionsClient::new(channel.clone()),
            catalog: CatalogClient::new(channel.clone()),
            cluster: ClusterClient::new(channel),
        }
    }

    /// Creates the stream, with settings.
    pub(crate) async fn create(&mut self, settings: v1::StreamSettings) -> v1::StreamInfo {
        let request = v1::CreateStreamRequest {
            name: STREAM.to_owned(),
            settings: Some(settings),
            ..Default::default()
        };
        let reply = self.streams.create(request).await.expect("answered").into_inner();
        match reply.verdict {
            Some(v1::create_stream_reply::Verdict::Done(info)) => info,
            other => panic!("not created: {other:?}"),
        }
    }

    /// Appends, and expects that it is done.
    pub(crate) async fn append(&mut self, append: v1::Append) -> v1::AppendDone {
        let reply = self.streams.append(append_request(append)).await;
        match reply.expect("answered").into_inner().verdict {
            Some(v1::append_reply::Verdict::Done(done)) => done,
            other => panic!("not appended: {other:?}"),
        }
    }

    /// Appends, and expects a refusal.
    pub(crate) async fn append_refused(&mut self, append: v1::Append) -> v1::Refusal {
        let reply = self.streams.append(append_request(append)).await;
        match reply.expect("answered").into_inner().verdict {
            Some(v1::append_reply::Verdict::Refused(refusal)) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(crate) async fn trim(&mut self, before: u64) -> v1::TrimStreamReply {
        let request = v1::TrimStreamRequest {
            stream: STREAM.to_owned(),
            before,
            ..Default::default()
        };
        self.streams.trim(request).await.expect("answered").into_inner()
    }

    pub(crate) async fn stream(&mut self) -> v1::GetStreamReply {
        let request = v1::GetStreamRequest {
            name: STREAM.to_owned(),
            ..Default::default()
        };
        self.streams
            .get(request)
            .await
            .expect("the stream is there")
            .into_inner()
    }

    pub(crate) async fn delete_stream(&mut self) -> u64 {
        let request = v1::DeleteStreamRequest {
            name: STREAM.to_owned(),
            ..Default::default()
        };
        let reply = self.streams.delete(request).await;
        reply.expect("the stream was there").into_inner().revision
    }

    /// The value of a key.
    pub(crate) async fn value(&mut self, key: &str) -> Option<Bytes> {
        let request = v1::GetRequest {
            cache: CACHE.to_owned(),
            key: Bytes::copy_from_slice(key.as_bytes()),
            ..Default::default()
        };
        let reply = self.keys.get(request).await.expect("answered").into_inner();
        reply.key.map(|key| key.value)
    }

    /// Writes a key, and returns its version.
    pub(crate) async fn put(&mut self, key: &str, value: Bytes) -> u64 {
        let request = v1::PutRequest {
            cache: CACHE.to_owned(),
            key: Bytes::copy_from_slice(key.as_bytes()),
            value,
            ..Default::default()
        };
        match self.keys.put(request).await.expect("answered").into_inner().verdict {
            Some(v1::put_reply::Verdict::Done(done)) => done.version,
            other => panic!("not written: {other:?}"),
        }
    }

    /// Opens a session.
    pub(crate) async fn open(&mut self, nonce: u8, ttl_ms: Option<u64>) -> v1::SessionRef {
        let request = v1::OpenSessionRequest {
            nonce: Bytes::from(vec![nonce; 16]),
            ttl_ms,
            ..Default::default()
        };
        let reply = self.sessions.open(request).await.expect("opened").into_inner();
        reply.session.expect("a session")
    }

    /// Ends a session.
    pub(crate) async fn close(&mut self, session: v1::SessionRef) {
        let request = v1::CloseSessionRequest {
            session: Some(session),
            ..Default::default()
        };
        self.sessions.close(request).await.expect("closed");
    }

    /// An identity for one request without a session.
    pub(crate) async fn one_shot(&mut self, id: u8) -> Option<v1::RequestId> {
        let hello = self.cluster.hello(hello()).await.expect("greeted").into_inner();
        Some(v1::RequestId {
            kind: Some(v1::request_id::Kind::OneShot(v1::OneShot {
                id: Bytes::from(vec![id; 16]),
                not_after_us: hello.time_us + 60_000_000,
            })),
        })
    }
}

/// A hello of this protocol.
pub(crate) fn hello() -> v1::HelloRequest {
    v1::HelloRequest {
        protocol: 1,
        ..Default::default()
    }
}

/// A numbered request of a session.
pub(crate) fn numbered(session: &v1::SessionRef, seq: u64) -> Option<v1::RequestId> {
    Some(v1::RequestId {
        kind: Some(v1::request_id::Kind::Session(v1::SessionRequest {
            session: Some(session.clone()),
            seq,
            acknowledged_below: 1,
            acknowledged: Vec::new(),
        })),
    })
}

pub(crate) fn append_request(append: v1::Append) -> v1::AppendRequest {
    v1::AppendRequest {
        stream: STREAM.to_owned(),
        append: Some(append),
        ..Default::default()
    }
}

/// An append of these records.
pub(crate) fn records<const N: usize>(records: [&str; N]) -> v1::Append {
    v1::Append {
        records: records
            .into_iter()
            .map(|record| Bytes::copy_from_slice(record.as_bytes()))
            .collect(),
        ..Default::default()
    }
}

/// One record of so many bytes.
pub(crate) fn record_of(bytes: usize) -> v1::Append {
    v1::Append {
        records: vec![Bytes::from(vec![b'x'; bytes])],
        ..Default::default()
    }
}

pub(crate) fn at(offset: u64) -> Option<v1::ReadFrom> {
    Some(v1::ReadFrom {
        from: Some(v1::read_from::From::Offset(offset)),
    })
}

pub(crate) fn earliest() -> Option<v1::ReadFrom> {
    Some(v1::ReadFrom {
        from: Some(v1::read_from::From::Earliest(true)),
    })
}

pub(crate) fn latest() -> Option<v1::ReadFrom> {
    Some(v1::ReadFrom {
        from: Some(v1::read_from::From::Latest(true)),
    })
}

/// Another secret than this session's.
pub(crate) fn with_wrong_secret(session: &v1::SessionRef) -> v1::SessionRef {
    let secret: Vec<u8> = session.secret.iter().map(|byte| !byte).collect();
    v1::SessionRef {
        id: session.id,
        secret: Bytes::from(secret),
    }
}

/// The error that a status carries.
pub(crate) fn error_in(status: &Status) -> WireError {
    let error = WireError::from_status(status).expect("a well formed trailer");
    error.unwrap_or_else(|| panic!("an error that is not ours: {status:?}"))
}

/// What an error says: the code, and the field, the bound, the kind or the number that belongs to it.
pub(crate) fn said(error: &WireError) -> (ErrorCode, String) {
    let about = match &error.detail {
        Some(Detail::Invalid(invalid)) => invalid.field.clone(),
        Some(Detail::Limit(limit)) => format!("{} {}", limit.which, limit.value),
        Some(Detail::NotFound(missing)) => missing.kind.clone(),
        Some(Detail::ResumeFrom(number) | Detail::ObjectDeleted(number)) => number.to_string(),
        Some(Detail::WrongType(actual)) => actual.clone(),
        _ => String::new(),
    };
    (error.error_code().expect("a known code"), about)
}

/// What the error in an answer says.
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> (ErrorCode, String) {
    said(&error_in(&answer.expect_err("an error")))
}

/// What an error is expected to say.
pub(crate) fn says(code: ErrorCode, about: &str) -> (ErrorCode, String) {
    (code, about.to_owned())
}
