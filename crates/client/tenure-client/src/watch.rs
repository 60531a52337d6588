//! Following the changes of a cache: every one in order, or an explicit end that says where to go on.
//!
//! A broken stream, a node that cannot go on, and a reader that is slower than its buffer are resumed from behind the
//! last change that was taken: nothing is missed and nothing comes twice.

mod follower;

use std::future::IntoFuture;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, stream};

use tenure_api::ErrorCode;
use tenure_api::v1::{EndReason, WireError, client_frame};

use crate::cache::{Cache, Entry};
use crate::error::Error;
use crate::feed::FeedEvent;
use crate::feed::subscription::{Subscription, SubscriptionEnd};
use follower::Follower;

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
        let beginning = async {
            let client = watch.cache.client();
            client.home(false, timeout).await.map_err(WatchEnd::Failed)?;
            watch.start().await
        };
        match tokio::time::timeout(timeout, beginning).await {
            Ok(Ok(())) => Ok(watch),
            Ok(Err(end)) => Err(end.into_error()),
            Err(_) => Err(watch.subscription.not_begun()),
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
    subscription: Subscription,
    ended: bool,
}

impl Watch {
    fn new(builder: WatchBuilder) -> Watch {
        let client = builder.cache.client();
        let scope = client.scope();
        let subscription = Subscription::new(client.clone());
        let name = builder.cache.name().to_owned();
        let follower = Follower::new(scope, name, builder.target, builder.from, builder.with_state);
        Watch {
            cache: builder.cache,
            follower,
            subscription,
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
                self.subscription.close();
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
        let follower = &mut self.follower;
        let step = self
            .subscription
            .step(|min_revision| client_frame::Body::Watch(follower.request(min_revision)));
        let event = match step.await {
            Ok(Some(FeedEvent::Watch(event))) => event,
            Ok(Some(FeedEvent::Follow(_))) => return Err(WatchEnd::Failed(Error::unexpected("watch"))),
            Ok(None) => return Ok(()),
            Err(end) => return Err(self.end(end)),
        };
        let seen = self.follower.take(event)?;
        self.subscription.served();
        if let (Some(revision), Some(group)) = (seen, self.cache.client().known_home()) {
            self.cache.client().shared.directory.saw_revision(group, revision);
        }
        Ok(())
    }

    fn end(&self, end: SubscriptionEnd) -> WatchEnd {
        let next = || self.follower.next_revision();
        match end {
            SubscriptionEnd::Compacted { resume_from } => WatchEnd::Compacted {
                resume_from: resume_from.unwrap_or_else(next),
            },
            SubscriptionEnd::Lagged { resume_from } => WatchEnd::Lagged {
                resume_from: resume_from.unwrap_or_else(next),
            },
            SubscriptionEnd::ObjectDeleted { revision } => WatchEnd::ObjectDeleted { revision },
            SubscriptionEnd::Failed(error) => WatchEnd::Failed(error),
        }
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
    /// The node dropped changes because this watch did not keep up, or because it had to make its state anew, and no other
    /// endpoint of the client keeps them.
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
