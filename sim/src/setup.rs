//! What determines a run: its seed, how many nodes there are, and what is wrong with them on purpose.

use std::fmt;
use std::time::Duration;

/// How clocks go that go wrong: so many units in so many of time.
const FAST: (u32, u32) = (6, 5);
const SLOW: (u32, u32) = (4, 5);

/// What determines a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Chance.
    pub seed: u64,
    /// How many nodes the cluster has.
    pub nodes: usize,
    /// A node whose clock goes at another speed than time, within what is promised.
    pub skew: Option<Skew>,
    /// A defect that was put in on purpose.
    pub planted: Option<Planted>,
}

/// A boot-time clock that does not go as time does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Whose: nodes are counted from 1.
    pub node: usize,
    /// How it goes.
    pub speed: Speed,
}

/// How a skewed clock goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// By a fifth too fast.
    Fast,
    /// By a fifth too slow.
    Slow,
}

/// A defect that is put in on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The clients' clocks go at half the speed, so they believe in their sessions for too long.
    SlowClocks,
    /// When the power is lost, the disk forgets the last writes, even those that it said were synced.
    LyingDisk,
    /// The publisher's client gives up early and sends what is unknown once more, as if it were new.
    RepeatsAsNew,
    /// The clock of the node, or of the first of several, goes three times as fast as time does, so windows and leases end
    /// too early.
    FastNode,
    /// Who leads, or believes to, reads without asking a majority whether it still does.
    NoReadIndex,
    /// Who follows does not take the leader's time over: it goes on by its own clock from the first stamp that it saw.
    LostTime,
}

impl fmt::Display for Setup {
    /// The arguments of the program that repeat the run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {}", self.seed)?;
        if self.nodes != 1 {
            write!(f, " --nodes {}", self.nodes)?;
        }
        if let Some(Skew { node, speed }) = self.skew {
            let speed = match speed {
                Speed::Fast => "fast",
                Speed::Slow => "slow",
            };
            write!(f, " --skew {node}:{speed}")?;
        }
        match self.planted {
            None => Ok(()),
            Some(planted) => write!(f, " --plant {}", planted.name()),
        }
    }
}

impl Planted {
    /// Every defect that there is.
    pub const ALL: [Planted; 6] = [
        Planted::SlowClocks,
        Planted::LyingDisk,
        Planted::RepeatsAsNew,
        Planted::FastNode,
        Planted::NoReadIndex,
        Planted::LostTime,
    ];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Planted::SlowClocks => "slow-clocks",
            Planted::LyingDisk => "lying-disk",
            Planted::RepeatsAsNew => "repeats-as-new",
            Planted::FastNode => "fast-node",
            Planted::NoReadIndex => "no-read-index",
            Planted::LostTime => "lost-time",
        }
    }
}

impl Setup {
    /// One node and nothing wrong.
    pub fn of(seed: u64) -> Setup {
        Setup {
            seed,
            nodes: 1,
            skew: None,
            planted: None,
        }
    }

    /// The same with so many nodes.
    pub fn nodes(self, nodes: usize) -> Setup {
        Setup { nodes, ..self }
    }

    /// The same with a clock that goes wrong.
    pub fn skewed(self, node: usize, speed: Speed) -> Setup {
        let skew = Some(Skew { node, speed });
        Setup { skew, ..self }
    }

    /// The same with a defect, which is to be found.
    pub fn with(self, planted: Planted) -> Setup {
        let planted = Some(planted);
        Setup { planted, ..self }
    }

    /// The names of the nodes' machines.
    pub(crate) fn node_names(&self) -> Vec<String> {
        match self.nodes {
            1 => vec!["node".to_owned()],
            nodes => (1..=nodes).map(|number| format!("node-{number}")).collect(),
        }
    }

    /// The shortest time in which so much passes on the clock of a node, as far as its clock goes wrong within what is
    /// promised.
    pub(crate) fn shortest(&self, span: Duration) -> Duration {
        match self.skew {
            Some(Skew { speed: Speed::Fast, .. }) => span * FAST.1 / FAST.0,
            _ => span,
        }
    }

    /// How the clock of a node goes: so many units in so many of time.
    pub(crate) fn speed(&self, node: usize) -> (u32, u32) {
        if self.planted == Some(Planted::FastNode) && node == 1 {
            return (3, 1);
        }
        match self.skew {
            Some(skew) if skew.node == node => match skew.speed {
                Speed::Fast => FAST,
                Speed::Slow => SLOW,
            },
            _ => (1, 1),
        }
    }
}
