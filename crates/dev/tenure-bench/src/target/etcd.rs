//! etcd, as programs use it for leases: a transaction that puts a key under a lease if the key was never created, and
//! one that deletes it if it is still that creation.
//!
//! It has no client crate: the five messages that this needs are written down here, and are sent through the same HTTP/2
//! library as ours. A connection has one lease, as a program has, granted for longer than any measurement and revoked
//! with its keys if it is forgotten; what keeping it alive costs is not measured.

mod messages;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message;
use tonic::Status;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use self::messages::{LeaseGranted, LeaseRequest, TxnAnswer, TxnRequest};
use super::{EventKind, Failure, Target, VALUE, Watcher};
use crate::work::Work;

/// The lease of a connection, in seconds: the longest measurement and some.
const LEASE_SECONDS: i64 = 900;
const TXN: &str = "/etcdserverpb.KV/Txn";
const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";

/// One connection to the first node, and to the others once a node has failed.
pub struct Etcd {
    nodes: Vec<Channel>,
    current: AtomicUsize,
    lease: i64,
}

/// The revision at which a key was created.
#[derive(Clone, Copy, Debug)]
pub struct Created(i64);

impl Etcd {
    /// So many connections with a lease each to the first of these `HOST:PORT`; the others are asked when it fails. A
    /// call that takes longer than the timeout fails.
    ///
    /// # Errors
    /// There is no address, or none of them answers.
    pub async fn connect(addresses: &[String], timeout: Duration, connections: usize) -> Result<Vec<Etcd>, Failure> {
        let mut all = Vec::with_capacity(connections);
        for _ in 0..connections {
            let mut nodes = Vec::with_capacity(addresses.len());
            for address in addresses {
                let endpoint = Endpoint::from_shared(format!("http://{address}"))
                    .map_err(|error| Failure::unexpected(format!("{address}: {error}")))?;
                nodes.push(endpoint.connect_timeout(timeout).timeout(timeout).connect_lazy());
            }
            let mut etcd = Etcd {
                nodes,
                current: AtomicUsize::new(0),
                lease: 0,
            };
            let request = LeaseRequest {
                seconds: LEASE_SECONDS,
                id: 0,
            };
            etcd.lease = etcd.ask::<_, LeaseGranted>(LEASE_GRANT, request).await?.id;
            all.push(etcd);
        }
        Ok(all)
    }

    /// Asks the current node; if it fails, the next call asks the next one.
    async fn ask<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let index = self.current.load(Ordering::Relaxed);
        let node = self.nodes.get(index % self.nodes.len().max(1));
        let node = node.ok_or_else(|| Failure::unexpected("there is no address"))?;
        let answer = Self::call(node.clone(), path, request).await;
        if answer.is_err() {
            // Another call may have moved on already.
            let next = index.wrapping_add(1);
            let _ = self
                .current
                .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        answer.map_err(|status| Failure::Etcd(Arc::new(status)))
    }

    async fn call<Q, A>(node: Channel, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(node);
        let not_ready = |error| Status::unavailable(format!("{error}"));
        grpc.ready().await.map_err(not_ready)?;
        let codec = ProstCodec::<Q, A>::default();
        let request = tonic::Request::new(request);
        let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }
}

impl Target for Etcd {
    type Grant = Created;
    type Watcher = NoEvents;

    async fn prepare(&self, _work: Work) -> Result<(), Failure> {
        Ok(())
    }

    async fn claim(&self, key: &str, _ttl: Duration) -> Result<Created, Failure> {
        let request = TxnRequest::put_if_created(key, 0, VALUE, self.lease);
        let answer: TxnAnswer = self.ask(TXN, request).await?;
        match answer.header {
            Some(header) if answer.succeeded => Ok(Created(header.revision)),
            Some(_) => Err(Failure::refused("the key exists")),
            None => Err(Failure::unexpected("etcd told no revision")),
        }
    }

    async fn release(&self, key: &str, grant: &Created) -> Result<(), Failure> {
        let request = TxnRequest::delete_if_created(key, grant.0);
        let answer: TxnAnswer = self.ask(TXN, request).await?;
        if answer.succeeded {
            Ok(())
        } else {
            Err(Failure::refused("the key is another's or is gone"))
        }
    }

    async fn renew(&self, _key: &str, _grant: &Created, _ttl: Duration) -> Result<(), Failure> {
        Err(Failure::not_measured(Work::Renew))
    }

    async fn put(&self, _key: &str, _ttl: Duration) -> Result<(), Failure> {
        Err(Failure::not_measured("put"))
    }

    async fn get(&self, _key: &str) -> Result<(), Failure> {
        Err(Failure::not_measured(Work::Get))
    }

    async fn publish(&self, _record: &[u8]) -> Result<(), Failure> {
        Err(Failure::not_measured(Work::Publish))
    }

    async fn echo(&self) -> Result<(), Failure> {
        Err(Failure::not_measured(Work::Echo))
    }

    async fn watch(&self, _prefix: &str) -> Result<NoEvents, Failure> {
        Err(Failure::not_measured(Work::Watch))
    }
}

/// What a system whose events are not compared watches with: there is none of it.
#[derive(Debug)]
pub enum NoEvents {}

impl Watcher for NoEvents {
    async fn next(&mut self, _kind: EventKind, _keys: &mut Vec<String>) -> Result<(), Failure> {
        match *self {}
    }
}
