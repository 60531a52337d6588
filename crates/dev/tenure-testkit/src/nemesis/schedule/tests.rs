//! The schedule is drawn from the seed alone.

use std::collections::BTreeSet;

use super::{Fault, Schedule, Step, Victim};

fn steps(seed: u64, nodes: usize) -> Vec<Step> {
    Schedule::new(seed, nodes, true).take(63).collect()
}

#[test]
fn a_seed_says_the_same_again_and_another_seed_something_else() {
    assert_eq!(steps(7, 3), steps(7, 3));
    assert_ne!(steps(7, 3), steps(8, 3));
}

#[test]
fn without_disks_nothing_fills_them() {
    let mut steps = Schedule::new(7, 3, false).take(64);
    assert!(steps.all(|step| step.fault != Fault::Fill));
}

#[test]
fn every_kind_of_fault_comes_once_in_each_round_and_never_strikes_a_majority() {
    for nodes in [3, 5, 7] {
        let a_round = Schedule::new(3, nodes, true).round();
        for round in steps(3, nodes).chunks(a_round) {
            let kinds: BTreeSet<_> = round.iter().map(|step| step.fault.name()).collect();
            assert_eq!(kinds.len(), a_round, "{round:?}");
        }
        for step in steps(3, nodes) {
            assert!(!step.victims.is_empty() && step.victims.len() * 2 < nodes, "{step}");
            let named = step.victims.iter().filter_map(|victim| match victim {
                Victim::Node(node) => Some(*node),
                Victim::Leader => None,
            });
            let different: BTreeSet<u64> = named.clone().collect();
            assert_eq!(different.len(), named.count(), "{step}");
        }
    }
}
