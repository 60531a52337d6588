//! Several nodes of ours beside as many of etcd and of ZooKeeper, all on loopback and one file system.
//!
//! Clients are connected to the leader's node, the best case of each system. No round shares the machine with the work of
//! another, but the idle nodes of the others are there all the time.

mod peers;
mod status;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::server::{self, Server, System};
use super::table::Measured;
use super::{ALONE, Bench, COUNTED_SECONDS, Load, Options, ROUNDS, SHARED, SLACK};
use crate::failure::Failure;
use crate::steps;
use table::{Compared, Counted, Failover, Report};

/// Packages of Debian that are measured or counted with.
pub(super) const DEBIAN_PACKAGES: &[&str] = &["etcd-server", "etcd-client", "zookeeper", "strace"];
/// How many nodes a cluster may have here.
pub(super) const NODES: &[usize] = &[1, 3];
/// In the order in which they are measured.
const SYSTEMS: [System; 3] = [System::Tenure, System::Etcd, System::ZooKeeper];
/// One claim with its release.
const WORK: &str = "claim";
/// How long a cluster may take until it has a leader and all its nodes.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often is looked whether it is so far: each look starts a program.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Measures everything and prints it.
///
/// # Errors
/// A cluster does not come up, or what was measured may not be believed.
pub(super) fn run(bench: &Bench, nodes: usize, options: &Options) -> Result<(), Failure> {
    let mut report = Report::new(nodes);
    steps::step("rounds", || rounds(bench, nodes, options.seconds, &mut report))?;
    steps::step("syncs", || syncs(bench, nodes, &mut report))?;
    if nodes > 1 {
        steps::step("failover", || failovers(bench, nodes, &mut report))?;
    }
    // Whatever it says, the numbers are shown first.
    println!("{report}");
    report.verdict()
}

fn rounds(bench: &Bench, nodes: usize, seconds: u64, report: &mut Report) -> Result<(), Failure> {
    let clusters = SYSTEMS.map(|system| Cluster::start(bench, system, nodes, false));
    let clusters = clusters.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    for load in [SHARED, ALONE] {
        let mut measured = SYSTEMS.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (cluster, rounds) in clusters.iter().zip(&mut measured) {
                rounds.push(cluster.measure(bench, load, seconds)?);
            }
        }
        for (system, rounds) in SYSTEMS.into_iter().zip(measured) {
            report.compared.push(Compared::new(system, load, rounds));
        }
    }
    report.sync = Some(bench.disk(seconds)?);
    Ok(())
}

/// Counts the syncs of each node, in clusters of their own: being watched slows them down.
fn syncs(bench: &Bench, nodes: usize, report: &mut Report) -> Result<(), Failure> {
    for system in SYSTEMS {
        let cluster = Cluster::start(bench, system, nodes, true)?;
        let before = cluster.syncs()?;
        let measured = cluster.measure(bench, SHARED, COUNTED_SECONDS)?;
        let after = cluster.syncs()?;
        let syncs = after.iter().zip(before).map(|(after, before)| after - before);
        report.counted.push(Counted {
            system,
            measured,
            syncs: syncs.collect(),
        });
    }
    Ok(())
}

/// Kills the leader of each system in turns, each time in a new cluster.
fn failovers(bench: &Bench, nodes: usize, report: &mut Report) -> Result<(), Failure> {
    for _ in 0..ROUNDS {
        for system in SYSTEMS {
            let cluster = Cluster::start(bench, system, nodes, false)?;
            let leader = cluster.wait_for_leader()?;
            let process = cluster.nodes[leader].child.id().to_string();
            let mut command = Command::new(&bench.measure);
            command
                .args([system.name(), "--endpoint", &cluster.endpoints(leader)])
                .args(["--connections", "1", "--kill", &process]);
            let text = server::output_within(&mut command, SLACK)?;
            eprintln!("    {}: {}", system.name(), text.trim());
            let seen = text.lines().find_map(|line| Failover::read(system, line));
            let unknown = || Failure::Failed(format!("this is no failover: {text:?}"));
            report.failovers.push(seen.ok_or_else(unknown)?);
        }
    }
    Ok(())
}

/// Nodes that serve as one. Dropping it ends them.
struct Cluster {
    system: System,
    nodes: Vec<Server>,
    /// One a node, if syncs are counted.
    traces: Vec<PathBuf>,
    tenure: PathBuf,
}

impl Cluster {
    /// Starts a cluster on empty folders and waits until it has a leader.
    fn start(bench: &Bench, system: System, nodes: usize, counts: bool) -> Result<Cluster, Failure> {
        let folder = bench.folder.join(format!("cluster-{}", system.name()));
        server::empty(&folder)?;
        let trace = |number: usize| folder.join(format!("{number}.trace"));
        let traces: Vec<PathBuf> = if counts {
            (1..=nodes).map(trace).collect()
        } else {
            Vec::new()
        };
        let traced = |number: usize| traces.get(number).map(PathBuf::as_path);
        let nodes = match system {
            System::Tenure => ours(&bench.tenure, &folder, nodes, traced)?,
            System::Etcd => peers::etcd(&folder, nodes, traced)?,
            System::ZooKeeper => peers::zookeeper(&folder, nodes, traced)?,
            System::Redis => return Err(Failure::Failed("redis is measured as one node".to_owned())),
        };
        let cluster = Cluster {
            system,
            nodes,
            traces,
            tenure: bench.tenure.clone(),
        };
        cluster.wait_for_leader()?;
        Ok(cluster)
    }

    fn measure(&self, bench: &Bench, load: Load, seconds: u64) -> Result<Measured, Failure> {
        let leader = self.wait_for_leader()?;
        bench.measure_at(self.system, &self.endpoints(leader), WORK, load, seconds)
    }

    /// Where its nodes are reached, the leader's before the others.
    fn endpoints(&self, leader: usize) -> String {
        let mut addresses: Vec<&str> = self.nodes.iter().map(Server::address).collect();
        addresses.rotate_left(leader);
        addresses.join(",")
    }

    /// The place of the node that leads, once all nodes take part.
    fn wait_for_leader(&self) -> Result<usize, Failure> {
        let addresses: Vec<&str> = self.nodes.iter().map(Server::address).collect();
        let until = Instant::now() + COMPLETE_TIMEOUT;
        loop {
            let leader = match self.system {
                System::Tenure => status::leader_of_ours(&self.tenure, &addresses),
                System::Etcd => status::leader_of_etcd(&addresses),
                _ => status::leader_of_zookeeper(&addresses),
            };
            match leader {
                Some(leader) => return Ok(leader),
                None if Instant::now() < until => std::thread::sleep(LOOK_INTERVAL),
                None => {
                    let what = format!("the {} nodes of {} have no leader", addresses.len(), self.system.name());
                    return Err(Failure::Failed(what));
                }
            }
        }
    }

    fn syncs(&self) -> Result<Vec<u64>, Failure> {
        self.traces.iter().map(|trace| server::syncs(trace)).collect()
    }
}

/// A founder, and the others that join it.
fn ours<'a>(
    program: &Path,
    folder: &Path,
    nodes: usize,
    traced: impl Fn(usize) -> Option<&'a Path>,
) -> Result<Vec<Server>, Failure> {
    let mut all: Vec<Server> = Vec::with_capacity(nodes);
    for number in 0..nodes {
        let data = folder.join((number + 1).to_string());
        server::empty(&data)?;
        let founder: Vec<&str> = all.first().map(Server::address).into_iter().collect();
        let node = server::ours(server::watched(program, traced(number)), &data, &founder)?;
        all.push(node);
    }
    Ok(all)
}
