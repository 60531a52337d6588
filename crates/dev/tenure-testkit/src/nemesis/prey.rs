//! The cluster to which a schedule is done.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::schedule::{Fault, Step, Victim};
use super::wires::{Wires, Wiring};
use crate::process::NodeProcess;

/// A cluster of nodes with the ids 1, 2, 3 and so on, each a process of the real binary, which reach each other through
/// gates. All are killed when this is dropped.
#[derive(Debug)]
pub struct Prey {
    nodes: Vec<NodeProcess>,
    wires: Wires,
    /// To whom something is done now, and what.
    struck: Option<(Fault, Vec<u64>)>,
}

impl Prey {
    /// Starts so many nodes, one after another, in folders under this one, and returns when each has been ready.
    ///
    /// # Panics
    /// If one does not become ready, or it is called outside a runtime of several threads.
    pub async fn start(folder: &Path, nodes: usize, home_groups: u32) -> Prey {
        let folders: Vec<PathBuf> = (1..=nodes).map(|node| folder.join(format!("node-{node}"))).collect();
        let mut prey = Prey {
            nodes: Vec::new(),
            wires: Wires::start(&folders).await,
            struck: None,
        };
        for (folder, id) in folders.iter().zip(1..) {
            let join = prey.endpoints();
            let gate = |address| Some(prey.wires.in_front_of(id, address));
            let node = tokio::task::block_in_place(|| NodeProcess::start_behind(folder, home_groups, &join, gate));
            prey.nodes.push(node);
        }
        prey
    }

    /// Where clients reach the nodes: past the gates.
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(NodeProcess::endpoint).collect()
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The node of this id.
    ///
    /// # Panics
    /// If there is none.
    pub fn node(&mut self, id: u64) -> &mut NodeProcess {
        let index = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        let node = index.and_then(|index| self.nodes.get_mut(index));
        node.unwrap_or_else(|| panic!("there is no node {id}"))
    }

    /// From now on the nodes reach each other like this, until something else is done.
    pub fn rewire(&self, wiring: Wiring) {
        self.wires.set(wiring);
    }

    /// What separates these nodes from all others, both ways.
    pub fn between(&self, victims: &[u64]) -> Wiring {
        let mut wiring = self.from(victims);
        wiring.lost.extend(self.to(victims).lost);
        wiring
    }

    /// What loses everything that these nodes send to all others.
    pub fn from(&self, victims: &[u64]) -> Wiring {
        let pairs = self.others(victims);
        Wiring {
            lost: pairs.into_iter().collect(),
            ..Wiring::default()
        }
    }

    /// What loses everything that all others send to these nodes.
    pub fn to(&self, victims: &[u64]) -> Wiring {
        let pairs = self.others(victims).into_iter();
        Wiring {
            lost: pairs.map(|(victim, other)| (other, victim)).collect(),
            ..Wiring::default()
        }
    }

    fn others(&self, victims: &[u64]) -> Vec<(u64, u64)> {
        let all = 1..=self.nodes.len() as u64;
        let others: Vec<u64> = all.filter(|node| !victims.contains(node)).collect();
        let pairs = victims
            .iter()
            .flat_map(|victim| others.iter().map(|other| (*victim, *other)));
        pairs.collect()
    }

    /// Does what a step says, where `leader` leads. Returns to whom it was done.
    ///
    /// # Panics
    /// If something is being done already.
    pub fn strike(&mut self, step: &Step, leader: u64) -> Vec<u64> {
        assert!(self.struck.is_none(), "one fault after another");
        let victims: BTreeSet<u64> = step
            .victims
            .iter()
            .map(|victim| match victim {
                Victim::Leader => leader,
                Victim::Node(node) => *node,
            })
            .collect();
        let victims: Vec<u64> = victims.into_iter().collect();
        match step.fault {
            Fault::Kill => victims.iter().for_each(|victim| self.node(*victim).kill()),
            Fault::Freeze => victims.iter().for_each(|victim| self.node(*victim).pause()),
            Fault::CutOff => self.rewire(self.between(&victims)),
            Fault::Mute => self.rewire(self.from(&victims)),
            Fault::Deafen => self.rewire(self.to(&victims)),
            Fault::Delay(delay) => self.rewire(Wiring {
                late: victims.iter().copied().collect(),
                delay,
                ..Wiring::default()
            }),
        }
        self.struck = Some((step.fault, victims.clone()));
        victims
    }

    /// Ends what was done last.
    ///
    /// # Panics
    /// If a node does not become ready again, or it is called outside a runtime of several threads.
    pub fn heal(&mut self) {
        let Some((fault, victims)) = self.struck.take() else {
            return;
        };
        match fault {
            Fault::Kill => tokio::task::block_in_place(|| {
                victims.iter().for_each(|victim| self.node(*victim).restart());
            }),
            Fault::Freeze => victims.iter().for_each(|victim| self.node(*victim).resume()),
            Fault::CutOff | Fault::Mute | Fault::Deafen | Fault::Delay(_) => self.rewire(Wiring::default()),
        }
    }

    /// Whether every node runs.
    pub fn all_run(&mut self) -> bool {
        self.nodes.iter_mut().all(NodeProcess::runs)
    }
}

/// Waits so long. A fault lasts for a time, and there is nothing else to wait for.
pub async fn wait_for(time: Duration) {
    tokio::time::sleep(time).await;
}
