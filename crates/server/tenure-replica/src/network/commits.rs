//! That something is committed is told to a follower by the next append. Only if none comes soon it is told by a message of
//! its own: with one client at a time that would be every other message, and the next entry would wait for its reply.
//! A node that asks this one for reads or hands requests on waits for what is committed, and is told at once.
//!
//! One append to a follower is in flight at a time. The library takes the reply to an append for one to whatever it has handed
//! out by then that says no more: with two in flight it would take an old reply for a confirmation of its leadership.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::Fuse;
use futures_util::{Stream, StreamExt};
use openraft::raft::AppendEntriesRequest;

use tenure_core::ids::NodeId;

use super::lock;
use crate::leadership;
use crate::raft_types::TypeConfig;
use crate::shared::Shared;

/// How long the message that something is committed waits for an entry that takes it along.
const COMMIT_WAITS: Duration = Duration::from_millis(1);
/// For so long after a node has asked for something it is told at once of what is committed.
const TELL_AT_ONCE_FOR: Duration = Duration::from_secs(1);

type Request = AppendEntriesRequest<TypeConfig>;

/// The nodes that lately asked a group's leader for something.
#[derive(Default)]
pub(crate) struct Askers(Mutex<BTreeMap<NodeId, Duration>>);

impl Askers {
    /// A node asked at this instant of the clock.
    pub(crate) fn note(&self, node: NodeId, now: Duration) {
        let mut asked = lock(&self.0);
        asked.retain(|_, last| now.saturating_sub(*last) < TELL_AT_ONCE_FOR);
        asked.insert(node, now);
    }

    fn asked_lately(&self, node: NodeId, now: Duration) -> bool {
        let last = lock(&self.0).get(&node).copied();
        last.is_some_and(|last| now.saturating_sub(last) < TELL_AT_ONCE_FOR)
    }
}

/// When a majority had last heard this node, by its clock, as of when the last append was taken from the library: what that
/// append says of what is committed holds of that time, however long it waited.
pub(super) type Confirmed = Arc<Mutex<Option<Duration>>>;

/// The appends that one follower is sent.
pub(super) struct Appends<S> {
    shared: Arc<Shared>,
    target: NodeId,
    confirmed: Confirmed,
    wanted: Fuse<S>,
}

impl<S> Appends<S>
where
    S: Stream<Item = Request> + Send + Unpin + 'static,
{
    /// Out of what the library wants sent. It is asked for an append only when the one before is answered.
    pub(super) fn new(shared: Arc<Shared>, target: NodeId, confirmed: Confirmed, wanted: S) -> Appends<S> {
        Appends {
            shared,
            target,
            confirmed,
            wanted: wanted.fuse(),
        }
    }

    pub(super) fn in_turn(self) -> impl Stream<Item = Request> + Send + Unpin + 'static {
        let turns = futures_util::stream::unfold(self, |mut appends| async move {
            let append = appends.next().await?;
            Some((append, appends))
        });
        Box::pin(turns)
    }

    async fn next(&mut self) -> Option<Request> {
        let mut append = self.wanted.next().await?;
        self.note_confirmed();
        if !self.may_wait(&append) {
            return Some(append);
        }
        let mut waited = std::pin::pin!(tokio::time::sleep(COMMIT_WAITS));
        loop {
            tokio::select! {
                biased;
                wanted = self.wanted.next() => match wanted {
                    // It says how much is committed as well.
                    Some(wanted) => append = wanted,
                    None => return Some(append),
                },
                () = &mut waited => return Some(append),
            }
            self.note_confirmed();
            if !self.may_wait(&append) {
                return Some(append);
            }
        }
    }

    fn may_wait(&self, append: &Request) -> bool {
        let now = self.shared.runtime.clock.now();
        append.entries.is_empty() && !self.shared.askers.asked_lately(self.target, now)
    }

    fn note_confirmed(&self) {
        let unconfirmed = self.shared.metrics.get().and_then(leadership::unconfirmed_for);
        let now = self.shared.runtime.clock.now();
        *lock(&self.confirmed) = unconfirmed.map(|time| now.saturating_sub(time));
    }
}

#[cfg(test)]
mod tests;
