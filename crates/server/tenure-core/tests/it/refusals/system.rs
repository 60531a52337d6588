//! The rules of the system group.

use tenure_core::command::{Command, SystemCommand};
use tenure_core::ids::Namespace;
use tenure_core::keyspace::ClusterRow;
use tenure_core::limits::{BLOCK_REVISIONS, NAMESPACES_MAX};
use tenure_core::machine::GroupKind;
use tenure_core::refusal::Failure;
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

fn assign(name: &str) -> SystemCommand {
    let namespace: Namespace = namespace(name);
    SystemCommand::AssignNamespace { namespace }
}

fn system(command: SystemCommand) -> Request {
    anonymous(Command::System(command))
}
