//! The protocol itself, for proofs that choose the numbers of requests, or send one again, themselves.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tenure_api::v1::cluster_client::ClusterClient;
use tenure_api::v1::keys_client::KeysClient;
use tenure_api::v1::mux_client::MuxClient;
use tenure_api::v1::sessions_client::SessionsClient;
use tenure_api::v1::{self, WireError, guard, request_id};
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use crate::support::{CACHE, CALL_TIMEOUT};

/// One connection.
#[derive(Clone)]
pub(crate) struct Wire {
    channel: Channel,
}

impl Wire {
    pub(crate) async fn connect(endpoint: &str) -> Wire {
        let endpoint = Endpoint::from_shared(format!("http://{endpoint}"))
            .expect("an address")
            .connect_timeout(CALL_TIMEOUT)
            .tcp_nodelay(true);
        Wire {
            channel: endpoint.connect().await.expect("the node listens"),
        }
    }

    pub(crate) async fn put(&self, request: v1::PutRequest) -> Result<v1::PutReply, WireError> {
        let reply = KeysClient::new(self.channel.clone()).put(request).await;
        reply.map(tonic::Response::into_inner).map_err(|status| of(&status))
    }

    pub(crate) async fn delete(&self, request: v1::DeleteRequest) -> Result<v1::DeleteReply, WireError> {
        let reply = KeysClient::new(self.channel.clone()).delete(request).await;
        reply.map(tonic::Response::into_inner).map_err(|status| of(&status))
    }

    pub(crate) async fn get(&self, key: &str) -> Option<v1::KeyValue> {
        let request = v1::GetRequest {
            cache: CACHE.to_owned(),
            key: bytes(key),
            ..v1::GetRequest::default()
        };
        let reply = KeysClient::new(self.channel.clone()).get(request).await;
        reply.expect("the node answers").into_inner().key
    }

    /// A read that sees what was acknowledged before it, or of this age and at least this revision.
    pub(crate) async fn read(&self, key: &str, stale: Option<u64>) -> Result<v1::GetReply, WireError> {
        let request = v1::GetRequest {
            cache: CACHE.to_owned(),
            key: bytes(key),
            stale: stale.is_some(),
            min_revision: stale.unwrap_or_default(),
            ..v1::GetRequest::default()
        };
        let reply = KeysClient::new(self.channel.clone()).get(request).await;
        reply.map(tonic::Response::into_inner).map_err(|status| of(&status))
    }

    /// Asks for one renewal of a session; `None`: the answer names no session.
    pub(crate) async fn renew(
        &self,
        group: u32,
        session: &v1::SessionRef,
    ) -> Result<Option<v1::kept_alive::Result>, WireError> {
        let session = Some(session.clone());
        let request = v1::KeepAliveRequest {
            sessions: vec![v1::SessionInGroup { group, session }],
            attempt: 1,
        };
        let reply = SessionsClient::new(self.channel.clone()).keep_alive(request).await;
        let reply = reply.map_err(|status| of(&status))?.into_inner();
        Ok(reply.sessions.into_iter().next().and_then(|kept| kept.result))
    }

    /// What is told on a stream with nothing but a hello on it, as long as the sender is kept.
    pub(crate) async fn stream(&self) -> (mpsc::Sender<v1::ClientFrame>, Streaming<v1::ServerFrame>) {
        let (frames, receiver) = mpsc::channel(16);
        let hello = v1::HelloRequest {
            protocol: tenure_api::limits::PROTOCOL,
            ..v1::HelloRequest::default()
        };
        let hello = v1::ClientFrame {
            id: 1,
            timeout_ms: 0,
            body: Some(v1::client_frame::Body::Hello(hello)),
        };
        frames.send(hello).await.expect("the stream is open");
        let mut mux = MuxClient::new(self.channel.clone());
        let told = mux.connect(ReceiverStream::new(receiver)).await;
        (frames, told.expect("the stream opens").into_inner())
    }

    pub(crate) async fn watch_all(&self) -> Streaming<v1::WatchEvent> {
        let request = v1::WatchRequest {
            cache: CACHE.to_owned(),
            target: Some(v1::watch_request::Target::All(true)),
            ..v1::WatchRequest::default()
        };
        let reply = KeysClient::new(self.channel.clone()).watch(request).await;
        reply.expect("the watch begins").into_inner()
    }

    pub(crate) async fn open(&self, ttl_ms: u64, nonce: u128) -> v1::SessionRef {
        self.open_for(ttl_ms, nonce).await.session.expect("a session")
    }

    /// The same with everything that the node says of it.
    pub(crate) async fn open_for(&self, ttl_ms: u64, nonce: u128) -> v1::OpenSessionReply {
        let request = v1::OpenSessionRequest {
            nonce: Bytes::copy_from_slice(&nonce.to_le_bytes()),
            ttl_ms: Some(ttl_ms),
            label: "testkit".to_owned(),
            ..v1::OpenSessionRequest::default()
        };
        let reply = SessionsClient::new(self.channel.clone()).open(request).await;
        reply.expect("the node answers").into_inner()
    }

    pub(crate) async fn session(&self, id: u64) -> v1::SessionInfo {
        let request = v1::GetSessionRequest {
            session: id,
            ..v1::GetSessionRequest::default()
        };
        let reply = SessionsClient::new(self.channel.clone()).get(request).await;
        reply
            .expect("the node answers")
            .into_inner()
            .session
            .expect("a session")
    }

    pub(crate) async fn hello(&self) -> v1::HelloReply {
        let mut cluster = ClusterClient::new(self.channel.clone());
        let request = v1::HelloRequest {
            protocol: tenure_api::limits::PROTOCOL,
            ..v1::HelloRequest::default()
        };
        let reply = cluster.hello(request).await;
        reply.expect("the node answers").into_inner()
    }
}

/// How the group's time and the clock of this process belong together. Both run at the rate of this machine.
pub(crate) struct GroupClock {
    here: Instant,
    there: Duration,
}

impl GroupClock {
    /// Asks some times and believes the answer that came fastest.
    pub(crate) async fn learn(wire: &Wire) -> GroupClock {
        let mut best = (Duration::MAX, Instant::now(), Duration::ZERO);
        for _ in 0..200 {
            let sent = Instant::now();
            let hello = wire.hello().await;
            let took = sent.elapsed();
            if took < best.0 {
                best = (took, sent + took / 2, Duration::from_micros(hello.time_us));
            }
        }
        GroupClock {
            here: best.1,
            there: best.2,
        }
    }

    pub(crate) fn instant_of(&self, stamp: Duration) -> Instant {
        if stamp >= self.there {
            self.here + (stamp - self.there)
        } else {
            self.here - (self.there - stamp)
        }
    }
}

/// A write of the cache that all proofs use, without anything optional.
pub(crate) fn put(key: &str, value: &str) -> v1::PutRequest {
    v1::PutRequest {
        cache: CACHE.to_owned(),
        key: bytes(key),
        value: bytes(value),
        ..v1::PutRequest::default()
    }
}

/// A removal, likewise.
pub(crate) fn delete(key: &str) -> v1::DeleteRequest {
    v1::DeleteRequest {
        cache: CACHE.to_owned(),
        key: bytes(key),
        ..v1::DeleteRequest::default()
    }
}

pub(crate) fn guard(condition: guard::Condition) -> Option<v1::Guard> {
    Some(v1::Guard {
        condition: Some(condition),
    })
}

/// The identity of a numbered request.
pub(crate) fn numbered(session: &v1::SessionRef, seq: u64) -> Option<v1::RequestId> {
    let request = v1::SessionRequest {
        session: Some(session.clone()),
        seq,
        acknowledged_below: 0,
        acknowledged: Vec::new(),
    };
    Some(v1::RequestId {
        kind: Some(request_id::Kind::Session(request)),
    })
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// What the server said. An answer that broke off is an error of the connection, which says nothing of ours.
fn of(status: &Status) -> WireError {
    match WireError::from_status(status) {
        Ok(Some(error)) => error,
        _ => WireError::unavailable(format!("the connection: {status}")),
    }
}
