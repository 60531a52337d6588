//! Groups that have lost their majority for good go on from the folder of the one node that is left, while it does not run.
//!
//! [`Recovery::look`] finds out what there is and what would be done, and changes nothing. [`Recovery::carry_out`] does it,
//! one group after another and the system group last: until that has a leader again the node does not serve, so a crash in
//! between leaves a folder on which this is done again. What becomes of a group's rows is in [`tenure_core::recover`], and of
//! its log in [`OfflineReplica::recover`].

pub use tenure_core::command::NodeRecord;
pub use tenure_core::recover::Outcome;
pub use tenure_core::restore::RestoreError as RowsError;
pub use tenure_replica::OfflineView;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, NodeId, Revision};
use tenure_core::machine::GroupKind;
use tenure_core::query::{ClusterView, Found, NodesView, Query};
use tenure_core::recover::{GroupRecover, Survivor};
use tenure_core::snapshot::ImportError;
use tenure_core::table::{Table, TableRead as _, Visit};
use tenure_core::time::Timestamp;
use tenure_replica::{EffectSink, OfflineReplica, OpenError as ReplicaError, ReplicaOptions, Runtime};
use tenure_storage::error::OpenError;
use tenure_storage::layout::{DataDir, Identity};
use tenure_storage::log::{Log, LogOptions};
use tenure_storage::state::{Image, StateEngine, StateError};

use crate::node::OpenState;

/// What to recover.
#[derive(Clone, Debug)]
pub struct RecoverOptions {
    /// The folder of the node that is left, which does not run.
    pub data_dir: PathBuf,
    /// The group; none: all of them.
    pub group: Option<u32>,
    /// Where revisions begin: above every one that was handed out.
    pub floor: u64,
}

/// What there is, and what is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whose the folder is.
    pub identity: Identity,
    /// Where revisions begin in what is recovered.
    pub floor: u64,
    /// The groups that were asked for. Those in which the node votes alone are left as they are.
    pub groups: Vec<OfflineView>,
    /// The other nodes of the cluster, as far as this one knows.
    pub others: Vec<NodeRecord>,
    /// Whether the others are out of the cluster then, because the system group is recovered.
    pub removes_others: bool,
}

impl Plan {
    /// Whether there is anything to do.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.is_alone)
    }
}

/// Nothing was recovered, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// There is no folder of a node. Nothing was touched.
    #[error("there is no data folder of a node in {}", folder.display())]
    Absent {
        /// The folder.
        folder: PathBuf,
    },
    /// The cluster has no such group. Nothing was changed.
    #[error("group {group} does not exist: there are {home_groups} home groups, and the system group 0")]
    NoSuchGroup {
        /// The group.
        group: u32,
        /// How many home groups there are.
        home_groups: u32,
    },
    /// The folder has nothing of a group. Nothing was changed.
    #[error("the folder holds nothing of group {group}: the node had no replica of it yet")]
    NothingOf {
        /// The group.
        group: u32,
    },
    /// The system group does not say what the cluster is made of. Nothing was changed.
    #[error("the folder does not say what the cluster is made of: the node was let in and had got nothing yet")]
    NoCluster,
    /// The folder cannot be used. Nothing was changed.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// A group cannot be read. Nothing was changed.
    #[error(transparent)]
    Group(#[from] ReplicaError),
    /// The rows of a group cannot go on. Nothing was changed.
    #[error("group {group} cannot be recovered: {error}")]
    Rows {
        /// The group.
        group: u32,
        /// What is wrong with them.
        error: RowsError,
    },
    /// The state cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The log or the state could not be written. Doing it again is safe.
    #[error(transparent)]
    Replica(#[from] tenure_replica::RecoverError),
}

/// The open folder of a node whose groups are to be recovered.
pub struct Recovery {
    plan: Plan,
    /// Those that were asked for, and the system group.
    groups: BTreeMap<GroupId, OfflineReplica>,
    engine: Arc<dyn StateEngine>,
    log: Log,
    _folder: DataDir,
}

impl Recovery {
    /// Opens the folder as a start does and looks at what is to be recovered. Blocks for as long as it takes to read it.
    ///
    /// # Errors
    /// [`RecoverError`]; nothing was changed.
    pub fn look(options: &RecoverOptions, runtime: &Runtime, open_state: OpenState) -> Result<Recovery, RecoverError> {
        let absent = || RecoverError::Absent {
            folder: options.data_dir.clone(),
        };
        if !DataDir::is_there(&*runtime.disk, &options.data_dir)? {
            return Err(absent());
        }
        let folder = DataDir::open_on(runtime.disk.clone(), &options.data_dir)?;
        let Some(identity) = folder.read_identity()? else {
            return Err(match folder.has_lost_identity()? {
                true => OpenError::IdentityMissing {
                    folder: options.data_dir.clone(),
                }
                .into(),
                false => absent(),
            });
        };
        let log = LogOptions {
            create: false,
            ..LogOptions::default()
        };
        let log = Log::open(folder.disk().clone(), &folder.log_dir(), log, runtime.log_writer())?;
        let engine = open_state(&folder.state_dir())?;
        let opening = Opening {
            node: NodeId(identity.node),
            log: &log,
            engine: &*engine,
            runtime,
        };
        let (plan, groups) = opening.plan(identity, options)?;
        Ok(Recovery {
            plan,
            groups,
            engine,
            log,
            _folder: folder,
        })
    }

    /// What was found, and what is to be done.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Recovers the groups in which others vote too. Blocks for as long as it takes to write their rows. `progress` is told
    /// each that is done, which is then durable.
    ///
    /// # Errors
    /// [`RecoverError`]. Some may be done; doing it again does the others.
    pub fn carry_out(self, progress: &mut dyn FnMut(u32, &Outcome)) -> Result<Vec<(u32, Outcome)>, RecoverError> {
        let survivor = self.plan.survivor();
        let behind = Revision(survivor.floor - 1);
        let mut todo: Vec<GroupId> = self
            .plan
            .groups
            .iter()
            .filter(|group| !group.is_alone)
            .map(|group| group.group)
            .collect();
        // The system group last.
        todo.reverse();
        let mut done = Vec::new();
        for id in todo {
            let replica = &self.groups[&id];
            let image = replica.rows()?;
            let mut rows = Ok(Outcome::default());
            let fill = |table: &mut dyn Table| {
                rows = recovered(id, &image, survivor, &mut |key, value| table.put(key, value));
                rows.is_ok().then_some(()).ok_or(ImportError::Damaged("the state"))
            };
            let written = replica.recover(fill, behind);
            // What was wrong with the rows says more than that they could not be written.
            let outcome = rows?;
            written?;
            progress(id.0, &outcome);
            done.push((id.0, outcome));
        }
        self.engine.sync_all()?;
        drop(self.groups);
        drop(self.engine);
        self.log.close();
        Ok(done)
    }
}

impl Plan {
    fn survivor(&self) -> Survivor {
        Survivor {
            node: NodeId(self.identity.node),
            floor: self.floor,
        }
    }
}

/// What the groups of a folder share.
struct Opening<'a> {
    node: NodeId,
    log: &'a Log,
    engine: &'a dyn StateEngine,
    runtime: &'a Runtime,
}

type Groups = BTreeMap<GroupId, OfflineReplica>;

impl Opening<'_> {
    fn plan(&self, identity: Identity, options: &RecoverOptions) -> Result<(Plan, Groups), RecoverError> {
        let system = self.group(GroupId::SYSTEM)?;
        let cluster = match system.query(&Query::Cluster)? {
            Found::Cluster(Some(cluster)) if cluster.cluster == identity.cluster => cluster,
            _ => return Err(RecoverError::NoCluster),
        };
        let asked = asked(&cluster, options.group)?;
        let mut groups = BTreeMap::from([(GroupId::SYSTEM, system)]);
        for id in &asked {
            if !groups.contains_key(id) {
                groups.insert(*id, self.group(*id)?);
            }
        }
        let views: Vec<OfflineView> = asked.iter().map(|id| groups[id].view().clone()).collect();
        if let Some(empty) = views.iter().find(|view| view.last_index.is_none()) {
            return Err(RecoverError::NothingOf { group: empty.group.0 });
        }
        let mut plan = Plan {
            identity,
            floor: options.floor,
            removes_others: views.iter().any(|view| view.group == GroupId::SYSTEM && !view.is_alone),
            groups: views,
            others: Vec::new(),
        };
        if let Found::Nodes(NodesView { nodes, .. }) = groups[&GroupId::SYSTEM].query(&Query::Nodes)? {
            plan.others = nodes.into_iter().filter(|node| node.id != self.node).collect();
        }
        if !plan.is_empty() {
            // The system group's rows say how high the floor must be at least, whether they change or not.
            let checked = groups.values().filter(|replica| {
                let view = replica.view();
                view.group == GroupId::SYSTEM || !view.is_alone
            });
            for replica in checked {
                recovered(replica.view().group, &replica.rows()?, plan.survivor(), &mut |_, _| {})?;
            }
        }
        Ok((plan, groups))
    }

    fn group(&self, id: GroupId) -> Result<OfflineReplica, RecoverError> {
        let parts = (self.log.group(id), self.engine.group(id)?);
        let sink = Arc::new(Nobody);
        let options = ReplicaOptions::new(id, kind(id), self.node, parts, self.runtime.clone(), sink);
        Ok(OfflineReplica::open(options)?)
    }
}

/// The groups that are to be recovered, in order.
fn asked(cluster: &ClusterView, group: Option<u32>) -> Result<Vec<GroupId>, RecoverError> {
    let home_groups = cluster.home_groups;
    match group {
        None => Ok((0..=home_groups).map(GroupId).collect()),
        Some(group) if group <= home_groups => Ok(vec![GroupId(group)]),
        Some(group) => Err(RecoverError::NoSuchGroup { group, home_groups }),
    }
}

/// Reads all rows of a group and hands on what becomes of them.
fn recovered(
    group: GroupId,
    image: &Image,
    survivor: Survivor,
    sink: &mut dyn FnMut(Vec<u8>, Bytes),
) -> Result<Outcome, RecoverError> {
    let of_rows = |error| RecoverError::Rows { group: group.0, error };
    let mut recover = GroupRecover::new(kind(group), survivor).map_err(of_rows)?;
    let mut taken = Ok(());
    image.scan(&[], &[u8::MAX], &mut |key, value| {
        taken = recover.take(key, value, sink);
        match taken {
            Ok(()) => Visit::Continue(()),
            Err(_) => Visit::Break(()),
        }
    });
    image.verify()?;
    taken.map_err(of_rows)?;
    recover.finish(sink).map_err(of_rows)
}

fn kind(group: GroupId) -> GroupKind {
    match group {
        GroupId::SYSTEM => GroupKind::System,
        _ => GroupKind::Home,
    }
}

/// Nobody hears what is applied again.
struct Nobody;

impl EffectSink for Nobody {
    fn applied(&self, _: GroupId, _: &[Effect], _: Revision, _: Timestamp) {}

    fn reset(&self, _: GroupId, _: Revision) {}

    fn stopped(&self, _: GroupId, _: &str) {}
}
