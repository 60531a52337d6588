//! Proposing: everything that waits goes into the next entry, stamped with cluster time.
//!
//! One task a group. A proposal is bound to the leadership in which it was stamped: refused before the append,
//! what was in it is put back and stamped anew; whatever fails later is unknown. Responses come back on the
//! thread of the apply and are matched by position. On a node that does not lead, what waits is handed to the one that
//! does (`forward`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;

use tenure_core::codec::encode_entry;
use tenure_core::command::{Entry, Request};
use tenure_core::ids::NodeId;
use tenure_core::time::Timestamp;

use crate::effects::EntrySize;
use crate::error::Unavailable;
use crate::forward::{self, FORWARDS_IN_FLIGHT_MAX, Forwards};
use crate::leadership::{self, Role};
use crate::network::Peers;
use crate::queue::{Batch, Waiter, WaitingKeepAlive, WaitingRequest};
use crate::raft_types::{EntryAnswers, EntryData, Raft, Reply, TypeConfig, in_scope};
use crate::shared::Shared;
use crate::ticker::{TickView, next_tick};

/// Entries that are proposed and not applied yet.
pub(crate) const ENTRIES_IN_FLIGHT_MAX: usize = 4;
/// The same while more is due than one entry ends: each of them takes a while to apply, and whoever comes waits for all
/// that are in flight. One is applied, the next is synced, the third is on its way.
const ENTRIES_IN_FLIGHT_WHILE_ENDING: usize = 3;
/// How long nothing is proposed after the library refused.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(10);
/// How often the proposer looks around while there is nothing to do, or no leader.
const LOOK_EVERY_IDLE: Duration = Duration::from_secs(1);
const LOOK_EVERY_LEADERLESS: Duration = Duration::from_millis(20);
/// Below this a sleep would only spin.
const SHORTEST_SLEEP: Duration = Duration::from_micros(100);

/// Proposes for one group.
pub(crate) struct Proposer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) raft: Raft,
    /// How long a request waits for a leader.
    pub(crate) leader_wait: Duration,
    /// The other nodes, if the group has replicas there.
    pub(crate) peers: Option<Peers>,
}

impl Proposer {
    /// Runs until the group stops.
    pub(crate) async fn run(self) {
        let mut server = self.raft.server_metrics();
        while self.shared.stopped().is_none() {
            let wait = self.step().await;
            tokio::select! {
                biased;
                () = self.shared.wake.notified() => {}
                changed = server.changed() => {
                    if changed.is_err() {
                        leadership::library_stopped(&self.shared, &"its task has ended");
                        return;
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Proposes whatever can be proposed. Returns how long to wait if nothing happens.
    async fn step(&self) -> Duration {
        let role = leadership::role(&self.raft, &self.shared);
        if self.peers.is_none() {
            // Fifty ticks a second are most of what an idle node would cost. Those of groups that have peers are up to the
            // node's pulse.
            self.raft.runtime_config().tick(!leadership::is_alone(&self.raft, role));
        }
        match role {
            Role::Leads(term) => self.lead(term).await,
            role @ Role::Follows(leader) => {
                if let Some(peers) = &self.peers {
                    return self.hand_on(peers, role, leader);
                }
                let waiting = self.shared.proposals().waiting.take_all();
                waiting.fail(&leadership::refusal(role));
                LOOK_EVERY_IDLE
            }
            role @ (Role::Begins | Role::Waits) => {
                self.fail_those_that_waited(role);
                LOOK_EVERY_LEADERLESS
            }
        }
    }

    fn fail_those_that_waited(&self, role: Role) {
        let before = self.shared.runtime.clock.now().saturating_sub(self.leader_wait);
        let waited = self.shared.proposals().waiting.take_older(before);
        waited.fail(&leadership::refusal(role));
    }

    async fn lead(&self, term: u64) -> Duration {
        loop {
            let now = self.shared.runtime.clock.now();
            let in_flight_max = self.in_flight_max();
            let batch = {
                let mut proposals = self.shared.proposals();
                if now < proposals.paused_until {
                    let paused = proposals.paused_until - now;
                    drop(proposals);
                    self.fail_those_that_waited(Role::Waits);
                    return paused;
                }
                if proposals.in_flight >= in_flight_max {
                    return LOOK_EVERY_IDLE;
                }
                proposals.waiting.take(now)
            };
            if batch.is_empty() && !self.is_last_tick_due() {
                let Some(tick) = self.next_tick() else {
                    return LOOK_EVERY_IDLE;
                };
                if tick > self.shared.time.now() {
                    let wait = self.shared.time.wait_until_reached(tick);
                    return wait.clamp(SHORTEST_SLEEP, LOOK_EVERY_IDLE);
                }
            }
            self.propose(batch, term).await;
        }
    }

    fn in_flight_max(&self) -> usize {
        if self.shared.progress.borrow().more_due {
            ENTRIES_IN_FLIGHT_WHILE_ENDING
        } else {
            ENTRIES_IN_FLIGHT_MAX
        }
    }

    /// Hands whatever waits to the leader, as far as not too much is on its way there.
    fn hand_on(&self, peers: &Peers, role: Role, leader: NodeId) -> Duration {
        loop {
            let now = self.shared.runtime.clock.now();
            let mut proposals = self.shared.proposals();
            if now < proposals.paused_until {
                let paused = proposals.paused_until - now;
                drop(proposals);
                self.fail_those_that_waited(role);
                return paused;
            }
            let forwards = match &proposals.forwards {
                Some(forwards) if forwards.role == role => forwards.clone(),
                _ => Forwards {
                    role,
                    in_flight: Arc::default(),
                },
            };
            proposals.forwards = Some(forwards.clone());
            if forwards.in_flight.load(Ordering::Relaxed) >= FORWARDS_IN_FLIGHT_MAX {
                return LOOK_EVERY_IDLE;
            }
            let mut batch = proposals.waiting.take(now);
            let of_peers = batch.split_of_peers();
            if !batch.is_empty() {
                proposals.handed_on += 1;
                forwards.in_flight.fetch_add(1, Ordering::Relaxed);
            }
            let nothing_left = proposals.waiting.is_empty();
            drop(proposals);
            // Whoever handed them on took this node for the leader, and finds the right one sooner by itself.
            of_peers.fail(&leadership::refusal(role));
            if batch.is_empty() {
                if nothing_left {
                    return LOOK_EVERY_IDLE;
                }
                continue;
            }
            let shared = self.shared.clone();
            let link = peers.link(leader);
            let handing = async move {
                forward::hand_on(shared.clone(), link, batch, now).await;
                forwards.in_flight.fetch_sub(1, Ordering::Relaxed);
                shared.proposals().handed_on -= 1;
                shared.wake.notify_one();
            };
            self.shared.runtime.tasks.spawn("hand on", Box::pin(handing));
        }
    }

    /// Whether the tick of a shutdown is due: everything that was taken in is proposed, and something has a deadline.
    fn is_last_tick_due(&self) -> bool {
        let has_deadlines = self.shared.progress.borrow().has_deadlines;
        let mut proposals = self.shared.proposals();
        proposals.wants_last_tick &= has_deadlines || !proposals.waiting.is_empty();
        proposals.wants_last_tick && proposals.waiting.is_empty()
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let proposed = {
            let proposals = self.shared.proposals();
            proposals.proposed
        };
        let progress = self.shared.progress.borrow();
        next_tick(&TickView {
            next_deadline: progress.next_deadline,
            has_deadlines: progress.has_deadlines,
            more_due: progress.more_due,
            applied_time: progress.time,
            proposed,
        })
    }

    async fn propose(&self, batch: Batch, term: u64) {
        // Stamped after everything in it has arrived: a keep-alive is answered by an entry stamped later.
        let stamp = self.shared.time.now();
        let (entry, asked) = to_entry(batch, stamp);
        let data = EntryData {
            stamp,
            bytes: encode_entry(&entry),
        };
        let size = EntrySize {
            requests: entry.requests.len(),
            keep_alives: entry.keep_alives.len(),
            bytes: data.bytes.len(),
        };
        self.shared.sink.proposed(self.shared.group, size);
        {
            let mut proposals = self.shared.proposals();
            proposals.in_flight += 1;
            proposals.entries += 1;
            proposals.proposed = proposals.proposed.max(Some(stamp));
            // Whatever it holds, behind everything that was taken in it tells the time as a tick does. Only now, since
            // the shutdown waits for this to be asked for or in flight.
            proposals.wants_last_tick &= !proposals.waiting.is_empty();
        }
        let shared = self.shared.clone();
        let reply = Reply::new(move |result| complete(&shared, entry.requests, asked, result));
        let write = self.raft.write(data).with_leader(term).responder(reply);
        // An error drops the reply, which answers.
        if let Err(fatal) = in_scope(self.shared.next_seed(), write.into_future()).await {
            leadership::library_stopped(&self.shared, &fatal);
        }
    }
}

/// Who asked for what is in an entry, by position.
struct Asked {
    keep_alives: Vec<WaitingKeepAlive>,
    waiters: Vec<Waiter>,
}

fn to_entry(batch: Batch, stamp: Timestamp) -> (Entry, Asked) {
    let (requests, waiters) = batch
        .requests
        .into_iter()
        .map(|waiting| (waiting.request, waiting.waiter))
        .unzip();
    let keep_alives = batch.keep_alives.iter().map(|waiting| waiting.session).collect();
    (
        Entry {
            stamp,
            keep_alives,
            requests,
        },
        Asked {
            keep_alives: batch.keep_alives,
            waiters,
        },
    )
}

/// Takes the result of a proposal; runs where it is applied.
fn complete(shared: &Arc<Shared>, requests: Vec<Request>, asked: Asked, result: Option<ClientWriteResult<TypeConfig>>) {
    match result {
        Some(Ok(written)) => answer(asked, written.data),
        // The only failure that comes before the append: what was in the entry was not proposed at all.
        Some(Err(ClientWriteError::ForwardToLeader(_))) => {
            let batch = to_batch(requests, asked);
            let mut proposals = shared.proposals();
            proposals.paused_until = shared.runtime.clock.now() + PAUSE_AFTER_REFUSAL;
            if proposals.open {
                proposals.waiting.put_back(batch);
            } else {
                drop(proposals);
                shared.fail(batch, false);
            }
        }
        Some(Err(ClientWriteError::LogEntryDiscarded(_))) => {
            to_batch(requests, asked).fail(&Unavailable::LeadershipLost);
        }
        Some(Err(error)) => {
            let why = format!("an entry of commands was answered as something else: {error}");
            to_batch(requests, asked).fail(&Unavailable::Internal(why.into()));
        }
        None => shared.fail(to_batch(requests, asked), true),
    }
    {
        let mut proposals = shared.proposals();
        proposals.in_flight -= 1;
        if proposals.in_flight == 0 {
            proposals.proposed = None;
        }
    }
    shared.wake.notify_one();
}

fn to_batch(requests: Vec<Request>, asked: Asked) -> Batch {
    let requests = requests.into_iter().zip(asked.waiters);
    Batch {
        keep_alives: asked.keep_alives,
        requests: requests
            .map(|(request, waiter)| WaitingRequest { request, waiter })
            .collect(),
    }
}

fn answer(asked: Asked, answers: EntryAnswers) {
    let counts = (answers.kept_alive.len(), answers.answers.len());
    // The machine answers each; an entry that was answered otherwise was not this one.
    assert_eq!(
        counts,
        (asked.keep_alives.len(), asked.waiters.len()),
        "answers are matched by position"
    );
    for (asked, kept) in asked.keep_alives.into_iter().zip(answers.kept_alive) {
        for caller in asked.callers {
            let _ = caller.send(Ok((kept, answers.time)));
        }
    }
    for (waiter, answer) in asked.waiters.into_iter().zip(answers.answers) {
        waiter.answer(Ok(answer));
    }
}
