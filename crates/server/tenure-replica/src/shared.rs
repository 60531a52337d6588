//! What the parts of one group share: its time, its waiting line, how far it is, and whether it has stopped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use openraft::type_config::alias::InstantOf;
use tokio::sync::{Notify, watch};

use tenure_core::ids::{GroupId, NodeId, Revision};
use tenure_core::time::Timestamp;

use crate::effects::EffectSink;
use crate::error::Unavailable;
use crate::forward::{Expected, Forwards};
use crate::network::Askers;
use crate::queue::{Batch, QueueLimits, WaitingLine};
use crate::raft_types::{LogId, Metrics, TypeConfig};
use crate::read::Heard;
use crate::runtime::Runtime;
use crate::time::TimeKeeper;

/// How far a group is on this node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The last applied entry.
    pub(crate) applied: Option<LogId>,
    /// The revision after it.
    pub(crate) revision: Revision,
    /// Cluster time after it.
    pub(crate) time: Timestamp,
    /// When the next key or session ends.
    pub(crate) next_deadline: Option<Timestamp>,
    /// Whether anything has a deadline, bookkeeping included.
    pub(crate) has_deadlines: bool,
    /// Whether due work is left that an entry can do at once.
    pub(crate) more_due: bool,
    /// Whether the group should ask for its next block of revisions.
    pub(crate) wants_block: bool,
    /// Why the group has stopped, if it has.
    pub(crate) stopped: Option<Arc<str>>,
}

/// What waits to be proposed and what was proposed.
pub(crate) struct Proposals {
    pub(crate) waiting: WaitingLine,
    /// Entries that were proposed and are not answered yet.
    pub(crate) in_flight: usize,
    /// The highest stamp among them.
    pub(crate) proposed: Option<Timestamp>,
    /// Until when nothing is proposed, because the library refused (an instant of the local clock).
    pub(crate) paused_until: Duration,
    /// Whether requests are taken in.
    pub(crate) open: bool,
    /// Whether the time that has passed is to be proposed once more, because the group is being shut down.
    pub(crate) wants_last_tick: bool,
    /// Entries proposed so far.
    pub(crate) entries: u64,
    /// Messages of requests that were handed to a leader and are not answered yet.
    pub(crate) handed_on: usize,
    /// Those of them that went to the present leader.
    pub(crate) forwards: Option<Forwards>,
}

/// Shared by the parts of one group.
pub(crate) struct Shared {
    pub(crate) group: GroupId,
    pub(crate) node: NodeId,
    pub(crate) runtime: Runtime,
    pub(crate) sink: Arc<dyn EffectSink>,
    pub(crate) time: TimeKeeper,
    /// Wakes the proposer.
    pub(crate) wake: Notify,
    pub(crate) progress: watch::Sender<Progress>,
    /// What was handed on and may be answered by the apply here.
    pub(crate) expected: Expected,
    /// What its leader has said.
    pub(crate) heard: Heard,
    /// When its leader was last heard here, by the clock of the consensus library, which stands for election by it.
    pub(crate) leader_heard: Mutex<Option<InstantOf<TypeConfig>>>,
    /// Who asked this node for something as the leader.
    pub(crate) askers: Askers,
    /// What the consensus library says of the group, once that runs.
    pub(crate) metrics: OnceLock<Metrics>,
    /// Wakes the write-behind when a purge is wanted.
    pub(crate) purge_wake: Notify,
    /// Snapshots of other nodes that were installed here, and of this one that others have installed.
    pub(crate) snapshots_installed: AtomicU64,
    pub(crate) snapshots_sent: AtomicU64,
    purge_wanted: AtomicBool,
    proposals: Mutex<Proposals>,
    calls: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        group: GroupId,
        node: NodeId,
        runtime: Runtime,
        sink: Arc<dyn EffectSink>,
        time: TimeKeeper,
        limits: QueueLimits,
    ) -> Shared {
        let proposals = Proposals {
            waiting: WaitingLine::new(limits),
            in_flight: 0,
            proposed: None,
            paused_until: Duration::ZERO,
            open: true,
            wants_last_tick: false,
            entries: 0,
            handed_on: 0,
            forwards: None,
        };
        Shared {
            group,
            node,
            runtime,
            sink,
            time,
            wake: Notify::new(),
            progress: watch::Sender::new(Progress::default()),
            expected: Expected::default(),
            heard: Heard::default(),
            leader_heard: Mutex::default(),
            askers: Askers::default(),
            metrics: OnceLock::new(),
            purge_wake: Notify::new(),
            snapshots_installed: AtomicU64::new(0),
            snapshots_sent: AtomicU64::new(0),
            purge_wanted: AtomicBool::new(false),
            proposals: Mutex::new(proposals),
            calls: AtomicU64::new(0),
        }
    }

    /// The waiting line, for a look or a small change.
    pub(crate) fn proposals(&self) -> MutexGuard<'_, Proposals> {
        self.proposals
            .lock()
            .expect("nothing panics while it holds the waiting line")
    }

    /// Asks for a purge of the log as soon as can be.
    pub(crate) fn want_purge(&self) {
        self.purge_wanted.store(true, Ordering::Release);
        self.purge_wake.notify_one();
    }

    /// Whether a purge is wanted since the last call.
    pub(crate) fn take_purge_wanted(&self) -> bool {
        self.purge_wanted.swap(false, Ordering::AcqRel)
    }

    /// The seed of the next call into the consensus library.
    pub(crate) fn next_seed(&self) -> u64 {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let mixed = self.runtime.seed ^ (u64::from(self.group.0) << 32) ^ self.node.0.rotate_left(17);
        mixed.wrapping_add(call.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Why the group has stopped, if it has.
    pub(crate) fn stopped(&self) -> Option<Arc<str>> {
        self.progress.borrow().stopped.clone()
    }

    /// The error of a request that met a stopped group.
    pub(crate) fn stopped_error(&self, proposed: bool) -> Unavailable {
        let why = self
            .stopped()
            .unwrap_or_else(|| Arc::from("the group is shutting down"));
        Unavailable::Stopped { why, proposed }
    }

    /// Stops the group, once: whatever waits is failed, and the node is told unless this is its own wish.
    pub(crate) fn stop(&self, why: &str, told: Told) {
        let reason: Arc<str> = Arc::from(why);
        let first = self.progress.send_if_modified(|progress| {
            let first = progress.stopped.is_none();
            progress.stopped.get_or_insert(reason);
            first
        });
        if !first {
            return;
        }
        let waiting = {
            let mut proposals = self.proposals();
            proposals.open = false;
            proposals.waiting.take_all()
        };
        self.fail(waiting, false);
        self.wake.notify_one();
        if told != Told::Nobody {
            self.sink.stopped(self.group, why);
        }
        if told == Told::NodeMustStop {
            self.sink.node_must_stop(why);
        }
    }

    /// Fails what was taken from the line because the group has stopped.
    pub(crate) fn fail(&self, batch: Batch, proposed: bool) {
        if !batch.is_empty() {
            batch.fail(&self.stopped_error(proposed));
        }
    }
}

/// Who is told that a group has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nobody: the node stopped it.
    Nobody,
    /// The node, which goes on.
    Node,
    /// The node, which must stop as well.
    NodeMustStop,
}
