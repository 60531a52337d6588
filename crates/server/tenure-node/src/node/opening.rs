//! Opening the groups of a node.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::ids::GroupId;
use tenure_core::machine::GroupKind;
use tenure_core::query::{Found, Query};
use tenure_replica::{EffectSink, Replica, ReplicaOptions, Runtime, Unavailable};
use tenure_storage::log::Log;
use tenure_storage::state::{StateEngine, Stops};
use tokio::sync::watch;

use super::{READY_TIMEOUT, StartError};
use crate::cluster::standing::Standing;
use crate::service::{Group, Groups, Identity, Service};

/// The log is purged when it holds so many times what is kept of it.
const PURGED_AT: u64 = 5;
/// How often a group is looked at that is not ready.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often the log says for what the node waits.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// What the groups of a node share.
pub(super) struct Opening<'a> {
    pub(super) standing: &'a Standing,
    pub(super) failed: watch::Receiver<Option<String>>,
    pub(super) identity: &'a Identity,
    pub(super) log: &'a Log,
    pub(super) engine: &'a Arc<dyn StateEngine>,
    pub(super) sink: Arc<dyn EffectSink>,
    pub(super) runtime: &'a Runtime,
    /// Entries of each group's log that are kept for replicas that are behind.
    pub(super) log_entries_kept: Option<u64>,
}

impl Opening<'_> {
    /// Opens a group, or says why it cannot be served on this node. One in which this node alone votes is founded if need be
    /// and leads when this returns.
    async fn group(&self, id: GroupId, kind: GroupKind) -> Result<Result<Group, Arc<str>>, StartError> {
        let state = match self.engine.group(id) {
            Ok(state) => state,
            Err(error) if error.stops() == Stops::Group(id) => return Ok(Err(without(id, &error))),
            Err(error) => return Err(error.into()),
        };
        let parts = (self.log.group(id), state.clone());
        let mut options = ReplicaOptions::new(
            id,
            kind,
            self.identity.node,
            parts,
            self.runtime.clone(),
            self.sink.clone(),
        );
        options.peers = Some(self.identity.peers.clone());
        if let Some(kept) = self.log_entries_kept {
            options.purge.entries_kept = kept;
            options.purge.entries_max = kept.saturating_mul(PURGED_AT);
        }
        let replica = match Replica::open(options).await {
            Ok(replica) => replica,
            Err(error) if error.is_of_the_group() => {
                self.check_node()?;
                return Ok(Err(without(id, &error)));
            }
            Err(error) => return Err(error.into()),
        };
        let founded = match self.standing.founds() {
            true => replica.found().await,
            false => Ok(()),
        };
        let ready = match founded {
            Ok(()) if self.votes_alone(&replica) => replica.wait_until_ready(READY_TIMEOUT).await,
            founded => founded,
        };
        self.check_node()?;
        match ready {
            // One that has stopped says so itself whenever it is asked.
            Ok(()) | Err(Unavailable::Stopped { .. }) => Ok(Ok(Group { id, replica, state })),
            Err(error) => Err(StartError::NotReady {
                why: format!("group {id}: {error}"),
            }),
        }
    }

    /// Whether no other node votes in a group, so that this one leads it without being reached by any. One that was founded
    /// just now may not know its voters yet.
    fn votes_alone(&self, replica: &Replica) -> bool {
        let voters = replica.status().voters;
        let own = self.identity.node;
        voters.iter().all(|voter| *voter == own) && (self.standing.founds() || voters.contains(&own))
    }

    /// Whether the log or the state as a whole still works.
    fn check_node(&self) -> Result<(), StartError> {
        match &*self.failed.borrow() {
            None => Ok(()),
            Some(why) => Err(StartError::NotReady { why: why.clone() }),
        }
    }

    /// Opens the system group, which knows how many home groups there are, and then those. A home group that cannot be
    /// served is left out.
    pub(super) async fn groups(&self, home_groups_asked: u32) -> Result<(Groups, u32), StartError> {
        let stopped = |why| StartError::SystemStopped { why };
        let system = self.group(GroupId::SYSTEM, GroupKind::System).await?.map_err(stopped)?;
        let home_groups = match system.replica.query(&Query::Cluster) {
            Ok((Found::Cluster(Some(cluster)), ..)) if cluster.cluster == self.identity.cluster => cluster.home_groups,
            Ok((Found::Cluster(Some(cluster)), ..)) => {
                return Err(StartError::OtherCluster {
                    found: cluster.cluster,
                    named: self.identity.cluster,
                });
            }
            Ok(_) => self.home_groups(&system, home_groups_asked)?,
            Err(Unavailable::Stopped { why, .. }) => return Err(stopped(why)),
            Err(error) => return Err(StartError::NotReady { why: error.to_string() }),
        };
        let mut groups = Groups {
            running: BTreeMap::from([(GroupId::SYSTEM, system)]),
            stopped: BTreeMap::new(),
        };
        for id in (1..=home_groups).map(GroupId) {
            match self.group(id, GroupKind::Home).await? {
                Ok(group) => {
                    groups.running.insert(id, group);
                }
                Err(why) => {
                    groups.stopped.insert(id, why);
                }
            }
        }
        Ok((groups, home_groups))
    }

    /// The number of home groups of a cluster whose system group says nothing here yet.
    fn home_groups(&self, system: &Group, asked: u32) -> Result<u32, StartError> {
        if let Some(joined) = &self.standing.joined {
            return Ok(joined.home_groups);
        }
        // One that was founded and says nothing has yet to apply what it was founded with: from a leader, if others vote.
        if system.replica.status().voters.len() > 1 {
            let why = "the system group has not applied what it was founded with: start the node again".to_owned();
            return Err(StartError::NotReady { why });
        }
        Ok(asked)
    }
}

/// Waits until every group has this node among its members and has applied here whatever was committed before it was
/// asked. That takes as long as a majority of the group takes to be there: requests are not taken meanwhile, and other
/// nodes are answered.
///
/// # Errors
/// [`StartError::NotReady`]: the node has failed. [`StartError::Removed`]: other nodes say that it was removed.
pub(super) async fn wait_for_groups(
    service: &Service,
    mut failed: watch::Receiver<Option<String>>,
) -> Result<(), StartError> {
    let all = async {
        for group in service.groups() {
            wait_for_group(service, group).await;
        }
    };
    let identity = service.identity();
    tokio::select! {
        biased;
        () = identity.peers.removed() => Err(StartError::Removed { node: identity.node.0 }),
        Ok(why) = failed.wait_for(Option::is_some) => Err(StartError::NotReady { why: why.clone().unwrap_or_default() }),
        () = all => Ok(()),
    }
}

async fn wait_for_group(service: &Service, group: &Group) {
    let began = service.now();
    let mut told = Duration::ZERO;
    loop {
        let status = group.replica.status();
        let node = service.identity().node;
        let why = if status.stopped.is_some() {
            // It says so itself whenever it is asked.
            return;
        } else if status.voters.contains(&node) || status.learners.contains(&node) {
            match group.replica.read_index().await {
                Ok(_) => return,
                Err(error) => error.to_string(),
            }
        } else {
            "this node has no replica of it yet".to_owned()
        };
        let waited = service.now().saturating_sub(began);
        if waited >= told + TELL_EVERY {
            told = waited;
            tracing::info!(group = %group.id, why, "the node waits for the group");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The reason of a group that is left out. Watchers and requests are told it, and the log once.
fn without(group: GroupId, why: &dyn fmt::Display) -> Arc<str> {
    let why = why.to_string();
    tracing::error!(%group, why, "the group cannot be served; the node goes on without it");
    Arc::from(why)
}
