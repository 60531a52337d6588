//! What serves: `tenure dev` and `tenure start`.
//!
//! Standard output gets one line, `ready ADDR`, once the node serves; logs go to standard error. The first signal stops
//! the node and a later one ends the process at once. `nodes` runs several nodes as processes of their own.

mod nodes;

use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::num::NonZero;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Resource, Rlimit, Signal as ProcessSignal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use tenure_node::config::{CONNECTIONS_MAX, HOME_GROUPS_DEV};
use tenure_node::node::OpenState;
use tenure_node::{Node, NodeConfig, Runtime, StartError};
use tenure_storage::error::OpenError;
use tenure_storage::state::{DiskEngine, DiskOptions, StateEngine};

use crate::args::server::{Dev, Start};
use crate::exit::Failure;
use crate::logs;
use crate::output::{Answer, Output};

/// File descriptors that are kept for the log, the state and what the process itself needs.
const DESCRIPTORS_KEPT: u64 = 512;
/// The fewest connections that are worth serving, if descriptors are that short.
const CONNECTIONS_MIN: u64 = 16;
/// What this version does not do yet.
const NOT_IN_THIS_VERSION: &str = "is not in this version";
/// The exit status when a second signal does not let the node finish.
const CUT_SHORT: i32 = 1;
/// A signal so soon after the first is the same wish: `timeout`, and a terminal, may send two at once.
const SAME_WISH: Duration = Duration::from_millis(100);
/// How long the tasks of a node that has stopped are waited for. They have nothing left to do.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// `tenure dev`.
///
/// # Errors
/// The node could not start, or failed while it served.
pub(crate) fn dev(arguments: &Dev, output: &mut Output) -> Result<(), Failure> {
    match arguments.nodes {
        1 => {}
        0 => return Err(Failure::settings("--nodes 0 is no cluster", "leave it out")),
        nodes => return nodes::run(nodes, &arguments.data_dir, &arguments.listen, output),
    }
    if nodes::are_in(&arguments.data_dir) {
        let what = format!("{} holds several nodes", arguments.data_dir.display());
        return Err(Failure::settings(
            what,
            "say how many with --nodes, or choose another folder",
        ));
    }
    logs::of_a_server()?;
    let config = NodeConfig {
        data_dir: arguments.data_dir.clone(),
        listen: address(&arguments.listen)?,
        advertise: None,
        join: Vec::new(),
        home_groups: HOME_GROUPS_DEV,
        connections_max: connections_max()?,
        reserve_bytes: None,
        log_entries_kept: None,
        log_segment_bytes: None,
        insecure: false,
    };
    serve(config, output)
}

/// `tenure start`.
///
/// # Errors
/// The node could not start, or failed while it served.
pub(crate) fn start(arguments: &Start, output: &mut Output) -> Result<(), Failure> {
    if arguments.config.is_some() {
        return Err(not_yet("--config", "give the settings as options"));
    }
    if let Some(parent) = arguments.with_parent {
        end_with(parent)?;
    }
    logs::of_a_server()?;
    let config = NodeConfig {
        data_dir: arguments.data_dir.clone(),
        listen: address(&arguments.listen)?,
        advertise: arguments.advertise.clone(),
        join: arguments.join.clone(),
        home_groups: arguments.home_groups,
        connections_max: connections_max()?,
        reserve_bytes: None,
        log_entries_kept: Some(arguments.log_entries_kept),
        log_segment_bytes: None,
        insecure: arguments.insecure,
    };
    // Looked at first, so that a folder is not even made under wrong settings.
    config.check().map_err(|error| not_started(StartError::Config(error)))?;
    serve(config, output)
}

/// Ends this process when the one that started it ends, even if that is killed.
fn end_with(parent: u32) -> Result<(), Failure> {
    let failed = |why: String| Failure::failed(why, "start it again");
    set_parent_process_death_signal(Some(ProcessSignal::KILL)).map_err(|error| {
        failed(format!(
            "the process cannot be tied to the one that started it: {error}"
        ))
    })?;
    // It may have ended before.
    let parent = i32::try_from(parent).ok().and_then(Pid::from_raw);
    match getppid() == parent {
        true => Ok(()),
        false => Err(failed("the process that started this one has ended".to_owned())),
    }
}

/// Raises the limit on file descriptors as far as this process may, and says how many connections fit below it.
///
/// # Errors
/// There are too few for the log and the state, which would fail for want of one later.
fn connections_max() -> Result<usize, Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = CONNECTIONS_MAX as u64 + DESCRIPTORS_KEPT;
    let raised = limit.maximum.unwrap_or(wanted).min(wanted);
    if limit.current.is_some_and(|current| current < raised) {
        let asked = Rlimit {
            current: Some(raised),
            ..limit
        };
        if setrlimit(Resource::Nofile, asked).is_ok() {
            limit = asked;
        }
    }
    let descriptors = limit.current.unwrap_or(wanted);
    let connections = descriptors.saturating_sub(DESCRIPTORS_KEPT);
    if connections < CONNECTIONS_MIN {
        let needed = DESCRIPTORS_KEPT + CONNECTIONS_MIN;
        let what = format!("the process may open {descriptors} files, and a node needs {needed}");
        return Err(Failure::failed(what, "raise the limit on open files (ulimit -n)"));
    }
    if connections < CONNECTIONS_MAX as u64 {
        tracing::warn!(
            descriptors,
            connections,
            "few file descriptors: raise the limit to serve more connections"
        );
    }
    let connections = usize::try_from(connections).unwrap_or(CONNECTIONS_MAX);
    Ok(connections.min(CONNECTIONS_MAX))
}

fn not_yet(what: &str, remedy: &str) -> Failure {
    Failure::settings(format!("{what} {NOT_IN_THIS_VERSION}"), remedy)
}

/// Where to listen. A name is looked up.
fn address(listen: &str) -> Result<SocketAddr, Failure> {
    let wrong = |why: String| Failure::settings(format!("--listen {listen}: {why}"), "give it as HOST:PORT");
    let mut found = listen.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("no address has this name".to_owned()))
}

/// The line that says that the node serves.
#[derive(Serialize)]
struct Ready {
    ready: Vec<String>,
}

impl Answer for Ready {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend(format!("ready {}", self.ready.join(",")).into_bytes());
    }
}

fn serve(config: NodeConfig, output: &mut Output) -> Result<(), Failure> {
    check_address(config.listen)?;
    // The log has a thread of its own, which is worth a core where answers are synced.
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.saturating_sub(1).max(1))
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no thread could be started: {error}"), "free some resources"))?;
    let result = runtime.block_on(run(config, output));
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    result
}

/// An address that is not free is noticed before the folder is even made. The node takes it for itself later on.
fn check_address(address: SocketAddr) -> Result<(), Failure> {
    TcpListener::bind(address)
        .map(drop)
        .map_err(|error| not_started(StartError::Listen { address, error }))
}

/// Runs a node until a signal comes or it fails.
async fn run(config: NodeConfig, output: &mut Output) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let started = tokio::select! {
        biased;
        () = signals.next() => return Ok(()),
        started = Node::start(config, Runtime::system(), open_on_disk()) => started,
    };
    let node = started.map_err(not_started)?;
    let id = node.id();
    let ready = Ready {
        ready: vec![node.address().to_string()],
    };
    match output.answer(&ready) {
        // Whoever started it does not read on, which is no reason not to serve.
        Ok(()) | Err(Failure::Closed) => {}
        Err(failure) => return Err(failure),
    }
    tokio::select! {
        biased;
        () = signals.next() => {}
        () = node.removed() => {
            node.stop().await;
            return Err(not_started(StartError::Removed { node: id }));
        }
        why = node.failed() => {
            let what = format!("the node has failed; what it acknowledged was synced before: {why}");
            return Err(Failure::failed(what, "mend the cause and start it again"));
        }
    }
    tracing::info!("stopping; a second signal ends the process at once");
    tokio::select! {
        biased;
        () = signals.next_wish() => process::exit(CUT_SHORT),
        () = node.stop() => Ok(()),
    }
}

/// The state of the groups is kept on disk.
pub(crate) fn open_on_disk() -> OpenState {
    Box::new(|folder| {
        let engine = DiskEngine::open(folder, DiskOptions::default())?;
        Ok(Arc::new(engine) as Arc<dyn StateEngine>)
    })
}

pub(crate) fn not_started(error: StartError) -> Failure {
    let what = error.to_string();
    match error {
        // These say what to do.
        StartError::Config(_) => Failure::Arguments { what },
        StartError::Folder(OpenError::Held { .. }) => Failure::failed(what, "stop that one, or choose another folder"),
        StartError::Folder(OpenError::Io { .. }) => Failure::failed(what, "look at the disk and the rights to it"),
        StartError::State(_) => Failure::failed("the node cannot start", what),
        StartError::Folder(_) => Failure::failed("the node cannot start", what),
        StartError::Join { .. } => Failure::failed(what, "look at those nodes, or give others with --join"),
        StartError::Removed { .. } => Failure::failed(
            what,
            "set its folder aside; with an empty one and --join it comes back as a new node",
        ),
        StartError::Listen { .. } => Failure::failed(what, "free the address, or choose another with --listen"),
        _ => Failure::failed(what, "look at the log above"),
    }
}

/// Ctrl-C, and the polite request to stop.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Signals, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::failed(format!("signals cannot be received: {error}"), "report it"))
        };
        let interrupt = listen(SignalKind::interrupt())?;
        let terminate = listen(SignalKind::terminate())?;
        Ok(Signals { interrupt, terminate })
    }

    /// Returns at the next signal that comes later than with the one before.
    async fn next_wish(&mut self) {
        let begun = Instant::now();
        loop {
            self.next().await;
            if begun.elapsed() >= SAME_WISH {
                return;
            }
        }
    }

    /// Returns at the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
