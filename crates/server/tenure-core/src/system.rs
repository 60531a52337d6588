//! The system group: which namespace lives in which home group, which nodes there are, and the revision floor.

use crate::command::{NodeRecord, SystemCommand};
use crate::ids::{GroupId, Namespace, NodeId};
use crate::keyspace::{self, ClusterRow};
use crate::limits::{BLOCK_REVISIONS, NAMESPACES_MAX};
use crate::machine::Run;
use crate::refusal::Failure;
use crate::response::SystemDone;

/// The node that founds a cluster.
const FIRST_NODE: u64 = 1;

/// Runs a command of the system group. All but [`SystemCommand::ReserveBlock`] are idempotent; a block that is
/// reserved twice leaves a hole, which is allowed.
pub(crate) fn execute(run: &mut Run<'_>, command: &SystemCommand) -> Result<SystemDone, Failure> {
    match command {
        SystemCommand::Found { cluster, home_groups } => found(run, *cluster, *home_groups),
        SystemCommand::AddNode { folder, address } => add_node(run, *folder, address),
        SystemCommand::AssignNamespace { namespace } => assign(run, namespace),
        SystemCommand::ReserveBlock => reserve(run),
    }
}

fn found(run: &mut Run<'_>, cluster: u128, home_groups: u32) -> Result<SystemDone, Failure> {
    if let Some(row) = keyspace::read::<ClusterRow>(run.table, keyspace::CLUSTER) {
        return Ok(SystemDone::Founded {
            cluster: row.cluster,
            home_groups: row.home_groups,
        });
    }
    if home_groups == 0 {
        let rule = "at least one".to_owned();
        return Err(Failure::Invalid {
            field: "home_groups".to_owned(),
            rule,
        });
    }
    let row = ClusterRow {
        cluster,
        home_groups,
        floor: 1,
        next_node: FIRST_NODE,
        namespaces: 0,
    };
    write(run, &row);
    Ok(SystemDone::Founded { cluster, home_groups })
}

fn add_node(run: &mut Run<'_>, folder: u128, address: &str) -> Result<SystemDone, Failure> {
    let mut row = cluster(run)?;
    let id = match keyspace::read::<NodeId>(run.table, &keyspace::folder(folder)) {
        Some(id) => id,
        None => {
            let id = NodeId(row.next_node);
            row.next_node += 1;
            write(run, &row);
            keyspace::write(run.table, keyspace::folder(folder), &id);
            id
        }
    };
    let record = NodeRecord {
        id,
        folder,
        address: address.to_owned(),
    };
    keyspace::write(run.table, keyspace::node(id), &record);
    Ok(SystemDone::NodeAdded { id })
}

fn assign(run: &mut Run<'_>, namespace: &Namespace) -> Result<SystemDone, Failure> {
    let mut row = cluster(run)?;
    let key = keyspace::home(namespace);
    if let Some(home) = keyspace::read::<GroupId>(run.table, &key) {
        return Ok(SystemDone::NamespaceAssigned { home });
    }
    if row.namespaces >= NAMESPACES_MAX as u64 {
        return Err(Failure::Limit {
            which: "namespaces".to_owned(),
            value: NAMESPACES_MAX as u64,
        });
    }
    let turn = row.namespaces % u64::from(row.home_groups);
    let home = GroupId(1 + u32::try_from(turn).expect("it is below a u32"));
    row.namespaces += 1;
    write(run, &row);
    keyspace::write(run.table, key, &home);
    Ok(SystemDone::NamespaceAssigned { home })
}

fn reserve(run: &mut Run<'_>) -> Result<SystemDone, Failure> {
    let mut row = cluster(run)?;
    let first = row.floor;
    let end = first.checked_add(BLOCK_REVISIONS).filter(|end| *end <= i64::MAX as u64);
    row.floor = end.ok_or(Failure::Limit {
        which: "revisions".to_owned(),
        value: i64::MAX as u64,
    })?;
    write(run, &row);
    Ok(SystemDone::BlockReserved { first })
}

fn cluster(run: &Run<'_>) -> Result<ClusterRow, Failure> {
    let unfounded = || Failure::Overloaded {
        what: "the cluster is being founded".to_owned(),
        retry_after: crate::time::Span::from_millis(100),
    };
    keyspace::read(run.table, keyspace::CLUSTER).ok_or_else(unfounded)
}

fn write(run: &mut Run<'_>, row: &ClusterRow) {
    keyspace::write(run.table, keyspace::CLUSTER.to_vec(), row);
}
