//! What was measured of clusters, for people.

use std::fmt;

use crate::bench::server::System;
use crate::bench::table::{self, Measured};
use crate::bench::{COUNTED_SECONDS, Load};
use crate::failure::Failure;

/// One system under one load.
#[derive(Debug)]
pub(super) struct Compared {
    system: System,
    load: Load,
    middle: Measured,
    errors: u64,
}

impl Compared {
    /// Takes the round with the middle rate. There is at least one.
    pub(super) fn new(system: System, load: Load, rounds: Vec<Measured>) -> Compared {
        Compared {
            system,
            load,
            errors: rounds.iter().map(|measured| measured.errors).sum(),
            middle: table::middle(rounds),
        }
    }
}

/// A run whose syncs were counted, of each node.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) system: System,
    pub(super) measured: Measured,
    pub(super) syncs: Vec<u64>,
}

impl Counted {
    /// Whether more than half of the nodes have synced anything: an answer that rests on fewer is not durable.
    fn is_durable(&self) -> bool {
        let synced = self.syncs.iter().filter(|syncs| **syncs > 0).count();
        synced > self.syncs.len() / 2
    }
}

/// What a holder saw when the leader was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failover {
    pub(super) system: System,
    pub(super) millis: u64,
    pub(super) attempts: u64,
    pub(super) kept: bool,
}

impl Failover {
    /// Reads `failover: N ms attempts=N kept=BOOL`; `None` if it is something else.
    pub(super) fn read(system: System, line: &str) -> Option<Failover> {
        let words: Vec<&str> = line.trim().split(' ').collect();
        let ["failover:", millis, "ms", attempts, kept] = words.as_slice() else {
            return None;
        };
        Some(Failover {
            system,
            millis: millis.parse().ok()?,
            attempts: attempts.strip_prefix("attempts=")?.parse().ok()?,
            kept: kept.strip_prefix("kept=")?.parse().ok()?,
        })
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Report {
    nodes: usize,
    pub(super) compared: Vec<Compared>,
    pub(super) counted: Vec<Counted>,
    pub(super) failovers: Vec<Failover>,
    pub(super) sync: Option<Measured>,
}

impl Report {
    /// One that has nothing yet.
    pub(super) fn new(nodes: usize) -> Report {
        Report {
            nodes,
            compared: Vec::new(),
            counted: Vec::new(),
            failovers: Vec::new(),
            sync: None,
        }
    }

    /// Whether the numbers may be believed.
    ///
    /// # Errors
    /// A side did not sync what it answered on more than half of its nodes, something failed while it was measured, or
    /// what was held was lost with the leader.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        if let Some(Counted { system, syncs, .. }) = self.counted.iter().find(|counted| !counted.is_durable()) {
            return Err(Failure::Failed(format!(
                "{} made no syncs on half of its nodes ({syncs:?}): this compares nothing",
                system.name()
            )));
        }
        if let Some(failed) = self.compared.iter().find(|compared| compared.errors > 0) {
            let (errors, system) = (failed.errors, failed.system.name());
            return Err(Failure::Failed(format!("{errors} errors of {system}")));
        }
        if let Some(lost) = self.failovers.iter().find(|seen| !seen.kept) {
            let system = lost.system.name();
            return Err(Failure::Failed(format!("{system} lost what was held with its leader")));
        }
        Ok(())
    }

    fn ours(&self, load: Load) -> Option<&Measured> {
        let is_ours = |compared: &&Compared| compared.system == System::Tenure && compared.load == load;
        self.compared.iter().find(is_ours).map(|compared| &compared.middle)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "Claims with their releases, {} of each system.\n",
            if self.nodes == 1 {
                "one node".to_owned()
            } else {
                format!("{} nodes", self.nodes)
            }
        )?;
        writeln!(
            formatter,
            "| workers / connections | system | claims/s | p50 us | p99 us | ours to it |"
        )?;
        writeln!(formatter, "|---|---|---:|---:|---:|---:|")?;
        for Compared {
            system, load, middle, ..
        } in &self.compared
        {
            let Load { workers, connections } = load;
            let to_it = match self.ours(*load) {
                Some(ours) if *system != System::Tenure => table::ratio(ours.rate, middle.rate),
                _ => "-".to_owned(),
            };
            let (name, cells) = (system.name(), table::cells(middle));
            writeln!(formatter, "| {workers} / {connections} | {name} | {cells} | {to_it} |")?;
        }
        writeln!(
            formatter,
            "\n| syncs of | claims/s | syncs of each node | claims a sync |"
        )?;
        writeln!(formatter, "|---|---:|---|---:|")?;
        for Counted {
            system,
            measured,
            syncs,
        } in &self.counted
        {
            let each: Vec<String> = syncs.iter().map(u64::to_string).collect();
            let claims = measured.rate * COUNTED_SECONDS;
            let a_sync = table::ratio(claims, syncs.iter().copied().max().unwrap_or(0));
            let (name, rate) = (system.name(), measured.rate);
            writeln!(formatter, "| {name} | {rate} | {} | {a_sync} |", each.join(", "))?;
        }
        self.failovers(formatter)?;
        match &self.sync {
            Some(sync) => writeln!(
                formatter,
                "\nAn append with its sync: p50 {} us, p99 {} us.",
                sync.p50_us, sync.p99_us
            ),
            None => Ok(()),
        }
    }
}

impl Report {
    fn failovers(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut systems: Vec<System> = Vec::new();
        for seen in &self.failovers {
            if !systems.contains(&seen.system) {
                systems.push(seen.system);
            }
        }
        if systems.is_empty() {
            return Ok(());
        }
        writeln!(
            formatter,
            "\n| leader killed | next claim after, ms: middle | all | what was held is kept |"
        )?;
        writeln!(formatter, "|---|---:|---|---|")?;
        for system in systems {
            let seen = || self.failovers.iter().filter(|seen| seen.system == system);
            let mut millis: Vec<u64> = seen().map(|seen| seen.millis).collect();
            millis.sort_unstable();
            let all: Vec<String> = millis.iter().map(u64::to_string).collect();
            let kept = if seen().all(|seen| seen.kept) { "yes" } else { "no" };
            let (name, middle, all) = (system.name(), millis[millis.len() / 2], all.join(", "));
            writeln!(formatter, "| {name} | {middle} | {all} | {kept} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
