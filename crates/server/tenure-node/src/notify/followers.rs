//! Who follows which stream on this node. A follower holds no records: it reads them from the state, a page a time, and is
//! only woken here when there are more. So however slow it is, it costs its page and nothing else.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, Incarnation};
use tokio::sync::watch;

/// All followers of a node.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    followed: BTreeMap<(GroupId, Incarnation), Followed>,
    /// Followers of all streams.
    count: usize,
}

/// A stream that is followed.
#[derive(Debug, Default)]
struct Followed {
    followers: usize,
    /// Shared by all of them.
    told: watch::Sender<Told>,
}

/// What followers of a stream have been told since the first of them came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    /// The offset that the next record gets, by the last append that was told; 0 before any.
    tail: u64,
    /// How often the state was replaced under them, so that its streams have to be looked at anew.
    resets: u64,
    end: Option<FollowEnd>,
}

/// Why nothing more will be told of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FollowEnd {
    /// The stream is gone.
    ObjectDeleted { revision: u64 },
    /// The group has stopped on this node.
    Stopped { why: String },
}

/// A registered follower; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Following {
    followers: Arc<Followers>,
    stream: (GroupId, Incarnation),
    told: watch::Receiver<Told>,
    resets: u64,
}

impl Following {
    /// Completes when there may be a record at this offset, or anything else happened for which the stream has to be read;
    /// at once if that was so since the registration. Returns the offset behind the last record that was told, which may be
    /// lower. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// Why nothing more will be told.
    pub(crate) async fn wait_for(&mut self, offset: u64) -> Result<u64, FollowEnd> {
        let resets = self.resets;
        let told = self
            .told
            .wait_for(|told| told.tail > offset || told.resets != resets || told.end.is_some())
            .await;
        let Ok(told) = told else {
            // The sender is kept while somebody is registered.
            return Err(FollowEnd::Stopped {
                why: "nothing is told any more".to_owned(),
            });
        };
        if let Some(end) = &told.end {
            return Err(end.clone());
        }
        self.resets = told.resets;
        Ok(told.tail)
    }

    /// Completes when nothing more will be told, with the reason.
    pub(crate) async fn ended(&mut self) -> FollowEnd {
        let told = self.told.wait_for(|told| told.end.is_some()).await;
        told.ok()
            .and_then(|told| told.end.clone())
            .unwrap_or(FollowEnd::ObjectDeleted { revision: 0 })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut streams = self.followers.locked();
        streams.count -= 1;
        if let Entry::Occupied(mut followed) = streams.followed.entry(self.stream) {
            followed.get_mut().followers -= 1;
            if followed.get().followers == 0 {
                followed.remove();
            }
        }
    }
}

impl Followers {
    /// Registers a follower. Whatever is applied from now on wakes it, so it reads the stream after this, not before.
    ///
    /// # Errors
    /// The number of followers, if that is at least `max` already. Nothing was registered.
    pub(crate) fn register(
        self: &Arc<Self>,
        group: GroupId,
        incarnation: Incarnation,
        max: usize,
    ) -> Result<Following, usize> {
        let mut streams = self.locked();
        if streams.count >= max {
            return Err(streams.count);
        }
        streams.count += 1;
        let stream = (group, incarnation);
        let followed = streams.followed.entry(stream).or_default();
        followed.followers += 1;
        let told = followed.told.subscribe();
        let resets = told.borrow().resets;
        Ok(Following {
            followers: self.clone(),
            stream,
            told,
            resets,
        })
    }

    /// How many followers there are.
    pub(crate) fn len(&self) -> usize {
        self.locked().count
    }

    /// Tells what was applied.
    pub(crate) fn applied(&self, group: GroupId, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Appended { incarnation, tail, .. } => {
                    self.tell(group, *incarnation, |told| told.tail = told.tail.max(*tail));
                }
                Effect::ObjectDeleted { incarnation, revision } => {
                    let end = FollowEnd::ObjectDeleted { revision: *revision };
                    self.tell(group, *incarnation, |told| told.end = Some(end.clone()));
                }
                Effect::Changed(_) | Effect::SessionEnded { .. } => {}
            }
        }
    }

    /// The state of a group was replaced by a newer one.
    pub(crate) fn reset(&self, group: GroupId) {
        self.tell_all(group, |told| told.resets += 1);
    }

    /// A group has stopped on this node.
    pub(crate) fn stopped(&self, group: GroupId, why: &str) {
        self.tell_all(group, |told| {
            told.end
                .get_or_insert_with(|| FollowEnd::Stopped { why: why.to_owned() });
        });
    }

    fn tell(&self, group: GroupId, incarnation: Incarnation, change: impl FnOnce(&mut Told)) {
        if let Some(followed) = self.locked().followed.get(&(group, incarnation)) {
            followed.told.send_modify(change);
        }
    }

    fn tell_all(&self, group: GroupId, change: impl Fn(&mut Told)) {
        let first = (group, Incarnation(0));
        let last = (group, Incarnation(u64::MAX));
        for followed in self.locked().followed.range(first..=last).map(|(_, followed)| followed) {
            followed.told.send_modify(&change);
        }
    }

    /// A lock whose holder cannot have left it half changed.
    fn locked(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
