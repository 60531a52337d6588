//! One run, from a seed to a report.

use std::fmt;
use std::time::{Duration, SystemTime};

use turmoil::Sim;

use crate::cluster::{NodeMachine, World};
use crate::journal::Digest;
use crate::plan::Plan;
use crate::workload;

/// A run that has not ended by then, in simulated time, hangs.
const DURATION_MAX: Duration = Duration::from_secs(120);
/// The grain of simulated time.
const TICK: Duration = Duration::from_millis(1);
/// Segments that may wait at one end of a connection. turmoil's 64 would stall a busy stream.
const TCP_CAPACITY: usize = 4_096;
/// No runtime keeps its tasks in more lists than this.
const TASK_NUMBERS: u64 = 64;

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What determined it.
    pub seed: u64,
    /// Everything that could be observed, one line a fact, in order: answers with versions, tokens and times, changes
    /// seen by watches, crashes, what became of sessions, a digest of all network traffic. Equal seeds give equal text.
    pub output: String,
    /// Promises that were broken. None in a run that went well.
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    /// The output, and the verdict.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.output)?;
        let mut digest = Digest::default();
        digest.add(self.output.as_bytes());
        for violation in &self.violations {
            writeln!(f, "VIOLATION {violation}")?;
        }
        match self.violations.len() {
            0 => write!(f, "seed {}: every promise was kept, output {digest}", self.seed),
            count => write!(
                f,
                "seed {}: {count} violations, output {digest}; once more: cargo run -- --seed {}",
                self.seed, self.seed
            ),
        }
    }
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
    /// The node's clock goes three times as fast as time does, so windows and leases end too early.
    FastNode,
}

/// Runs the node and its clients under this seed until all clients have finished.
pub fn run(seed: u64) -> Report {
    run_with(seed, None)
}

/// Lets the numbers of tokio's tasks go on from a multiple of [`TASK_NUMBERS`]. They are counted over the whole process, and
/// the tasks of a crashed machine are dropped in an order that depends on their last bits: with it the order in which its
/// connections end, and so everything that comes after. A second run would differ from the first.
fn align_task_numbers() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("the system gives what a runtime of one thread needs");
    runtime.block_on(async {
        let number = |task: tokio::task::Id| task.to_string().parse::<u64>().expect("a task's number is a number");
        while !(number(tokio::spawn(async {}).id()) + 1).is_multiple_of(TASK_NUMBERS) {}
    });
}

/// The same with a planted defect, which is to be found.
pub fn run_with(seed: u64, planted: Option<Planted>) -> Report {
    align_task_numbers();
    let plan = Plan::of(seed, &workload::names());
    let world = World::new(seed, planted);
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .epoch(SystemTime::UNIX_EPOCH)
        .simulation_duration(DURATION_MAX)
        .tick_duration(TICK)
        .tcp_capacity(TCP_CAPACITY)
        .min_message_latency(plan.latency_min)
        .max_message_latency(plan.latency_max)
        .enable_random_order()
        .build();
    world.journal.note_at(Duration::ZERO, "plan", &plan);
    let machine = NodeMachine::start(&world, &mut sim);
    workload::start(&world, &mut sim);
    if let Err(error) = drive(&mut sim, &plan, &machine) {
        world.ledger.violated(format!("the run ended early: {error}"));
    }
    let end = sim.elapsed();
    let traffic = world.network.traffic();
    world.journal.note_at(end, "promised", world.ledger.summary());
    world.journal.note_at(end, "promised", world.records.summary());
    world.journal.note_at(end, "disk", machine.disk_summary());
    world.journal.note_at(
        end,
        "network",
        format_args!(
            "{} bytes in {} reads, digest {}",
            traffic.bytes, traffic.reads, traffic.digest
        ),
    );
    Report {
        seed,
        output: world.journal.read(),
        violations: world.ledger.violations(),
    }
}

/// Lets time pass, with the events of the plan, until all clients have finished.
fn drive(sim: &mut Sim<'_>, plan: &Plan, machine: &NodeMachine) -> turmoil::Result {
    for (time, event) in &plan.events {
        while sim.elapsed() < *time {
            if sim.step()? {
                return Ok(());
            }
        }
        machine.meet(sim, event);
    }
    sim.run()
}

#[cfg(test)]
mod tests;
