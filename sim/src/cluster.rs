//! The machines: nodes that crash and come back, and clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_client::runtime::KeepAliveOn;
use tenure_client::{Client, ClientRuntime, RequestMode};
use tenure_core::ids::GroupId;
use tenure_node::{Node, NodeConfig};
use tenure_replica::Runtime;
use tenure_storage::state::StateEngine;
use turmoil::Sim;

use crate::calls::Calls;
use crate::clock::VirtualClock;
use crate::disk::NodeDisk;
use crate::journal::Journal;
use crate::leaders::Leaders;
use crate::ledger::Ledger;
use crate::net::VirtualNetwork;
use crate::plan::{CrashKind, Event, FaultKind, Pairs};
use crate::random::SeededRandom;
use crate::records::{self, Records};
use crate::setup::{Planted, Setup};
use crate::tasks::VirtualTasks;

/// Where clients and other nodes reach a node.
const PORT: u16 = 7_400;
/// Home groups of the cluster.
pub(crate) const HOME_GROUPS: u32 = 2;
/// How long a file of a node's log is: short, so that a run has many, and because each is in memory twice.
const LOG_SEGMENT_BYTES: u64 = 64 << 10;
/// No machine had been up for longer when the simulation began.
const UPTIME_MAX_S: u64 = 1_000_000;

/// What all parts of one run share.
pub(crate) struct World {
    /// What determines the run.
    pub(crate) setup: Setup,
    /// What can be observed.
    pub(crate) journal: Journal,
    /// What clients were promised.
    pub(crate) ledger: Ledger,
    /// What clients were promised of streams.
    pub(crate) records: Records,
    /// What clients asked for and were told of keys that several of them write.
    pub(crate) calls: Calls,
    /// Who leads, as the nodes say.
    pub(crate) leaders: Leaders,
    /// The network of all machines.
    pub(crate) network: VirtualNetwork,
}

impl World {
    /// A world in which nothing has happened yet.
    pub(crate) fn new(setup: Setup) -> Arc<World> {
        Arc::new(World {
            setup,
            journal: Journal::default(),
            ledger: Ledger::default(),
            records: Records::new(setup.shortest(records::WINDOW)),
            calls: Calls::default(),
            leaders: Leaders::default(),
            network: VirtualNetwork::default(),
        })
    }

    /// Where all nodes are reached.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.setup.node_names().iter().map(|name| endpoint(name)).collect()
    }

    /// A client on a machine of its own, which knows all nodes.
    pub(crate) fn client(&self, name: &str, timeout: Duration) -> Result<Client, tenure_client::Error> {
        self.client_with(name, timeout, RequestMode::Numbered)
    }

    /// The same with another identity of its requests.
    pub(crate) fn client_with(
        &self,
        name: &str,
        timeout: Duration,
        mode: RequestMode,
    ) -> Result<Client, tenure_client::Error> {
        let mut endpoints = self.endpoints();
        // Every client begins at another node.
        let first = SeededRandom::of(self.setup.seed, &format!("{name}, endpoints")).between(0, endpoints.len() as u64);
        endpoints.rotate_left(usize::try_from(first).unwrap_or(0));
        self.client_of(name, name, endpoints, timeout, mode)
    }

    /// A client, on the machine of this name, that knows only one of the nodes. A machine may have several.
    pub(crate) fn client_at(&self, name: &str, node: &str, timeout: Duration) -> Result<Client, tenure_client::Error> {
        let label = format!("{name} at {node}");
        self.client_of(name, &label, vec![endpoint(node)], timeout, RequestMode::Numbered)
    }

    fn client_of(
        &self,
        machine: &str,
        label: &str,
        endpoints: Vec<String>,
        timeout: Duration,
        mode: RequestMode,
    ) -> Result<Client, tenure_client::Error> {
        Client::builder()
            // Who knows one node wants to know what that one says.
            .only_given_endpoints(endpoints.len() == 1)
            .endpoints(endpoints)
            .label(label)
            .timeout(timeout)
            .request_mode(mode)
            .runtime(self.client_runtime(machine, label))
            .build()
    }

    fn client_runtime(&self, machine: &str, label: &str) -> ClientRuntime {
        let mut clock = clock_of(self.setup.seed, machine);
        if self.setup.planted == Some(Planted::SlowClocks) {
            clock = clock.at_speed((1, 2));
        }
        ClientRuntime {
            clock: Arc::new(clock),
            random: Arc::new(SeededRandom::of(self.setup.seed, &format!("{label}, client"))),
            tasks: Arc::new(VirtualTasks),
            network: Arc::new(self.network.clone()),
            keep_alive: KeepAliveOn::Task,
        }
    }
}

/// The machines of all nodes.
pub(crate) struct Machines {
    world: Arc<World>,
    nodes: Vec<Arc<NodeMachine>>,
}

impl Machines {
    /// Adds the machines to a simulation and starts the nodes. The first founds the cluster, and the others ask to be let
    /// in.
    pub(crate) fn start(world: &Arc<World>, sim: &mut Sim<'_>) -> Machines {
        let names = world.setup.node_names().into_iter().zip(1..);
        let nodes = names.map(|(name, number)| NodeMachine::start(world, sim, name, number));
        Machines {
            nodes: nodes.collect(),
            world: Arc::clone(world),
        }
    }

    /// Lets something happen to the machines or to their network.
    pub(crate) fn meet(&self, sim: &mut Sim<'_>, event: &Event) {
        let journal = &self.world.journal;
        match event {
            Event::Crash(node, kind) => self.node(node).crash(sim, *kind),
            Event::Restart(node, kind) => self.node(node).restart(sim, *kind),
            Event::Fault(pairs, kind) => {
                journal.note_at(sim.elapsed(), "network", format_args!("{kind:?} of {pairs}"));
                begin(sim, pairs, *kind);
            }
            Event::Repair(pairs, kind) => {
                journal.note_at(sim.elapsed(), "network", format_args!("{kind:?} of {pairs} is over"));
                end(sim, pairs, *kind);
            }
        }
    }

    fn node(&self, name: &str) -> &NodeMachine {
        let found = self.nodes.iter().find(|node| node.name == name);
        found.expect("events are about nodes that there are")
    }

    /// The machine of the node that was given this id.
    #[cfg(test)]
    pub(crate) fn named(&self, id: u64) -> &str {
        let mut nodes = self.nodes.iter();
        let found = nodes.find(|node| node.id.load(Ordering::Relaxed) == id);
        &found.expect("a node that does something has been given its id").name
    }

    /// What the disks have seen, in words.
    pub(crate) fn note_disks(&self, sim: &Sim<'_>) {
        for node in &self.nodes {
            let files = node.disk.files();
            let (used, syncs) = (files.used(), files.syncs());
            let what = format_args!(
                "{used} bytes in files of {}, {syncs} syncs since its last crash",
                node.name
            );
            self.world.journal.note_at(sim.elapsed(), "disk", what);
        }
    }

    /// How far each replica of a group is applied, and whether all have the same rows. None: one of them has nothing.
    pub(crate) fn replicas(&self, group: GroupId) -> Option<Replicas> {
        let mut applied = Vec::new();
        let mut exported: Vec<Vec<u8>> = Vec::new();
        for node in &self.nodes {
            let image = node.disk.state().group(group).ok()?.image().ok()?;
            applied.push(image.mark()?.index);
            let mut bytes = Vec::new();
            let done = tenure_core::snapshot::export(&image, &mut |chunk| {
                bytes.extend_from_slice(chunk);
                Ok::<(), std::convert::Infallible>(())
            });
            done.ok()?;
            exported.push(bytes);
        }
        Some(Replicas {
            as_far: applied.windows(2).all(|pair| pair[0] == pair[1]),
            equal: exported.windows(2).all(|pair| pair[0] == pair[1]),
            applied,
        })
    }
}

/// How the replicas of a group compare.
#[derive(Debug)]
pub(crate) struct Replicas {
    /// The last applied entry of each.
    pub(crate) applied: Vec<u64>,
    /// All are as far as each other.
    pub(crate) as_far: bool,
    /// All have the same rows.
    pub(crate) equal: bool,
}

/// The machine of a node, over all lives of the node.
struct NodeMachine {
    world: Arc<World>,
    name: String,
    number: usize,
    disk: NodeDisk,
    /// What decides about crashes.
    chance: SeededRandom,
    /// How often the node was started.
    lives: AtomicU64,
    /// The node's id, once it has one.
    id: AtomicU64,
    clock: std::sync::Mutex<Arc<VirtualClock>>,
}

impl NodeMachine {
    fn start(world: &Arc<World>, sim: &mut Sim<'_>, name: String, number: usize) -> Arc<NodeMachine> {
        let setup = &world.setup;
        let chance = match setup.nodes {
            1 => SeededRandom::of(setup.seed, "crashes"),
            _ => SeededRandom::of(setup.seed, &format!("crashes of {name}")),
        };
        let clock = clock_of(setup.seed, &name).at_speed(setup.speed(number));
        let machine = Arc::new(NodeMachine {
            world: Arc::clone(world),
            disk: NodeDisk::new(setup.planted == Some(Planted::LyingDisk)),
            chance,
            lives: AtomicU64::new(0),
            id: AtomicU64::new(0),
            clock: std::sync::Mutex::new(Arc::new(clock)),
            name,
            number,
        });
        let software = Arc::clone(&machine);
        sim.host(machine.name.as_str(), move || serve(Arc::clone(&software)));
        machine
    }

    fn crash(&self, sim: &mut Sim<'_>, kind: CrashKind) {
        // The disk first: whatever the node's parts do while they are torn down must not reach what is left.
        let what = self.disk.crash(kind, &self.chance);
        sim.crash(self.name.as_str());
        self.world.journal.note_at(sim.elapsed(), &self.name, what);
    }

    fn restart(&self, sim: &mut Sim<'_>, kind: CrashKind) {
        if kind == CrashKind::PowerLoss {
            let clock = VirtualClock::started_at(sim.elapsed()).at_speed(self.world.setup.speed(self.number));
            *self.locked_clock() = Arc::new(clock);
        }
        self.world
            .journal
            .note_at(sim.elapsed(), &self.name, "is started again");
        sim.bounce(self.name.as_str());
    }

    fn runtime(&self, life: u64) -> Runtime {
        let random = SeededRandom::of(self.world.setup.seed, &format!("{}, life {life}", self.name));
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

    fn config(&self) -> NodeConfig {
        let own = endpoint(&self.name);
        let others = self.world.endpoints().into_iter().filter(|other| *other != own);
        NodeConfig {
            data_dir: PathBuf::from("/tenure"),
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
            join: match self.number {
                1 => Vec::new(),
                _ => others.collect(),
            },
            advertise: Some(own),
            home_groups: HOME_GROUPS,
            connections_max: 1_000,
            reserve_bytes: None,
            log_entries_kept: None,
            log_segment_bytes: Some(LOG_SEGMENT_BYTES),
            insecure: true,
        }
    }

    fn locked_clock(&self) -> std::sync::MutexGuard<'_, Arc<VirtualClock>> {
        self.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// One life of the node: it ends by a crash from outside, and an end of its own fails the run.
async fn serve(machine: Arc<NodeMachine>) -> turmoil::Result {
    let life = machine.lives.fetch_add(1, Ordering::Relaxed) + 1;
    let engine = machine.disk.state();
    let open_state = Box::new(move |_folder: &_| Ok(Arc::new(engine) as Arc<dyn StateEngine>));
    let (journal, name) = (&machine.world.journal, &machine.name);
    journal.note(name, format_args!("life {life} begins"));
    let started = Node::start(machine.config(), machine.runtime(life), open_state).await;
    let node = started.map_err(|error| format!("{name} could not start: {error}"))?;
    journal.note(
        name,
        format_args!("serves on {}, cluster {:032x}", node.address(), node.cluster_id()),
    );
    machine.id.store(node.id(), Ordering::Relaxed);
    let why = node.failed().await;
    Err(format!("{name} gave up: {why}").into())
}

fn endpoint(name: &str) -> String {
    format!("{name}:{PORT}")
}

/// Lets the network between machines fail.
fn begin(sim: &Sim<'_>, pairs: &Pairs, kind: FaultKind) {
    for (one, other) in &pairs.0 {
        let (one, other) = (one.as_str(), other.as_str());
        match kind {
            FaultKind::Cut => sim.partition(one, other),
            FaultKind::CutForth => sim.partition_oneway(one, other),
            FaultKind::CutBack => sim.partition_oneway(other, one),
            FaultKind::Hold => sim.hold(one, other),
        }
    }
}

/// Lets it work again.
fn end(sim: &Sim<'_>, pairs: &Pairs, kind: FaultKind) {
    for (one, other) in &pairs.0 {
        let (one, other) = (one.as_str(), other.as_str());
        match kind {
            FaultKind::Cut => sim.repair(one, other),
            FaultKind::CutForth => sim.repair_oneway(one, other),
            FaultKind::CutBack => sim.repair_oneway(other, one),
            FaultKind::Hold => sim.release(one, other),
        }
    }
}

fn clock_of(seed: u64, name: &str) -> VirtualClock {
    let uptime_s = SeededRandom::of(seed, &format!("{name}, clock")).between(0, UPTIME_MAX_S);
    VirtualClock::up_for(Duration::from_secs(uptime_s))
}
