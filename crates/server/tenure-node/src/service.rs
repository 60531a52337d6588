//! The one door: every protocol submits, queries and watches through it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use tenure_core::command::{Command, Operation, Origin, Request, SystemCommand};
use tenure_core::ids::{GroupId, Namespace, NodeId, Revision, Secret, SessionRef};
use tenure_core::limits::NAMESPACES_MAX;
use tenure_core::query::{Found, Query};
use tenure_core::refusal::Failure;
use tenure_core::response::{Answer, Done, KeptAlive, Response, SystemDone};
use tenure_core::time::{Span, Timestamp};
use tenure_replica::{Peers, Replica, Runtime, Unavailable, namespace_of, request_bytes};
use tenure_storage::log::Log;
use tenure_storage::state::GroupState;
use tokio::sync::SemaphorePermit;

use self::aside::{Aside, may_be_long};
use crate::admission::{Admission, RETRY_AFTER, namespace_of_query};
use crate::front::answers::{NodeFull, Room, answer_bytes_of};
use crate::front::connection::Connections;
use crate::notify::WatchHub;
use crate::observe::Metrics;
use crate::space::{NoRoom, Space};

mod aside;
pub(crate) mod follow;
pub(crate) mod watch;

/// How long a request may take if it does not say.
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// How long a request may take at most.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// How long a read waits for what its caller has seen elsewhere.
const BEHIND_WAIT_MAX: Duration = Duration::from_secs(1);

/// Why the door gave no answer of the machine.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    /// Apply decided so.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The group did not answer.
    #[error("{error}")]
    Unavailable { group: GroupId, error: Unavailable },
    /// No object was ever created in this namespace.
    #[error("namespace {0} does not exist")]
    NamespaceUnknown(Namespace),
    /// There is no such group on this node.
    #[error("group {0} does not exist")]
    GroupUnknown(GroupId),
    /// The node works on as many requests as it takes.
    #[error("the node is busy")]
    Busy { retry_after: Duration },
    /// The replica has not applied what the caller has seen.
    #[error("revision {applied} is applied here and {asked} was asked for")]
    Behind { applied: u64, asked: u64 },
    /// The node is stopping or not yet ready.
    #[error("{0}")]
    NotServing(&'static str),
    /// There is less room on the disk than is kept in reserve, and the request would take some.
    #[error("{} bytes of the disk are free and not spoken for, and {} are kept in reserve", .0.free, .0.reserve)]
    StorageFull(NoRoom),
    /// A bound of the node is reached.
    #[error("{which}: at most {value}")]
    Limit { which: &'static str, value: u64 },
    /// A defect.
    #[error("internal: {0}")]
    Internal(String),
}

/// How a read is to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It sees every write that was acknowledged before it began.
    Linearizable,
    /// It sees what this replica has applied, which is at least this revision.
    Stale { min_revision: u64 },
}

/// What a read found, and when that was true.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) found: Found,
    pub(crate) revision: Revision,
    /// The applied time of the replica.
    pub(crate) time: Timestamp,
    /// To be taken off everything that remains: how far the leader's time was ahead of the applied time.
    pub(crate) behind_leader: Span,
    /// How long ago a stale read's replica was last known to be current; none if it has heard from no leader yet.
    pub(crate) age: Option<Span>,
}

/// One group on this node.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) replica: Replica,
    pub(crate) state: GroupState,
}

/// The groups of this node.
pub(crate) struct Groups {
    pub(crate) running: BTreeMap<GroupId, Group>,
    /// Those that could not be opened, and why.
    pub(crate) stopped: BTreeMap<GroupId, Arc<str>>,
}

/// Who this node is, and the way to the others.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: u128,
    pub(crate) node: NodeId,
    pub(crate) folder: u128,
    pub(crate) address: String,
    pub(crate) peers: Peers,
}

/// The door of one node. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct Service(Arc<Inner>);

/// The same for whoever must not keep it alive.
#[derive(Clone)]
pub(crate) struct WeakService(Weak<Inner>);

impl WeakService {
    /// The door, unless it is gone.
    pub(crate) fn upgrade(&self) -> Option<Service> {
        self.0.upgrade().map(Service)
    }
}

struct Inner {
    runtime: Runtime,
    identity: Identity,
    groups: Groups,
    space: Arc<Space>,
    homes: RwLock<BTreeMap<Namespace, GroupId>>,
    hub: Arc<WatchHub>,
    admission: Admission,
    connections: Arc<Connections>,
    /// Where reads are done that may block for long.
    aside: Aside,
    metrics: Metrics,
    log: Log,
    serving: AtomicBool,
    stopping: tokio::sync::watch::Sender<bool>,
    cut_off: tokio::sync::watch::Sender<bool>,
}

impl Service {
    pub(crate) fn new(
        runtime: Runtime,
        identity: Identity,
        groups: Groups,
        space: Arc<Space>,
        hub: Arc<WatchHub>,
        metrics: Metrics,
        log: Log,
    ) -> Service {
        Service(Arc::new(Inner {
            runtime,
            identity,
            groups,
            space,
            homes: RwLock::default(),
            hub,
            admission: Admission::default(),
            connections: Arc::default(),
            aside: Aside::default(),
            metrics,
            log,
            serving: AtomicBool::new(false),
            stopping: tokio::sync::watch::Sender::new(false),
            cut_off: tokio::sync::watch::Sender::new(false),
        }))
    }

    /// The home group of a namespace that exists.
    pub(crate) async fn home(&self, namespace: &Namespace, deadline: Duration) -> Result<GroupId, ServiceError> {
        match self.find_home(namespace, deadline).await? {
            Some(home) => Ok(home),
            None => Err(ServiceError::NamespaceUnknown(namespace.clone())),
        }
    }

    /// The home group of a namespace, or `None` if it does not exist.
    pub(crate) async fn find_home(
        &self,
        namespace: &Namespace,
        deadline: Duration,
    ) -> Result<Option<GroupId>, ServiceError> {
        let known = self
            .0
            .homes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(namespace)
            .copied();
        if known.is_some() {
            return Ok(known);
        }
        let query = Query::Home(namespace.clone());
        let read = self
            .query(GroupId::SYSTEM, &query, Reading::Linearizable, deadline)
            .await?;
        let Found::Home(home) = read.found else {
            return Err(unexpected(&read.found));
        };
        if let Some(home) = home {
            self.note_home(namespace, home);
        }
        Ok(home)
    }

    /// The home group of a namespace, which comes into being if it does not exist. Idempotent.
    pub(crate) async fn make_home(&self, namespace: &Namespace, deadline: Duration) -> Result<GroupId, ServiceError> {
        if let Some(home) = self.find_home(namespace, deadline).await? {
            return Ok(home);
        }
        self.0.space.check_growth().map_err(ServiceError::StorageFull)?;
        let command = SystemCommand::AssignNamespace {
            namespace: namespace.clone(),
        };
        let SystemDone::NamespaceAssigned { home } = self.system(command, deadline).await? else {
            return Err(ServiceError::Internal(
                "the system group gave another answer".to_owned(),
            ));
        };
        self.note_home(namespace, home);
        Ok(home)
    }

    /// Runs a command of the system group. Those that this node gives are safe to give again.
    pub(crate) async fn system(&self, command: SystemCommand, deadline: Duration) -> Result<SystemDone, ServiceError> {
        let request = Request {
            origin: Origin::Anonymous,
            command: Command::System(command),
        };
        let answer = self.propose(GroupId::SYSTEM, request, deadline).await?;
        match answer.response {
            Response::Done(Done::System(done)) => Ok(done),
            Response::Failed(failure) => Err(failure.into()),
            other => Err(ServiceError::Internal(format!("the system group answered {other:?}"))),
        }
    }

    /// Submits a request from outside. Whatever the machine says, verdicts and failures included, is an answer.
    pub(crate) async fn submit(
        &self,
        group: GroupId,
        request: Request,
        deadline: Duration,
    ) -> Result<Answer, ServiceError> {
        self.check_serving()?;
        self.0
            .space
            .check(&request.command)
            .map_err(ServiceError::StorageFull)?;
        let Inner { admission, metrics, .. } = &*self.0;
        let admitted = admission.admit(namespace_of(&request.command), request_bytes(&request));
        let Some(_admitted) = admitted else {
            metrics.overloaded.increment(1);
            return Err(ServiceError::Busy {
                retry_after: RETRY_AFTER,
            });
        };
        if let Command::OpenSession { namespace, .. } = &request.command {
            let opening = admission.take_opening(namespace, self.now());
            opening.map_err(|retry_after| ServiceError::Busy { retry_after })?;
        }
        let answer = self.propose(group, request, deadline).await;
        if let Err(ServiceError::Unavailable {
            error: Unavailable::Overloaded { .. },
            ..
        }) = answer
        {
            metrics.overloaded.increment(1);
        }
        answer
    }

    /// Proposes a request of the node itself, also before the node serves.
    pub(crate) async fn propose_own(
        &self,
        group: GroupId,
        request: Request,
        deadline: Duration,
    ) -> Result<Answer, ServiceError> {
        self.propose(group, request, deadline).await
    }

    async fn propose(&self, group: GroupId, request: Request, deadline: Duration) -> Result<Answer, ServiceError> {
        let replica = &self.group(group)?.replica;
        replica
            .propose(request, Some(deadline))
            .await
            .map_err(|error| ServiceError::Unavailable { group, error })
    }

    /// Renews a session. Never refused for load; one that comes too often is.
    pub(crate) async fn keep_alive(
        &self,
        group: GroupId,
        session: SessionRef,
    ) -> Result<(KeptAlive, Timestamp), ServiceError> {
        self.check_serving()?;
        let Inner { admission, runtime, .. } = &*self.0;
        let arrived = runtime.clock.now();
        admission
            .check_keep_alive(group, session.id, arrived)
            .map_err(|retry_after| ServiceError::Busy { retry_after })?;
        let replica = &self.group(group)?.replica;
        let (kept, time) = replica
            .keep_alive(session)
            .await
            .map_err(|error| ServiceError::Unavailable { group, error })?;
        match kept {
            KeptAlive::Renewed {
                remaining: Some(ttl), ..
            } => {
                let margin = admission.note_renewed(group, session.id, Duration::from_micros(ttl.0), arrived);
                if let Some(margin) = margin {
                    self.0.hub.observed().note_renewal(margin);
                }
            }
            KeptAlive::Renewed { remaining: None, .. } | KeptAlive::Unknown { .. } => {}
            KeptAlive::Ended { .. } => admission.forget(group, session.id),
        }
        Ok((kept, time))
    }

    /// Reads what is small, or for the node itself.
    pub(crate) async fn query(
        &self,
        group: GroupId,
        query: &Query,
        reading: Reading,
        deadline: Duration,
    ) -> Result<Read, ServiceError> {
        self.query_into(group, query, reading, deadline, None).await
    }

    /// Reads what may be large, once this room has place for it.
    pub(crate) async fn query_into(
        &self,
        group: GroupId,
        query: &Query,
        reading: Reading,
        deadline: Duration,
        room: Option<&Room>,
    ) -> Result<Read, ServiceError> {
        self.check_stopping()?;
        let Some(_admitted) = self.0.admission.admit(namespace_of_query(query), 0) else {
            self.0.metrics.overloaded.increment(1);
            return Err(ServiceError::Busy {
                retry_after: RETRY_AFTER,
            });
        };
        let known = self.group(group)?;
        let leader_time = match reading {
            Reading::Linearizable => Some(self.read_point(group, deadline).await?.0),
            Reading::Stale { min_revision } => {
                self.wait_for_revision(group, min_revision, deadline).await?;
                None
            }
        };
        let _turn = match room {
            Some(room) => {
                let bytes = answer_bytes_of(query);
                self.take_room(room, bytes, may_be_long(query), deadline).await?
            }
            None => None,
        };
        let current_as_of = known.replica.current_as_of();
        let (found, revision, time) = self.read_applied(known, query, deadline).await?;
        let behind_leader = leader_time.map_or(Span(0), |leader_time| leader_time - time);
        let age = match reading {
            Reading::Linearizable => None,
            Reading::Stale { .. } => current_as_of.map(|instant| self.age_of(instant)),
        };
        Ok(Read {
            found,
            revision,
            time,
            behind_leader,
            age,
        })
    }

    /// How long ago an instant of this node's clock was.
    fn age_of(&self, instant: Duration) -> Span {
        let age = self.now().saturating_sub(instant).as_micros();
        Span(u64::try_from(age).unwrap_or(u64::MAX))
    }

    /// Takes room for an answer of at most so many bytes and, for a long read, the turn for it. What finds none in its
    /// time is refused before it is worked on.
    pub(crate) async fn take_room<'a>(
        &self,
        room: &'a Room,
        bytes: usize,
        is_long: bool,
        deadline: Duration,
    ) -> Result<Option<SemaphorePermit<'a>>, ServiceError> {
        let left = deadline.saturating_sub(self.now());
        let take = async {
            let turn = match is_long {
                true => room.long_read().await,
                false => None,
            };
            room.take(bytes).await.map(|()| turn)
        };
        match tokio::time::timeout(left, take).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(NodeFull)) | Err(_) => {
                self.0.metrics.overloaded.increment(1);
                Err(ServiceError::Busy {
                    retry_after: RETRY_AFTER,
                })
            }
        }
    }

    /// The leader's time and the revision that came with a read index, once this replica has applied it.
    pub(crate) async fn read_point(
        &self,
        group: GroupId,
        deadline: Duration,
    ) -> Result<(Timestamp, Revision), ServiceError> {
        let replica = &self.group(group)?.replica;
        let left = deadline.saturating_sub(self.now());
        match tokio::time::timeout(left, replica.read_index()).await {
            Ok(Ok(point)) => Ok((point.time, point.revision)),
            Ok(Err(error)) => Err(ServiceError::Unavailable { group, error }),
            Err(_) => Err(ServiceError::Unavailable {
                group,
                error: Unavailable::Deadline,
            }),
        }
    }

    /// Waits, bounded, until this replica has applied what the caller has seen elsewhere.
    async fn wait_for_revision(&self, group: GroupId, asked: u64, deadline: Duration) -> Result<(), ServiceError> {
        let limit = deadline.saturating_sub(self.now()).min(BEHIND_WAIT_MAX);
        let waited = self
            .group(group)?
            .replica
            .wait_for_revision(Revision(asked), limit)
            .await;
        waited.map_err(|applied| ServiceError::Behind {
            applied: applied.0,
            asked,
        })
    }

    /// A group of this node.
    pub(crate) fn group(&self, group: GroupId) -> Result<&Group, ServiceError> {
        let missing = || match self.0.groups.stopped.get(&group) {
            Some(why) => ServiceError::Unavailable {
                group,
                error: Unavailable::Stopped {
                    why: why.clone(),
                    proposed: false,
                },
            },
            None => ServiceError::GroupUnknown(group),
        };
        self.0.groups.running.get(&group).ok_or_else(missing)
    }

    /// How many nodes vote in a group, as this one knows it: so many copies decide.
    pub(crate) fn copies(&self, group: GroupId) -> u32 {
        let voters = self.group(group).map_or(0, |group| group.replica.status().voters.len());
        u32::try_from(voters).unwrap_or(u32::MAX)
    }

    /// All groups of this node.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.0.groups.running.values()
    }

    /// The groups of this node that could not be opened, and why.
    pub(crate) fn stopped_groups(&self) -> impl Iterator<Item = (GroupId, &Arc<str>)> {
        self.0.groups.stopped.iter().map(|(group, why)| (*group, why))
    }

    /// The room on the disk.
    pub(crate) fn space(&self) -> &Arc<Space> {
        &self.0.space
    }

    /// Who this node is.
    pub(crate) fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// What the node counts.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The log of all groups.
    pub(crate) fn log(&self) -> &Log {
        &self.0.log
    }

    /// The watchers of this node.
    pub(crate) fn hub(&self) -> &Arc<WatchHub> {
        &self.0.hub
    }

    /// What its connections have taken.
    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.0.connections
    }

    /// The world.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// What the node has taken on.
    pub(crate) fn admission(&self) -> &Admission {
        &self.0.admission
    }

    /// Now, on the clock on which deadlines are.
    pub(crate) fn now(&self) -> Duration {
        self.0.runtime.clock.now()
    }

    /// The deadline of a request that may take so long; 0 means the default.
    pub(crate) fn deadline_in(&self, timeout_ms: u64) -> Duration {
        let timeout = match timeout_ms {
            0 => TIMEOUT_DEFAULT,
            millis => Duration::from_millis(millis).min(TIMEOUT_MAX),
        };
        self.now() + timeout
    }

    /// A fresh secret.
    pub(crate) fn fresh_secret(&self) -> Secret {
        Secret(self.0.runtime.random.next_u128())
    }

    /// From now on requests are taken.
    pub(crate) fn begin_serving(&self) {
        self.0.serving.store(true, Ordering::Release);
    }

    /// From now on no request is taken; those that were are worked on. Streams are told to go elsewhere.
    pub(crate) fn begin_stopping(&self) {
        self.0.serving.store(false, Ordering::Release);
        self.0.stopping.send_replace(true);
    }

    /// Whether requests are taken.
    pub(crate) fn is_serving(&self) -> bool {
        self.0.serving.load(Ordering::Acquire)
    }

    /// Completes when the node begins to stop.
    pub(crate) async fn stopping(&self) {
        let mut stopping = self.0.stopping.subscribe();
        // The sender lives as long as this service.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Ends every connection: whoever waited for an answer has it, and other nodes are to see that this one is gone.
    pub(crate) fn cut_off(&self) {
        self.0.cut_off.send_replace(true);
    }

    /// Completes when every connection is to be ended.
    pub(crate) async fn cutting_off(&self) {
        let mut cut_off = self.0.cut_off.subscribe();
        // The sender lives as long as this service.
        let _ = cut_off.wait_for(|cut_off| *cut_off).await;
    }

    /// The same door, without keeping it alive.
    pub(crate) fn downgrade(&self) -> WeakService {
        WeakService(Arc::downgrade(&self.0))
    }

    fn check_serving(&self) -> Result<(), ServiceError> {
        self.check_stopping()?;
        if self.is_serving() {
            Ok(())
        } else {
            Err(ServiceError::NotServing("the node is starting"))
        }
    }

    fn check_stopping(&self) -> Result<(), ServiceError> {
        if *self.0.stopping.borrow() {
            Err(ServiceError::NotServing("the node is stopping"))
        } else {
            Ok(())
        }
    }

    fn note_home(&self, namespace: &Namespace, home: GroupId) {
        let mut homes = self.0.homes.write().unwrap_or_else(PoisonError::into_inner);
        if homes.len() < NAMESPACES_MAX {
            homes.insert(namespace.clone(), home);
        }
    }
}

/// Whether a command may add to what is stored, so that it is refused where there is no room left. What frees room, renews or
/// ends something is let through.
pub(crate) fn grows(command: &Command) -> bool {
    match command {
        // Without a TTL it owns nothing and ends by itself: it is the name under which others delete.
        Command::OpenSession { ttl, .. } => ttl.is_some(),
        Command::CreateCache { .. }
        | Command::CreateStream { .. }
        | Command::Put { .. }
        | Command::Add { .. }
        | Command::Append { .. } => true,
        Command::Txn(txn) => txn.then.iter().chain(&txn.otherwise).any(|operation| match operation {
            Operation::Put { .. } | Operation::Add { .. } | Operation::Append { .. } => true,
            Operation::Delete { .. } | Operation::Get { .. } => false,
        }),
        Command::CloseSession { .. }
        | Command::Acknowledge { .. }
        | Command::DeleteCache { .. }
        | Command::DeleteStream { .. }
        | Command::Delete { .. }
        | Command::DeletePrefix { .. }
        | Command::TrimStream { .. }
        | Command::Touch { .. }
        | Command::TakeBlock { .. }
        | Command::System(_) => false,
    }
}

/// The machine answered another question than was asked.
pub(crate) fn unexpected(found: &Found) -> ServiceError {
    match found {
        Found::Failed(failure) => ServiceError::Failed(failure.clone()),
        other => ServiceError::Internal(format!("a read found {other:?}")),
    }
}

#[cfg(test)]
mod tests;
