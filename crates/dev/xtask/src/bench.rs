//! Ours beside Redis, and three nodes of ours beside three of etcd and ZooKeeper: the same work, on the same machine and
//! file system, in turns, all syncing every answer.

mod cluster;
mod server;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::repository::Repository;
use crate::{metadata, steps, testing};
use server::{Server, System};
use table::{Comparison, Counted, Floor, Measured};

pub(crate) const HELP: &str = "\
Usage: cargo xtask bench [--nodes N] [--seconds N] [--quick] [--profile NAME]

Builds `tenure` and `tenure-bench` as they are built for images, starts one node of ours and Debian's Redis with `appendonly yes`
and `appendfsync always` on the same file system, and measures both in turns: three rounds of N seconds (3 if
nothing is said) for each work, with 64 workers over 4 connections, 64 over 64 and 1 over 1. It prints the
round with the middle rate of each side and the ratio, then how many syncs each side made for how many
operations, counted by strace in runs of their own, and what an append with its sync and a round trip cost.

It fails if a side made no syncs or an operation failed. --quick measures less, for one second each. What the
machine does beside it slows both sides; the ratios say more than the rates.

With --nodes 3 it starts three nodes of ours, three of Debian's etcd and three of Debian's ZooKeeper instead, and
measures claims with their releases in turns, with 64 workers over 4 connections and 1 over 1; then it counts the
syncs, and kills the leader of each, three times, to see how long a holder waits for its next claim. --nodes 1 does
the same with one node of each, where there is nobody to take over. --profile says how ours are built: dist if
nothing is said.";

/// Packages of Debian that are measured or counted with.
const DEBIAN_PACKAGES: &[&str] = &["redis-server", "strace"];
/// Rounds of each side; the one with the middle rate counts.
const ROUNDS: usize = 3;
/// Seconds of a round if nothing is said, and at most.
const SECONDS: u64 = 3;
const SECONDS_MAX: u64 = 600;
/// How the programs are built if nothing is said.
const PROFILE: &str = "dist";
/// Seconds of a run whose syncs are counted.
const COUNTED_SECONDS: u64 = 2;
/// What one measurement may take beyond its seconds: connecting, warming up, the last calls.
const SLACK: Duration = Duration::from_secs(60);
/// What is measured with 64 workers over 4 connections alone, as connections make no difference to it.
const WATCHED: &[&str] = &["watch", "lateness"];
const WORKS: &[&str] = &["claim", "unique", "renew", "get", "publish"];
const WORKS_QUICK: &[&str] = &["claim", "unique", "get"];
/// Works that write: each of their answers was synced.
const WRITES: &[&str] = &["claim", "unique", "renew", "publish"];

/// How many workers share how many connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) workers: u32,
    pub(crate) connections: u32,
}

const SHARED: Load = Load {
    workers: 64,
    connections: 4,
};
const APART: Load = Load {
    workers: 64,
    connections: 64,
};
const ALONE: Load = Load {
    workers: 1,
    connections: 1,
};

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    seconds: u64,
    quick: bool,
    /// How many nodes of ours, etcd and ZooKeeper; without it ours is measured beside Redis.
    nodes: Option<usize>,
    profile: String,
}

/// The programs that were built, and the folder for what servers leave behind.
struct Bench {
    tenure: PathBuf,
    measure: PathBuf,
    folder: PathBuf,
}

pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Result<(), Failure> {
    let options = parse(arguments)?;
    steps::step("what is measured beside ours", || {
        let packages = options.nodes.map_or(DEBIAN_PACKAGES, |_| cluster::DEBIAN_PACKAGES);
        testing::install_debian_packages(packages)
    })?;
    let mut bench = None;
    steps::step("build", || {
        bench = Some(build(repository, &options.profile)?);
        Ok(())
    })?;
    let bench = bench.ok_or_else(|| Failure::Failed("nothing was built".to_owned()))?;
    if let Some(nodes) = options.nodes {
        return cluster::run(&bench, nodes, &options);
    }
    let mut report = table::Report::default();
    steps::step("rounds", || rounds(&bench, &options, &mut report))?;
    steps::step("syncs", || syncs(&bench, &mut report))?;
    // Whatever it says, the numbers are shown first.
    println!("{report}");
    report.verdict()
}

fn parse(arguments: &[String]) -> Result<Options, Failure> {
    let (mut seconds, mut quick, mut nodes, mut profile) = (None, false, None, None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => quick = true,
            "--seconds" => {
                let given = words.next().and_then(|value| value.parse().ok());
                let valid = given.filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
                let usage = || Failure::Usage(format!("--seconds takes a number from 1 to {SECONDS_MAX}"));
                seconds = Some(valid.ok_or_else(usage)?);
            }
            "--nodes" => {
                let given = words.next().and_then(|value| value.parse().ok());
                let valid = given.filter(|nodes| cluster::NODES.contains(nodes));
                nodes = Some(valid.ok_or_else(|| Failure::Usage("--nodes takes 1 or 3".to_owned()))?);
            }
            "--profile" => {
                let usage = || Failure::Usage("--profile takes a name".to_owned());
                profile = Some(words.next().cloned().ok_or_else(usage)?);
            }
            _ => return Err(Failure::Usage(format!("`bench` takes no argument {word:?}"))),
        }
    }
    let default = if quick { 1 } else { SECONDS };
    Ok(Options {
        seconds: seconds.unwrap_or(default),
        quick,
        nodes,
        profile: profile.unwrap_or_else(|| PROFILE.to_owned()),
    })
}

/// Builds both programs, one after the other: built together, ours would get the peers' clients.
fn build(repository: &Repository, profile: &str) -> Result<Bench, Failure> {
    let build = |arguments: &[&str]| {
        let mut command = steps::cargo(repository);
        steps::run(command.args(["build", "--profile", profile]).args(arguments))
    };
    build(&["--package", "tenure"])?;
    build(&["--package", "tenure-bench", "--features", "peers"])?;
    let target = PathBuf::from(metadata::members(repository, "")?.target_directory);
    let built = target.join(profile);
    Ok(Bench {
        tenure: built.join("tenure"),
        measure: built.join("tenure-bench"),
        folder: target.join("bench"),
    })
}

/// Both sides in turns, under every load.
fn rounds(bench: &Bench, options: &Options, report: &mut table::Report) -> Result<(), Failure> {
    let ours = Server::start(System::Tenure, &bench.tenure, &bench.folder.join("tenure"), None)?;
    let theirs = Server::start(
        System::Redis,
        Path::new("redis-server"),
        &bench.folder.join("redis"),
        None,
    )?;
    let mut plan: Vec<(Load, &str)> = Vec::new();
    let works = if options.quick { WORKS_QUICK } else { WORKS };
    let loads: &[Load] = if options.quick {
        &[SHARED, ALONE]
    } else {
        &[SHARED, APART, ALONE]
    };
    for load in loads {
        plan.extend(works.iter().map(|work| (*load, *work)));
        if *load == SHARED && !options.quick {
            plan.extend(WATCHED.iter().map(|work| (*load, *work)));
        }
    }
    for (load, work) in plan {
        let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            of_ours.push(bench.measure(&ours, work, load, options.seconds)?);
            of_theirs.push(bench.measure(&theirs, work, load, options.seconds)?);
        }
        report.comparisons.push(Comparison::new(work, load, of_ours, of_theirs));
    }
    let echo_ours = bench.measure(&ours, "echo", ALONE, options.seconds)?;
    let echo_theirs = bench.measure(&theirs, "echo", ALONE, options.seconds)?;
    let sync = bench.disk(options.seconds)?;
    report.floor = Some(Floor {
        sync,
        echo_ours,
        echo_theirs,
    });
    Ok(())
}

/// Counts the syncs of each side, in servers of their own: being watched slows them down.
fn syncs(bench: &Bench, report: &mut table::Report) -> Result<(), Failure> {
    for system in [System::Tenure, System::Redis] {
        let (program, name) = match system {
            System::Tenure => (bench.tenure.as_path(), "counted-tenure"),
            _ => (Path::new("redis-server"), "counted-redis"),
        };
        let trace = bench.folder.join(format!("{name}.trace"));
        let server = Server::start(system, program, &bench.folder.join(name), Some(&trace))?;
        for work in WRITES {
            let before = server::syncs(&trace)?;
            let measured = bench.measure(&server, work, SHARED, COUNTED_SECONDS)?;
            let syncs = server::syncs(&trace)? - before;
            report.counted.push(Counted {
                system,
                measured,
                syncs,
            });
        }
    }
    Ok(())
}

impl Bench {
    /// One measurement of one side.
    fn measure(&self, server: &Server, work: &str, load: Load, seconds: u64) -> Result<Measured, Failure> {
        self.measure_at(server.system, server.address(), work, load, seconds)
    }

    /// One measurement of a system whose nodes are reached there.
    fn measure_at(
        &self,
        system: System,
        endpoints: &str,
        work: &str,
        load: Load,
        seconds: u64,
    ) -> Result<Measured, Failure> {
        let mut command = Command::new(&self.measure);
        command
            .args([system.name(), work, "--endpoint", endpoints])
            .args(["--workers", &load.workers.to_string()])
            .args(["--connections", &load.connections.to_string()])
            .args(["--seconds", &seconds.to_string()]);
        self.line(&mut command, seconds)
    }

    /// What an append with its sync costs where the servers keep theirs.
    fn disk(&self, seconds: u64) -> Result<Measured, Failure> {
        let mut command = Command::new(&self.measure);
        command
            .args(["disk", "--seconds", &seconds.to_string(), "--folder"])
            .arg(&self.folder);
        self.line(&mut command, seconds)
    }

    fn line(&self, command: &mut Command, seconds: u64) -> Result<Measured, Failure> {
        let text = server::output_within(command, Duration::from_secs(seconds) + SLACK)?;
        let measured = text.lines().find_map(Measured::read);
        let measured = measured.ok_or_else(|| Failure::Failed(format!("this is no measurement: {text:?}")))?;
        let name = command
            .get_args()
            .next()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        eprintln!("    {name}: {}", text.trim());
        Ok(measured)
    }
}

#[cfg(test)]
mod tests;
