//! What the seed decides before a run begins: latencies, crashes, faults of the network.

mod several;

use std::fmt;
use std::time::Duration;

use crate::random::SeededRandom;

/// The workload goes on until then; what happens from outside comes before.
pub(crate) const WORK_UNTIL: Duration = Duration::from_secs(24);
/// Nothing happens from outside before this.
const CALM_UNTIL_MS: u64 = 2_000;
/// And nothing begins after this.
const BEGINS_UNTIL_MS: u64 = 18_000;
/// Crashes of one run.
const CRASHES_MAX: u64 = 3;
/// How long a node is down.
const DOWN_MS: (u64, u64) = (20, 3_000);
/// Faults between the node and one client in one run.
const FAULTS_MAX: u64 = 3;
/// How long a fault lasts.
const FAULT_MS: (u64, u64) = (20, 5_000);
/// The longest that a message may be on its way, at the least and at the most.
const LATENCY_MAX_MS: (u64, u64) = (2, 40);

/// What happens to a run from outside.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The shortest that a message is on its way.
    pub(crate) latency_min: Duration,
    /// The longest.
    pub(crate) latency_max: Duration,
    /// What happens when, in order of time.
    pub(crate) events: Vec<(Duration, Event)>,
}

/// Something that happens from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A node crashes.
    Crash(String, CrashKind),
    /// It is started again after a crash of this kind.
    Restart(String, CrashKind),
    /// The network between these pairs of machines begins to fail.
    Fault(Pairs, FaultKind),
    /// It works again.
    Repair(Pairs, FaultKind),
}

/// What a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashKind {
    /// The process ends; the system writes what it was given.
    Kill,
    /// The machine loses power: any part of what was not synced is gone, and its clock begins anew.
    PowerLoss,
}

/// Pairs of machines. Clients come before nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pairs(pub(crate) Vec<(String, String)>);

/// How the network between two machines fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// What is sent in either direction is lost, and so the connections stand still.
    Cut,
    /// What the first sends to the second is lost.
    CutForth,
    /// What the second sends to the first is lost.
    CutBack,
    /// What is sent arrives, all at once, when the fault is over.
    Hold,
}

impl Plan {
    /// What this seed decides about a cluster of these nodes with these clients.
    pub(crate) fn of(seed: u64, nodes: &[String], clients: &[String]) -> Plan {
        let random = SeededRandom::of(seed, "plan");
        let latency_min = Duration::from_millis(random.between(0, 2));
        let latency_max = Duration::from_millis(random.between(LATENCY_MAX_MS.0, LATENCY_MAX_MS.1));
        let mut events = Vec::new();
        if let [node] = nodes {
            crashes(&random, node, &mut events);
            for client in clients {
                faults(&random, client, node, &mut events);
            }
        } else {
            several::crashes(&random, nodes, &mut events);
            several::faults(&random, nodes, clients, &mut events);
        }
        // A stable sort: events of one time keep the order in which they were thought of.
        events.sort_by_key(|(time, _)| *time);
        Plan {
            latency_min,
            latency_max,
            events,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let crashes = self
            .events
            .iter()
            .filter(|(_, event)| matches!(event, Event::Crash(..)));
        let faults = self
            .events
            .iter()
            .filter(|(_, event)| matches!(event, Event::Fault(..)));
        write!(
            f,
            "messages take from {} to {} ms, {} crashes, {} faults of the network",
            self.latency_min.as_millis(),
            self.latency_max.as_millis(),
            crashes.count(),
            faults.count()
        )
    }
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (one, other)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{one}/{other}")?;
        }
        Ok(())
    }
}

impl FaultKind {
    /// Any of them.
    fn any(random: &SeededRandom) -> FaultKind {
        match random.between(0, 4) {
            0 => FaultKind::Cut,
            1 => FaultKind::CutForth,
            2 => FaultKind::CutBack,
            _ => FaultKind::Hold,
        }
    }
}

impl CrashKind {
    /// Either of them.
    pub(crate) fn any(random: &SeededRandom) -> CrashKind {
        match random.percent(60) {
            true => CrashKind::PowerLoss,
            false => CrashKind::Kill,
        }
    }
}

/// Crashes of the node. Each ends before the next begins, which may be while the node is still starting.
fn crashes(random: &SeededRandom, node: &str, events: &mut Vec<(Duration, Event)>) {
    let mut earliest_ms = CALM_UNTIL_MS;
    for _ in 0..random.between(1, CRASHES_MAX + 1) {
        if earliest_ms >= BEGINS_UNTIL_MS {
            return;
        }
        let at_ms = random.between(earliest_ms, BEGINS_UNTIL_MS);
        let kind = CrashKind::any(random);
        let back_at_ms = at_ms + random.between(DOWN_MS.0, DOWN_MS.1);
        events.push((Duration::from_millis(at_ms), Event::Crash(node.to_owned(), kind)));
        events.push((Duration::from_millis(back_at_ms), Event::Restart(node.to_owned(), kind)));
        earliest_ms = back_at_ms + 1;
    }
}

/// Faults between the node and one client, one after the other.
fn faults(random: &SeededRandom, client: &str, node: &str, events: &mut Vec<(Duration, Event)>) {
    let mut earliest_ms = CALM_UNTIL_MS;
    for _ in 0..random.between(0, FAULTS_MAX + 1) {
        if earliest_ms >= BEGINS_UNTIL_MS {
            return;
        }
        let at_ms = random.between(earliest_ms, BEGINS_UNTIL_MS);
        let kind = FaultKind::any(random);
        let until_ms = at_ms + random.between(FAULT_MS.0, FAULT_MS.1);
        let pairs = Pairs(vec![(client.to_owned(), node.to_owned())]);
        events.push((Duration::from_millis(at_ms), Event::Fault(pairs.clone(), kind)));
        events.push((Duration::from_millis(until_ms), Event::Repair(pairs, kind)));
        earliest_ms = until_ms + 1;
    }
}

#[cfg(test)]
mod tests;
