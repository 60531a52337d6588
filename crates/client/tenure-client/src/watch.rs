//! Following the changes of a cache: every one in order, or an explicit end that says where to go on.
//!
//! A broken stream, a node that cannot go on, and a reader that is slower than its buffer are resumed from behind the
//! last change that was taken: nothing is missed and nothing comes twice.

pub(crate) mod buffer;
mod follower;

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, stream};

use tenure_api::v1::{EndReason, WireError, wire_error};
use tenure_api::{ErrorCode, Outcome};

use crate::cache::{Cache, Entry};
use crate::channel::{AttemptError, WatchFeed};
use crate::error::Error;
use crate::pool::backoff;
use crate::runtime::random_u64;
use buffer::{FeedEnd, FeedItem};
use follower::Follower;

/// An endpoint that has not taken up a watch after the time of a call divided by this is left for the next one.
const PATIENCE_DIVISOR: u32 = 4;

/// A watch that is being described; awaiting it begins it.
#[derive(Clone, Debug)]
#[must_use = "a watch begins when it is awaited"]
pub struct WatchBuilder {
    cache: Cache,
    target: Target,
    from: Option<u64>,
    with_state: bool,
}

/// Which keys are watched.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    All,
    Key(Bytes),
    Prefix(Bytes),
}

impl WatchBuilder {
    pub(crate) fn new(cache: Cache) -> WatchBuilder {
        WatchBuilder {
            cache,
            target: Target::All,
            from: None,
            with_state: false,
        }
    }

    /// Only this key.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> WatchBuilder {
        self.target = Target::Key(Bytes::copy_from_slice(key.as_ref()));
        self
    }

    /// Only keys that begin with these bytes.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> WatchBuilder {
        self.target = Target::Prefix(Bytes::copy_from_slice(prefix.as_ref()));
        self
    }

    /// From this revision on, itself included. Without it: from the next change on.
    pub fn from(mut self, revision: u64) -> WatchBuilder {
        self.from = Some(revision);
        self
    }

    /// Send the present state first, then what changes after it. It goes together with no `from`.
    pub fn with_state(mut self) -> WatchBuilder {
        self.with_state = true;
        self
    }

    /// Begins the watch: what changes after this returns is seen.
    async fn begin(self) -> Result<Watch, Error> {
        if self.with_state && self.from.is_some() {
            let rule = "with the state it begins at the state's revision".to_owned();
            return Err(Error::Invalid { what: "from", rule });
        }
        let timeout = self.cache.client().timeout();
        let mut watch = Watch::new(self);
        let outcome = Outcome::NotApplied;
        let beginning = async {
            watch
                .cache
                .client()
                .home(false, timeout)
                .await
                .map_err(WatchEnd::Failed)?;
            watch.start().await
        };
        match tokio::time::timeout(timeout, beginning).await {
            Ok(Ok(())) => Ok(watch),
            Ok(Err(end)) => Err(end.into_error()),
            Err(_) => Err(match watch.last_error.take() {
                Some(error) => error.with_outcome(outcome),
                None => Error::NoAnswer {
                    why: "the watch did not begin in time".to_owned(),
                    outcome,
                },
            }),
        }
    }
}

impl IntoFuture for WatchBuilder {
    type Output = Result<Watch, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.begin().boxed()
    }
}

/// A watch that has begun. Dropping it ends it.
pub struct Watch {
    cache: Cache,
    follower: Follower,
    feed: Option<WatchFeed>,
    subscribing: Option<BoxFuture<'static, Result<WatchFeed, (usize, Error)>>>,
    /// Until when, on the monotonic clock, the feed is to begin; `None` once it has.
    begin_by: Option<Duration>,
    /// Subscriptions in a row that came to nothing.
    failures: u32,
    endpoint: usize,
    /// Endpoints that do not keep the wanted revision any more, and the lowest that one of them does.
    compacted: BTreeSet<usize>,
    resume_from: Option<u64>,
    last_error: Option<Error>,
    ended: bool,
}

impl Watch {
    fn new(builder: WatchBuilder) -> Watch {
        let client = builder.cache.client();
        let scope = client.scope();
        let endpoint = client.shared.pool.first(client.known_home());
        let name = builder.cache.name().to_owned();
        let follower = Follower::new(scope, name, builder.target, builder.from, builder.with_state);
        Watch {
            cache: builder.cache,
            follower,
            feed: None,
            subscribing: None,
            begin_by: None,
            failures: 0,
            endpoint,
            compacted: BTreeSet::new(),
            resume_from: None,
            last_error: None,
            ended: false,
        }
    }

    /// The revision after which changes follow.
    pub fn started_after(&self) -> u64 {
        self.follower.started_after()
    }

    /// Everything before this revision has been taken from the watch or waits in it: a new watch with it as `from`
    /// would go on behind what is still to be taken.
    pub fn next_revision(&self) -> u64 {
        self.follower.next_revision()
    }

    /// The next item. It waits for as long as nothing changes, or no node can be reached. After an error, which says
    /// why the watch has ended, there is `None`. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<WatchItem, WatchEnd>> {
        loop {
            if let Some(item) = self.follower.pop() {
                return Some(Ok(item));
            }
            if self.ended {
                return None;
            }
            if let Err(end) = self.advance().await {
                self.ended = true;
                self.feed = None;
                return Some(Err(end));
            }
        }
    }

    /// The items as a stream that ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<WatchItem, WatchEnd>> + Send {
        stream::unfold(
            self,
            |mut watch| async move { watch.next().await.map(|item| (item, watch)) },
        )
    }

    /// Waits until a node has taken the watch up.
    async fn start(&mut self) -> Result<(), WatchEnd> {
        while !self.follower.has_started() {
            self.advance().await?;
        }
        Ok(())
    }

    /// One step: subscribes if need be, else takes one event.
    async fn advance(&mut self) -> Result<(), WatchEnd> {
        let Some(feed) = &self.feed else {
            return self.subscribe().await;
        };
        let endpoint = feed.stream.endpoint;
        let taking = feed.buffer.next();
        let taken = match self.begin_by {
            None => taking.await,
            Some(limit) => {
                let left = limit.saturating_sub(self.cache.client().now().monotonic);
                match tokio::time::timeout(left, taking).await {
                    Ok(taken) => taken,
                    Err(_) => FeedItem::End(FeedEnd::Broken("the node did not take up the watch in time".to_owned())),
                }
            }
        };
        match taken {
            FeedItem::Event(event) => {
                let seen = self.follower.take(event)?;
                self.begin_by = None;
                self.failures = 0;
                self.compacted.clear();
                self.resume_from = None;
                if let (Some(revision), Some(group)) = (seen, self.cache.client().known_home()) {
                    self.cache.client().shared.directory.saw_revision(group, revision);
                }
                Ok(())
            }
            FeedItem::End(end) => {
                self.feed = None;
                self.broken(end, endpoint)
            }
        }
    }

    /// Asks a node for what is wanted next. What is under way is kept here, so that a caller who gives up waiting over
    /// and over does not begin it over and over.
    async fn subscribe(&mut self) -> Result<(), WatchEnd> {
        if self.subscribing.is_none() {
            self.subscribing = Some(self.subscription());
        }
        let Some(subscribing) = &mut self.subscribing else {
            return Ok(());
        };
        let result = subscribing.await;
        self.subscribing = None;
        let client = self.cache.client();
        match result {
            Ok(feed) => {
                self.begin_by = Some(client.now().monotonic + client.timeout() / PATIENCE_DIVISOR);
                self.feed = Some(feed);
                Ok(())
            }
            Err((_, error @ Error::WrongCluster { .. })) => Err(WatchEnd::Failed(error)),
            Err((endpoint, error)) => self.failed(endpoint, error),
        }
    }

    /// A subscription on its way: after a pause if the last one came to nothing, to the endpoint whose turn it is.
    fn subscription(&mut self) -> BoxFuture<'static, Result<WatchFeed, (usize, Error)>> {
        let client = self.cache.client().clone();
        let endpoint = self.next_endpoint();
        let only_there = !self.compacted.is_empty();
        let pause = match self.failures {
            0 => Duration::ZERO,
            failures => backoff(failures, random_u64(&*client.shared.runtime.random)),
        };
        let request = self.follower.request(client.revision_seen());
        async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let pool = &client.shared.pool;
            let opened = if only_there {
                pool.link_stream(endpoint).await
            } else {
                pool.stream(endpoint, client.timeout() / PATIENCE_DIVISOR).await
            };
            let stream = opened.map_err(|error| (endpoint, error))?;
            let watching = stream.watch(request, client.timeout()).await;
            watching.map_err(|error| (stream.endpoint, error.into_error()))
        }
        .boxed()
    }

    /// Where to subscribe: an endpoint that has not said that it does not keep the revision.
    fn next_endpoint(&self) -> usize {
        let endpoints = self.cache.client().shared.pool.len();
        let mut candidates = (0..endpoints).map(|offset| (self.endpoint + offset) % endpoints);
        candidates
            .find(|endpoint| !self.compacted.contains(endpoint))
            .unwrap_or(self.endpoint)
    }

    /// This endpoint did not serve: the next one is asked, unless all others do not keep the wanted revision.
    fn failed(&mut self, endpoint: usize, error: Error) -> Result<(), WatchEnd> {
        tracing::debug!(%error, "a watch looks for another node");
        let endpoints = self.cache.client().shared.pool.len();
        self.failures = self.failures.saturating_add(1);
        self.endpoint = (endpoint + 1) % endpoints;
        self.last_error = Some(error);
        if self.compacted.is_empty() {
            Ok(())
        } else {
            self.without_revision(endpoint % endpoints, None)
        }
    }

    /// The feed has ended: is the watch to go on elsewhere?
    fn broken(&mut self, end: FeedEnd, endpoint: usize) -> Result<(), WatchEnd> {
        let error = match end {
            FeedEnd::Overflow => return Ok(()),
            FeedEnd::Broken(why) => {
                return self.failed(endpoint, AttemptError::Broken(why).into_error());
            }
            FeedEnd::Cancelled => WireError::unavailable("the node ended the watch without a reason"),
            FeedEnd::Server(error) => *error,
        };
        match error.error_code() {
            Some(ErrorCode::Compacted) => self.without_revision(endpoint, error.resume_from()),
            Some(ErrorCode::Lagged) => {
                let resume_from = error.resume_from().unwrap_or_else(|| self.follower.next_revision());
                Err(WatchEnd::Lagged { resume_from })
            }
            Some(ErrorCode::ObjectDeleted) => {
                let revision = match error.detail {
                    Some(wire_error::Detail::ObjectDeleted(revision)) if revision > 0 => Some(revision),
                    _ => None,
                };
                Err(WatchEnd::ObjectDeleted { revision })
            }
            Some(code) if code.retryable() || code == ErrorCode::Deadline || code == ErrorCode::Internal => {
                self.failed(endpoint, Error::from_wire(error))
            }
            _ => Err(WatchEnd::Failed(
                Error::from_wire(error).with_outcome(Outcome::NotApplied),
            )),
        }
    }

    /// This endpoint cannot give the wanted revision, and keeps what comes from `resume_from` on if it says so. If none
    /// can, the watch ends.
    fn without_revision(&mut self, endpoint: usize, resume_from: Option<u64>) -> Result<(), WatchEnd> {
        self.compacted.insert(endpoint);
        self.resume_from = match (self.resume_from, resume_from) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        if self.compacted.len() < self.cache.client().shared.pool.len() {
            return Ok(());
        }
        Err(WatchEnd::Compacted {
            resume_from: self.resume_from.unwrap_or_else(|| self.follower.next_revision()),
        })
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("cache", &self.cache.name())
            .finish_non_exhaustive()
    }
}

/// What a watch gives.
#[derive(Clone, Debug)]
pub enum WatchItem {
    /// A part of the state, if that was asked for. All parts come before the first change.
    State {
        /// Keys in order of their bytes.
        entries: Vec<Entry>,
        /// The revision of the whole state, the same in each part.
        revision: u64,
        /// The state begins here. Parts that came before belong to an attempt that broke off: forget them.
        first: bool,
        /// No further part follows. The last part may be empty.
        last: bool,
    },
    /// All that one step changed of what is watched.
    Changes {
        /// The revision that the step consumed.
        revision: u64,
        /// What changed, in order.
        changes: Vec<Change>,
    },
    /// Nothing that is watched changed up to here.
    Progress {
        /// The revision up to which everything has come.
        revision: u64,
    },
}

/// A change of one key.
#[derive(Clone, Debug)]
pub struct Change {
    /// The revision that the change consumed; changes of one step share it.
    pub revision: u64,
    /// The key.
    pub key: Bytes,
    /// What happened.
    pub kind: ChangeKind,
    /// The version before; `None`: there was none.
    pub previous_version: Option<u64>,
}

/// What happened to a key.
#[derive(Clone, Debug)]
pub enum ChangeKind {
    /// It was written.
    Put {
        /// The new value.
        value: Bytes,
        /// Revision of this write.
        version: u64,
        /// Revision of the key's creation, its fencing token: equal to `version` if this write created it.
        created: u64,
        /// The session that owns it; `None`: nobody.
        owner_session: Option<u64>,
        /// Its own TTL; `None`: none.
        ttl: Option<Duration>,
    },
    /// It is gone.
    Removed {
        /// Why.
        reason: EndReason,
    },
}

/// Why a watch has ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchEnd {
    /// No node keeps the wanted changes any more: read the state anew, and watch from there.
    #[error("compacted: changes are kept from revision {resume_from} on; read the state anew")]
    Compacted {
        /// The first revision whose changes are kept.
        resume_from: u64,
    },
    /// The node dropped changes because this watch did not keep up, or because it had to make its state anew.
    #[error("lagged: resume from revision {resume_from}")]
    Lagged {
        /// From where a watch can go on.
        resume_from: u64,
    },
    /// The cache was deleted; one of the same name that may exist now is another.
    #[error("the cache was deleted")]
    ObjectDeleted {
        /// The revision of the deletion, if it is known.
        revision: Option<u64>,
    },
    /// It cannot go on.
    #[error(transparent)]
    Failed(Error),
}

impl WatchEnd {
    /// The code from the table of errors.
    pub fn code(&self) -> ErrorCode {
        match self {
            WatchEnd::Compacted { .. } => ErrorCode::Compacted,
            WatchEnd::Lagged { .. } => ErrorCode::Lagged,
            WatchEnd::ObjectDeleted { .. } => ErrorCode::ObjectDeleted,
            WatchEnd::Failed(error) => error.code(),
        }
    }

    /// The revision from which a watch can go on.
    pub fn resume_from(&self) -> Option<u64> {
        match self {
            WatchEnd::Compacted { resume_from } | WatchEnd::Lagged { resume_from } => Some(*resume_from),
            WatchEnd::ObjectDeleted { .. } | WatchEnd::Failed(_) => None,
        }
    }

    /// The same as an error of a call.
    pub fn into_error(self) -> Error {
        match self {
            WatchEnd::Compacted { resume_from } => Error::from_wire(WireError::compacted(resume_from)),
            WatchEnd::Lagged { resume_from } => Error::from_wire(WireError::lagged(resume_from)),
            WatchEnd::ObjectDeleted { revision } => {
                Error::from_wire(WireError::object_deleted("the cache", revision.unwrap_or_default()))
            }
            WatchEnd::Failed(error) => error,
        }
    }
}
