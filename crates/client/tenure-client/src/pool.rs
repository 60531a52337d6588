//! The endpoints of a cluster, a stream to each in use, and which one to take.
//!
//! A refused connection moves on at once. An endpoint that does not answer is tried beside the next one. The leader of
//! a group is preferred where it is known to be one of the endpoints; any node answers any request.
//!
//! Where nobody listens at any endpoint, a client that has met its cluster before keeps trying: a node that was there
//! is probably on its way back. One that never met anybody gives up soon, as its addresses are probably wrong, unless it
//! was told to wait for a node.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use tenure_api::v1::Header;

use crate::channel::{Dialer, NotOpened, Stream};
use crate::error::Error;
use crate::runtime::{Instants, random_u64};

/// After a failed connection the endpoint is left alone for so long, doubled with each failure…
const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// …up to this.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// How long a call of a client that has never met a node goes on where every endpoint refuses connections.
const REFUSED_PATIENCE: Duration = Duration::from_millis(500);

/// The endpoints of a cluster.
pub(crate) struct Pool {
    links: Vec<Arc<Link>>,
    current: AtomicUsize,
    dialer: Dialer,
    wait_for_node: bool,
}

impl Pool {
    /// A pool that has connected to nothing yet. There is at least one endpoint.
    pub(crate) fn new(endpoints: &[String], dialer: Dialer) -> Pool {
        assert!(!endpoints.is_empty(), "the builder asks for an endpoint");
        let link = |(index, endpoint): (usize, &String)| Arc::new(Link::new(index, endpoint.clone()));
        Pool {
            links: endpoints.iter().enumerate().map(link).collect(),
            current: AtomicUsize::new(0),
            dialer,
            wait_for_node: false,
        }
    }

    /// The same pool, whose callers keep trying even if no node was ever met.
    pub(crate) fn waiting_for_node(self, wait_for_node: bool) -> Pool {
        Pool { wait_for_node, ..self }
    }

    /// How many endpoints there are.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Where to send a request of this group first.
    pub(crate) fn first(&self, group: Option<u32>) -> usize {
        let hint = group.and_then(|group| self.dialer.directory.leader(group));
        let leader = hint.and_then(|hint| {
            self.links.iter().position(|link| {
                link.healthy()
                    && (link.node_id.load(Ordering::Relaxed) == hint.node_id || link.endpoint == hint.address)
            })
        });
        leader.unwrap_or_else(|| self.current.load(Ordering::Relaxed) % self.links.len())
    }

    /// This endpoint did not serve: others are preferred from now on.
    pub(crate) fn avoid(&self, index: usize) {
        let next = (index + 1) % self.links.len();
        let _ = self
            .current
            .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A stream to one of the endpoints, beginning with this one. One that refuses moves on at once; one that does
    /// not answer within `patience` is tried beside the next.
    ///
    /// # Errors
    /// None could be reached, or one of them belongs to another cluster. Nothing was applied.
    pub(crate) async fn stream(&self, first: usize, patience: Duration) -> Result<Arc<Stream>, Error> {
        if let Some(ready) = self
            .links
            .get(first % self.links.len().max(1))
            .and_then(|link| link.ready())
        {
            return Ok(ready);
        }
        let mut tried = 0;
        let mut waiting = FuturesUnordered::new();
        loop {
            if tried < self.links.len() {
                waiting.push(self.link_stream(first + tried));
                tried += 1;
            }
            let error = tokio::select! {
                biased;
                opened = waiting.next() => match opened {
                    Some(Ok(stream)) => return Ok(stream),
                    Some(Err(error)) => error,
                    None => return Err(unreachable()),
                },
                () = tokio::time::sleep(patience), if tried < self.links.len() => continue,
            };
            let last = waiting.is_empty() && tried == self.links.len();
            if last || matches!(error, Error::WrongCluster { .. }) {
                return Err(error);
            }
        }
    }

    /// A stream to this endpoint and no other; the index counts round.
    ///
    /// # Errors
    /// It cannot be reached, or belongs to another cluster. Nothing was applied.
    pub(crate) async fn link_stream(&self, index: usize) -> Result<Arc<Stream>, Error> {
        Link::stream(&self.links[index % self.links.len()], &self.dialer).await
    }

    /// How long to wait before trying again after this failure, which was one of so many in a row. What no endpoint
    /// can be reached for waits for the endpoints' own backoff and not for one more on top of it.
    pub(crate) fn pause(&self, error: &Error, failures: u32, random: u64) -> Duration {
        let until_retry = match error {
            Error::Unreachable { .. } => self.until_retry(),
            _ => None,
        };
        until_retry.unwrap_or_else(|| backoff(failures, random))
    }

    /// Whether a call that began at this instant of the boot-time clock and would try again after `pause` should give
    /// up instead: nobody was ever met, and since it began every endpoint has refused a connection.
    pub(crate) fn in_vain(&self, began: Duration, pause: Duration) -> bool {
        let refused_since = |link: &Arc<Link>| match &link.inner().state {
            State::Failed { refused_at, .. } => refused_at.is_some_and(|at| at >= began),
            _ => false,
        };
        !self.wait_for_node
            && self.dialer.directory.cluster().is_empty()
            && self.dialer.runtime.clock.boot().saturating_sub(began) + pause >= REFUSED_PATIENCE
            && self.links.iter().all(refused_since)
    }

    /// How long it is until the first endpoint may be tried again; `None` if one may be tried now.
    fn until_retry(&self) -> Option<Duration> {
        let now = self.dialer.runtime.clock.boot();
        let mut first = None;
        for link in &self.links {
            match &link.inner().state {
                State::Failed { retry_at, .. } => {
                    let wait = retry_at.saturating_sub(now);
                    first = Some(first.map_or(wait, |first: Duration| first.min(wait)));
                }
                State::Idle | State::Connecting | State::Ready(_) => return None,
            }
        }
        first
    }

    /// Takes note of where answers came from.
    pub(crate) fn saw(&self, headers: &[Header]) {
        let now = self.dialer.runtime.clock.boot();
        for header in headers {
            self.dialer.directory.saw(Some(header), now);
        }
    }

    /// What the clocks say.
    pub(crate) fn now(&self) -> Instants {
        self.dialer.runtime.clock.now()
    }

    /// New requests take a new connection to this endpoint if nothing has come over the present one for so long.
    pub(crate) fn retire_if_silent(&self, index: usize, silence: Duration) {
        let now = self.dialer.runtime.clock.boot();
        if let State::Ready(stream) = &self.links[index % self.links.len()].inner().state
            && stream.silent_for(now) >= silence
        {
            stream.retire();
        }
    }
}

/// One endpoint.
struct Link {
    index: usize,
    endpoint: String,
    /// The node that was met there last; 0: none yet.
    node_id: AtomicU64,
    inner: Mutex<Inner>,
    changed: Notify,
}

struct Inner {
    state: State,
    failures: u32,
}

enum State {
    Idle,
    Connecting,
    Ready(Arc<Stream>),
    Failed {
        error: Error,
        retry_at: Duration,
        /// When the network refused the connection; `None`: it failed in another way.
        refused_at: Option<Duration>,
    },
}

impl Link {
    fn new(index: usize, endpoint: String) -> Link {
        let inner = Mutex::new(Inner {
            state: State::Idle,
            failures: 0,
        });
        Link {
            index,
            endpoint,
            node_id: AtomicU64::new(0),
            inner,
            changed: Notify::new(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream to this endpoint, if it is open.
    fn ready(&self) -> Option<Arc<Stream>> {
        match &self.inner().state {
            State::Ready(stream) if stream.usable() => Some(Arc::clone(stream)),
            _ => None,
        }
    }

    /// Whether a request may be sent here without a detour.
    fn healthy(&self) -> bool {
        !matches!(self.inner().state, State::Failed { .. })
    }

    /// The stream to this endpoint, opened if need be.
    async fn stream(link: &Arc<Link>, dialer: &Dialer) -> Result<Arc<Stream>, Error> {
        let mut joined = false;
        loop {
            let changed = link.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut inner = link.inner();
                match &inner.state {
                    State::Ready(stream) if stream.usable() => return Ok(Arc::clone(stream)),
                    // Whoever has waited for an attempt takes its result; whoever comes later waits for the backoff.
                    State::Failed { error, retry_at, .. } if joined || dialer.runtime.clock.boot() < *retry_at => {
                        return Err(error.clone());
                    }
                    State::Connecting => {}
                    State::Idle | State::Ready(_) | State::Failed { .. } => {
                        inner.state = State::Connecting;
                        Link::connect(Arc::clone(link), dialer.clone());
                    }
                }
            }
            joined = true;
            changed.await;
        }
    }

    /// Opens a stream in a task of its own, so that nobody who gives up takes it from the others.
    fn connect(link: Arc<Link>, dialer: Dialer) {
        let tasks = Arc::clone(&dialer.runtime.tasks);
        let connecting = async move {
            let opened = Stream::open(&dialer, link.index, &link.endpoint).await;
            {
                let mut inner = link.inner();
                match opened {
                    Ok(stream) => {
                        link.node_id.store(stream.node_id, Ordering::Relaxed);
                        inner.failures = 0;
                        inner.state = State::Ready(Arc::new(stream));
                    }
                    Err(NotOpened { error, refused }) => {
                        tracing::debug!(%error, endpoint = %link.endpoint, "no connection");
                        let now = dialer.runtime.clock.boot();
                        inner.failures = inner.failures.saturating_add(1);
                        let wait = backoff(inner.failures, random_u64(&*dialer.runtime.random)).min(dialer.backoff_max);
                        inner.state = State::Failed {
                            error,
                            retry_at: now + wait,
                            refused_at: refused.then_some(now),
                        };
                    }
                }
            }
            link.changed.notify_waiters();
        };
        tasks.spawn("tenure connect", connecting.boxed());
    }
}

fn unreachable() -> Error {
    Error::Unreachable {
        why: "there is no endpoint".to_owned(),
        outcome: tenure_api::Outcome::NotApplied,
    }
}

/// How long to wait after so many failures: doubled each time, between half and the whole of it by chance.
pub(crate) fn backoff(failures: u32, random: u64) -> Duration {
    let whole = BACKOFF_MIN
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(BACKOFF_MAX);
    let half = whole / 2;
    let spread = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_micros(random % spread)
}
