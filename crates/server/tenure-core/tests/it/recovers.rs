//! What becomes of the rows of a group that goes on from the one replica that is left.

use bytes::Bytes;
use tenure_core::command::{Append, Command, FenceMode, StreamSettings, SystemCommand};
use tenure_core::ids::{GroupId, NodeId, ObjectName};
use tenure_core::limits::{BLOCK_REVISIONS, RECOVER_NODES_STEP, RESTORE_FLOOR_MAX, RESTORE_STREAM_GAP};
use tenure_core::machine::GroupKind;
use tenure_core::query::{Found, NodesView, Query};
use tenure_core::recover::{GroupRecover, Outcome, Survivor};
use tenure_core::refusal::Failure;
use tenure_core::response::{Done, Response, SystemDone};
use tenure_core::restore::RestoreError;
use tenure_core::table::MemTable;
use tenure_core::time::Span;

use crate::lab::{Lab, Made, anonymous, namespace, numbered, put, rows};
use crate::mutations::{Seeded, assert_modest, damaged};

const FLOOR: u64 = 1 << 40;
const CASES: usize = 20_000;
const LENGTH_MAX: usize = 16 << 10;
const GROWTH_MAX: usize = 24 << 20;
/// The node that is left.
const LEFT: NodeId = NodeId(2);

fn survivor(floor: u64) -> Survivor {
    Survivor { node: LEFT, floor }
}

/// The rows of a recovered group.
fn recovered(kind: GroupKind, table: &MemTable, survivor: Survivor) -> Result<(MemTable, Outcome), RestoreError> {
    let mut recover = GroupRecover::new(kind, survivor)?;
    let mut made = Made::default();
    for (key, value) in rows(table) {
        recover.take(&key, &value, &mut |key, value| made.take(key, value))?;
    }
    let outcome = recover.finish(&mut |key, value| made.take(key, value))?;
    Ok((made.counted(outcome.rows), outcome))
}

fn events() -> ObjectName {
    ObjectName {
        namespace: namespace("prod"),
        name: "events".to_owned(),
    }
}

fn append(record: &'static [u8]) -> Command {
    Command::Append {
        stream: events(),
        append: Append {
            records: vec![Bytes::from_static(record)],
            ..Append::default()
        },
    }
}

/// A home group with a session, its results, and a stream.
fn home() -> Lab {
    let mut lab = Lab::home_with_cache();
    let session = lab.open(0, 1, Some(Span::from_secs(10)));
    for seq in 1..=20 {
        lab.run(seq, vec![numbered(session, seq, put(&format!("k{seq}"), "v"))]);
    }
    let settings = StreamSettings {
        retention: None,
        retention_bytes: None,
        fence: FenceMode::Optional,
        dedup_window: Span::from_secs(120),
        replication: 3,
    };
    let created = Command::CreateStream {
        name: events(),
        settings,
    };
    lab.run(30, vec![anonymous(created), anonymous(append(b"a"))]);
    lab
}

/// Three nodes, of which one is drained and two were chosen to lead.
fn system() -> Lab {
    let mut lab = Lab::empty(GroupKind::System);
    let add = |folder: u128| SystemCommand::AddNode {
        folder,
        address: format!("node-{folder}:1"),
    };
    let lead = |group, node| SystemCommand::ChooseLeader {
        group: GroupId(group),
        node: NodeId(node),
    };
    let found = SystemCommand::Found {
        cluster: 1,
        home_groups: 2,
    };
    let drain = SystemCommand::DrainNode {
        node: NodeId(1),
        draining: true,
    };
    let namespace = namespace("prod");
    let assign = SystemCommand::AssignNamespace { namespace };
    let all = [
        found,
        add(11),
        add(12),
        add(13),
        drain,
        lead(1, 2),
        lead(2, 3),
        assign,
        SystemCommand::ReserveBlock,
    ];
    for command in all {
        lab.run(0, vec![anonymous(Command::System(command))]);
    }
    lab
}

fn ask(lab: &mut Lab, command: SystemCommand) -> Response {
    lab.ask(0, anonymous(Command::System(command)))
}

#[test]
fn sessions_and_remembered_requests_stay_and_tokens_rise() {
    let mut old = home();
    let session = old.open(40, 1, Some(Span::from_secs(10)));
    let (table, outcome) = recovered(GroupKind::Home, &old.table, survivor(FLOOR)).unwrap();
    assert_eq!(outcome.streams, 1);
    let mut lab = Lab::over(GroupKind::Home, table);
    assert_eq!(lab.machine.revision().0, FLOOR - 1);
    assert!(lab.machine.wants_block(), "it begins without one");
    lab.run(
        41,
        vec![anonymous(Command::TakeBlock {
            first: 1 + BLOCK_REVISIONS,
        })],
    );
    assert!(lab.machine.wants_block(), "one below its floor is none");
    lab.run(41, vec![anonymous(Command::TakeBlock { first: FLOOR })]);
    let again = lab
        .run(42, vec![numbered(session, 20, put("k20", "v"))])
        .answers
        .remove(0);
    assert!(again.repeated, "{again:?}");
    let Response::Done(Done::Put { version, .. }) = lab.ask(43, numbered(session, 21, put("k21", "v"))) else {
        panic!("the session lives on");
    };
    assert_eq!(version, FLOOR);
}

#[test]
fn a_stream_goes_on_behind_a_gap() {
    let (table, _) = recovered(GroupKind::Home, &home().table, survivor(FLOOR)).unwrap();
    let mut lab = Lab::over(GroupKind::Home, table);
    lab.run(41, vec![anonymous(Command::TakeBlock { first: FLOOR })]);
    let Response::Done(Done::Appended(appended)) = lab.ask(42, anonymous(append(b"b"))) else {
        panic!("it can be appended to");
    };
    assert_eq!(appended.first, 1 + RESTORE_STREAM_GAP);
}

#[test]
fn the_other_nodes_are_out_of_the_cluster_and_neither_ids_nor_folders_come_back() {
    let (table, outcome) = recovered(GroupKind::System, &system().table, survivor(FLOOR)).unwrap();
    let removed: Vec<u64> = outcome.removed.iter().map(|record| record.id.0).collect();
    assert_eq!(removed, [1, 3]);
    let mut lab = Lab::over(GroupKind::System, table);
    let Found::Nodes(NodesView {
        nodes,
        draining,
        leaders,
        next,
    }) = lab.query(&Query::Nodes)
    else {
        panic!("it is another question");
    };
    assert_eq!(nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [LEFT]);
    assert!(draining.is_empty(), "{draining:?}");
    assert_eq!(leaders.into_iter().collect::<Vec<_>>(), [(GroupId(1), LEFT)]);
    assert_eq!(next, 4 + RECOVER_NODES_STEP);
    let add = |folder| SystemCommand::AddNode {
        folder,
        address: "elsewhere:1".to_owned(),
    };
    let refused = ask(&mut lab, add(13));
    assert!(
        matches!(refused, Response::Failed(Failure::Invalid { .. })),
        "{refused:?}"
    );
    let id = NodeId(next);
    assert_eq!(
        ask(&mut lab, add(14)),
        Response::Done(Done::System(SystemDone::NodeAdded { id }))
    );
    let reserved = ask(&mut lab, SystemCommand::ReserveBlock);
    assert_eq!(
        reserved,
        Response::Done(Done::System(SystemDone::BlockReserved { first: FLOOR }))
    );
}

#[test]
fn a_block_for_a_group_that_was_recovered_alone_lies_above_its_floor() {
    let mut lab = system();
    let reserved = ask(&mut lab, SystemCommand::ReserveBlockFrom { at_least: FLOOR });
    assert_eq!(
        reserved,
        Response::Done(Done::System(SystemDone::BlockReserved { first: FLOOR }))
    );
    let reserved = ask(&mut lab, SystemCommand::ReserveBlockFrom { at_least: 1 });
    let first = FLOOR + BLOCK_REVISIONS;
    assert_eq!(
        reserved,
        Response::Done(Done::System(SystemDone::BlockReserved { first }))
    );
    let refused = ask(&mut lab, SystemCommand::ReserveBlockFrom { at_least: u64::MAX });
    assert!(
        matches!(refused, Response::Failed(Failure::Limit { .. })),
        "{refused:?}"
    );
}

#[test]
fn what_cannot_go_on_is_refused() {
    let known = 1 + BLOCK_REVISIONS;
    for (kind, lab) in [(GroupKind::System, system()), (GroupKind::Home, home())] {
        let floor = known - 1;
        let refused = recovered(kind, &lab.table, survivor(floor)).err();
        assert!(matches!(refused, Some(RestoreError::FloorTooLow { .. })), "{refused:?}");
        assert!(recovered(kind, &lab.table, survivor(known + 1)).is_ok());
        let floor = RESTORE_FLOOR_MAX + 1;
        let refused = recovered(kind, &lab.table, survivor(floor)).err();
        assert_eq!(refused, Some(RestoreError::FloorTooHigh { floor }));
    }
    let node = NodeId(9);
    let stranger = Survivor { node, floor: FLOOR };
    let refused = recovered(GroupKind::System, &system().table, stranger).err();
    assert_eq!(refused, Some(RestoreError::NotANode { node }));
    let refused = recovered(GroupKind::System, &MemTable::new(), survivor(FLOOR)).err();
    assert_eq!(refused, Some(RestoreError::NotFounded));
    for (kind, other) in [(GroupKind::System, home()), (GroupKind::Home, system())] {
        let refused = recovered(kind, &other.table, survivor(FLOOR)).err();
        assert!(matches!(refused, Some(RestoreError::Damaged { .. })), "{refused:?}");
    }
}

#[test]
fn no_damage_to_a_row_makes_a_recovery_panic_or_ask_for_much_memory() {
    let groups = [(GroupKind::Home, home()), (GroupKind::System, system())];
    let mut seeded = Seeded::new(12);
    let taken = assert_modest(GROWTH_MAX, || {
        let mut taken = 0;
        for case in 0..CASES {
            let (kind, lab) = &groups[case % 2];
            let corpus = rows(&lab.table);
            let values: Vec<Vec<u8>> = corpus.iter().map(|(_, value)| value.to_vec()).collect();
            let keys: Vec<Vec<u8>> = corpus.iter().map(|(key, _)| key.clone()).collect();
            let (mut key, mut value) = (keys[case % keys.len()].clone(), values[case % keys.len()].clone());
            match seeded.below(2) {
                0 => key = damaged(&keys, LENGTH_MAX, &mut seeded),
                _ => value = damaged(&values, LENGTH_MAX, &mut seeded),
            }
            let mut recover = GroupRecover::new(*kind, survivor(FLOOR)).unwrap();
            taken += usize::from(recover.take(&key, &value, &mut |_, _| {}).is_ok());
        }
        taken
    });
    assert!(taken > CASES / 20, "{taken} of {CASES} could still be taken");
}
