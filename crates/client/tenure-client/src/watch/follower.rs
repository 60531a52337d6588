//! What a watch has seen, and what it asks for next: a pure state machine over the messages of its feeds.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_api::v1::{self, Scope, WatchEvent, WatchRequest, WireError, change, watch_event, watch_request};

use super::{Change, ChangeKind, Target, WatchEnd, WatchItem};
use crate::cache::Entry;
use crate::error::Error;

/// Changes of one revision. A server makes fewer in one step; one that sends more is not followed.
const CHANGES_MAX: usize = 65_536;

/// Turns the messages of successive feeds into items without gaps and repetitions.
pub(crate) struct Follower {
    scope: Scope,
    cache: String,
    target: Target,
    /// The first revision that is still wanted; `None` as long as no feed has said where it begins.
    wanted: Option<u64>,
    /// The state is still to come, whole.
    state_wanted: bool,
    /// The next part of the state is the first of its attempt.
    state_first: bool,
    incarnation: Option<u64>,
    started_after: Option<u64>,
    /// Changes of one revision of which more may follow.
    partial: Vec<Change>,
    items: VecDeque<WatchItem>,
}

impl Follower {
    pub(crate) fn new(scope: Scope, cache: String, target: Target, from: Option<u64>, with_state: bool) -> Follower {
        Follower {
            scope,
            cache,
            target,
            wanted: from,
            state_wanted: with_state,
            state_first: true,
            incarnation: None,
            started_after: None,
            partial: Vec::new(),
            items: VecDeque::new(),
        }
    }

    /// Whether a feed has begun.
    pub(crate) fn has_started(&self) -> bool {
        self.started_after.is_some()
    }

    /// The revision after which changes follow.
    pub(crate) fn started_after(&self) -> u64 {
        self.started_after.unwrap_or_default()
    }

    /// The first revision that has not been received whole.
    pub(crate) fn next_revision(&self) -> u64 {
        self.wanted.unwrap_or_default()
    }

    /// The next item that is complete.
    pub(crate) fn pop(&mut self) -> Option<WatchItem> {
        self.items.pop_front()
    }

    /// What to ask a node for now, given the highest revision that this client has seen of the group. Whatever a feed
    /// before it left incomplete is forgotten: it comes again.
    pub(crate) fn request(&mut self, min_revision: u64) -> WatchRequest {
        self.partial.clear();
        self.state_first = true;
        let target = match &self.target {
            Target::All => watch_request::Target::All(true),
            Target::Key(key) => watch_request::Target::Key(key.clone()),
            Target::Prefix(prefix) => watch_request::Target::Prefix(prefix.clone()),
        };
        WatchRequest {
            scope: Some(self.scope.clone()),
            cache: self.cache.clone(),
            target: Some(target),
            from: if self.state_wanted { None } else { self.wanted },
            with_state: self.state_wanted,
            incarnation: self.incarnation,
            min_revision,
        }
    }

    /// Takes a message; returns the revision that has been reached with it.
    ///
    /// # Errors
    /// The watch cannot go on.
    pub(crate) fn take(&mut self, event: WatchEvent) -> Result<Option<u64>, WatchEnd> {
        match event.event {
            Some(watch_event::Event::Started(started)) => {
                if self
                    .incarnation
                    .is_some_and(|incarnation| incarnation != started.incarnation)
                {
                    return Err(WatchEnd::ObjectDeleted { revision: None });
                }
                self.incarnation = Some(started.incarnation);
                self.started_after.get_or_insert(started.revision);
                self.wanted.get_or_insert(started.revision.saturating_add(1));
                Ok(None)
            }
            Some(watch_event::Event::State(part)) => Ok(self.state(part)),
            Some(watch_event::Event::Changes(changes)) => self.changes(changes),
            Some(watch_event::Event::Progress(progress)) => {
                let news = self.reached(progress.revision);
                if news {
                    self.items.push_back(WatchItem::Progress {
                        revision: progress.revision,
                    });
                }
                Ok(Some(progress.revision))
            }
            // An event that is newer than this program changes nothing that it knows of.
            None => Ok(None),
        }
    }

    fn state(&mut self, part: watch_event::StateChunk) -> Option<u64> {
        if !self.state_wanted {
            return None;
        }
        let first = std::mem::replace(&mut self.state_first, false);
        let entries = part.keys.into_iter().map(Entry::from_wire).collect();
        self.items.push_back(WatchItem::State {
            entries,
            revision: part.revision,
            first,
            last: part.last,
        });
        if part.last {
            self.state_wanted = false;
            self.wanted = Some(part.revision.saturating_add(1));
        }
        part.last.then_some(part.revision)
    }

    fn changes(&mut self, message: watch_event::Changes) -> Result<Option<u64>, WatchEnd> {
        for change in message.changes {
            if self.wanted.is_some_and(|wanted| change.revision < wanted) {
                continue;
            }
            if self
                .partial
                .first()
                .is_some_and(|first| first.revision != change.revision)
            {
                self.complete();
            }
            if self.partial.len() >= CHANGES_MAX {
                let error = WireError::internal("one step changed more keys than can be");
                return Err(WatchEnd::Failed(Error::from_wire(error)));
            }
            self.partial.extend(from_wire(change));
        }
        if !message.more {
            self.complete();
        }
        self.reached(message.revision);
        Ok(Some(message.revision))
    }

    /// No further change of the revision at hand follows.
    fn complete(&mut self) {
        let changes = std::mem::take(&mut self.partial);
        if let Some(first) = changes.first() {
            let revision = first.revision;
            self.items.push_back(WatchItem::Changes { revision, changes });
            self.reached(revision);
        }
    }

    /// Everything up to this revision has come; says whether that is news.
    fn reached(&mut self, revision: u64) -> bool {
        let next = revision.saturating_add(1);
        let news = !self.state_wanted && self.wanted.is_none_or(|wanted| wanted < next);
        if news {
            self.wanted = Some(next);
        }
        news
    }
}

fn from_wire(change: v1::Change) -> Option<Change> {
    let kind = match change.kind? {
        change::Kind::Put(put) => ChangeKind::Put {
            value: put.value,
            version: put.version,
            created: put.created,
            owner_session: put.owner_session,
            ttl: put.ttl_ms.map(Duration::from_millis),
        },
        change::Kind::Removed(removed) => ChangeKind::Removed {
            reason: removed.reason(),
        },
    };
    Some(Change {
        revision: change.revision,
        key: change.key,
        kind,
        previous_version: change.previous_version,
    })
}

#[cfg(test)]
mod tests;
