//! The endpoints of a cluster, a stream to each in use, and which one to take.
//!
//! A refused connection moves on at once. An endpoint that does not answer is tried beside the next one. The leader of
//! a group is preferred where it is known; any node answers any request.
//!
//! Nodes name each other, so a client that was given one endpoint finds the others. What they call each other may lead
//! nowhere from here, so nobody waits for a connection to such an endpoint as long as another one serves, and one that was
//! never reached is rarely tried.
//!
//! Where nobody listens at any endpoint, a client that has met its cluster before keeps trying: a node that was there
//! is probably on its way back. One that never met anybody gives up soon, as its addresses are probably wrong, unless it
//! was told to wait for a node.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use tenure_api::v1::{Header, LeaderHint};

use crate::channel::{Dialer, NotOpened, Stream};
use crate::error::Error;
use crate::runtime::{Instants, random_u64};

/// After a failed connection the endpoint is left alone for so long, doubled with each failure…
const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// …up to this.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// How long a call of a client that has never met a node goes on where every endpoint refuses connections.
const REFUSED_PATIENCE: Duration = Duration::from_millis(500);

/// Endpoints that are learned from nodes beside those that were given: a cluster has no more nodes.
const LEARNED_MAX: usize = 64;
/// One that was learned and never met is waited for so long…
const LEARNED_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// …and then left alone for so long: what nodes call each other need not lead there from here.
const LEARNED_BACKOFF: Duration = Duration::from_secs(5);

/// The endpoints of a cluster.
pub(crate) struct Pool {
    /// Those that were given, in their order, and behind them those that nodes have named.
    links: RwLock<Arc<[Arc<Link>]>>,
    given: usize,
    /// Which list of addresses was looked at last for endpoints that are not here.
    looked_at: AtomicU64,
    current: AtomicUsize,
    dialer: Dialer,
    wait_for_node: bool,
    only_given: bool,
}

impl Pool {
    /// A pool that has connected to nothing yet. There is at least one endpoint.
    pub(crate) fn new(endpoints: &[String], dialer: Dialer) -> Pool {
        assert!(!endpoints.is_empty(), "the builder asks for an endpoint");
        let link = |(index, endpoint): (usize, &String)| Arc::new(Link::new(index, endpoint.clone(), false));
        Pool {
            links: RwLock::new(endpoints.iter().enumerate().map(link).collect()),
            given: endpoints.len(),
            looked_at: AtomicU64::new(0),
            current: AtomicUsize::new(0),
            dialer,
            wait_for_node: false,
            only_given: false,
        }
    }

    /// The same pool, whose callers keep trying even if no node was ever met.
    pub(crate) fn waiting_for_node(self, wait_for_node: bool) -> Pool {
        Pool { wait_for_node, ..self }
    }

    /// The same pool, which learns no endpoints.
    pub(crate) fn of_given_only(self, only_given: bool) -> Pool {
        Pool { only_given, ..self }
    }

    /// How many endpoints there are.
    pub(crate) fn len(&self) -> usize {
        self.links().len()
    }

    /// Where to send a request of this group first: to its leader if that can be done at once, or no other endpoint can be
    /// asked sooner.
    pub(crate) fn first(&self, group: Option<u32>) -> usize {
        let links = self.links();
        let current = self.current(&links);
        let Some(leader) = group.and_then(|group| self.leader(&links, group)) else {
            return current;
        };
        let link = &links[leader];
        if link.ready().is_some() {
            return leader;
        }
        if links[current].ready().is_some() || link.learned {
            // It is not waited for. Whoever asks next finds it open, if it can be reached at all.
            Link::begin(link, &self.dialer);
            return current;
        }
        if link.healthy() { leader } else { current }
    }

    /// Where to send a request of this group that has failed there: to its leader, if these have not all been tried, else to
    /// the next one. `tried` is what was tried since all were.
    pub(crate) fn another(&self, failed: usize, group: Option<u32>, tried: &mut BTreeSet<usize>) -> usize {
        let links = self.links();
        let failed = failed % links.len();
        tried.insert(failed);
        let now = self.now().boot;
        let next = |tried: &BTreeSet<usize>| {
            let leader = group.and_then(|group| self.leader(&links, group));
            let leader = leader.filter(|leader| links[*leader].healthy() && !tried.contains(leader));
            leader.or_else(|| ring(&links, failed).find(|index| !tried.contains(index) && !links[*index].shunned(now)))
        };
        next(tried).unwrap_or_else(|| {
            tried.clear();
            tried.insert(failed);
            next(tried).unwrap_or(failed)
        })
    }

    /// The endpoint after this one.
    pub(crate) fn after(&self, index: usize) -> usize {
        let links = self.links();
        let (index, now) = (index % links.len(), self.now().boot);
        let next = ring(&links, index).find(|next| !links[*next].shunned(now));
        next.unwrap_or(index)
    }

    /// Where the leader of this group is reached, if a connection to it is open. If none is, one is begun.
    pub(crate) fn open_leader(&self, group: u32) -> Option<usize> {
        let links = self.links();
        let leader = self.leader(&links, group)?;
        if links[leader].ready().is_none() {
            Link::begin(&links[leader], &self.dialer);
            return None;
        }
        Some(leader)
    }

    /// Takes note of who leads a group.
    pub(crate) fn led(&self, hint: &LeaderHint) {
        self.dialer.directory.led(hint);
    }

    /// This endpoint did not serve: others are preferred from now on.
    pub(crate) fn avoid(&self, index: usize) {
        let next = self.after(index);
        let _ = self
            .current
            .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The endpoint that is asked if nothing speaks for another one.
    fn current(&self, links: &[Arc<Link>]) -> usize {
        let current = self.current.load(Ordering::Relaxed) % links.len();
        let now = self.now().boot;
        if !links[current].shunned(now) {
            return current;
        }
        ring(links, current)
            .find(|next| !links[*next].shunned(now))
            .unwrap_or(current)
    }

    /// The endpoint of the node that leads this group, if one is known: rather one to which a connection is open, and rather
    /// one that was given.
    fn leader(&self, links: &[Arc<Link>], group: u32) -> Option<usize> {
        let hint = self.dialer.directory.leader(group)?;
        let reached_at = self.dialer.directory.reached_at(&hint.address).unwrap_or(hint.address);
        let leads = |link: &Arc<Link>| match link.node_id.load(Ordering::Relaxed) {
            0 => link.endpoint == reached_at,
            met => met == hint.node_id,
        };
        let of_leader = || links.iter().enumerate().filter(|(_, link)| leads(link));
        let open = of_leader().find(|(_, link)| link.ready().is_some());
        let healthy = || of_leader().find(|(_, link)| link.healthy());
        let found = open.or_else(healthy).or_else(|| of_leader().next());
        found.map(|(index, _)| index)
    }

    /// All endpoints, with those that nodes have named meanwhile.
    fn links(&self) -> Arc<[Arc<Link>]> {
        let version = self.dialer.directory.addresses_version();
        if !self.only_given && self.looked_at.load(Ordering::Relaxed) != version {
            self.learn();
        }
        Arc::clone(&self.links.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds what nodes have named, in the place of what nobody names any more where there is such a place. An endpoint keeps
    /// its index as long as it is here.
    fn learn(&self) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        let (version, addresses) = self.dialer.directory.addresses();
        let mut all = links.to_vec();
        for address in &addresses {
            if all.iter().any(|link| link.endpoint == *address) {
                continue;
            }
            let unused = |link: &Arc<Link>| link.learned && !addresses.contains(&link.endpoint) && link.at_rest();
            let place = all.iter().position(unused).unwrap_or(all.len());
            let link = Arc::new(Link::new(place, address.clone(), true));
            if place < all.len() {
                all[place] = link;
            } else if all.len() < self.given + LEARNED_MAX {
                all.push(link);
            }
        }
        *links = all.into();
        self.looked_at.store(version, Ordering::Relaxed);
    }

    /// A stream to one of the endpoints, beginning with this one. One that refuses moves on at once; one that does
    /// not answer within `patience` is tried beside the next. Those that were given come before those that were learned.
    ///
    /// # Errors
    /// None could be reached, or one of them belongs to another cluster. Nothing was applied.
    pub(crate) async fn stream(&self, first: usize, patience: Duration) -> Result<Arc<Stream>, Error> {
        let links = self.links();
        let first = first % links.len();
        if let Some(ready) = links[first].ready() {
            return Ok(ready);
        }
        let mut order = vec![first];
        order.extend(ring(&links, first));
        order[1..].sort_by_key(|index| links[*index].learned);
        let mut order = order.into_iter().peekable();
        let mut waiting = FuturesUnordered::new();
        // What a given one says is what the caller knows the address of.
        let mut worst: Option<Error> = None;
        loop {
            if let Some(index) = order.next() {
                let link = Arc::clone(&links[index]);
                waiting.push(async move { (link.learned, Link::stream(&link, &self.dialer).await) });
            }
            let (learned, error) = tokio::select! {
                biased;
                opened = waiting.next() => match opened {
                    Some((_, Ok(stream))) => return Ok(stream),
                    Some((learned, Err(error))) => (learned, error),
                    None => return Err(worst.unwrap_or_else(unreachable)),
                },
                () = tokio::time::sleep(patience), if order.peek().is_some() => continue,
            };
            if matches!(error, Error::WrongCluster { .. }) && !learned {
                return Err(error);
            }
            if !learned || worst.is_none() {
                worst = Some(error);
            }
        }
    }

    /// A stream to this endpoint and no other; the index counts round.
    ///
    /// # Errors
    /// It cannot be reached, or belongs to another cluster. Nothing was applied.
    pub(crate) async fn link_stream(&self, index: usize) -> Result<Arc<Stream>, Error> {
        let links = self.links();
        Link::stream(&links[index % links.len()], &self.dialer).await
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
            && self.links().iter().all(refused_since)
    }

    /// How long it is until the first endpoint may be tried again; `None` if one may be tried now.
    fn until_retry(&self) -> Option<Duration> {
        let now = self.dialer.runtime.clock.boot();
        let mut first = None;
        for link in self.links().iter() {
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
        let links = self.links();
        if let State::Ready(stream) = &links[index % links.len()].inner().state
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
    /// A node has named it. Perhaps it cannot be reached from here.
    learned: bool,
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
    fn new(index: usize, endpoint: String, learned: bool) -> Link {
        let inner = Mutex::new(Inner {
            state: State::Idle,
            failures: 0,
        });
        Link {
            index,
            endpoint,
            learned,
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

    /// Whether it is better not to be tried now: a node has named it, and it could not be reached so far.
    fn shunned(&self, now: Duration) -> bool {
        let waits = || matches!(&self.inner().state, State::Failed { retry_at, .. } if now < *retry_at);
        self.never_met() && waits()
    }

    fn never_met(&self) -> bool {
        self.learned && self.node_id.load(Ordering::Relaxed) == 0
    }

    /// Whether there is neither a connection nor an attempt at one.
    fn at_rest(&self) -> bool {
        match &self.inner().state {
            State::Idle | State::Failed { .. } => true,
            State::Ready(stream) => !stream.usable(),
            State::Connecting => false,
        }
    }

    /// Opens the stream, if it is not open and may be tried, without waiting for it.
    fn begin(link: &Arc<Link>, dialer: &Dialer) {
        let mut inner = link.inner();
        let may = match &inner.state {
            State::Idle => true,
            State::Connecting => false,
            State::Ready(stream) => !stream.usable(),
            State::Failed { retry_at, .. } => dialer.runtime.clock.boot() >= *retry_at,
        };
        if may {
            inner.state = State::Connecting;
            Link::connect(Arc::clone(link), dialer.clone());
        }
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
    fn connect(link: Arc<Link>, mut dialer: Dialer) {
        let never_met = link.never_met();
        if never_met {
            dialer.connect_timeout = dialer.connect_timeout.min(LEARNED_CONNECT_TIMEOUT);
        }
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
                        let wait = if never_met { LEARNED_BACKOFF } else { wait };
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

/// The indexes after this one, all round.
fn ring(links: &[Arc<Link>], index: usize) -> impl Iterator<Item = usize> + use<> {
    let len = links.len();
    (1..len).map(move |offset| (index + offset) % len)
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
