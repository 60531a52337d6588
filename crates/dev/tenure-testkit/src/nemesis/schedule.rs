//! What goes wrong, to whom, and for how long: a pure function of a seed.

use std::fmt;
use std::time::Duration;

use crate::mutations::Seeded;

/// How long nothing goes wrong between two faults, in milliseconds: enough for an election on a busy machine.
const CALM_MS: (usize, usize) = (1_200, 2_400);
/// How long a fault lasts: always longer than the longest election, seldom longer than a client's patience.
const LASTS_MS: (usize, usize) = (900, 2_600);
/// How far messages are held back where a node is slow to reach: less and more than an election.
const DELAY_MS: (usize, usize) = (20, 350);

/// One step: a calm, and then a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// How long nothing goes wrong before it.
    pub calm: Duration,
    /// What goes wrong.
    pub fault: Fault,
    /// To whom: fewer than half of the nodes. Of five nodes three vote in a group, and two of those may be struck.
    pub victims: Vec<Victim>,
    /// For how long.
    pub lasts: Duration,
}

/// What goes wrong. Whatever else can be done to a node has its place here and in [`Prey::strike`](super::Prey::strike).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is killed, and started again when the fault is over.
    Kill,
    /// It stands still, and goes on where it was.
    Freeze,
    /// Nothing passes between it and the others.
    CutOff,
    /// What it sends to the others is lost; it hears them.
    Mute,
    /// It hears nothing of the others; they hear it.
    Deafen,
    /// What passes between it and the others is held back for so long.
    Delay(Duration),
    /// A fresh node joins, and when the fault is over this one is removed, while it runs, and its folder thrown away.
    Exchange,
    /// It is killed for good. When the fault is over a fresh node joins, and this one is removed.
    Replace,
    /// The room on its disk runs short, and then out. When the fault is over there is room again.
    Fill,
}

impl Fault {
    /// What it is called, whatever it is about.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Freeze => "freeze",
            Fault::CutOff => "cut off",
            Fault::Mute => "mute",
            Fault::Deafen => "deafen",
            Fault::Delay(_) => "delay",
            Fault::Exchange => "exchange",
            Fault::Replace => "replace",
            Fault::Fill => "fill the disk",
        }
    }

    /// Whether it changes who is there. One node comes and one goes at a time.
    fn changes_members(self) -> bool {
        matches!(self, Fault::Exchange | Fault::Replace)
    }
}

/// To whom it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// Whoever leads the group of the clients then.
    Leader,
    /// The one in this place of those that are there, in the order of their ids, counted from 1.
    Node(u64),
}

/// The steps of a seed, without end.
#[derive(Clone, Debug)]
pub struct Schedule {
    seeded: Seeded,
    nodes: usize,
    /// Whether the nodes have disks that can be filled.
    with_disks: bool,
    /// The faults that are left of this round: in each round every kind comes once.
    round: Vec<Fault>,
}

impl Schedule {
    /// What a seed does to so many nodes.
    pub fn new(seed: u64, nodes: usize, with_disks: bool) -> Schedule {
        Schedule {
            seeded: Seeded::new(seed),
            nodes,
            with_disks,
            round: Vec::new(),
        }
    }

    /// How many faults make a round, in which every kind comes once.
    pub fn round(&self) -> usize {
        8 + usize::from(self.with_disks)
    }

    fn within(&mut self, (from, to): (usize, usize)) -> Duration {
        Duration::from_millis((from + self.seeded.below(to - from + 1)) as u64)
    }

    fn fault(&mut self) -> Fault {
        if self.round.is_empty() {
            let delay = Fault::Delay(self.within(DELAY_MS));
            self.round = vec![
                Fault::Kill,
                Fault::Freeze,
                Fault::CutOff,
                Fault::Mute,
                Fault::Deafen,
                delay,
                Fault::Exchange,
                Fault::Replace,
            ];
            self.round.extend(self.with_disks.then_some(Fault::Fill));
        }
        let place = self.seeded.below(self.round.len());
        self.round.swap_remove(place)
    }

    /// Fewer than half of the nodes, the leader among them more often than not.
    fn victims(&mut self, fault: Fault) -> Vec<Victim> {
        let most = match fault.changes_members() {
            true => 1,
            false => self.nodes.saturating_sub(1) / 2,
        };
        let count = 1 + self.seeded.below(most);
        let mut nodes: Vec<u64> = (1..=self.nodes as u64).collect();
        let mut victims = Vec::new();
        if self.seeded.below(5) < 3 {
            victims.push(Victim::Leader);
        }
        while victims.len() < count {
            let place = self.seeded.below(nodes.len());
            victims.push(Victim::Node(nodes.swap_remove(place)));
        }
        victims
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (calm, fault) = (self.within(CALM_MS), self.fault());
        Some(Step {
            calm,
            fault,
            victims: self.victims(fault),
            lasts: self.within(LASTS_MS),
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?} for {:?}", self.fault, self.victims, self.lasts)
    }
}

#[cfg(test)]
mod tests;
