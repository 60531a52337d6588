//! The rules of the system group.

use tenure_core::command::{Command, SystemCommand};
use tenure_core::ids::{GroupId, Namespace, NodeId};
use tenure_core::keyspace::ClusterRow;
use tenure_core::limits::{BLOCK_REVISIONS, NAMESPACES_MAX, NODES_MAX};
use tenure_core::machine::GroupKind;
use tenure_core::refusal::{Failure, Missing};
use tenure_core::table::Table as _;
use tenure_core::time::Span;

use super::{Request, Rules, bytes_of_row, row};
use crate::lab::{Lab, anonymous, namespace};

pub(super) fn founding_rules() -> Rules {
    Rules {
        of: "founding a cluster",
        rows: vec![row(
            "it is to have no home group",
            system(SystemCommand::Found {
                cluster: 1,
                home_groups: 0,
            }),
            Failure::Invalid {
                field: "home_groups".to_owned(),
                rule: "at least one".to_owned(),
            },
        )],
        ..Rules::at(Lab::empty(GroupKind::System))
    }
}

pub(super) fn unfounded_rules() -> Rules {
    let commands = [
        SystemCommand::AddNode {
            folder: 1,
            address: String::new(),
        },
        assign("prod"),
        SystemCommand::ReserveBlock,
        SystemCommand::ReserveBlockFrom { at_least: 7 },
        remove(1, 1),
        drain(1),
        lead(0, 1),
    ];
    Rules {
        of: "any other system command",
        rows: commands
            .map(|command| {
                let failure = Failure::Overloaded {
                    what: "the cluster is being founded".to_owned(),
                    retry_after: Span::from_millis(100),
                };
                row("the cluster is not founded yet", system(command), failure)
            })
            .into(),
        ..Rules::at(Lab::empty(GroupKind::System))
    }
}

pub(super) fn system_limit_rules() -> Rules {
    let mut lab = Lab::empty(GroupKind::System);
    let row_of_the_cluster = ClusterRow {
        cluster: 1,
        home_groups: 1,
        floor: i64::MAX as u64 - BLOCK_REVISIONS + 1,
        next_node: 1,
        namespaces: NAMESPACES_MAX as u64,
    };
    lab.table.put(b"c".to_vec(), bytes_of_row(&row_of_the_cluster));
    Rules {
        of: "a system command at its bounds",
        rows: vec![
            row(
                "there are as many namespaces as a cluster may have",
                system(assign("prod")),
                Failure::Limit {
                    which: "namespaces".to_owned(),
                    value: NAMESPACES_MAX as u64,
                },
            ),
            row(
                "revisions are used up",
                system(SystemCommand::ReserveBlock),
                Failure::Limit {
                    which: "revisions".to_owned(),
                    value: i64::MAX as u64,
                },
            ),
        ],
        ..Rules::at(lab)
    }
}

/// As many nodes as a cluster may have, after one that was removed.
pub(super) fn node_rules() -> Rules {
    let mut lab = Lab::empty(GroupKind::System);
    let most = NODES_MAX as u128;
    let found = SystemCommand::Found {
        cluster: 1,
        home_groups: 2,
    };
    let mut commands = vec![found, add(1), add(2), remove(1, 2)];
    commands.extend((3..most + 2).map(add));
    lab.run(1_000, commands.into_iter().map(system).collect());
    let unknown = || Failure::NotFound {
        what: Missing::Node(NodeId(NODES_MAX as u64 + 2)),
    };
    let came_or_went = Failure::Overloaded {
        what: "another node came or went at the same moment".to_owned(),
        retry_after: Span::from_millis(100),
    };
    let invalid = |field: &str, rule: &str| Failure::Invalid {
        field: field.to_owned(),
        rule: rule.to_owned(),
    };
    let beyond = NODES_MAX as u64 + 2;
    Rules {
        of: "a command about nodes",
        rows: vec![
            row(
                "the folder is that of a node that was removed",
                system(add(1)),
                invalid(
                    "folder",
                    "it is that of node 1, which was removed: join with an empty one",
                ),
            ),
            row(
                "there are as many nodes as a cluster may have",
                system(add(most + 2)),
                Failure::Limit {
                    which: "nodes".to_owned(),
                    value: NODES_MAX as u64,
                },
            ),
            row("there never was such a node", system(remove(beyond, 1)), unknown()),
            row("there never was such a node", system(drain(beyond)), unknown()),
            row(
                "there is no such group",
                system(lead(3, beyond)),
                invalid("group", "at most 2"),
            ),
            row("there never was such a node", system(lead(2, beyond)), unknown()),
            row(
                "the nodes are not those that were looked at",
                system(remove(2, 63)),
                came_or_went,
            ),
        ],
        ..Rules::at(lab)
    }
}

pub(super) fn last_node_rules() -> Rules {
    let mut lab = Lab::empty(GroupKind::System);
    let found = SystemCommand::Found {
        cluster: 1,
        home_groups: 2,
    };
    lab.run(1_000, [found, add(1)].into_iter().map(system).collect());
    Rules {
        of: "removing a node",
        rows: vec![row(
            "it is the last one",
            system(remove(1, 5)),
            Failure::Invalid {
                field: "node".to_owned(),
                rule: "the last one of a cluster stays".to_owned(),
            },
        )],
        ..Rules::at(lab)
    }
}

fn add(folder: u128) -> SystemCommand {
    SystemCommand::AddNode {
        folder,
        address: format!("node-{folder}:1"),
    }
}

fn remove(node: u64, of: u64) -> SystemCommand {
    SystemCommand::RemoveNode { node: NodeId(node), of }
}

fn drain(node: u64) -> SystemCommand {
    SystemCommand::DrainNode {
        node: NodeId(node),
        draining: true,
    }
}

fn lead(group: u32, node: u64) -> SystemCommand {
    SystemCommand::ChooseLeader {
        group: GroupId(group),
        node: NodeId(node),
    }
}

fn assign(name: &str) -> SystemCommand {
    let namespace: Namespace = namespace(name);
    SystemCommand::AssignNamespace { namespace }
}

fn system(command: SystemCommand) -> Request {
    anonymous(Command::System(command))
}
