//! What was measured, as one table for people.

use std::fmt;

use super::Load;
use super::server::System;
use crate::failure::Failure;

/// One line of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) work: String,
    pub(crate) rate: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) errors: u64,
}

impl Measured {
    /// Reads `WORK workers=… connections=…: N ops/s p50=…us p99=…us errors=N`; `None` if it is something else.
    pub(crate) fn read(line: &str) -> Option<Measured> {
        let (head, tail) = line.trim().split_once(": ")?;
        let words: Vec<&str> = tail.split(' ').collect();
        let [rate, "ops/s", p50, p99, errors] = words.as_slice() else {
            return None;
        };
        let micros = |word: &str, name: &str| word.strip_prefix(name)?.strip_suffix("us")?.parse().ok();
        Some(Measured {
            work: head.split(' ').next()?.to_owned(),
            rate: rate.parse().ok()?,
            p50_us: micros(p50, "p50=")?,
            p99_us: micros(p99, "p99=")?,
            errors: errors.strip_prefix("errors=")?.parse().ok()?,
        })
    }
}

/// One work under one load, on both sides.
#[derive(Debug)]
pub(crate) struct Comparison {
    work: String,
    load: Load,
    ours: Measured,
    theirs: Measured,
    errors: u64,
}

impl Comparison {
    /// Takes the round with the middle rate of each side. There is at least one round.
    pub(crate) fn new(work: &str, load: Load, ours: Vec<Measured>, theirs: Vec<Measured>) -> Comparison {
        let errors = ours.iter().chain(&theirs).map(|measured| measured.errors).sum();
        Comparison {
            work: work.to_owned(),
            load,
            ours: middle(ours),
            theirs: middle(theirs),
            errors,
        }
    }
}

pub(super) fn middle(mut rounds: Vec<Measured>) -> Measured {
    rounds.sort_by_key(|measured| measured.rate);
    rounds.swap_remove(rounds.len() / 2)
}

/// A run whose syncs were counted.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) system: System,
    pub(crate) measured: Measured,
    pub(crate) syncs: u64,
}

/// What the machine itself gives.
#[derive(Debug)]
pub(crate) struct Floor {
    pub(crate) sync: Measured,
    pub(crate) echo_ours: Measured,
    pub(crate) echo_theirs: Measured,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) comparisons: Vec<Comparison>,
    pub(crate) counted: Vec<Counted>,
    pub(crate) floor: Option<Floor>,
}

impl Report {
    /// Whether the numbers may be believed.
    ///
    /// # Errors
    /// A side did not sync what it answered, or something failed while it was measured.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        let unsynced = self.counted.iter().find(|counted| counted.syncs == 0);
        if let Some(counted) = unsynced {
            let (system, work) = (counted.system.name(), &counted.measured.work);
            return Err(Failure::Failed(format!(
                "{system} made no syncs under {work}: this compares nothing"
            )));
        }
        let failed = self.comparisons.iter().find(|comparison| comparison.errors > 0);
        match failed {
            Some(Comparison { work, errors, .. }) => Err(Failure::Failed(format!("{errors} errors under {work}"))),
            None => Ok(()),
        }
    }

    /// What one client waits for one commit, in parts of a sync and a round trip.
    fn alone(&self) -> Option<String> {
        let floor = self.floor.as_ref()?;
        let alone = |comparison: &&Comparison| comparison.work == "unique" && comparison.load.workers == 1;
        let unique = self.comparisons.iter().find(alone)?;
        let bare_us = floor.sync.p50_us + floor.echo_ours.p50_us;
        Some(format!(
            "One client, one commit: {} us, {} of one sync and one round trip ({bare_us} us).",
            unique.ours.p50_us,
            ratio(unique.ours.p50_us, bare_us)
        ))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "| work | workers / connections | ours, ops/s | p50 us | p99 us | Redis, ops/s | p50 us | p99 us | ratio |"
        )?;
        writeln!(formatter, "|---|---|---:|---:|---:|---:|---:|---:|---:|")?;
        for Comparison {
            work,
            load,
            ours,
            theirs,
            ..
        } in &self.comparisons
        {
            let Load { workers, connections } = load;
            let (of_ours, of_theirs) = (cells(ours), cells(theirs));
            // Events are waited for, so that their number says nothing.
            let compared = match work.as_str() {
                "watch" | "lateness" => "-".to_owned(),
                _ => ratio(ours.rate, theirs.rate),
            };
            writeln!(
                formatter,
                "| {work} | {workers} / {connections} | {of_ours} | {of_theirs} | {compared} |"
            )?;
        }
        writeln!(
            formatter,
            "\n| syncs counted under | of | operations/s | syncs | operations a sync |"
        )?;
        writeln!(formatter, "|---|---|---:|---:|---:|")?;
        for Counted {
            system,
            measured,
            syncs,
        } in &self.counted
        {
            let operations = measured.rate * super::COUNTED_SECONDS;
            let (work, name) = (&measured.work, system.name());
            let each = ratio(operations, *syncs);
            writeln!(formatter, "| {work} | {name} | {} | {syncs} | {each} |", measured.rate)?;
        }
        if let Some(Floor {
            sync,
            echo_ours,
            echo_theirs,
        }) = &self.floor
        {
            writeln!(formatter, "\n| the machine | p50 us | p99 us |\n|---|---:|---:|")?;
            let rows = [
                ("an append with its sync", sync),
                ("a round trip over our stream", echo_ours),
                ("a round trip to Redis", echo_theirs),
            ];
            for (name, measured) in rows {
                writeln!(formatter, "| {name} | {} | {} |", measured.p50_us, measured.p99_us)?;
            }
        }
        self.alone().map_or(Ok(()), |alone| writeln!(formatter, "\n{alone}"))
    }
}

pub(super) fn cells(measured: &Measured) -> String {
    format!("{} | {} | {}", measured.rate, measured.p50_us, measured.p99_us)
}

/// Two digits behind the point, rounded down.
pub(super) fn ratio(one: u64, other: u64) -> String {
    match (one * 100).checked_div(other) {
        Some(hundredths) => format!("{}.{:02}", hundredths / 100, hundredths % 100),
        None => "-".to_owned(),
    }
}
