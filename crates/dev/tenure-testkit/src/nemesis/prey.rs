//! The cluster to which a schedule is done.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::schedule::{Fault, Step, Victim};
use super::wires::{Wires, Wiring};
use crate::child::{ChildProcess, binary};
use crate::disks::Disks;
use crate::observe::{metric, metrics};
use crate::ports::free_address;
use crate::process::NodeProcess;
use crate::wait::eventually;

/// Size of a node's disk, where it has one of its own; a quarter of it is kept in reserve.
const DISK_BYTES: u64 = 512 << 20;
const RESERVE_BYTES: u64 = DISK_BYTES / 4;
/// What is left on a disk that is to run full: the node writes it in moments.
const LAST_BYTES: u64 = 128 << 10;
/// How often a disk is made smaller while its node writes.
const RESIZES_MAX: usize = 200;
/// How much longer than the fault a node is waited for that has nothing to write on its full disk.
const FULL_FOR: Duration = Duration::from_secs(3);
/// How long it may take to remove a node, and such a node to end.
const LIMIT: Duration = Duration::from_secs(30);
/// A log has grown to so many times what is kept of it when it is cut.
const KEPT_AT_MOST: u64 = 5;
/// How far a node is in the log of the first home group.
const APPLIED: &str = "tenure_group_applied_index{group=\"1\"}";
/// What counts the snapshots of a group that a node installed.
const INSTALLED: &str = "tenure_group_snapshots_installed_total";

/// What the nodes are given.
#[derive(Clone, Debug)]
pub struct Means {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many home groups.
    pub home_groups: u32,
    /// How many entries of a log are kept; `None`: as by default.
    pub entries_kept: Option<u64>,
    /// Whether each node has a disk of its own, in memory, which can be filled.
    pub with_disks: bool,
}

impl Means {
    /// So many nodes with two home groups, and everything else as by default.
    pub fn of(nodes: usize) -> Means {
        Means {
            nodes,
            home_groups: 2,
            entries_kept: None,
            with_disks: false,
        }
    }
}

/// A cluster of nodes with the ids 1, 2, 3 and so on, each a process of the real binary, which reach each other through
/// gates. Nodes come and go; no id and no folder is used again. All are killed when this is dropped.
#[derive(Debug)]
pub struct Prey {
    means: Means,
    folder: PathBuf,
    nodes: BTreeMap<u64, NodeProcess>,
    /// How many there were ever.
    nodes_ever: u64,
    /// Where nodes listen: at one place more than there are nodes, for the one that comes before another goes.
    places: Vec<SocketAddr>,
    wires: Wires,
    disks: Option<Disks>,
    /// To whom something is done now, and what.
    struck: Option<(Fault, Vec<u64>)>,
    installed: Installed,
    /// How many nodes have ended by themselves on a full disk.
    ended_full: usize,
}

/// Snapshots that were installed.
#[derive(Debug, Default)]
struct Installed {
    /// By processes that are gone.
    before: f64,
    /// By those that run, when they were last asked.
    now: BTreeMap<u64, f64>,
    /// Of all these, by nodes that had just joined.
    to_join: BTreeMap<u64, f64>,
}

impl Installed {
    fn process_is_gone(&mut self, node: u64) {
        self.before += self.now.remove(&node).unwrap_or_default();
    }
}

impl Prey {
    /// Starts the nodes, one after another, in folders under this one, and returns when each has been ready.
    ///
    /// # Panics
    /// If one does not become ready, or it is called outside a runtime of several threads.
    pub async fn start(folder: &Path, means: Means) -> Prey {
        let mut places: Vec<SocketAddr> = Vec::new();
        while places.len() <= means.nodes {
            let place = free_address();
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let mut prey = Prey {
            folder: folder.to_owned(),
            nodes: BTreeMap::new(),
            nodes_ever: 0,
            places,
            wires: Wires::default(),
            disks: means.with_disks.then(Disks::start),
            struck: None,
            installed: Installed::default(),
            ended_full: 0,
            means,
        };
        for _ in 0..prey.means.nodes {
            prey.join().await;
        }
        prey
    }

    /// A fresh node is started, which joins those that run. Returns its id.
    async fn join(&mut self) -> u64 {
        self.nodes_ever += 1;
        let id = self.nodes_ever;
        let folder = self.folder.join(format!("node-{id}"));
        let taken: Vec<SocketAddr> = self.nodes.values().map(NodeProcess::address).collect();
        let free = self.places.iter().find(|place| !taken.contains(place));
        let place = *free.expect("there are more places than nodes");
        let gate = self.wires.add(id, &folder, place).await;
        let mut options = vec!["--advertise".to_owned(), gate];
        if let Some(kept) = self.means.entries_kept {
            options.extend(["--log-entries-kept".to_owned(), kept.to_string()]);
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let running = self.nodes.values_mut();
        let join: Vec<String> = running
            .filter_map(|node| node.runs().then(|| node.endpoint()))
            .collect();
        let node = tokio::task::block_in_place(|| {
            let wrapper = self.disks.as_mut().map(|disks| {
                disks.mount(&folder, DISK_BYTES);
                disks.wrapper()
            });
            let wrapper = wrapper.unwrap_or_default();
            NodeProcess::start_of_cluster_at(place, &folder, self.means.home_groups, &join, &options, &wrapper)
        });
        self.nodes.insert(id, node);
        id
    }

    /// Removes a node, whose folder is thrown away, by the command of an operator.
    fn remove(&mut self, victim: u64) {
        let mut node = self.nodes.remove(&victim).expect("it is there");
        let others: Vec<String> = self.nodes.values().map(NodeProcess::endpoint).collect();
        let (others, victim_text) = (others.join(","), victim.to_string());
        let words = [
            "cluster",
            "remove",
            &victim_text,
            "--yes",
            "--timeout",
            "10s",
            "--endpoints",
            &others,
        ];
        let began = Instant::now();
        // It is refused as long as another one does not follow yet.
        loop {
            let mut command = ChildProcess::start("the command", &binary(), words);
            let status = command.wait(LIMIT);
            if status.is_some_and(|status| status.success()) {
                break;
            }
            assert!(
                began.elapsed() < LIMIT,
                "node {victim} is not removed: {}",
                command.stderr()
            );
        }
        if node.runs() {
            let status = node.wait(LIMIT);
            assert_eq!(
                status.code(),
                Some(1),
                "a removed node says so and ends: {}",
                node.stderr()
            );
        }
        self.installed.process_is_gone(victim);
        match &mut self.disks {
            Some(disks) => disks.unmount(node.folder()),
            None => std::fs::remove_dir_all(node.folder()).expect("its folder is there"),
        }
    }

    /// Where clients reach the nodes, past the gates. At one of these places there is nobody most of the time.
    pub fn endpoints(&self) -> Vec<String> {
        self.places.iter().map(SocketAddr::to_string).collect()
    }

    /// Who is there, and where clients reach it.
    pub fn members(&self) -> BTreeMap<u64, String> {
        self.nodes.iter().map(|(id, node)| (*id, node.endpoint())).collect()
    }

    /// The node of this id.
    ///
    /// # Panics
    /// If it is not there.
    pub fn node(&mut self, id: u64) -> &mut NodeProcess {
        self.nodes
            .get_mut(&id)
            .unwrap_or_else(|| panic!("there is no node {id}"))
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
        let others: Vec<u64> = self
            .nodes
            .keys()
            .copied()
            .filter(|node| !victims.contains(node))
            .collect();
        let pairs = victims
            .iter()
            .flat_map(|victim| others.iter().map(|other| (*victim, *other)));
        pairs.collect()
    }

    /// Does what a step says, where `leader` leads. Returns to whom it was done.
    ///
    /// # Panics
    /// If something is being done already, or a node does not become ready.
    pub async fn strike(&mut self, step: &Step, leader: u64) -> Vec<u64> {
        assert!(self.struck.is_none(), "one fault after another");
        let ids: Vec<u64> = self.nodes.keys().copied().collect();
        let place = |place: u64| ids[usize::try_from(place).expect("a small number") - 1];
        let victims: BTreeSet<u64> = step
            .victims
            .iter()
            .map(|victim| match victim {
                Victim::Leader => leader,
                Victim::Node(node) => place(*node),
            })
            .collect();
        let victims: Vec<u64> = victims.into_iter().collect();
        self.count_installed().await;
        match step.fault {
            Fault::Kill | Fault::Replace => victims.iter().for_each(|victim| self.node(*victim).kill()),
            Fault::Freeze => victims.iter().for_each(|victim| self.node(*victim).pause()),
            Fault::CutOff => self.rewire(self.between(&victims)),
            Fault::Mute => self.rewire(self.from(&victims)),
            Fault::Deafen => self.rewire(self.to(&victims)),
            Fault::Delay(delay) => self.rewire(Wiring {
                late: victims.iter().copied().collect(),
                delay,
                ..Wiring::default()
            }),
            Fault::Exchange => {
                self.join().await;
            }
            Fault::Fill => victims
                .iter()
                .for_each(|victim| self.leave_room(*victim, RESERVE_BYTES / 2)),
        }
        self.struck = Some((step.fault, victims.clone()));
        victims
    }

    /// Makes what was done last worse, if it comes in two steps. Returns whether it does.
    ///
    /// # Panics
    /// If it is called outside a runtime of several threads.
    pub fn worsen(&mut self) -> bool {
        match self.struck.clone() {
            Some((Fault::Fill, victims)) => {
                victims.iter().for_each(|victim| self.leave_room(*victim, LAST_BYTES));
                true
            }
            _ => false,
        }
    }

    /// Where logs are kept short, waits until nodes that were killed lack more of them than that.
    ///
    /// # Panics
    /// If that takes too long, or a node does not answer.
    pub async fn wait_until_left_behind(&mut self) {
        let (Some(kept), Some((Fault::Kill, victims))) = (self.means.entries_kept, self.struck.clone()) else {
            return;
        };
        let others = self.nodes.iter_mut().filter(|(id, _)| !victims.contains(id));
        let running: Vec<SocketAddr> = others.map(|(_, node)| node.address()).collect();
        let began = metric(running[0], APPLIED).await;
        eventually("the others go on without it", LIMIT, async || {
            metric(running[0], APPLIED).await >= began + (kept * (KEPT_AT_MOST + 1)) as f64
        })
        .await;
    }

    /// Lets a node's disk have so much room and no more.
    fn leave_room(&mut self, victim: u64, bytes: u64) {
        let folder = self.node(victim).folder().to_owned();
        let disks = self.disks.as_mut().expect("disks are filled where there are any");
        tokio::task::block_in_place(|| {
            // The node writes meanwhile, and then more may be in use than it is to have.
            let mut tries = (0..RESIZES_MAX).map(|_| disks.resize(&folder, disks.used(&folder) + bytes));
            assert!(
                tries.any(|done| done),
                "the disk of node {victim} cannot be made smaller"
            );
        });
    }

    /// Ends what was done last. Returns whether others are there since.
    ///
    /// # Panics
    /// If a node does not become ready again, or it is called outside a runtime of several threads.
    pub async fn heal(&mut self) -> bool {
        let Some((fault, victims)) = self.struck.take() else {
            return false;
        };
        match fault {
            Fault::Kill => victims.iter().for_each(|victim| self.restart(*victim)),
            Fault::Freeze => victims.iter().for_each(|victim| self.node(*victim).resume()),
            Fault::CutOff | Fault::Mute | Fault::Deafen | Fault::Delay(_) => self.rewire(Wiring::default()),
            Fault::Exchange => tokio::task::block_in_place(|| victims.iter().for_each(|victim| self.remove(*victim))),
            Fault::Replace => {
                for victim in victims {
                    self.join().await;
                    tokio::task::block_in_place(|| self.remove(victim));
                }
            }
            Fault::Fill => victims.iter().for_each(|victim| self.empty(*victim)),
        }
        matches!(fault, Fault::Exchange | Fault::Replace)
    }

    /// Gives a disk its room back, and starts the node again, which has ended unless it had nothing to write.
    fn empty(&mut self, victim: u64) {
        let node = self.node(victim);
        let folder = node.folder().to_owned();
        if let Some(status) = tokio::task::block_in_place(|| node.ends_within(FULL_FOR)) {
            let said = node.stderr();
            assert!(
                !status.success() && said.contains("the disk is full: free some room"),
                "node {victim} ended by itself, and not since its disk was full: {status}: {said}"
            );
            self.ended_full += 1;
        } else {
            // Or it might end in a moment, when nobody expects it.
            node.kill();
        }
        let disks = self.disks.as_mut().expect("disks are filled where there are any");
        assert!(disks.resize(&folder, DISK_BYTES), "it can always be larger");
        self.restart(victim);
    }

    fn restart(&mut self, victim: u64) {
        self.installed.process_is_gone(victim);
        tokio::task::block_in_place(|| self.node(victim).restart());
    }

    /// Asks every node how many snapshots it has installed.
    async fn count_installed(&mut self) {
        for (id, node) in &self.nodes {
            let all = metrics(node.address()).await;
            let installed = all.iter().filter(|(name, _)| name.starts_with(INSTALLED));
            let installed: f64 = installed.map(|(_, count)| count).sum();
            self.installed.now.insert(*id, installed);
        }
    }

    /// Notes that every node has what it needs: the snapshots that those got who have joined since the last time were for that.
    ///
    /// # Panics
    /// If a node does not answer.
    pub async fn all_have_joined(&mut self) {
        self.count_installed().await;
        for (id, count) in &self.installed.now {
            self.installed.to_join.entry(*id).or_insert(*count);
        }
    }

    /// How many snapshots were installed by nodes that had just joined, and by others, as far as they could be asked.
    ///
    /// # Panics
    /// If a node does not answer.
    pub async fn snapshots_installed(&mut self) -> (f64, f64) {
        self.count_installed().await;
        let all = self.installed.before + self.installed.now.values().sum::<f64>();
        let to_join = self.installed.to_join.values().sum::<f64>();
        (to_join, all - to_join)
    }

    /// How many nodes have ended by themselves since their disk was full.
    pub fn ended_full(&self) -> usize {
        self.ended_full
    }

    /// Whether every node runs.
    pub fn all_run(&mut self) -> bool {
        self.nodes.values_mut().all(NodeProcess::runs)
    }
}

/// Waits so long. A fault lasts for a time, and there is nothing else to wait for.
pub async fn wait_for(time: Duration) {
    tokio::time::sleep(time).await;
}
