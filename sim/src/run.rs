//! One run, from a seed to a report.

use std::fmt;
use std::time::{Duration, SystemTime};

use tenure_core::ids::GroupId;
use turmoil::Sim;

use crate::cluster::{HOME_GROUPS, Machines, World};
use crate::journal::Digest;
use crate::plan::Plan;
use crate::setup::{Planted, Setup};
use crate::workload;

/// A run that has not ended by then, in simulated time, hangs.
const DURATION_MAX: Duration = Duration::from_secs(120);
/// The grain of simulated time.
const TICK: Duration = Duration::from_millis(1);
/// Segments that may wait at one end of a connection. turmoil's 64 would stall a busy stream.
const TCP_CAPACITY: usize = 4_096;
/// How long the replicas have to come together when nobody asks for anything any more.
const CATCH_UP: Duration = Duration::from_secs(5);
/// No runtime keeps its tasks in more lists than this.
const TASK_NUMBERS: u64 = 64;

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What determined it.
    pub setup: Setup,
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
            0 => write!(f, "seed {}: every promise was kept, output {digest}", self.setup.seed),
            count => write!(
                f,
                "seed {}: {count} violations, output {digest}; once more: cargo run -- {}",
                self.setup.seed, self.setup
            ),
        }
    }
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

/// Runs the nodes and their clients under this seed until all clients have finished.
pub fn run(setup: Setup) -> Report {
    let plan = Plan::of(setup.seed, &setup.node_names(), &workload::names(setup.nodes));
    let world = World::new(setup);
    let mut sim = simulation(&world, plan.latency_min, plan.latency_max);
    world.journal.note_at(Duration::ZERO, "plan", &plan);
    let machines = Machines::start(&world, &mut sim);
    workload::start(&world, &mut sim);
    let driven = drive(&mut sim, &plan, &machines).and_then(|()| compare(&world, &mut sim, &machines));
    if let Err(error) = driven {
        world.ledger.violated(format!("the run ended early: {error}"));
    }
    report(&world, &sim, &machines)
}

/// An empty simulation of this world.
pub(crate) fn simulation<'a>(world: &World, latency_min: Duration, latency_max: Duration) -> Sim<'a> {
    align_task_numbers();
    let planted = match world.setup.planted {
        Some(Planted::NoReadIndex) => Some(tenure_replica::planted::Planted::NoReadIndex),
        Some(Planted::LostTime) => Some(tenure_replica::planted::Planted::LostTime),
        _ => None,
    };
    tenure_replica::planted::plant(planted);
    turmoil::Builder::new()
        .rng_seed(world.setup.seed)
        .epoch(SystemTime::UNIX_EPOCH)
        .simulation_duration(DURATION_MAX)
        .tick_duration(TICK)
        .tcp_capacity(TCP_CAPACITY)
        .min_message_latency(latency_min)
        .max_message_latency(latency_max)
        .enable_random_order()
        .build()
}

/// What came of a run that is over.
pub(crate) fn report(world: &World, sim: &Sim<'_>, machines: &Machines) -> Report {
    let end = sim.elapsed();
    let traffic = world.network.traffic();
    world.journal.note_at(end, "promised", world.ledger.summary());
    world.journal.note_at(end, "promised", world.records.summary());
    world.journal.note_at(end, "promised", world.calls.summary());
    machines.note_disks(sim);
    world.journal.note_at(
        end,
        "network",
        format_args!(
            "{} bytes in {} reads, digest {}",
            traffic.bytes, traffic.reads, traffic.digest
        ),
    );
    Report {
        setup: world.setup,
        output: world.journal.read(),
        violations: world.ledger.violations(),
    }
}

/// Lets time pass, with the events of the plan, until all clients have finished.
fn drive(sim: &mut Sim<'_>, plan: &Plan, machines: &Machines) -> turmoil::Result {
    for (time, event) in &plan.events {
        while sim.elapsed() < *time {
            if sim.step()? {
                return Ok(());
            }
        }
        machines.meet(sim, event);
    }
    sim.run()
}

/// Lets the nodes go on until the replicas of each group are as far as each other, and compares their rows.
pub(crate) fn compare(world: &World, sim: &mut Sim<'_>, machines: &Machines) -> turmoil::Result {
    let until = sim.elapsed() + CATCH_UP;
    for group in (0..=HOME_GROUPS).map(GroupId) {
        let replicas = loop {
            match machines.replicas(group) {
                Some(replicas) if replicas.as_far => break replicas,
                replicas if sim.elapsed() >= until => {
                    let what = format!("the replicas of group {group} do not come together: {replicas:?}");
                    world.ledger.violated(what);
                    return Ok(());
                }
                _ => {
                    sim.step()?;
                }
            }
        };
        if !replicas.equal {
            let what = format!("the replicas of group {group} differ: {replicas:?}");
            world.ledger.violated(what);
        }
        let what = format_args!("the replicas of group {group} have applied {:?}", replicas.applied);
        world.journal.note_at(sim.elapsed(), "replicas", what);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
