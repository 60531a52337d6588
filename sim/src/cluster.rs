//! The machines: a node that crashes and comes back, and clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_client::runtime::KeepAliveOn;
use tenure_client::{Client, ClientRuntime, RequestMode};
use tenure_node::{Node, NodeConfig};
use tenure_replica::Runtime;
use tenure_storage::state::StateEngine;
use turmoil::Sim;

use crate::clock::VirtualClock;
use crate::disk::NodeDisk;
use crate::journal::Journal;
use crate::ledger::Ledger;
use crate::net::VirtualNetwork;
use crate::plan::{CrashKind, Event, FaultKind};
use crate::random::SeededRandom;
use crate::records::Records;
use crate::run::Planted;
use crate::tasks::VirtualTasks;

/// The name of the node's machine.
pub(crate) const NODE: &str = "node";
/// Where clients reach it.
const ENDPOINT: &str = "node:7400";
const PORT: u16 = 7_400;
/// No machine had been up for longer when the simulation began.
const UPTIME_MAX_S: u64 = 1_000_000;

/// What all parts of one run share.
pub(crate) struct World {
    /// What determines the run.
    pub(crate) seed: u64,
    /// The defect that was put in on purpose.
    pub(crate) planted: Option<Planted>,
    /// What can be observed.
    pub(crate) journal: Journal,
    /// What clients were promised.
    pub(crate) ledger: Ledger,
    /// What clients were promised of streams.
    pub(crate) records: Records,
    /// The network of all machines.
    pub(crate) network: VirtualNetwork,
}

impl World {
    /// A world in which nothing has happened yet.
    pub(crate) fn new(seed: u64, planted: Option<Planted>) -> Arc<World> {
        Arc::new(World {
            seed,
            planted,
            journal: Journal::default(),
            ledger: Ledger::default(),
            records: Records::default(),
            network: VirtualNetwork::default(),
        })
    }
}

/// The machine of a node, over all lives of the node.
pub(crate) struct NodeMachine {
    world: Arc<World>,
    disk: NodeDisk,
    /// What decides about crashes.
    chance: SeededRandom,
    /// How often the node was started.
    lives: AtomicU64,
    clock: std::sync::Mutex<Arc<VirtualClock>>,
}

impl NodeMachine {
    /// Adds the machine to a simulation and starts the node.
    pub(crate) fn start(world: &Arc<World>, sim: &mut Sim<'_>) -> Arc<NodeMachine> {
        let machine = Arc::new(NodeMachine {
            world: Arc::clone(world),
            disk: NodeDisk::new(world.planted == Some(Planted::LyingDisk)),
            chance: SeededRandom::of(world.seed, "crashes"),
            lives: AtomicU64::new(0),
            clock: std::sync::Mutex::new(Arc::new(of_node(world, clock_of(world.seed, NODE)))),
        });
        let software = Arc::clone(&machine);
        sim.host(NODE, move || serve(Arc::clone(&software)));
        machine
    }

    /// Lets something happen to the machine or to its network.
    pub(crate) fn meet(&self, sim: &mut Sim<'_>, event: &Event) {
        match event {
            Event::Crash(kind) => self.crash(sim, *kind),
            Event::Restart(kind) => self.restart(sim, *kind),
            Event::Fault(client, kind) => {
                self.world
                    .journal
                    .note_at(sim.elapsed(), "network", format_args!("{kind:?} of {client}"));
                match kind {
                    FaultKind::Cut => sim.partition(NODE, client.as_str()),
                    FaultKind::CutRequests => sim.partition_oneway(client.as_str(), NODE),
                    FaultKind::CutAnswers => sim.partition_oneway(NODE, client.as_str()),
                    FaultKind::Hold => sim.hold(NODE, client.as_str()),
                }
            }
            Event::Repair(client, kind) => {
                let what = format_args!("{kind:?} of {client} is over");
                self.world.journal.note_at(sim.elapsed(), "network", what);
                match kind {
                    FaultKind::Cut => sim.repair(NODE, client.as_str()),
                    FaultKind::CutRequests => sim.repair_oneway(client.as_str(), NODE),
                    FaultKind::CutAnswers => sim.repair_oneway(NODE, client.as_str()),
                    FaultKind::Hold => sim.release(NODE, client.as_str()),
                }
            }
        }
    }

    fn crash(&self, sim: &mut Sim<'_>, kind: CrashKind) {
        // The disk first: whatever the node's parts do while they are torn down must not reach what is left.
        let what = self.disk.crash(kind, &self.chance);
        sim.crash(NODE);
        self.world.journal.note_at(sim.elapsed(), NODE, what);
    }

    fn restart(&self, sim: &mut Sim<'_>, kind: CrashKind) {
        if kind == CrashKind::PowerLoss {
            *self.locked_clock() = Arc::new(of_node(&self.world, VirtualClock::started_at(sim.elapsed())));
        }
        self.world.journal.note_at(sim.elapsed(), NODE, "is started again");
        sim.bounce(NODE);
    }

    /// What the disk has seen, in words.
    pub(crate) fn disk_summary(&self) -> String {
        let files = self.disk.files();
        format!(
            "{} bytes in files, {} syncs since the last crash",
            files.used(),
            files.syncs()
        )
    }

    fn runtime(&self, life: u64) -> Runtime {
        let random = SeededRandom::of(self.world.seed, &format!("{NODE}, life {life}"));
        let seed = random.bits();
        let clock = Arc::clone(&self.locked_clock());
        Runtime {
            clock,
            random: Arc::new(random),
            tasks: Arc::new(VirtualTasks),
            network: Arc::new(self.world.network.clone()),
            disk: Arc::new(self.disk.files()),
            seed,
        }
    }

    fn locked_clock(&self) -> std::sync::MutexGuard<'_, Arc<VirtualClock>> {
        self.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// One life of the node: it ends by a crash from outside, and an end of its own fails the run.
async fn serve(machine: Arc<NodeMachine>) -> turmoil::Result {
    let life = machine.lives.fetch_add(1, Ordering::Relaxed) + 1;
    let config = NodeConfig {
        data_dir: PathBuf::from("/tenure"),
        listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
        advertise: Some(ENDPOINT.to_owned()),
        join: Vec::new(),
        home_groups: 2,
        connections_max: 1_000,
        reserve_bytes: None,
        log_entries_kept: None,
        insecure: true,
    };
    let engine = machine.disk.state();
    let open_state = Box::new(move |_folder: &_| Ok(Arc::new(engine) as Arc<dyn StateEngine>));
    let journal = &machine.world.journal;
    journal.note(NODE, format_args!("life {life} begins"));
    let node = Node::start(config, machine.runtime(life), open_state).await?;
    journal.note(
        NODE,
        format_args!("serves on {}, cluster {:032x}", node.address(), node.cluster_id()),
    );
    let why = node.failed().await;
    Err(format!("the node gave up: {why}").into())
}

/// A client on a machine of its own.
pub(crate) fn client(world: &World, name: &str, timeout: Duration) -> Result<Client, tenure_client::Error> {
    client_with(world, name, timeout, RequestMode::Numbered)
}

/// The same with another identity of its requests.
pub(crate) fn client_with(
    world: &World,
    name: &str,
    timeout: Duration,
    mode: RequestMode,
) -> Result<Client, tenure_client::Error> {
    Client::builder()
        .endpoints([ENDPOINT])
        .label(name)
        .timeout(timeout)
        .request_mode(mode)
        .runtime(client_runtime(world, name))
        .build()
}

fn client_runtime(world: &World, name: &str) -> ClientRuntime {
    let mut clock = clock_of(world.seed, name);
    if world.planted == Some(Planted::SlowClocks) {
        clock = clock.at_half_speed();
    }
    ClientRuntime {
        clock: Arc::new(clock),
        random: Arc::new(SeededRandom::of(world.seed, &format!("{name}, client"))),
        tasks: Arc::new(VirtualTasks),
        network: Arc::new(world.network.clone()),
        keep_alive: KeepAliveOn::Task,
    }
}

/// The clock of the node, with the planted defect if it is one of that clock.
fn of_node(world: &World, clock: VirtualClock) -> VirtualClock {
    match world.planted {
        Some(Planted::FastNode) => clock.at_threefold_speed(),
        _ => clock,
    }
}

fn clock_of(seed: u64, name: &str) -> VirtualClock {
    let uptime_s = SeededRandom::of(seed, &format!("{name}, clock")).between(0, UPTIME_MAX_S);
    VirtualClock::up_for(Duration::from_secs(uptime_s))
}
