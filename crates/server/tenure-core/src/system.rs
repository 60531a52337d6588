//! The system group: which namespace lives in which home group, which nodes there are and what an operator wants of them,
//! and the revision floor.

use std::ops::ControlFlow;

use crate::command::{NodeRecord, SystemCommand};
use crate::ids::{GroupId, Namespace, NodeId};
use crate::keyspace::{self, ClusterRow};
use crate::limits::{BLOCK_REVISIONS, NAMESPACES_MAX, NODES_MAX};
use crate::machine::Run;
use crate::refusal::{Failure, Missing};
use crate::response::SystemDone;
use crate::table::prefix_end;

/// The node that founds a cluster.
const FIRST_NODE: u64 = 1;

/// Runs a command of the system group. All but [`SystemCommand::ReserveBlock`] and
/// [`SystemCommand::ReserveBlockFrom`] are idempotent; a block that is reserved twice leaves a hole, which is allowed.
pub(crate) fn execute(run: &mut Run<'_>, command: &SystemCommand) -> Result<SystemDone, Failure> {
    match command {
        SystemCommand::Found { cluster, home_groups } => found(run, *cluster, *home_groups),
        SystemCommand::AddNode { folder, address } => add_node(run, *folder, address),
        SystemCommand::AssignNamespace { namespace } => assign(run, namespace),
        SystemCommand::ReserveBlock => reserve(run, 0),
        SystemCommand::ReserveBlockFrom { at_least } => reserve(run, *at_least),
        SystemCommand::RemoveNode { node, of } => remove_node(run, *node, *of),
        SystemCommand::DrainNode { node, draining } => drain_node(run, *node, *draining),
        SystemCommand::ChooseLeader { group, node } => choose_leader(run, *group, *node),
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
        Some(id) if is_node(run, id) => id,
        Some(id) => {
            let rule = format!("it is that of node {}, which was removed: join with an empty one", id.0);
            return Err(Failure::invalid("folder", rule));
        }
        None => {
            Failure::unless_within("nodes", rows_of(run, b"n").len() + 1, NODES_MAX)?;
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

fn remove_node(run: &mut Run<'_>, node: NodeId, of: u64) -> Result<SystemDone, Failure> {
    let row = cluster(run)?;
    if !is_node(run, node) {
        return match (FIRST_NODE..row.next_node).contains(&node.0) {
            true => Ok(SystemDone::NodeRemoved),
            false => Err(missing(node)),
        };
    }
    let nodes = rows_of(run, b"n").len();
    if nodes == 1 {
        return Err(Failure::invalid("node", "the last one of a cluster stays"));
    }
    if nodes as u64 != of {
        return Err(Failure::Overloaded {
            what: "another node came or went at the same moment".to_owned(),
            retry_after: crate::time::Span::from_millis(100),
        });
    }
    // The row of its folder stays.
    run.table.delete(&keyspace::node(node));
    run.table.delete(&keyspace::drained(node));
    for key in rows_of(run, b"l") {
        if keyspace::read::<NodeId>(run.table, &key) == Some(node) {
            run.table.delete(&key);
        }
    }
    Ok(SystemDone::NodeRemoved)
}

fn drain_node(run: &mut Run<'_>, node: NodeId, draining: bool) -> Result<SystemDone, Failure> {
    cluster(run)?;
    if !is_node(run, node) {
        return Err(missing(node));
    }
    let key = keyspace::drained(node);
    match draining {
        true => {
            keyspace::write(run.table, key, &());
        }
        false => run.table.delete(&key),
    }
    Ok(SystemDone::NodeMarked)
}

fn choose_leader(run: &mut Run<'_>, group: GroupId, node: NodeId) -> Result<SystemDone, Failure> {
    let row = cluster(run)?;
    if group.0 > row.home_groups {
        return Err(Failure::invalid("group", format!("at most {}", row.home_groups)));
    }
    if !is_node(run, node) {
        return Err(missing(node));
    }
    keyspace::write(run.table, keyspace::chosen_leader(group), &node);
    Ok(SystemDone::LeaderChosen)
}

fn is_node(run: &Run<'_>, node: NodeId) -> bool {
    run.table.get(&keyspace::node(node)).is_some()
}

fn missing(node: NodeId) -> Failure {
    Failure::NotFound {
        what: Missing::Node(node),
    }
}

/// The keys of the rows of a kind of which there are few.
fn rows_of(run: &Run<'_>, kind: &[u8]) -> Vec<Vec<u8>> {
    let end = prefix_end(kind).expect("a kind byte is below 255");
    let mut keys = Vec::new();
    run.table.scan(kind, &end, &mut |key, _| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    });
    keys
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

fn reserve(run: &mut Run<'_>, at_least: u64) -> Result<SystemDone, Failure> {
    let mut row = cluster(run)?;
    let first = row.floor.max(at_least);
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
