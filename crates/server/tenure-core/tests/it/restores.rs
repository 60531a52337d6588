//! What a restore makes of a group's rows: see the transcripts of restores for what its users see.

use tenure_core::command::{Command, SystemCommand};
use tenure_core::ids::Namespace;
use tenure_core::limits::{BLOCK_REVISIONS, RESTORE_FLOOR_MAX, RESTORE_TIME_STEP};
use tenure_core::machine::GroupKind;
use tenure_core::restore::{GroupRestore, NewCluster, RestoreError};
use tenure_core::table::{MemTable, Table as _};

use crate::lab::{Lab, anonymous, numbered, one_shot, put, restored, rows};
use crate::mutations::{Seeded, assert_modest, damaged};
use tenure_core::time::{Span, Timestamp};

const CASES: usize = 20_000;
const LENGTH_MAX: usize = 16 << 10;
const GROWTH_MAX: usize = 24 << 20;

fn new(floor: u64) -> NewCluster {
    NewCluster {
        cluster: 2,
        folder: 3,
        floor,
    }
}

/// A home group with sessions, results and keys.
fn home() -> Lab {
    let mut lab = Lab::home_with_cache();
    let session = lab.open(0, 1, Some(Span::from_secs(10)));
    for seq in 1..=20 {
        lab.run(seq, vec![numbered(session, seq, put(&format!("k{seq}"), "v"))]);
    }
    let late = Timestamp(60_000_000);
    lab.run(30, vec![one_shot(7, late, put("k0", "v"))]);
    lab
}

fn system() -> Lab {
    let mut lab = Lab::empty(GroupKind::System);
    let found = SystemCommand::Found {
        cluster: 1,
        home_groups: 2,
    };
    let namespace = Namespace {
        tenant: "acme".to_owned(),
        name: "prod".to_owned(),
    };
    for command in [
        found,
        SystemCommand::AssignNamespace { namespace },
        SystemCommand::ReserveBlock,
    ] {
        lab.run(0, vec![anonymous(Command::System(command))]);
    }
    lab
}

#[test]
fn a_restore_counts_what_it_forgets() {
    let (table, outcome) = restored(GroupKind::Home, &home().table, new(1 << 40)).unwrap();
    assert_eq!((outcome.sessions, outcome.requests, outcome.owned_keys), (1, 21, 0));
    let kinds: Vec<u8> = rows(&table).iter().map(|(key, _)| key[0]).collect();
    assert!(!kinds.iter().any(|kind| b"SNLOQX".contains(kind)), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == b'K').count(), 21);
}

#[test]
fn the_floor_lies_above_every_one_that_is_known() {
    // One block was reserved, so the floor that is known is the beginning of the second.
    let known = 1 + BLOCK_REVISIONS;
    let too_low = |floor| Some(RestoreError::FloorTooLow { floor, known });
    assert_eq!(
        restored(GroupKind::System, &system().table, new(known)).err(),
        too_low(known)
    );
    assert!(restored(GroupKind::System, &system().table, new(known + 1)).is_ok());
    let (floor, known) = (BLOCK_REVISIONS, BLOCK_REVISIONS);
    let too_low = Some(RestoreError::FloorTooLow { floor, known });
    assert_eq!(restored(GroupKind::Home, &home().table, new(floor)).err(), too_low);
    assert!(restored(GroupKind::Home, &home().table, new(floor + 1)).is_ok());
    for kind in [GroupKind::Home, GroupKind::System] {
        let floor = RESTORE_FLOOR_MAX + 1;
        assert_eq!(
            GroupRestore::new(kind, new(floor)).err(),
            Some(RestoreError::FloorTooHigh { floor })
        );
        let too_low = RestoreError::FloorTooLow { floor: 0, known: 0 };
        assert_eq!(GroupRestore::new(kind, new(0)).err(), Some(too_low));
    }
}

#[test]
fn a_group_can_be_restored_again_and_again_until_a_number_is_too_high() {
    let mut table = home().table;
    let mut floor = 1 << 40;
    for _ in 0..100 {
        floor += 1;
        table = restored(GroupKind::Home, &table, new(floor)).unwrap().0;
    }
    let mut lab = Lab::over(GroupKind::Home, table.clone());
    assert_eq!(lab.machine.time(), Timestamp(30_000 + 100 * RESTORE_TIME_STEP.0));
    assert_eq!(lab.machine.revision().0, floor - 1);
    lab.run(0, vec![anonymous(Command::TakeBlock { first: floor })]);
    lab.run(0, vec![anonymous(put("k1", "w"))]);
    assert_eq!(lab.machine.revision().0, floor);

    table.put(
        b"T".to_vec(),
        vec![1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1].into(),
    );
    let too_high = RestoreError::TooHigh { key: b"T".to_vec() };
    assert_eq!(restored(GroupKind::Home, &table, new(floor + 1)).err(), Some(too_high));
}

#[test]
fn rows_of_another_kind_or_order_are_refused() {
    let floor = 1 << 40;
    let mut table = home().table;
    table.put(b"Z".to_vec(), vec![1].into());
    let unknown = RestoreError::UnknownKind { key: b"Z".to_vec() };
    assert_eq!(restored(GroupKind::Home, &table, new(floor)).err(), Some(unknown));
    let damaged =
        |kind, table: &MemTable| matches!(restored(kind, table, new(floor)), Err(RestoreError::Damaged { .. }));
    assert!(damaged(GroupKind::System, &home().table), "rows of a home group");
    assert!(damaged(GroupKind::Home, &system().table), "rows of the system group");
    let founded = restored(GroupKind::System, &MemTable::new(), new(floor));
    assert_eq!(founded.err(), Some(RestoreError::NotFounded));

    let mut restore = GroupRestore::new(GroupKind::Home, new(floor)).unwrap();
    let (key, value) = rows(&home().table).remove(0);
    restore.take(&key, &value, &mut |_, _| {}).unwrap();
    assert_eq!(
        restore.take(&key, &value, &mut |_, _| {}),
        Err(RestoreError::OutOfOrder)
    );
}

#[test]
fn no_damage_to_a_row_makes_a_restore_panic_or_ask_for_much_memory() {
    let groups = [(GroupKind::Home, home()), (GroupKind::System, system())];
    let mut seeded = Seeded::new(11);
    let taken = assert_modest(GROWTH_MAX, || {
        let mut taken = 0;
        for case in 0..CASES {
            let (kind, lab) = &groups[case % 2];
            let corpus = rows(&lab.table);
            let values: Vec<Vec<u8>> = corpus.iter().map(|(_, value)| value.to_vec()).collect();
            let keys: Vec<Vec<u8>> = corpus.iter().map(|(key, _)| key.clone()).collect();
            let (mut key, mut value) = (keys[case % keys.len()].clone(), values[case % keys.len()].clone());
            match seeded.below(3) {
                0 => key = damaged(&keys, LENGTH_MAX, &mut seeded),
                1 => value = damaged(&values, LENGTH_MAX, &mut seeded),
                _ => {
                    (key[0], value) = (
                        b"TRCAIWJKHEGUSQXcnfs"[seeded.below(19)],
                        damaged(&values, LENGTH_MAX, &mut seeded),
                    )
                }
            }
            let mut restore = GroupRestore::new(*kind, new(1 << 40)).unwrap();
            taken += usize::from(restore.take(&key, &value, &mut |_, _| {}).is_ok());
        }
        taken
    });
    assert!(taken > CASES / 20, "{taken} of {CASES} could still be taken");
}
