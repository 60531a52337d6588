//! Watching the keys of a cache.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use tenure_api::ErrorCode;

use super::{ClusterClient, Needed, creating};
use crate::cache::Entry;
use crate::runtime::system::wall_clock_ms;
use crate::watch::{Change, ChangeKind, Watch, WatchEnd, WatchItem};

/// Which keys are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheWatchFilter {
    /// One key.
    Key(String),
    /// The keys that begin with this; empty: all.
    Prefix(String),
}

/// What a watch gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheWatchItem {
    /// A key was written or is gone.
    Change(CacheChange),
    /// The watch has ended because changes were left out. A new one from there goes on: with the changes if they are
    /// still kept, else with the present state of each key.
    Lagged {
        /// From where.
        resume_from: u64,
    },
    /// Never given: a watch moves to another node by itself.
    ShardMoved(ShardMoved),
}

/// A key was written or is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheChange {
    /// The key. Bytes that are no UTF-8 are replaced.
    pub key: String,
    /// Its value; `None`: deleted or expired.
    pub value: Option<Bytes>,
    /// Where the watch is with this change: a watch from the offset after it misses nothing. It is the revision of the
    /// change, except that of several changes of one step, and of several keys of a state, only the last says where the
    /// watch is; the others say what was reached before.
    pub offset: u64,
    /// When it expires if nobody renews it, in milliseconds of this machine's time of day, for display; 0: never, or it
    /// is gone.
    pub expires_at_millis: u64,
}

/// A shard has moved to another node. Never given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMoved {
    /// From where to watch on.
    pub resume_from: Option<u64>,
    /// The node that has it now.
    pub node_id: Option<String>,
    /// Its address.
    pub addr: Option<String>,
    /// How often it has moved.
    pub generation: u64,
}

impl ClusterClient {
    /// Watches keys of a cache: every change from the next one on, or from an offset on, itself included. If the changes
    /// from there on are not kept any more, the present value of each key comes first, and
    /// [`resnapshot`](ClusterCacheWatch::resnapshot) says so.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn watch_cache(
        self: &Arc<Self>,
        tenant: &str,
        namespace: &str,
        cache: &str,
        filter: CacheWatchFilter,
        from_offset: Option<u64>,
    ) -> anyhow::Result<ClusterCacheWatch> {
        let client = self.client.namespace(tenant, namespace);
        let builder = || match &filter {
            CacheWatchFilter::Key(key) => client.cache(cache).watch().key(key),
            CacheWatchFilter::Prefix(prefix) => client.cache(cache).watch().prefix(prefix),
        };
        let needed = [Needed::Cache(cache)];
        // Revisions begin at 1.
        let from = from_offset.map(|offset| offset.max(1));
        let begun = creating(&client, &needed, || match from {
            Some(from) => builder().from(from),
            None => builder(),
        });
        match begun.await {
            Ok(watch) => Ok(ClusterCacheWatch::new(watch, from, false)),
            Err(error) if error.code() == ErrorCode::Compacted => {
                let watch = creating(&client, &needed, || builder().with_state()).await?;
                Ok(ClusterCacheWatch::new(watch, from, true))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A watch of a cache. It goes on by itself on another node when its own cannot. Dropping it ends it.
#[derive(Debug)]
pub struct ClusterCacheWatch {
    watch: Watch,
    resnapshot: bool,
    /// Everything up to this offset has been taken or is waiting.
    reached: u64,
    /// The key of a state of which it is not known yet whether it is the last.
    held: Option<CacheChange>,
    changes: VecDeque<CacheChange>,
    end: Option<WatchEnd>,
}

impl ClusterCacheWatch {
    fn new(watch: Watch, from: Option<u64>, resnapshot: bool) -> ClusterCacheWatch {
        let reached = from.map_or_else(|| watch.started_after(), |from| from.saturating_sub(1));
        ClusterCacheWatch {
            watch,
            resnapshot,
            reached,
            held: None,
            changes: VecDeque::new(),
            end: None,
        }
    }

    /// Whether the changes from the wanted offset on were not kept any more, so that the present value of each key comes
    /// first. A key that is gone is not told of then.
    pub fn resnapshot(&self) -> bool {
        self.resnapshot
    }

    /// The next item; `None`: the watch has ended, and [`end`](ClusterCacheWatch::end) says why. Dropping the future
    /// loses nothing.
    pub async fn recv(&mut self) -> Option<CacheWatchItem> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Some(CacheWatchItem::Change(change));
            }
            if self.end.is_some() {
                return None;
            }
            match self.watch.next().await? {
                Ok(item) => self.take(item),
                Err(end) => {
                    let wanted = self.watch.next_revision();
                    let resume_from = match &end {
                        WatchEnd::Lagged { resume_from } => Some(*resume_from),
                        WatchEnd::Compacted { .. } => Some(wanted),
                        WatchEnd::ObjectDeleted { .. } | WatchEnd::Failed(_) => None,
                    };
                    self.end = Some(end);
                    return resume_from.map(|resume_from| CacheWatchItem::Lagged { resume_from });
                }
            }
        }
    }

    /// Why the watch has ended, if it has.
    pub fn end(&self) -> Option<&WatchEnd> {
        self.end.as_ref()
    }

    fn take(&mut self, item: WatchItem) {
        match item {
            WatchItem::Changes { revision, changes } => {
                let before = self.reached;
                let last = changes.len().saturating_sub(1);
                for (place, change) in changes.into_iter().enumerate() {
                    let offset = if place == last { revision } else { before };
                    self.changes.push_back(changed(change, offset));
                }
                self.reached = revision;
            }
            WatchItem::State {
                entries,
                revision,
                first,
                last,
            } => {
                if first {
                    self.held = None;
                    self.changes.clear();
                }
                for entry in entries {
                    let next = Some(present(entry, self.reached));
                    self.changes.extend(std::mem::replace(&mut self.held, next));
                }
                if last {
                    self.reached = revision;
                    let held = self.held.take();
                    self.changes.extend(held.map(|change| CacheChange {
                        offset: revision,
                        ..change
                    }));
                }
            }
            WatchItem::Progress { revision } => self.reached = revision,
        }
    }
}

fn changed(change: Change, offset: u64) -> CacheChange {
    let (value, ttl) = match change.kind {
        ChangeKind::Put { value, ttl, .. } => (Some(value), ttl),
        ChangeKind::Removed { .. } => (None, None),
    };
    CacheChange {
        key: text(&change.key),
        value,
        offset,
        expires_at_millis: ttl.map_or(0, wall_clock_ms),
    }
}

fn present(entry: Entry, offset: u64) -> CacheChange {
    CacheChange {
        key: text(&entry.key),
        value: Some(entry.value),
        offset,
        expires_at_millis: entry.remaining.map_or(0, wall_clock_ms),
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
