//! The ranges of acknowledged numbers against a plain set of numbers.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ids::{Namespace, Nonce, Secret};
use crate::machine::Memory;
use crate::session::rows::SessionRows;
use crate::table::MemTable;

fn row() -> SessionRow {
    SessionRow {
        nonce: Nonce(0),
        secret: Secret(0),
        ttl: None,
        deadline: Timestamp(0),
        label: String::new(),
        namespace: Namespace {
            tenant: String::new(),
            name: String::new(),
        },
        owned: 0,
        acknowledged_below: 1,
        acknowledged: Vec::new(),
        kept: 0,
        kept_bytes: 0,
        ended: None,
    }
}

/// What must hold of every row: ascending, apart from each other and from the low mark, and bounded.
fn assert_well_formed(row: &SessionRow) {
    assert!(row.acknowledged.len() <= SESSION_ACKNOWLEDGED_RANGES_MAX);
    let mut below = row.acknowledged_below;
    for (first, last) in &row.acknowledged {
        assert!(*first > below, "{row:?}: ranges do not touch");
        assert!(first <= last, "{row:?}: a range is not empty");
        below = last.saturating_add(1);
    }
}

fn numbers(ranges: &[(u64, u64)]) -> Vec<u64> {
    ranges.iter().flat_map(|(first, last)| *first..=*last).collect()
}

proptest! {
    #[test]
    fn acknowledged_numbers_are_those_of_a_plain_set(
        said in vec((prop_oneof![3 => Just(0u64), 1 => 0u64..300], vec(0u64..300, 0..20)), 0..40),
    ) {
        let mut row = row();
        let mut set: BTreeSet<u64> = [0].into();
        for (below, also) in said {
            let before = set.clone();
            let fresh = add_acknowledged(&mut row, &Acknowledged { below, also: also.clone() });
            set.extend(0..below);
            for seq in also {
                if is_acknowledged(&row, seq) {
                    set.insert(seq);
                } else {
                    // Only for want of room: later ones of this call may have made some.
                    prop_assert!(!before.contains(&seq), "{} was acknowledged before", seq);
                }
            }
            assert_well_formed(&row);
            let told: BTreeSet<u64> = numbers(&fresh).into_iter().collect();
            prop_assert!(told.is_subset(&set), "only what is acknowledged is dropped");
            prop_assert!(told.is_superset(&(&set - &before)), "what is acknowledged now is dropped");
            for seq in 0..310 {
                prop_assert_eq!(is_acknowledged(&row, seq), set.contains(&seq), "{}", seq);
            }
        }
    }

    #[test]
    fn up_to_64_ranges_nothing_is_ignored(order in Just((1u64..=64).collect::<Vec<_>>()).prop_shuffle()) {
        let mut row = row();
        let also: Vec<u64> = order.iter().map(|number| number * 2 + 1).collect();
        let fresh = add_acknowledged(&mut row, &Acknowledged { below: 0, also: also.clone() });
        prop_assert_eq!(numbers(&fresh), also);
        prop_assert_eq!(row.acknowledged.len(), 64);
        // One more is ignored, wherever it lies; the next number is not, since the low mark takes it.
        for seq in [400, 131] {
            let ignored = Acknowledged { below: 0, also: vec![seq] };
            prop_assert_eq!(add_acknowledged(&mut row, &ignored), []);
            prop_assert!(!is_acknowledged(&row, seq));
        }
        prop_assert_eq!(add_acknowledged(&mut row, &Acknowledged { below: 0, also: vec![1] }), [(1, 1)]);
        prop_assert_eq!((row.acknowledged_below, row.acknowledged.len()), (2, 64));
        // And what closes the gap to the first range makes room.
        prop_assert_eq!(add_acknowledged(&mut row, &Acknowledged { below: 0, also: vec![2, 400] }), [(2, 2), (400, 400)]);
        prop_assert_eq!((row.acknowledged_below, row.acknowledged.len()), (4, 64));
    }
}

#[test]
fn the_highest_number_can_be_acknowledged() {
    let mut row = row();
    let last = Acknowledged {
        below: 0,
        also: vec![u64::MAX],
    };
    assert_eq!(add_acknowledged(&mut row, &last), [(u64::MAX, u64::MAX)]);
    assert!(is_acknowledged(&row, u64::MAX));
    let all = Acknowledged {
        below: u64::MAX,
        also: vec![u64::MAX, u64::MAX - 1],
    };
    assert_eq!(add_acknowledged(&mut row, &all), [(1, u64::MAX - 1)]);
    assert!(is_acknowledged(&row, u64::MAX) && is_acknowledged(&row, 1));
}

#[test]
fn a_group_that_remembers_as_many_results_as_it_may_runs_nothing_that_is_to_be_remembered() {
    let of_others = (0..RESULTS_MAX as u64).map(|seq| ((SessionId(1), seq), 1));
    let mut memory = Memory {
        kept: of_others.collect(),
        ..Memory::default()
    };
    let mut table = MemTable::new();
    let session = SessionRef {
        id: SessionId(2),
        secret: Secret(7),
    };
    let row = SessionRow {
        secret: session.secret,
        ttl: Some(Span::from_secs(60)),
        deadline: Timestamp(60_000_000),
        ..row()
    };
    keyspace::write(&mut table, keyspace::session(session.id), &row);
    let mut ask = |seq, forgotten: u64| {
        for seq in 0..forgotten {
            memory.kept.remove(&(SessionId(1), seq));
        }
        let mut run = Run {
            table: &mut table,
            memory: &mut memory,
            sessions: SessionRows::default(),
            effects: Vec::new(),
            now: Timestamp(0),
            read_bytes: 0,
            prefix_deleted: 0,
        };
        let request = Numbered {
            session,
            seq,
            acknowledged: &Acknowledged::default(),
            fingerprint: Fingerprint(3),
        };
        let mut runs = 0;
        let (response, repeated) = of_session(&mut run, &request, true, &mut |_| {
            runs += 1;
            Response::Done(Done::Acknowledged)
        });
        let sessions = run.sessions;
        sessions.write(&mut table);
        (response, repeated, runs)
    };
    let full = Response::Failed(Failure::Overloaded {
        what: "remembered requests of the group".to_owned(),
        retry_after: Span::from_secs(1),
    });
    let done = Response::Done(Done::Acknowledged);
    assert_eq!(ask(1, 0), (full.clone(), false, 0));
    assert_eq!(ask(1, 1), (done.clone(), false, 1), "there is room for one");
    assert_eq!(ask(2, 0), (full, false, 0));
    assert_eq!(ask(1, 0), (done, true, 0), "a repeat needs none");
}
