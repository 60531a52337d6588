//! One watch, from its beginning to its end: first the state if that was asked for, then what the change feed
//! has, then what is applied from then on. Nothing is missed and nothing comes twice.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tenure_api::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use tenure_core::effect::Change;
use tenure_core::ids::{GroupId, Incarnation, ObjectName, Revision};
use tenure_core::limits::PAGE_ROWS_MAX;
use tenure_core::machine::Machine;
use tenure_core::query::{Found, KeyView, Query};
use tenure_replica::runtime::{Clock, TaskHandle};
use tenure_storage::feed::FeedError;
use tenure_storage::state::{Image, StateError};

use super::{Group, Reading, Service, ServiceError, unexpected};
use crate::front::answers::{AnswerShare, PAGE_ANSWER_BYTES, Room};
use crate::notify::{Registration, Taken, Target, WATCHERS_MAX, WatchEnd};

/// A watch in which nothing happens says so this often, with the revision that it has reached.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// Changes of one message, unless a single revision has more: then its parts are flagged.
const MESSAGE_CHANGES_MAX: usize = 512;
/// Bytes of keys and values of one message, likewise. A watcher that waits to be read holds one message.
const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Room for what is read at once: it may go over its mark by one change.
const MESSAGE_ANSWER_BYTES: usize = MESSAGE_BYTES_MAX + VALUE_BYTES_MAX + 2 * KEY_BYTES_MAX;
/// How long a watch may take between two pages of the state, and for all of them: so long it pins what the state was.
const STATE_IDLE_MAX: Duration = Duration::from_secs(30);
const STATE_WHOLE_MAX: Duration = Duration::from_secs(15 * 60);

/// What to watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchSpec {
    pub(crate) cache: ObjectName,
    pub(crate) target: Target,
    /// The first revision whose changes are wanted; without it, the next one.
    pub(crate) from: Option<u64>,
    pub(crate) with_state: bool,
    /// The life of the cache that an earlier watch saw.
    pub(crate) incarnation: Option<u64>,
    pub(crate) min_revision: u64,
}

/// What a watch tells.
#[derive(Clone, Debug)]
pub(crate) enum WatchItem {
    Started {
        revision: u64,
        incarnation: u64,
    },
    State {
        keys: Vec<KeyView>,
        revision: u64,
        last: bool,
    },
    /// Whole revisions, unless `more` says that the last one goes on in the next message.
    Changes {
        changes: Vec<Change>,
        revision: u64,
        more: bool,
    },
    Progress {
        revision: u64,
    },
}

/// A watch. Dropping it ends it.
pub(crate) struct Watch {
    service: Service,
    group: Group,
    spec: WatchSpec,
    incarnation: Incarnation,
    /// The next revision whose changes are wanted.
    cursor: u64,
    /// Told before anything else.
    ready: VecDeque<WatchItem>,
    /// The state that is still to be told, after what is ready.
    state: Option<StateReader>,
    live: Option<Live>,
    /// Taken for what is ready, before that is read.
    room: Room,
}

/// Reads the keys of one image, a page a time, so that a large cache costs no more memory than a small one.
struct StateReader {
    image: Arc<Pinned>,
    after: Option<Bytes>,
    guard: TaskHandle,
}

impl Drop for StateReader {
    fn drop(&mut self) {
        self.guard.abort();
    }
}

/// An image, for as long as its reader goes on.
struct Pinned {
    image: Mutex<Option<Image>>,
    pages: AtomicU64,
}

/// Registered for what is applied behind a revision.
struct Live {
    registration: Registration,
    behind: Revision,
    caught_up: bool,
}

/// Why a watch tells nothing more.
#[derive(Clone, Debug)]
pub(crate) enum WatchStop {
    Ended(WatchEnd),
    Error(ServiceError),
}

impl From<ServiceError> for WatchStop {
    fn from(error: ServiceError) -> WatchStop {
        WatchStop::Error(error)
    }
}

impl Service {
    /// Begins a watch. It knows every write that was acknowledged before.
    pub(crate) async fn watch(
        &self,
        group: GroupId,
        spec: WatchSpec,
        deadline: Duration,
        room: Room,
    ) -> Result<Watch, WatchStop> {
        self.wait_for_revision(group, spec.min_revision, deadline).await?;
        let read = self
            .query(
                group,
                &Query::Cache(spec.cache.clone()),
                Reading::Linearizable,
                deadline,
            )
            .await?;
        let incarnation = match read.found {
            Found::Cache(record) => record.incarnation,
            Found::Failed(_) if spec.incarnation.is_some() => return Err(deleted()),
            other => return Err(unexpected(&other).into()),
        };
        if spec.incarnation.is_some_and(|seen| seen != incarnation.0) {
            return Err(deleted());
        }
        let group = self.group(group)?.clone();
        let (mut revision, mut state) = (read.revision.0, None);
        if spec.with_state {
            let image = group.state.image().map_err(storage)?;
            let (found, at) = Machine::query_image(&image, &Query::Cache(spec.cache.clone()));
            if !matches!(found, Found::Cache(record) if record.incarnation == incarnation) {
                // It went, or was made anew, between the lookup and the image.
                return Err(deleted());
            }
            revision = at.0;
            state = Some(self.pin(image));
        }
        if let Some(from) = spec.from.filter(|_| !spec.with_state) {
            revision = from.saturating_sub(1);
        }
        let ready = VecDeque::from([WatchItem::Started {
            revision,
            incarnation: incarnation.0,
        }]);
        // Before its creation a cache had no changes, so a feed that begins there misses nothing.
        let cursor = revision.saturating_add(1).max(incarnation.0);
        let watch = Watch {
            service: self.clone(),
            group,
            spec,
            incarnation,
            cursor,
            ready,
            state,
            live: None,
            room,
        };
        watch.check_feed()?;
        Ok(watch)
    }
}

impl Service {
    /// Keeps an image for a reader, and drops it when the reader stops or takes too long: what an image shows cannot
    /// be freed.
    fn pin(&self, image: Image) -> StateReader {
        let image = Arc::new(Pinned {
            image: Mutex::new(Some(image)),
            pages: AtomicU64::new(0),
        });
        let (pinned, clock) = (image.clone(), self.runtime().clock.clone());
        let guard = self.runtime().tasks.spawn(
            "image",
            Box::pin(async move { pinned.release_when_idle(&*clock).await }),
        );
        StateReader {
            image,
            after: None,
            guard,
        }
    }
}

impl Pinned {
    async fn release_when_idle(&self, clock: &dyn Clock) {
        let end = clock.now() + STATE_WHOLE_MAX;
        loop {
            let before = self.pages.load(Ordering::Relaxed);
            tokio::time::sleep(STATE_IDLE_MAX).await;
            if self.pages.load(Ordering::Relaxed) != before && clock.now() < end {
                continue;
            }
            // Whoever holds the lock reads a page.
            if let Ok(mut image) = self.image.try_lock() {
                image.take();
                return;
            }
        }
    }

    /// What the image answers, or `None` if it is not kept any more.
    fn query(&self, query: &Query) -> Option<Result<(Found, Revision), StateError>> {
        let image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        let image = image.as_ref()?;
        let found = Machine::query_image(image, query);
        self.pages.fetch_add(1, Ordering::Relaxed);
        Some(image.verify().map(|()| found))
    }
}

impl Watch {
    /// The share of what was told last, which takes so many bytes on the wire.
    pub(crate) fn hand_on(&self, bytes: usize) -> AnswerShare {
        match self.ready.is_empty() {
            true => self.room.hand_on_all(bytes),
            false => self.room.hand_on(bytes),
        }
    }

    /// The next thing to tell. Nothing is lost when the future is dropped before it is ready.
    pub(crate) async fn next(&mut self) -> Result<WatchItem, WatchStop> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(item);
            }
            if self.state.is_some() {
                return self.next_state().await;
            }
            match &self.live {
                Some(live) if live.caught_up => {
                    if let Some(item) = self.next_live().await? {
                        return Ok(item);
                    }
                }
                _ => self.catch_up().await?,
            }
        }
    }

    /// The next page of the state.
    async fn next_state(&mut self) -> Result<WatchItem, WatchStop> {
        let Some(reader) = &self.state else {
            return Err(ServiceError::Internal("there is no state to tell".to_owned()).into());
        };
        let cache = self.spec.cache.clone();
        let query = match &self.spec.target {
            Target::Key(key) => Query::Get {
                cache,
                key: key.clone(),
            },
            Target::Prefix(prefix) => Query::List {
                cache,
                prefix: prefix.clone(),
                after: reader.after.clone(),
                limit: PAGE_ROWS_MAX,
            },
        };
        let image = reader.image.clone();
        let _turn = self.room.long_read().await;
        self.room.take_patiently(PAGE_ANSWER_BYTES).await;
        let found = self.service.read_aside(move || image.query(&query)).await?;
        let Some(found) = found else {
            // It took so long that the state was let go: whoever wants it begins anew.
            let resume_from = self.cursor;
            return Err(WatchStop::Ended(WatchEnd::Lagged { resume_from }));
        };
        let (found, revision) = found.map_err(storage)?;
        let (keys, more) = match found {
            Found::Key(key) => (key.into_iter().collect(), false),
            Found::Keys { keys, more } => (keys, more),
            // It was deleted between the lookup and the image.
            Found::Failed(_) => return Err(deleted()),
            other => return Err(unexpected(&other).into()),
        };
        // Only now, so that a page that nobody waited for any more is read again.
        let after = keys.last().map(|key: &KeyView| key.key.clone());
        let last = !more || after.is_none();
        match &mut self.state {
            Some(reader) if !last => reader.after = after,
            _ => self.state = None,
        }
        Ok(WatchItem::State {
            keys,
            revision: revision.0,
            last,
        })
    }

    /// Reads a page of the feed; at its end, registers for what comes behind it.
    async fn catch_up(&mut self) -> Result<(), WatchStop> {
        let (incarnation, target) = (self.incarnation, self.spec.target.clone());
        let wanted = move |change: &Change| change.incarnation == incarnation && target.covers(&change.key);
        let turn = self.room.long_read().await;
        self.room.take_patiently(MESSAGE_ANSWER_BYTES).await;
        let (feed, cursor) = (self.group.state.feed().clone(), Revision(self.cursor));
        let read = move || feed.read(cursor, MESSAGE_CHANGES_MAX, MESSAGE_BYTES_MAX, &wanted);
        let page = self.service.read_aside(read).await?;
        drop(turn);
        let page = page.map_err(|error| self.feed_stop(error))?;
        self.cursor = page.next.0.max(self.cursor);
        self.ready.extend(messages(page.changes));
        if !page.reached_end {
            return Ok(());
        }
        match &mut self.live {
            None => self.live = Some(self.register()?),
            Some(live) => live.caught_up = self.cursor > live.behind.0,
        }
        Ok(())
    }

    fn register(&self) -> Result<Live, WatchStop> {
        let feed = self.group.state.feed();
        let (registration, behind) = self
            .service
            .hub()
            .register(self.group.id, self.incarnation, self.spec.target.clone(), || {
                feed.last()
            })
            .map_err(|_| ServiceError::Limit {
                which: "watchers of a node",
                value: WATCHERS_MAX as u64,
            })?;
        // If the cache went between the lookup and the registration, nobody will tell of it again.
        match self.group.replica.query(&Query::Cache(self.spec.cache.clone())) {
            Ok((Found::Cache(record), ..)) if record.incarnation == self.incarnation => Ok(Live {
                registration,
                behind,
                caught_up: self.cursor > behind.0,
            }),
            Ok(_) => Err(deleted()),
            Err(error) => Err(ServiceError::Unavailable {
                group: self.group.id,
                error,
            }
            .into()),
        }
    }

    async fn next_live(&mut self) -> Result<Option<WatchItem>, WatchStop> {
        let Some(live) = &self.live else { return Ok(None) };
        self.room.take_patiently(MESSAGE_ANSWER_BYTES).await;
        match live.registration.take(MESSAGE_CHANGES_MAX, MESSAGE_BYTES_MAX) {
            Taken::Changes(changes) => {
                let cursor = self.cursor;
                let fresh: Vec<Change> = changes.into_iter().filter(|change| change.revision >= cursor).collect();
                self.ready.extend(messages(fresh));
                Ok(None)
            }
            Taken::Ended(end) => Err(WatchStop::Ended(end)),
            Taken::Nothing => {
                // What waits for something to happen keeps no room.
                self.room.give_back();
                match tokio::time::timeout(PROGRESS_EVERY, live.registration.wait()).await {
                    Ok(()) => Ok(None),
                    Err(_) => {
                        let reached = live.registration.take_progress();
                        Ok(reached.map(|revision| WatchItem::Progress { revision: revision.0 }))
                    }
                }
            }
        }
    }

    /// Whether the feed still has what is asked for.
    fn check_feed(&self) -> Result<(), WatchStop> {
        let oldest = self.group.state.feed().oldest();
        if self.cursor < oldest.0 {
            return Err(WatchStop::Ended(WatchEnd::Compacted { resume_from: oldest.0 }));
        }
        Ok(())
    }

    fn feed_stop(&self, error: FeedError) -> WatchStop {
        match error {
            FeedError::Compacted { oldest } => WatchStop::Ended(WatchEnd::Compacted { resume_from: oldest.0 }),
            FeedError::State(error) => WatchStop::Error(ServiceError::Internal(error.to_string())),
        }
    }
}

fn storage(error: StateError) -> WatchStop {
    WatchStop::Error(ServiceError::Internal(error.to_string()))
}

fn deleted() -> WatchStop {
    WatchStop::Ended(WatchEnd::ObjectDeleted { revision: 0 })
}

/// Changes in messages of bounded size that hold whole revisions, except where a single revision is larger.
fn messages(changes: Vec<Change>) -> VecDeque<WatchItem> {
    let mut items = VecDeque::new();
    let (mut message, mut bytes): (Vec<Change>, usize) = (Vec::new(), 0);
    for change in changes {
        let size = size_of(&change);
        let full = message.len() >= MESSAGE_CHANGES_MAX || bytes + size > MESSAGE_BYTES_MAX;
        if let Some(last) = message.last()
            && full
        {
            let more = last.revision == change.revision;
            // The last revision that is whole: nothing behind this message is at or below it.
            let revision = if more { last.revision - 1 } else { last.revision };
            items.push_back(WatchItem::Changes {
                changes: std::mem::take(&mut message),
                revision,
                more,
            });
            bytes = 0;
        }
        bytes += size;
        message.push(change);
    }
    if let Some(last) = message.last() {
        let revision = last.revision;
        items.push_back(WatchItem::Changes {
            changes: message,
            revision,
            more: false,
        });
    }
    items
}

fn size_of(change: &Change) -> usize {
    let value = match &change.kind {
        tenure_core::effect::ChangeKind::Put { value, .. } => value.len(),
        tenure_core::effect::ChangeKind::Removed { .. } => 0,
    };
    change.key.len() + value
}

#[cfg(test)]
mod tests;
