//! Our server, through our client as programs use it: numbered requests, so that a repeat is answered once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_client::{
    Cache, ChangeKind, Client, EndReason, Error, ErrorCode, RequestMode, Stream, Verdict, Watch, WatchItem,
};

use super::{EventKind, Failure, Target, VALUE, Watcher};
use crate::work::Work;

/// The cache that the measurement uses.
const CACHE: &str = "tenure-bench";
/// The stream that the measurement appends to. What is older than so many bytes goes.
const STREAM: &str = "tenure-bench";
const STREAM_BYTES: u64 = 100 << 20;

/// How to reach the cluster, and where in it the measurement takes place.
#[derive(Clone, Debug)]
pub struct Place {
    /// Nodes as `HOST:PORT`.
    pub endpoints: Vec<String>,
    /// The tenant.
    pub tenant: String,
    /// The namespace within it.
    pub namespace: String,
    /// The time for a call over all its attempts.
    pub timeout: Duration,
}

/// One client, which has one connection to the node that it uses.
#[derive(Debug)]
pub struct Tenure {
    cache: Cache,
    stream: Stream,
    traces: Arc<Traces>,
}

/// What a measurement leaves on the cluster.
#[derive(Debug)]
struct Traces {
    /// A client that opens no session.
    client: Client,
    /// What the sessions of the measurement are called, and nobody else's.
    label: String,
    /// Whether the cache is the measurement's own.
    cache: AtomicBool,
    /// Whether the stream is.
    stream: AtomicBool,
}

impl Tenure {
    /// So many clients with a connection each.
    ///
    /// # Errors
    /// The endpoints are none, or none can be reached.
    pub async fn connect(place: &Place, connections: usize) -> Result<Vec<Tenure>, Failure> {
        let client = || {
            Client::builder()
                .endpoints(place.endpoints.iter().map(String::as_str))
                .tenant(place.tenant.as_str())
                .namespace(place.namespace.as_str())
                .timeout(place.timeout)
        };
        let traces = Arc::new(Traces {
            client: client().request_mode(RequestMode::OneShot).build()?,
            label: unique_label(),
            cache: AtomicBool::new(false),
            stream: AtomicBool::new(false),
        });
        let mut clients = Vec::with_capacity(connections);
        for _ in 0..connections {
            let client = client().label(traces.label.as_str()).connect().await?;
            clients.push(Tenure {
                cache: client.cache(CACHE),
                stream: client.stream(STREAM),
                traces: Arc::clone(&traces),
            });
        }
        Ok(clients)
    }

    /// Removes what the measurement has left: its sessions, and the cache and the stream if it made them. All who were
    /// connected with this one must be done.
    ///
    /// # Errors
    /// Some of it could not be removed, and this is why.
    pub async fn clean_up(&self) -> Result<(), Failure> {
        let traces = &*self.traces;
        let mut first_error = Ok(());
        if traces.cache.load(Ordering::Relaxed) {
            let deleted = traces.client.delete_cache(CACHE).await;
            first_error = first_error.and(gone(deleted));
        }
        if traces.stream.load(Ordering::Relaxed) {
            let deleted = traces.client.stream(STREAM).delete().await;
            first_error = first_error.and(gone(deleted));
        }
        let sessions = match traces.client.sessions().await {
            Ok(sessions) => sessions,
            // Without its namespace there is none.
            Err(error) if error.code() == ErrorCode::NotFound => Vec::new(),
            Err(error) => return first_error.and(Err(error.into())),
        };
        for session in sessions {
            if session.label == traces.label && session.ended.is_none() {
                let closed = traces.client.force_close_session(session.id).await;
                first_error = first_error.and(gone(closed));
            }
        }
        first_error
    }
}

/// Whether something that was to be removed is gone: somebody else may have been first.
fn gone<T>(removed: Result<T, Error>) -> Result<(), Failure> {
    match removed {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.code(), ErrorCode::NotFound | ErrorCode::SessionExpired) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn unique_label() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("tenure-bench {:x}-{:x}", std::process::id(), now.as_nanos())
}

/// The fencing token of a claim.
#[derive(Clone, Copy, Debug)]
pub struct Token(u64);

impl Target for Tenure {
    type Grant = Token;
    type Watcher = Watch;

    async fn prepare(&self, work: Work) -> Result<(), Failure> {
        if work == Work::Publish {
            let created = self.stream.create().retention_bytes(STREAM_BYTES).await?.done()?;
            self.traces.stream.fetch_or(!created.existed, Ordering::Relaxed);
        } else {
            let created = self.cache.client().create_cache(CACHE).await?.done()?;
            self.traces.cache.fetch_or(!created.existed, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn claim(&self, key: &str, ttl: Duration) -> Result<Token, Failure> {
        let verdict = self.cache.put(key, VALUE).ttl(ttl).if_absent().await?;
        verdict_of(verdict).map(|written| Token(written.token()))
    }

    async fn release(&self, key: &str, grant: &Token) -> Result<(), Failure> {
        verdict_of(self.cache.delete(key).if_created(grant.0).await?).map(drop)
    }

    async fn renew(&self, key: &str, grant: &Token, ttl: Duration) -> Result<(), Failure> {
        verdict_of(self.cache.touch(key, ttl).if_created(grant.0).await?).map(drop)
    }

    async fn put(&self, key: &str, ttl: Duration) -> Result<(), Failure> {
        verdict_of(self.cache.put(key, VALUE).ttl(ttl).await?).map(drop)
    }

    async fn get(&self, key: &str) -> Result<(), Failure> {
        match self.cache.get(key).await? {
            Some(_) => Ok(()),
            None => Err(Failure::refused("no such key")),
        }
    }

    async fn publish(&self, record: &[u8]) -> Result<(), Failure> {
        verdict_of(self.stream.append([record]).await?).map(drop)
    }

    async fn echo(&self) -> Result<(), Failure> {
        self.cache.client().hello().await?;
        Ok(())
    }

    async fn watch(&self, prefix: &str) -> Result<Watch, Failure> {
        Ok(self.cache.watch().prefix(prefix).await?)
    }
}

impl Watcher for Watch {
    async fn next(&mut self, kind: EventKind, keys: &mut Vec<String>) -> Result<(), Failure> {
        while keys.is_empty() {
            let Some(item) = Watch::next(self).await else {
                return Err(Failure::unexpected("the watch has ended"));
            };
            let changes = match item {
                Ok(WatchItem::Changes { changes, .. }) => changes,
                Ok(_) => continue,
                Err(end) => return Err(Failure::unexpected(format!("the watch has ended: {end}"))),
            };
            for change in changes {
                let happened = match change.kind {
                    ChangeKind::Put { .. } => EventKind::Written,
                    ChangeKind::Removed {
                        reason: EndReason::Expired,
                    } => EventKind::Expired,
                    ChangeKind::Removed { .. } => continue,
                };
                if happened == kind {
                    keys.push(String::from_utf8_lossy(&change.key).into_owned());
                }
            }
        }
        Ok(())
    }
}

fn verdict_of<T>(verdict: Verdict<T>) -> Result<T, Failure> {
    match verdict {
        Verdict::Done(done) => Ok(done),
        Verdict::Refused(refusal) => Err(Failure::refused(refusal.to_string())),
    }
}
