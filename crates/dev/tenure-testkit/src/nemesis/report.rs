//! What a run reports of its faults: requests under way when each struck, and how they ended.

use std::collections::BTreeMap;
use std::fmt;

use super::schedule::Fault;
use super::tally::Tally;

/// The faults of a run by kind.
#[derive(Debug, Default)]
pub struct Report {
    kinds: BTreeMap<&'static str, Counts>,
    /// The fault whose requests are still counted, and how many had ended before it.
    last: Option<(&'static str, Counts)>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    strikes: usize,
    under_way: usize,
    done: usize,
    no_room: usize,
    not_applied: usize,
    unknown: usize,
}

impl Counts {
    fn ended(tally: &Tally) -> Counts {
        Counts {
            strikes: 0,
            under_way: 0,
            done: tally.done(),
            no_room: tally.no_room(),
            not_applied: tally.not_applied(),
            unknown: tally.unknown(),
        }
    }

    fn add(&mut self, from: &Counts, to: &Counts) {
        self.strikes += to.strikes;
        self.under_way += to.under_way;
        self.done += to.done - from.done;
        self.no_room += to.no_room - from.no_room;
        self.not_applied += to.not_applied - from.not_applied;
        self.unknown += to.unknown - from.unknown;
    }
}

impl Report {
    /// A fault strikes. What ends from now on is counted to it, until the next one strikes: a request that was under way
    /// may end after the fault.
    pub fn strike(&mut self, fault: Fault, tally: &Tally) {
        self.settle(tally);
        let now = Counts {
            strikes: 1,
            under_way: tally.under_way(),
            ..Counts::ended(tally)
        };
        self.last = Some((fault.name(), now));
    }

    /// Every request has ended.
    pub fn settle(&mut self, tally: &Tally) {
        let Some((name, from)) = self.last.take() else {
            return;
        };
        let to = Counts {
            strikes: from.strikes,
            under_way: from.under_way,
            ..Counts::ended(tally)
        };
        self.kinds.entry(name).or_default().add(&from, &to);
    }

    /// How many faults have struck so far.
    pub fn strikes(&self) -> usize {
        self.kinds.values().map(|counts| counts.strikes).sum::<usize>() + usize::from(self.last.is_some())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<14} {:>7} {:>9} {:>8} {:>8} {:>11} {:>8}",
            "fault", "strikes", "under way", "verdicts", "no room", "not applied", "unknown"
        )?;
        for (name, counts) in &self.kinds {
            write!(
                f,
                "\n{name:<14} {:>7} {:>9} {:>8} {:>8} {:>11} {:>8}",
                counts.strikes, counts.under_way, counts.done, counts.no_room, counts.not_applied, counts.unknown
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
