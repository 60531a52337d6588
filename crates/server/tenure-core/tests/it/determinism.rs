//! The same entries give the same bytes: on two machines, over a restart, over a snapshot.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use tenure_core::codec::{decode_entry, encode_entry};
use tenure_core::command::Entry;
use tenure_core::machine::{Applied, GroupKind, Machine};
use tenure_core::table::MemTable;

use crate::lab::{Lab, export, import};
use crate::scripts::{Step, Writer, great_sessions, prelude, script};

const CASES: u32 = 150;
const GREAT_CASES: u32 = 12;

/// A script as it was run once.
struct Recording {
    before: MemTable,
    entries: Vec<Entry>,
    applied: Vec<Applied>,
    after: Vec<u8>,
}

/// A group with some sessions that own as much as a session may.
static GREAT: LazyLock<MemTable> = LazyLock::new(|| {
    let mut lab = begun(MemTable::new());
    for entry in prelude() {
        lab.apply(&entry);
    }
    great_sessions(&mut |entry| lab.apply(entry));
    lab.table
});

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn two_machines_fed_one_script_have_equal_bytes(steps in script(60, false)) {
        another_machine_does_the_same(&record(MemTable::new(), &steps));
    }

    #[test]
    fn a_machine_that_was_restarted_does_what_one_that_was_not_does(
        steps in script(60, false),
        cuts in vec(0usize..60, 0..4),
    ) {
        a_restart_changes_nothing(&record(MemTable::new(), &steps), &cuts);
    }

    #[test]
    fn a_snapshot_and_the_entries_behind_it_are_the_whole_script(steps in script(60, false), cut in 0usize..60) {
        a_snapshot_and_the_rest_are_the_whole(&record(MemTable::new(), &steps), cut);
    }

    #[test]
    fn an_exported_and_imported_table_exports_the_same_bytes(steps in script(60, false)) {
        let bytes = record(MemTable::new(), &steps).after;
        prop_assert_eq!(export(&import(&bytes)), bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: GREAT_CASES, ..ProptestConfig::default() })]

    #[test]
    fn all_of_this_holds_when_ends_are_held_up(
        steps in script(40, true),
        cuts in vec(0usize..40, 0..4),
    ) {
        let recording = record(GREAT.clone(), &steps);
        another_machine_does_the_same(&recording);
        a_restart_changes_nothing(&recording, &cuts);
        for cut in cuts {
            a_snapshot_and_the_rest_are_the_whole(&recording, cut);
        }
    }
}

#[test]
fn an_empty_group_has_a_snapshot_too() {
    let bytes = export(&MemTable::new());
    let table = import(&bytes);
    assert_eq!(export(&table), bytes);
    assert!(table.is_empty());
    assert!(Machine::open(GroupKind::Home, &table).memory_matches(&table));
}

/// A second machine takes the entries from their bytes and writes straight into its table.
fn another_machine_does_the_same(recording: &Recording) {
    let mut table = recording.before.clone();
    let mut machine = Machine::open(GroupKind::Home, &table);
    for (entry, applied) in recording.entries.iter().zip(&recording.applied) {
        let entry = decode_entry(&encode_entry(entry)).expect("what was encoded decodes");
        assert_eq!(machine.apply(&mut table, &entry), *applied);
    }
    assert_eq!(export(&table), recording.after);
}

fn a_restart_changes_nothing(recording: &Recording, cuts: &[usize]) {
    let mut lab = begun(recording.before.clone());
    for (at, (entry, applied)) in recording.entries.iter().zip(&recording.applied).enumerate() {
        if cuts.contains(&at) {
            lab.reopen();
        }
        assert_eq!(lab.apply(entry), *applied);
    }
    assert_eq!(lab.snapshot(), recording.after);
}

fn a_snapshot_and_the_rest_are_the_whole(recording: &Recording, cut: usize) {
    let cut = cut.min(recording.entries.len());
    let mut lab = begun(recording.before.clone());
    for entry in &recording.entries[..cut] {
        lab.apply(entry);
    }
    let mut lab = begun(import(&lab.snapshot()));
    for (entry, applied) in recording.entries.iter().zip(&recording.applied).skip(cut) {
        assert_eq!(lab.apply(entry), *applied);
    }
    assert_eq!(lab.snapshot(), recording.after);
}

fn record(before: MemTable, steps: &[Step]) -> Recording {
    let mut lab = begun(before.clone());
    let mut writer = Writer::default();
    let (mut entries, mut all_applied) = (Vec::new(), Vec::new());
    let mut run = |lab: &mut Lab, writer: &mut Writer, entry: Entry| {
        let applied = lab.apply(&entry);
        writer.observe(&entry, &applied);
        entries.push(entry);
        all_applied.push(applied);
    };
    if before.is_empty() {
        for entry in prelude() {
            run(&mut lab, &mut writer, entry);
        }
    }
    for step in steps {
        let entry = writer.entry(step, &lab.machine);
        run(&mut lab, &mut writer, entry);
    }
    Recording {
        before,
        entries,
        applied: all_applied,
        after: lab.snapshot(),
    }
}

/// A machine over this table. Comparing memory with the table at every entry is the business of other tests.
fn begun(table: MemTable) -> Lab {
    let mut lab = Lab::over(GroupKind::Home, table);
    lab.checks_memory = false;
    lab
}
