//! A cluster of nodes, each a process of the real binary.

use std::ffi::OsString;
use std::path::Path;
use std::thread;

use crate::process::NodeProcess;

/// A cluster whose nodes have the ids 1, 2, 3 and so on. All are killed when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<NodeProcess>,
}

impl Cluster {
    /// Starts so many nodes, one after the other, in folders under this one, and returns when each has been ready.
    ///
    /// # Panics
    /// If one does not become ready.
    pub fn start(folder: &Path, nodes: usize, home_groups: u32) -> Cluster {
        Cluster::start_with(folder, nodes, home_groups, &[])
    }

    /// The same with further options of `tenure start`.
    ///
    /// # Panics
    /// If one does not become ready.
    pub fn start_with(folder: &Path, nodes: usize, home_groups: u32, options: &[&str]) -> Cluster {
        Cluster::start_under(folder, nodes, home_groups, options, |_| Vec::new())
    }

    /// The same, each node under a program that runs another one in its own place.
    ///
    /// # Panics
    /// If one does not become ready.
    pub fn start_under(
        folder: &Path,
        nodes: usize,
        home_groups: u32,
        options: &[&str],
        wrapper: impl Fn(usize) -> Vec<OsString>,
    ) -> Cluster {
        let mut cluster = Cluster { nodes: Vec::new() };
        for id in 1..=nodes {
            let folder = folder.join(format!("node-{id}"));
            let join = cluster.endpoints();
            let node = NodeProcess::start_of_cluster_under(&folder, home_groups, &join, options, &wrapper(id));
            cluster.nodes.push(node);
        }
        cluster
    }

    /// Starts one more node, which joins those that run, and returns when it is ready. It gets the next id.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn add(&mut self, folder: &Path, home_groups: u32) {
        let folder = folder.join(format!("node-{}", self.nodes.len() + 1));
        let running = self
            .nodes
            .iter_mut()
            .filter_map(|node| node.runs().then(|| node.endpoint()));
        let join: Vec<String> = running.collect();
        self.nodes
            .push(NodeProcess::start_of_cluster(&folder, home_groups, &join));
    }

    /// Where the nodes listen, as clients are told.
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(NodeProcess::endpoint).collect()
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

    /// Two nodes, each for a thread of its own.
    ///
    /// # Panics
    /// If they are not two nodes of the cluster.
    pub fn both(&mut self, one: u64, other: u64) -> (&mut NodeProcess, &mut NodeProcess) {
        let index = |id: u64| usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        let indices = [index(one), index(other)].map(|index| index.expect("ids begin at 1"));
        let [one, other] = self.nodes.get_disjoint_mut(indices).expect("there are two such nodes");
        (one, other)
    }

    /// Kills all nodes (SIGKILL).
    pub fn kill(&mut self) {
        self.nodes.iter_mut().for_each(NodeProcess::kill);
    }

    /// Starts all nodes again, at the same time: none can serve before a majority is there.
    ///
    /// # Panics
    /// If one does not become ready, or still runs.
    pub fn restart(&mut self) {
        thread::scope(|scope| {
            for node in &mut self.nodes {
                scope.spawn(|| node.restart());
            }
        });
    }

    /// The same with some of them.
    ///
    /// # Panics
    /// If one does not become ready, or still runs.
    pub fn restart_these(&mut self, ids: &[u64]) {
        thread::scope(|scope| {
            for (id, node) in (1..).zip(&mut self.nodes) {
                if ids.contains(&id) {
                    scope.spawn(|| node.restart());
                }
            }
        });
    }
}
