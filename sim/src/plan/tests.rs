//! Tests of the plan: what it contains makes sense.

use std::collections::BTreeSet;

use super::{Event, Plan, WORK_UNTIL};

#[test]
fn events_are_in_order_and_over_before_the_work_is() {
    let clients = ["one".to_owned(), "other".to_owned()];
    for seed in 0..200 {
        let plan = Plan::of(seed, &clients);
        assert!(plan.latency_min < plan.latency_max);
        assert!(plan.events.is_sorted_by_key(|(time, _)| *time));
        assert!(plan.events.iter().all(|(time, _)| *time < WORK_UNTIL));
        let (mut up, mut faulty) = (true, BTreeSet::new());
        for (_, event) in plan.events {
            match event {
                Event::Crash(_) => assert!(std::mem::replace(&mut up, false), "seed {seed}: it is down already"),
                Event::Restart(_) => assert!(!std::mem::replace(&mut up, true), "seed {seed}: it is up"),
                Event::Fault(client, _) => assert!(faulty.insert(client), "seed {seed}: two faults at once"),
                Event::Repair(client, _) => assert!(faulty.remove(&client), "seed {seed}: nothing to repair"),
            }
        }
        assert!(up && faulty.is_empty(), "seed {seed}: something is left broken");
    }
}
