//! One group on this node: opened, proposed to, read from, shut down.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::{InitializeError, RaftError};
use openraft::{Config, SnapshotPolicy};

use tenure_core::command::Request;
use tenure_core::ids::{GroupId, NodeId, Revision, SessionRef};
use tenure_core::machine::{Counts, GroupKind};
use tenure_core::query::{Found, Query};
use tenure_core::response::{Answer, KeptAlive};
use tenure_core::time::Timestamp;
use tenure_storage::feed::Feed;
use tenure_storage::log::GroupLog;
use tenure_storage::state::GroupState;

use crate::apply::{self, Applier};
use crate::effects::EffectSink;
use crate::error::{OpenError, Unavailable};
use crate::lane::Lane;
use crate::leadership::{self, Role};
use crate::log_adapter::{self, LogAdapter};
use crate::machine_adapter::MachineAdapter;
use crate::membership;
use crate::network::{Member, PeerNetworks, Peers};
use crate::proposer::Proposer;
use crate::queue::QueueLimits;
use crate::raft_types::{Raft, in_scope};
use crate::read::{ReadPoint, Reader, WaitingReads};
use crate::runtime::{Runtime, TaskHandle};
use crate::shared::{Shared, Told};
use crate::time::TimeKeeper;
use crate::write_behind::{PurgeLimits, WriteBehind};

/// How long a shutdown waits for what was proposed.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);
/// How often something is looked at that tells nobody when it changes.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How fast a group notices that its leader is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How often a leader is heard of.
    pub heartbeat: Duration,
    /// The shortest time without a leader after which a replica stands for election.
    pub election_min: Duration,
    /// The longest.
    pub election_max: Duration,
    /// How long a request waits for a leader before it is answered that there is none.
    pub leader_wait: Duration,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(300),
            election_max: Duration::from_millis(500),
            leader_wait: Duration::from_secs(2),
        }
    }
}

/// What a group is opened with.
pub struct ReplicaOptions {
    /// Which group.
    pub group: GroupId,
    /// Which commands it takes.
    pub kind: GroupKind,
    /// This node. Its id was never used for another folder.
    pub node: NodeId,
    /// How fast it notices that its leader is gone.
    pub timings: Timings,
    /// How much may wait to be proposed.
    pub queue: QueueLimits,
    /// When its log is purged.
    pub purge: PurgeLimits,
    /// Its log.
    pub log: GroupLog,
    /// Its state.
    pub state: GroupState,
    /// The world.
    pub runtime: Runtime,
    /// Whom it tells what happened.
    pub sink: Arc<dyn EffectSink>,
    /// The other nodes, which all groups of this node share. None: the group never has another replica.
    pub peers: Option<Peers>,
}

impl ReplicaOptions {
    /// The options of production.
    pub fn new(
        group: GroupId,
        kind: GroupKind,
        node: NodeId,
        (log, state): (GroupLog, GroupState),
        runtime: Runtime,
        sink: Arc<dyn EffectSink>,
    ) -> ReplicaOptions {
        ReplicaOptions {
            group,
            kind,
            node,
            timings: Timings::default(),
            queue: QueueLimits::default(),
            purge: PurgeLimits::default(),
            log,
            state,
            runtime,
            sink,
            peers: None,
        }
    }
}

impl fmt::Debug for ReplicaOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaOptions")
            .field("group", &self.group)
            .field("kind", &self.kind)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// One group on this node. Clones are the same group. When the last one is dropped without a
/// [`shutdown`](Replica::shutdown), everything stops where it is, as if the process had been killed.
#[derive(Clone)]
pub struct Replica {
    pub(crate) running: Arc<Running>,
}

/// How a group is on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Who leads, if that is known.
    pub leader: Option<NodeId>,
    /// Whether this node leads and may propose.
    pub leads: bool,
    /// The term.
    pub term: u64,
    /// The index of the last entry in the log.
    pub last_index: Option<u64>,
    /// The index of the last applied entry.
    pub applied_index: Option<u64>,
    /// The index up to which the log is synced.
    pub flushed_index: Option<u64>,
    /// The index of the first entry that is still in the log.
    pub first_index: Option<u64>,
    /// The index up to which the state survives a loss of power without the log.
    pub durable_index: Option<u64>,
    /// The revision after the last applied entry.
    pub revision: Revision,
    /// Cluster time after it.
    pub time: Timestamp,
    /// Entries of the log that are not applied.
    pub lag_entries: u64,
    /// Requests that wait to be proposed.
    pub waiting: usize,
    /// Their bytes, about.
    pub waiting_bytes: usize,
    /// Keep-alives that wait to be proposed.
    pub waiting_keep_alives: usize,
    /// Entries that were proposed and are not applied.
    pub in_flight: usize,
    /// Entries proposed since the opening.
    pub entries_proposed: u64,
    /// Bytes that the overlay of the state takes.
    pub overlay_bytes: usize,
    /// Whether the group should ask for its next block of revisions.
    pub wants_block: bool,
    /// Why the group has stopped, if it has.
    pub stopped: Option<Arc<str>>,
    /// Who votes, as of the last membership in this replica's log. While it changes: who votes before or after.
    pub voters: BTreeSet<NodeId>,
    /// Who has a replica and does not vote.
    pub learners: BTreeSet<NodeId>,
    /// Whether the membership is in the middle of a change, which [`Replica::set_voters`] finishes.
    pub joint: bool,
    /// On a leader: up to which entry each other replica has acknowledged the log.
    pub replicated: BTreeMap<NodeId, Option<u64>>,
    /// Messages of requests that were handed to the leader and are not answered.
    pub handed_on: usize,
    /// Snapshots of a leader that took the place of this replica's state, since the opening.
    pub snapshots_installed: u64,
    /// Snapshots of this replica that others have installed, since the opening.
    pub snapshots_sent: u64,
}

/// A group that runs, until it is dropped.
pub(crate) struct Running {
    pub(crate) shared: Arc<Shared>,
    applier: Arc<Applier>,
    pub(crate) raft: Raft,
    pub(crate) peers: Option<Peers>,
    log: LogAdapter,
    write_lane: Arc<Lane>,
    reads: Arc<WaitingReads>,
    tasks: Vec<TaskHandle>,
}

impl Replica {
    /// Opens a group over its log and state as they were left, and lets it run. What the log says is committed
    /// is applied before this returns. If this node is the only voter it stands for election at once.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was changed that another opening would miss.
    pub async fn open(options: ReplicaOptions) -> Result<Replica, OpenError> {
        let consensus = |why: String| OpenError::Consensus {
            group: options.group,
            why,
        };
        let config = config(&options).map_err(&consensus)?;
        let Parts {
            shared,
            applier,
            log,
            machine,
            write_lane,
        } = assemble(&options)?;
        let node = options.node.0;
        let networks = PeerNetworks {
            shared: shared.clone(),
            peers: options.peers.clone(),
        };
        let raft = Raft::new(node, Arc::new(config), networks, log.clone(), machine);
        let raft = in_scope(shared.next_seed(), raft).await.map_err(|error| {
            // What is committed was applied meanwhile, and what stopped that is the better reason.
            shared.stopped().map_or_else(
                || consensus(error.to_string()),
                |why| OpenError::Stopped {
                    group: options.group,
                    why,
                },
            )
        })?;
        let _ = shared.metrics.set(raft.metrics());
        if raft.voter_ids().eq([node]) {
            let elected = in_scope(shared.next_seed(), raft.trigger().elect(false)).await;
            elected.map_err(|error| consensus(error.to_string()))?;
        }
        if let Some(peers) = &options.peers {
            let (shared, raft) = (shared.clone(), raft.clone());
            let registered = peers.register(Member {
                shared,
                raft,
                timings: options.timings,
            });
            registered.map_err(&consensus)?;
        }
        let mut running = Running {
            shared,
            applier,
            raft,
            peers: options.peers,
            log,
            write_lane,
            reads: Arc::default(),
            tasks: Vec::new(),
        };
        running.start_tasks(options.timings.leader_wait, options.purge);
        Ok(Replica {
            running: Arc::new(running),
        })
    }

    /// Makes this node the group's only voter, if the group has none yet. Doing it again changes nothing.
    ///
    /// # Errors
    /// [`Unavailable`]; then asking again is safe.
    pub async fn found(&self) -> Result<(), Unavailable> {
        let Running { shared, raft, .. } = &*self.running;
        let voters = BTreeMap::from([(shared.node.0, ())]);
        match in_scope(shared.next_seed(), raft.initialize(voters)).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(RaftError::APIError(error @ InitializeError::NotInMembers(_))) => {
                Err(Unavailable::Internal(error.to_string().into()))
            }
            Err(RaftError::Fatal(fatal)) => {
                leadership::library_stopped(shared, &fatal);
                Err(shared.stopped_error(true))
            }
        }
    }

    /// Proposes a request and waits until it is applied here. `deadline` is an instant of the runtime's clock.
    /// A caller that drops this future gives the request up if it was not proposed yet.
    ///
    /// # Errors
    /// [`Unavailable`], whose outcome says whether the request may have been applied.
    pub async fn propose(&self, request: Request, deadline: Option<Duration>) -> Result<Answer, Unavailable> {
        let shared = &self.running.shared;
        let arrived = shared.runtime.clock.now();
        let mut ticket = {
            let mut proposals = shared.proposals();
            if !proposals.open {
                drop(proposals);
                return Err(shared.stopped_error(false));
            }
            proposals.waiting.push(request, deadline, arrived)?
        };
        shared.wake.notify_one();
        let answered = match deadline {
            None => (&mut ticket.answer).await,
            Some(deadline) => match tokio::time::timeout(deadline - arrived, &mut ticket.answer).await {
                Ok(answered) => answered,
                Err(_) if ticket.give_up() => return Err(Unavailable::Deadline),
                // It may have been answered in this moment.
                Err(_) => return ticket.answer.try_recv().unwrap_or(Err(Unavailable::QuorumTimeout)),
            },
        };
        answered.unwrap_or_else(|_| Err(shared.stopped_error(true)))
    }

    /// Keeps a session alive: in the next entry, together with all others that wait, and answered only by an
    /// entry that is stamped after this call. Never refused because much is waiting.
    ///
    /// # Errors
    /// [`Unavailable`]; the session may have been kept alive nevertheless.
    pub async fn keep_alive(&self, session: SessionRef) -> Result<(KeptAlive, Timestamp), Unavailable> {
        let shared = &self.running.shared;
        let arrived = shared.runtime.clock.now();
        let receiver = {
            let mut proposals = shared.proposals();
            if !proposals.open {
                drop(proposals);
                return Err(shared.stopped_error(false));
            }
            proposals.waiting.push_keep_alive(session, arrived)?
        };
        shared.wake.notify_one();
        receiver.await.unwrap_or_else(|_| Err(shared.stopped_error(true)))
    }

    /// Waits until whatever was committed before this call is applied here, and returns from where on a
    /// [`query`](Replica::query) sees it. All reads that wait share one read index.
    ///
    /// # Errors
    /// [`Unavailable`]. Nothing was changed; a read has no outcome.
    pub async fn read_index(&self) -> Result<ReadPoint, Unavailable> {
        self.running.reads.wait(&self.running.shared).await
    }

    /// Waits until the state at this revision, or a later one, is applied here: then a
    /// [`query`](Replica::query) sees it.
    ///
    /// # Errors
    /// The revision that is applied, when the limit is over or the group has stopped before.
    pub async fn wait_for_revision(&self, revision: Revision, limit: Duration) -> Result<(), Revision> {
        let mut progress = self.running.shared.progress.subscribe();
        let reached = progress.wait_for(|progress| progress.revision >= revision || progress.stopped.is_some());
        // When the limit is over, what is applied at that moment says all there is to say.
        let _ = tokio::time::timeout(limit, reached).await;
        let applied = self.running.shared.progress.borrow().revision;
        if applied >= revision { Ok(()) } else { Err(applied) }
    }

    /// Reads the applied state: what was found, at which revision, at which applied time.
    ///
    /// # Errors
    /// [`Unavailable::Stopped`] if the group has stopped, or must now because the state cannot be read.
    pub fn query(&self, query: &Query) -> Result<(Found, Revision, Timestamp), Unavailable> {
        let found = self.running.applier.query(query);
        found.ok_or_else(|| self.running.shared.stopped_error(false))
    }

    /// How many of what the group's machine remembers there are; none if the group has stopped.
    pub fn counts(&self) -> Counts {
        self.running.applier.counts().unwrap_or_default()
    }

    /// The changes of this replica, as far back as it keeps them.
    pub fn feed(&self) -> Feed {
        self.running.applier.state.feed().clone()
    }

    /// Cluster time now, if this node leads and may say so.
    pub fn stamp_now(&self) -> Option<Timestamp> {
        let Running { shared, raft, .. } = &*self.running;
        matches!(leadership::role(raft, shared), Role::Leads(_)).then(|| shared.time.now())
    }

    /// An instant of the node's clock from which on, at the latest, this replica may lack what was acknowledged elsewhere:
    /// when a majority had last heard its leader, as that said when it told of the last that is applied here; where this node
    /// leads, when a majority last heard it; of a group that no other node votes in, now. It is late by as long as a message
    /// was on its way, no more. `None`: it has heard from no such leader since it was opened. Taken before a read, it is true
    /// of what that read finds.
    pub fn current_as_of(&self) -> Option<Duration> {
        let Running { shared, raft, .. } = &*self.running;
        let now = shared.runtime.clock.now();
        if !matches!(leadership::role(raft, shared), Role::Leads(_)) {
            let applied = shared.progress.borrow().applied.map(|id| id.index);
            return shared.heard.current_as_of(applied);
        }
        leadership::unconfirmed_for(&raft.metrics()).map(|time| now.saturating_sub(time))
    }

    /// Who leads, as far as this node knows, and in which term. Of a group that has stopped here it knows nothing.
    pub fn leader(&self) -> Option<(NodeId, u64)> {
        if self.running.shared.progress.borrow().stopped.is_some() {
            return None;
        }
        let server = self.running.raft.server_metrics();
        let server = server.borrow_watched();
        let leader = server.current_leader.map(NodeId)?;
        Some((leader, server.vote.leader_id.term))
    }

    /// Waits until this node knows of another leadership than this one, and says which. `None`: the group has stopped.
    pub async fn next_leader(&self, told: Option<(NodeId, u64)>) -> Option<(NodeId, u64)> {
        let mut server = self.running.raft.server_metrics();
        loop {
            let leader = self.leader();
            if leader.is_some() && leader != told {
                return leader;
            }
            server.changed().await.ok()?;
        }
    }

    /// How the group is on this node.
    pub fn status(&self) -> ReplicaStatus {
        let Running {
            shared,
            applier,
            raft,
            log,
            ..
        } = &*self.running;
        let leads = matches!(leadership::role(raft, shared), Role::Leads(_));
        let (leader, term, last_index) = {
            let metrics = raft.metrics();
            let metrics = metrics.borrow_watched();
            (metrics.current_leader, metrics.current_term, metrics.last_log_index)
        };
        let (first_index, flushed_index) = log.first_and_flushed();
        let pending = applier.state.pending();
        let progress = shared.progress.borrow().clone();
        let members = membership::members(raft);
        let (line, in_flight, entries_proposed, handed_on) = {
            let proposals = shared.proposals();
            let line = &proposals.waiting;
            let line = (line.len(), line.bytes(), line.keep_alives());
            (line, proposals.in_flight, proposals.entries, proposals.handed_on)
        };
        let (waiting, waiting_bytes, waiting_keep_alives) = line;
        let applied_index = progress.applied.map(|id| id.index);
        let next = |index: Option<u64>| index.map_or(0, |index| index + 1);
        ReplicaStatus {
            leader: leader.filter(|_| progress.stopped.is_none()).map(NodeId),
            leads,
            term,
            last_index,
            applied_index,
            flushed_index,
            first_index,
            durable_index: pending.durable,
            revision: progress.revision,
            time: progress.time,
            lag_entries: next(last_index).saturating_sub(next(applied_index)),
            waiting,
            waiting_bytes,
            waiting_keep_alives,
            in_flight,
            entries_proposed,
            overlay_bytes: pending.bytes,
            wants_block: progress.wants_block,
            stopped: progress.stopped,
            voters: members.voters,
            learners: members.learners,
            joint: members.joint,
            replicated: members.replicated,
            handed_on,
            snapshots_installed: shared.snapshots_installed.load(Ordering::Relaxed),
            snapshots_sent: shared.snapshots_sent.load(Ordering::Relaxed),
        }
    }

    /// Waits until this node leads and its own first entry is applied, or another node leads.
    ///
    /// # Errors
    /// [`Unavailable::NoLeader`] when the limit is over; [`Unavailable::Stopped`] if the group has stopped.
    pub async fn wait_until_ready(&self, limit: Duration) -> Result<(), Unavailable> {
        let Running { shared, raft, .. } = &*self.running;
        let mut progress = shared.progress.subscribe();
        let ready = async {
            loop {
                if shared.stopped().is_some() {
                    return Err(shared.stopped_error(false));
                }
                match leadership::role(raft, shared) {
                    Role::Leads(_) | Role::Follows(_) => return Ok(()),
                    Role::Begins | Role::Waits => {}
                }
                tokio::select! {
                    biased;
                    _ = progress.changed() => {}
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        };
        tokio::time::timeout(limit, ready)
            .await
            .unwrap_or(Err(Unavailable::NoLeader))
    }

    /// Purges the log soon, as far as the state is durable: the disk is almost full. A few entries stay.
    pub fn purge_soon(&self) {
        self.running.shared.want_purge();
    }

    /// Calls this with each entry before it is applied.
    #[cfg(test)]
    pub(crate) fn look_before_apply(&self, look: impl Fn(&tenure_core::command::Entry) + Send + Sync + 'static) {
        assert!(
            self.running.applier.before_apply.set(Box::new(look)).is_ok(),
            "looked at already"
        );
    }

    /// Takes nothing in any more, waits a bounded time for what was taken in, and makes everything durable. A leader
    /// proposes the time that has passed before, if anything has a deadline: nothing is proposed on an idle group for
    /// seconds, and cluster time would go on from there.
    pub async fn shutdown(&self) {
        let Running {
            shared,
            applier,
            raft,
            log,
            write_lane,
            reads,
            tasks,
            peers,
        } = &*self.running;
        {
            let mut proposals = shared.proposals();
            // Twice is as often as once.
            proposals.wants_last_tick |= proposals.open;
            proposals.open = false;
        }
        shared.wake.notify_one();
        let drained = async {
            loop {
                {
                    let leads = matches!(leadership::role(raft, shared), Role::Leads(_));
                    let proposals = shared.proposals();
                    let has_ticked = !(proposals.wants_last_tick && leads);
                    let is_idle = proposals.in_flight == 0 && proposals.handed_on == 0 && proposals.waiting.is_empty();
                    if has_ticked && is_idle {
                        return;
                    }
                }
                if shared.stopped().is_some() {
                    return;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let _ = tokio::time::timeout(DRAIN_WITHIN, drained).await;
        let already = shared.stopped().is_some();
        if let Some(peers) = peers {
            peers.deregister(shared);
        }
        shared.stop("the group was shut down", Told::Nobody);
        // Its error says only that the task of the library had ended otherwise.
        let _ = in_scope(shared.next_seed(), raft.shutdown()).await;
        for task in tasks {
            task.abort();
        }
        // The reader may have had no turn since the stop.
        reads.fail_all(shared);
        if already {
            return;
        }
        if let Some(flushed) = log.first_and_flushed().1 {
            let writer = applier.clone();
            let made = write_lane.run(move || writer.state.make_durable(flushed));
            if let Ok(Err(error)) = made.await {
                tracing::error!(group = shared.group.0, %error, "the state could not be made durable at the shutdown");
            }
        }
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.running.shared;
        f.debug_struct("Replica")
            .field("group", &shared.group)
            .field("node", &shared.node)
            .finish_non_exhaustive()
    }
}

impl Running {
    /// Starts what proposes, reads, and writes the state behind.
    fn start_tasks(&mut self, leader_wait: Duration, limits: PurgeLimits) {
        let proposer = Proposer {
            shared: self.shared.clone(),
            raft: self.raft.clone(),
            leader_wait,
            peers: self.peers.clone(),
        };
        let reader = Reader {
            shared: self.shared.clone(),
            raft: self.raft.clone(),
            reads: self.reads.clone(),
            leader_wait,
            peers: self.peers.clone(),
        };
        let write_behind = WriteBehind {
            applier: self.applier.clone(),
            log: self.log.clone(),
            lane: self.write_lane.clone(),
            raft: self.raft.clone(),
            limits,
        };
        let tasks = &self.shared.runtime.tasks;
        self.tasks = vec![
            tasks.spawn("propose", Box::pin(proposer.run())),
            tasks.spawn("read", Box::pin(reader.run())),
            tasks.spawn("write-behind", Box::pin(write_behind.run())),
            tasks.spawn(
                "leave",
                Box::pin(leave_when_stopped(
                    self.shared.clone(),
                    self.raft.clone(),
                    self.peers.clone(),
                )),
            ),
        ];
    }
}

/// Ends the group's part in consensus once it has stopped here. A leader that can apply nothing would otherwise be heard
/// of by the others for ever, and nobody would serve the group.
async fn leave_when_stopped(shared: Arc<Shared>, raft: Raft, peers: Option<Peers>) {
    let mut progress = shared.progress.subscribe();
    if progress.wait_for(|progress| progress.stopped.is_some()).await.is_err() {
        return;
    }
    if let Some(peers) = peers {
        peers.deregister(&shared);
    }
    // Its error says only that the task of the library had ended otherwise.
    let _ = in_scope(shared.next_seed(), raft.shutdown()).await;
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        if let Some(peers) = &self.peers {
            peers.deregister(&self.shared);
        }
        self.shared.stop("the group was dropped", Told::Nobody);
    }
}

/// What a group is made of, before it runs.
pub(crate) struct Parts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) applier: Arc<Applier>,
    pub(crate) log: LogAdapter,
    pub(crate) machine: MachineAdapter,
    pub(crate) write_lane: Arc<Lane>,
}

/// Puts a group together over its log and state as they were left.
pub(crate) fn assemble(options: &ReplicaOptions) -> Result<Parts, OpenError> {
    let group = options.group;
    let damaged = |what: String| OpenError::Damaged { group, what };
    let lane = |lane: std::io::Result<Lane>| {
        lane.map(Arc::new).map_err(|error| OpenError::Thread {
            group,
            why: error.to_string(),
        })
    };
    let tasks = &*options.runtime.tasks;
    check_state_reaches_log(options)?;
    let machine = apply::open_machine(options.kind, &options.state).map_err(damaged)?;
    let last_in_log = log_adapter::last_stamp(&options.log).map_err(|error| damaged(error.to_string()))?;
    let time = TimeKeeper::open(options.runtime.clock.clone(), last_in_log, machine.time());
    let shared = Arc::new(Shared::new(
        group,
        options.node,
        options.runtime.clone(),
        options.sink.clone(),
        time,
        options.queue,
    ));
    let applier = Applier::open(shared.clone(), options.kind, options.state.clone(), machine)?;
    let applier = Arc::new(applier);
    let log = LogAdapter::open(options.log.clone(), shared.clone(), options.state.clone())
        .map_err(|error| damaged(error.to_string()))?;
    let apply_lane = lane(Lane::start(tasks, &format!("apply-{}", group.0)))?;
    let write_lane = lane(Lane::start_in_background(tasks, &format!("write-{}", group.0)))?;
    let machine = MachineAdapter::new(applier.clone(), apply_lane, write_lane.clone(), log.clone());
    Ok(Parts {
        shared,
        applier,
        log,
        machine,
        write_lane,
    })
}

/// The log replays what the state has not applied, so it must still have it.
fn check_state_reaches_log(options: &ReplicaOptions) -> Result<(), OpenError> {
    let applied = options.state.applied().map(|mark| mark.index);
    match options.log.state().purged {
        Some((purged, _)) if applied < Some(purged) => Err(OpenError::StateBehindLog {
            group: options.group,
            applied,
            purged,
        }),
        _ => Ok(()),
    }
}

/// How the consensus library runs. The relations between these figures are the reason for most of them.
fn config(options: &ReplicaOptions) -> Result<Config, String> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: options.group.to_string(),
        heartbeat_interval: millis(options.timings.heartbeat),
        election_timeout_min: millis(options.timings.election_min),
        election_timeout_max: millis(options.timings.election_max),
        // An isolated replica must not raise its term for ever.
        enable_pre_vote: Some(true),
        // A leader that was restarted before its last write was synced must not resume its term: it would give
        // the log ids of entries that followers have acknowledged to other entries.
        enable_leader_restore: Some(false),
        allow_log_reversion: Some(false),
        // Our entries hold up to a mebibyte each.
        max_payload_entries: 64,
        max_append_entries: Some(64),
        purge_batch_size: 1_024,
        // Snapshots are made, and the log is purged, by our own trigger.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 50_000,
        replication_lag_threshold: 50_000,
        install_snapshot_timeout: 10_000,
        ..Config::default()
    };
    config.validate().map_err(|error| error.to_string())
}
