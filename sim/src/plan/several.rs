//! What happens to several nodes: any of them crashes, all of them lose their power, and the network between any machines
//! fails.

use std::time::Duration;

use super::{BEGINS_UNTIL_MS, CALM_UNTIL_MS, CrashKind, DOWN_MS, Event, FAULT_MS, FaultKind, Pairs};
use crate::random::SeededRandom;

/// Crashes of one node.
const CRASHES_MAX: u64 = 2;
/// In so many of a hundred runs something crashes while the cluster forms.
const EARLY_PERCENT: u64 = 25;
/// From when on it does.
const EARLY_MS: u64 = 100;
/// In so many of a hundred runs all nodes lose their power at one moment.
const BLACKOUT_PERCENT: u64 = 30;
/// Faults of the network, one after the other.
const FAULTS: (u64, u64) = (2, 7);
/// The pause between two of them.
const PAUSE_MS: (u64, u64) = (1, 1_500);

/// Crashes. Those of one node are over before its next begins; those of different nodes overlap as chance has it.
pub(super) fn crashes(random: &SeededRandom, nodes: &[String], events: &mut Vec<(Duration, Event)>) {
    let begin_ms = match random.percent(EARLY_PERCENT) {
        true => EARLY_MS,
        false => CALM_UNTIL_MS,
    };
    let blackout_ms = random
        .percent(BLACKOUT_PERCENT)
        .then(|| random.between(CALM_UNTIL_MS, BEGINS_UNTIL_MS));
    for node in nodes {
        let mut crash = |at_ms, back_at_ms, kind| {
            events.push((Duration::from_millis(at_ms), Event::Crash(node.clone(), kind)));
            events.push((Duration::from_millis(back_at_ms), Event::Restart(node.clone(), kind)));
        };
        let dark = blackout_ms.map(|at_ms| (at_ms, at_ms + random.between(DOWN_MS.0, DOWN_MS.1)));
        if let Some((at_ms, back_at_ms)) = dark {
            crash(at_ms, back_at_ms, CrashKind::PowerLoss);
        }
        let mut earliest_ms = begin_ms;
        for _ in 0..random.between(0, CRASHES_MAX + 1) {
            let at_ms = random.between(earliest_ms, BEGINS_UNTIL_MS);
            let back_at_ms = at_ms + random.between(DOWN_MS.0, DOWN_MS.1);
            if dark.is_some_and(|(from_ms, until_ms)| at_ms <= until_ms && back_at_ms >= from_ms) {
                continue;
            }
            crash(at_ms, back_at_ms, CrashKind::any(random));
            earliest_ms = back_at_ms + 1;
        }
    }
}

/// Faults of the network, one after the other.
pub(super) fn faults(random: &SeededRandom, nodes: &[String], clients: &[String], events: &mut Vec<(Duration, Event)>) {
    let mut at_ms = CALM_UNTIL_MS;
    for _ in 0..random.between(FAULTS.0, FAULTS.1) {
        at_ms += random.between(PAUSE_MS.0, PAUSE_MS.1);
        if at_ms >= BEGINS_UNTIL_MS {
            return;
        }
        let pairs = Pairs(pairs(random, nodes, clients));
        let kind = FaultKind::any(random);
        let until_ms = at_ms + random.between(FAULT_MS.0, FAULT_MS.1);
        events.push((Duration::from_millis(at_ms), Event::Fault(pairs.clone(), kind)));
        events.push((Duration::from_millis(until_ms), Event::Repair(pairs, kind)));
        at_ms = until_ms + 1;
    }
}

/// What a fault is between.
fn pairs(random: &SeededRandom, nodes: &[String], clients: &[String]) -> Vec<(String, String)> {
    let node = pick(random, nodes);
    let client = pick(random, clients);
    let between = |ones: &[String], others: &[String]| -> Vec<(String, String)> {
        let pair = |one: &String| {
            others
                .iter()
                .map(|other| (one.clone(), other.clone()))
                .collect::<Vec<_>>()
        };
        ones.iter().flat_map(pair).collect()
    };
    let others: Vec<String> = nodes.iter().filter(|other| *other != node).cloned().collect();
    let node = std::slice::from_ref(node);
    let client = std::slice::from_ref(client);
    match random.between(0, 6) {
        // One node and one other: each of them still has the rest.
        0 => between(node, std::slice::from_ref(pick(random, &others))),
        // One node and all others: its clients still reach it.
        1 | 2 => between(node, &others),
        // One node and everybody.
        3 => [between(clients, node), between(node, &others)].concat(),
        // The smaller part and the larger.
        4 => {
            let (few, many) = nodes.split_at(nodes.len() / 2);
            between(few, many)
        }
        _ => between(client, nodes),
    }
}

fn pick<'a>(random: &SeededRandom, from: &'a [String]) -> &'a String {
    let number = usize::try_from(random.between(0, from.len() as u64)).unwrap_or(0);
    &from[number]
}
