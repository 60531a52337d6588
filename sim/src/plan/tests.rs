//! Tests of the plan: what it contains makes sense.

use std::collections::BTreeSet;

use super::{Event, Plan, WORK_UNTIL};

fn check(seed: u64, nodes: &[String], clients: &[String]) -> Plan {
    let plan = Plan::of(seed, nodes, clients);
    assert!(plan.latency_min < plan.latency_max);
    assert!(plan.events.is_sorted_by_key(|(time, _)| *time));
    assert!(plan.events.iter().all(|(time, _)| *time < WORK_UNTIL));
    let (mut down, mut faulty) = (BTreeSet::new(), BTreeSet::new());
    for (_, event) in &plan.events {
        match event {
            Event::Crash(node, _) => assert!(down.insert(node), "seed {seed}: {node} is down already"),
            Event::Restart(node, _) => assert!(down.remove(node), "seed {seed}: {node} is up"),
            Event::Fault(pairs, _) => {
                for pair in &pairs.0 {
                    assert!(faulty.insert(pair), "seed {seed}: two faults at once of {pair:?}");
                }
            }
            Event::Repair(pairs, _) => {
                for pair in &pairs.0 {
                    assert!(faulty.remove(pair), "seed {seed}: nothing to repair at {pair:?}");
                }
            }
        }
    }
    assert!(
        down.is_empty() && faulty.is_empty(),
        "seed {seed}: something is left broken"
    );
    plan
}

fn names(kind: &str, count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("{kind}-{number}")).collect()
}

#[test]
fn events_are_in_order_and_over_before_the_work_is() {
    for seed in 0..200 {
        for nodes in [1, 3, 5] {
            check(seed, &names("node", nodes), &names("client", 2));
        }
    }
}

#[test]
fn seeds_bring_a_loss_of_all_power_a_loss_of_the_majority_and_a_cut_off_node() {
    let (mut dark, mut minority, mut cut_off) = (0, 0, 0);
    for seed in 0..200 {
        let plan = check(seed, &names("node", 3), &names("client", 2));
        let mut down = BTreeSet::new();
        let mut most = 0;
        for (_, event) in &plan.events {
            match event {
                Event::Crash(node, _) => {
                    down.insert(node.clone());
                }
                Event::Restart(node, _) => {
                    down.remove(node);
                }
                Event::Fault(pairs, _) => cut_off += usize::from(pairs.0.len() == 2),
                Event::Repair(..) => {}
            }
            most = most.max(down.len());
        }
        dark += usize::from(most == 3);
        minority += usize::from(most == 2);
    }
    assert!(
        dark > 20 && minority > 20 && cut_off > 100,
        "{dark}, {minority}, {cut_off}"
    );
}
