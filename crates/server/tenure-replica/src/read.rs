//! Linearizable reads: one read index for every batch of waiting reads. A node that does not lead asks the leader for it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use tokio::sync::{Notify, oneshot};

use tenure_core::ids::{NodeId, Revision};
use tenure_core::time::Timestamp;

use crate::error::Unavailable;
use crate::leadership::{self, Role};
use crate::network::{Peers, peer};
use crate::raft_types::{Raft, in_scope};
use crate::shared::Shared;

/// Reads that wait for one read index.
const WAITING_READS_MAX: usize = 262_144;
/// How long a batch waits before it looks for a leader again.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// From where on a read is linearizable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPoint {
    /// The leader's time before the read index was asked for, which proved that it still led then: what
    /// `remaining` is computed at. Not before the read began.
    pub time: Timestamp,
    /// The revision of the state that has applied the read index.
    pub revision: Revision,
}

type PointAnswered = Result<ReadPoint, Unavailable>;

/// The reads that wait.
#[derive(Default)]
pub(crate) struct WaitingReads {
    waiting: Mutex<Vec<oneshot::Sender<PointAnswered>>>,
    wake: Notify,
}

impl WaitingReads {
    /// Waits for a read index that is confirmed after this call and for its apply on this node.
    pub(crate) async fn wait(&self, shared: &Shared) -> PointAnswered {
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = self.lock();
            if waiting.len() >= WAITING_READS_MAX {
                return Err(Unavailable::Overloaded {
                    retry_after: Duration::from_millis(100),
                });
            }
            waiting.push(sender);
        }
        self.wake.notify_one();
        if shared.stopped().is_some() {
            // The reader may have gone before it saw this one.
            return Err(shared.stopped_error(false));
        }
        receiver.await.unwrap_or_else(|_| Err(shared.stopped_error(false)))
    }

    /// Answers those that wait: the group has stopped, and no reader looks at them any more.
    pub(crate) fn fail_all(&self, shared: &Shared) {
        let left = std::mem::take(&mut *self.lock());
        answer(left, &Err(shared.stopped_error(false)));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<oneshot::Sender<PointAnswered>>> {
        self.waiting
            .lock()
            .expect("nothing panics while it holds the waiting reads")
    }
}

/// What leaders have said of how far the group is, for stale reads, which say how old they may be.
#[derive(Default)]
pub(crate) struct Heard(Mutex<Said>);

#[derive(Default)]
struct Said {
    /// When everything that was committed was applied here.
    current: Option<Duration>,
    /// How far the group was in the first message since then whose entries are not known to be applied, and when it was so.
    ahead: Option<(u64, Duration)>,
}

impl Heard {
    /// A leader whose log this one fits has said that so much was committed at this instant of the clock here.
    pub(crate) fn said(&self, committed: u64, at: Duration, applied: Option<u64>) {
        let mut said = self.lock();
        said.catch_up(applied);
        if applied >= Some(committed) {
            said.current = said.current.max(Some(at));
            said.ahead = None;
        } else {
            said.ahead.get_or_insert((committed, at));
        }
    }

    /// Until when the state that has so much applied is known to lack nothing.
    pub(crate) fn current_as_of(&self, applied: Option<u64>) -> Option<Duration> {
        let mut said = self.lock();
        said.catch_up(applied);
        said.current
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().expect("nothing panics while it holds what was said")
    }
}

impl Said {
    fn catch_up(&mut self, applied: Option<u64>) {
        if let Some((_, at)) = self.ahead.take_if(|(committed, _)| applied >= Some(*committed)) {
            self.current = self.current.max(Some(at));
        }
    }
}

/// Confirms read indexes for one group.
pub(crate) struct Reader {
    pub(crate) shared: Arc<Shared>,
    pub(crate) raft: Raft,
    pub(crate) reads: Arc<WaitingReads>,
    /// How long a read waits for a leader.
    pub(crate) leader_wait: Duration,
    /// The other nodes, if the group has replicas there.
    pub(crate) peers: Option<Peers>,
}

impl Reader {
    /// Runs until the group stops.
    pub(crate) async fn run(self) {
        let mut progress = self.shared.progress.subscribe();
        loop {
            if self.shared.stopped().is_some() {
                self.reads.fail_all(&self.shared);
                return;
            }
            let mut batch = std::mem::take(&mut *self.reads.lock());
            batch.retain(|read| !read.is_closed());
            if batch.is_empty() {
                tokio::select! {
                    biased;
                    () = self.reads.wake.notified() => {}
                    // The group may have stopped.
                    _ = progress.wait_for(|progress| progress.stopped.is_some()) => {}
                }
                continue;
            }
            let point = self.confirm().await;
            answer(batch, &point);
        }
    }

    /// One read index, and its apply on this node.
    async fn confirm(&self) -> PointAnswered {
        let began = self.shared.runtime.clock.now();
        let (index, time) = loop {
            match self.read_index().await {
                Ok(read) => break read,
                _ if self.shared.stopped().is_some() => return Err(self.shared.stopped_error(false)),
                Err(refused) if self.peers.is_some() || refused == Unavailable::NoLeader => {
                    if self.shared.runtime.clock.now().saturating_sub(began) >= self.leader_wait {
                        return Err(refused);
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Err(refused) => return Err(refused),
            }
        };
        let mut progress = self.shared.progress.subscribe();
        let reached = progress
            .wait_for(|progress| progress.stopped.is_some() || progress.applied.is_some_and(|id| id.index >= index));
        let reached = match &self.peers {
            None => reached.await,
            // What lies before the index may be at other nodes that this one does not reach any more.
            Some(_) => match tokio::time::timeout(self.leader_wait, reached).await {
                Ok(reached) => reached,
                Err(_) => return Err(leadership::refusal(leadership::role(&self.raft, &self.shared))),
            },
        };
        match reached {
            Ok(progress) if progress.stopped.is_none() => {
                let revision = progress.revision;
                drop(progress);
                Ok(ReadPoint { time, revision })
            }
            _ => Err(self.shared.stopped_error(false)),
        }
    }

    /// A read index, and the leader's time before it was asked for.
    async fn read_index(&self) -> Result<(u64, Timestamp), Unavailable> {
        match (leadership::role(&self.raft, &self.shared), &self.peers) {
            (Role::Follows(leader), Some(peers)) => self.ask(peers, leader).await,
            _ => read_index(&self.raft, &self.shared, self.leader_wait).await,
        }
    }

    /// Asks the leader. Whatever fails, nothing was changed.
    async fn ask(&self, peers: &Peers, leader: NodeId) -> Result<(u64, Timestamp), Unavailable> {
        let link = peers.link(leader);
        let body = peer::peer_request::Body::ReadIndex(peer::ReadIndex {});
        let asked = link.call(self.shared.group, body, self.leader_wait);
        let stopped = async {
            let mut progress = self.shared.progress.subscribe();
            let _ = progress.wait_for(|progress| progress.stopped.is_some()).await;
        };
        let replied = tokio::select! {
            biased;
            replied = asked => replied,
            () = stopped => return Err(self.shared.stopped_error(false)),
        };
        match replied {
            Ok(peer::peer_reply::Body::ReadPoint(peer::ReadPoint {
                index: Some(index),
                time_us,
                ..
            })) => Ok((index, Timestamp(time_us))),
            _ => Err(leadership::refusal(Role::Follows(leader))),
        }
    }
}

/// A read index of this node, which leads, and its time before the index was asked for. Bound to one leadership.
///
/// # Errors
/// [`Unavailable`]: it does not lead, or no majority confirmed in time that it does.
pub(crate) async fn read_index(
    raft: &Raft,
    shared: &Arc<Shared>,
    within: Duration,
) -> Result<(u64, Timestamp), Unavailable> {
    let term = match leadership::role(raft, shared) {
        Role::Leads(term) => term,
        role => return Err(leadership::refusal(role)),
    };
    // The time of now, not of later: while the apply is waited for the leadership may be lost and the anchor set
    // back, and then too much would be promised.
    let time = shared.time.now();
    #[cfg(feature = "deterministic")]
    if crate::planted::is(crate::planted::Planted::NoReadIndex) {
        let applied = shared.progress.borrow().applied;
        return Ok((applied.map_or(0, |id| id.index), time));
    }
    let asking = in_scope(shared.next_seed(), raft.get_read_linearizer(ReadPolicy::ReadIndex));
    let asked = tokio::time::timeout(within, asking)
        .await
        .map_err(|_| Unavailable::NoLeader)?;
    match asked {
        // A read index lies at or behind the leader's own first entry, so it has the leader's term.
        Ok(linearizer) if linearizer.read_log_id().committed_leader_id().term == term => {
            Ok((linearizer.read_log_id().index(), time))
        }
        // Another leadership of this node, whose time that was not.
        Ok(_) => Err(Unavailable::NoLeader),
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => Err(match forward.leader_id {
            Some(leader) if leader != shared.node.0 => leadership::refusal(Role::Follows(NodeId(leader))),
            _ => Unavailable::NoLeader,
        }),
        Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Err(Unavailable::NoLeader),
        Err(RaftError::Fatal(fatal)) => {
            leadership::library_stopped(shared, &fatal);
            Err(shared.stopped_error(false))
        }
    }
}

fn answer(batch: Vec<oneshot::Sender<PointAnswered>>, point: &PointAnswered) {
    for read in batch {
        let _ = read.send(point.clone());
    }
}

#[cfg(test)]
mod tests;
