//! `tenure dev --nodes N`: a cluster of several nodes on this machine, each a process of its own that ends with this one.
//!
//! The folder of the cluster holds `NODES`, the addresses, and a folder for each node. The nodes keep their addresses over
//! restarts.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{CUT_SHORT, Ready, Signals, address};
use crate::exit::Failure;
use crate::logs;
use crate::output::Output;
use tenure_node::config::HOME_GROUPS_DEV;

/// Nodes of such a cluster.
const NODES_MAX: u32 = 9;
/// The file with the addresses.
const FILE: &str = "NODES";
const FIRST_LINE: &str = "tenure dev nodes 1";
/// How many ports behind the first are tried for the other nodes.
const PORTS_TRIED: u16 = 200;
/// How often the nodes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether a folder holds several nodes.
pub(super) fn are_in(folder: &Path) -> bool {
    folder.join(FILE).exists()
}

/// Runs so many nodes until a signal comes or all have ended.
///
/// # Errors
/// A node could not start, or all have ended by themselves.
pub(super) fn run(count: u32, folder: &Path, listen: &str, output: &mut Output) -> Result<(), Failure> {
    if count > NODES_MAX {
        let what = format!("--nodes {count} are more than {NODES_MAX}");
        return Err(Failure::settings(what, "start them with `tenure start`"));
    }
    logs::of_a_server()?;
    let (addresses, is_fresh) = settle(count, folder, address(listen)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::failed(
                format!("no event loop could be started: {error}"),
                "free some resources",
            )
        })?;
    // On this thread: a process that ends with its parent ends with the thread that started it.
    runtime.block_on(serve(folder, &addresses, is_fresh, output))
}

async fn serve(folder: &Path, addresses: &[SocketAddr], is_fresh: bool, output: &mut Output) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let mut nodes: Vec<Node> = Vec::new();
    let mut told = false;
    loop {
        // On a fresh folder one after the other, so that their ids are in order; later at the same time, since none can
        // serve before a majority is there.
        while nodes.len() < addresses.len() && !(is_fresh && nodes.last().is_some_and(|last| !last.is_ready)) {
            nodes.push(Node::start(nodes.len(), folder, addresses)?);
        }
        tokio::select! {
            biased;
            () = signals.next() => break,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        for node in &mut nodes {
            node.look();
        }
        if !told {
            if let Some(node) = nodes.iter().find(|node| node.has_ended) {
                let what = format!("node {} ended before it served", node.number);
                return Err(Failure::failed(what, "look at what it says above"));
            }
            if nodes.len() == addresses.len() && nodes.iter().all(|node| node.is_ready) {
                told = true;
                let ready = Ready {
                    ready: addresses.iter().map(SocketAddr::to_string).collect(),
                };
                match output.answer(&ready) {
                    // Whoever started it does not read on, which is no reason not to serve.
                    Ok(()) | Err(Failure::Closed) => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
        if nodes.iter().all(|node| node.has_ended) {
            return Err(Failure::failed("every node has ended", "look at what they say above"));
        }
    }
    tracing::info!("stopping; a second signal ends the nodes at once");
    for node in &nodes {
        node.ask_to_end();
    }
    let all_end = async {
        while !nodes.iter().all(|node| node.has_ended) {
            tokio::time::sleep(LOOK_EVERY).await;
            nodes.iter_mut().for_each(Node::look);
        }
    };
    let cut_short = tokio::select! {
        biased;
        () = signals.next_wish() => true,
        () = all_end => false,
    };
    if cut_short {
        // Their processes end with this one.
        std::process::exit(CUT_SHORT);
    }
    Ok(())
}

/// A node in a process of its own, which is killed when this is dropped.
struct Node {
    number: usize,
    child: Child,
    said: Receiver<String>,
    is_ready: bool,
    has_ended: bool,
}

impl Node {
    fn start(index: usize, folder: &Path, all: &[SocketAddr]) -> Result<Node, Failure> {
        let number = index + 1;
        let own = all[index];
        let failed = |error: std::io::Error| {
            Failure::failed(
                format!("node {number} could not be started: {error}"),
                "free some resources",
            )
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .args(["start", "--listen", &own.to_string(), "--data-dir"])
            .arg(node_folder(folder, number))
            .args(["--home-groups", &HOME_GROUPS_DEV.to_string()])
            .args(["--with-parent", &std::process::id().to_string()]);
        if index > 0 {
            let others = all.iter().filter(|address| **address != own).map(SocketAddr::to_string);
            command.arg("--join").arg(others.collect::<Vec<_>>().join(","));
        }
        // Of a group of its own, so that Ctrl-C reaches this process only, which stops the others in turn.
        let spawned = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = spawned.map_err(failed)?;
        tracing::info!(node = number, pid = child.id(), address = %own, "a node is started");
        let (sender, said) = channel();
        let stdout = child.stdout.take();
        let node = Node {
            number,
            child,
            said,
            is_ready: false,
            has_ended: false,
        };
        std::thread::Builder::new()
            .name(format!("node-{number}"))
            .spawn(move || {
                for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
                    let Ok(line) = line else { return };
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            })
            .map_err(failed)?;
        Ok(node)
    }

    /// Takes note of what has become of it.
    fn look(&mut self) {
        match self.said.try_recv() {
            Ok(line) => self.is_ready |= line.starts_with("ready "),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        if self.has_ended {
            return;
        }
        if let Ok(Some(status)) = self.child.try_wait() {
            self.has_ended = true;
            tracing::warn!(node = self.number, %status, "a node has ended");
        }
    }

    fn ask_to_end(&self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id.filter(|_| !self.has_ended) {
            // It may have ended in this moment.
            let _ = kill_process(id, Signal::TERM);
            // One that was stopped where it is ends only if it goes on.
            let _ = kill_process(id, Signal::CONT);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn node_folder(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("node-{number}"))
}

/// The addresses of the nodes, those that the folder keeps, but the first as it is asked for now; and whether the folder is
/// fresh.
fn settle(count: u32, folder: &Path, first: SocketAddr) -> Result<(Vec<SocketAddr>, bool), Failure> {
    let file = folder.join(FILE);
    let unusable = |error: std::io::Error| {
        let what = format!("{} cannot be used: {error}", file.display());
        Failure::failed(what, "look at the disk and the rights to it")
    };
    let mut addresses = match fs::read_to_string(&file) {
        Ok(text) => read(&text)
            .ok_or_else(|| Failure::failed(format!("{} cannot be read", file.display()), "set the folder aside"))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(unusable(error)),
    };
    let is_fresh = addresses.is_empty();
    if is_fresh && fs::read_dir(folder).is_ok_and(|mut names| names.next().is_some()) {
        let what = format!(
            "{} is not empty and holds no cluster of several nodes",
            folder.display()
        );
        return Err(Failure::settings(what, "choose another folder with --data-dir"));
    }
    if !is_fresh && addresses.len() != count as usize {
        let what = format!("{} holds {} nodes and not {count}", folder.display(), addresses.len());
        return Err(Failure::settings(what, "say so with --nodes, or choose another folder"));
    }
    match addresses.first_mut() {
        Some(kept) if first.port() == 0 => kept.set_ip(first.ip()),
        Some(kept) => *kept = first,
        None => addresses = free(count, first)?,
    }
    fs::create_dir_all(folder).map_err(unusable)?;
    let lines = addresses
        .iter()
        .map(SocketAddr::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    let half_made = folder.join(format!("{FILE}.tmp"));
    fs::write(&half_made, format!("{FIRST_LINE}\n{lines}\n")).map_err(unusable)?;
    fs::rename(&half_made, &file).map_err(unusable)?;
    Ok((addresses, is_fresh))
}

fn read(text: &str) -> Option<Vec<SocketAddr>> {
    let mut lines = text.lines();
    let is_ours = lines.next()? == FIRST_LINE;
    let addresses: Vec<_> = lines.map(str::parse).collect::<Result<_, _>>().ok()?;
    (is_ours && !addresses.is_empty() && addresses.len() <= NODES_MAX as usize).then_some(addresses)
}

/// The first address and free ones for the others, at the ports behind it.
fn free(count: u32, first: SocketAddr) -> Result<Vec<SocketAddr>, Failure> {
    let none = || Failure::failed("no port is free", "choose another one with --listen");
    let mut addresses = vec![first];
    if first.port() == 0 {
        let taken = TcpListener::bind(first).and_then(|taken| taken.local_addr());
        addresses = vec![taken.map_err(|_| none())?];
    }
    let after = addresses.first().map_or(0, SocketAddr::port);
    for port in (1..=PORTS_TRIED).filter_map(|step| after.checked_add(step)) {
        if addresses.len() == count as usize {
            break;
        }
        let next = SocketAddr::new(first.ip(), port);
        if TcpListener::bind(next).is_ok() {
            addresses.push(next);
        }
    }
    if addresses.len() == count as usize {
        Ok(addresses)
    } else {
        Err(none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_are_kept_and_the_first_is_the_one_that_is_asked_for() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let folder = folder.path().join("cluster");
        let first = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let (made, is_fresh) = settle(3, &folder, first("127.0.0.1:0")).expect("the folder is fresh");
        assert!(is_fresh && made.len() == 3);
        assert!(made.iter().all(|address| address.port() != 0));
        let again = settle(3, &folder, first("127.0.0.1:0")).expect("the same again");
        assert_eq!(again, (made.clone(), false));
        let (moved, _) = settle(3, &folder, first("127.0.0.1:9")).expect("the first may move");
        assert_eq!(moved[0], first("127.0.0.1:9"));
        assert_eq!(moved[1..], made[1..]);
        assert!(settle(5, &folder, first("127.0.0.1:0")).is_err(), "it holds three");
        assert!(are_in(&folder));
    }

    #[test]
    fn a_folder_of_something_else_is_refused() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        fs::write(folder.path().join("photo.jpg"), "not ours").expect("it is written");
        assert!(settle(3, folder.path(), "127.0.0.1:0".parse().expect("an address")).is_err());
        assert!(!are_in(folder.path()));
    }
}
