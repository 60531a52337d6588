//! Nodes of etcd and ZooKeeper, with the settings that their packages have unless something else is said here.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use crate::bench::server::{self, Server, System};
use crate::failure::Failure;

/// Where Debian keeps ZooKeeper, and what writes its log to standard error.
const ZOOKEEPER_CLASSES: &str = "/usr/share/java/slf4j-simple.jar:/usr/share/java/zookeeper.jar";
/// More than its folders and trees here need.
const ZOOKEEPER_MEMORY: &str = "-Xmx512m";
/// Addresses of a node: for clients, for other nodes, and a second one for other nodes with ZooKeeper.
const PORTS: usize = 3;

/// Where one node listens.
#[derive(Clone, Copy, Debug)]
struct Ports {
    client: u16,
    peer: u16,
    election: u16,
}

/// Starts so many nodes of etcd; it syncs what it answers unless told not to.
pub(super) fn etcd<'a>(
    folder: &Path,
    nodes: usize,
    traced: impl Fn(usize) -> Option<&'a Path>,
) -> Result<Vec<Server>, Failure> {
    let ports = free_ports(nodes)?;
    start(System::Etcd, &ports, |number| {
        let data = folder.join(name(number));
        let mut command = server::watched(Path::new("etcd"), traced(number));
        command.args(etcd_arguments(number, &ports)).arg("--data-dir").arg(data);
        Ok(command)
    })
}

/// Starts so many nodes of ZooKeeper.
pub(super) fn zookeeper<'a>(
    folder: &Path,
    nodes: usize,
    traced: impl Fn(usize) -> Option<&'a Path>,
) -> Result<Vec<Server>, Failure> {
    let ports = free_ports(nodes)?;
    start(System::ZooKeeper, &ports, |number| {
        let data = folder.join(name(number));
        server::empty(&data)?;
        let settings = folder.join(format!("{}.cfg", name(number)));
        let written = std::fs::write(&settings, zookeeper_settings(number, &ports, &data))
            .and_then(|()| std::fs::write(data.join("myid"), (number + 1).to_string()));
        written.map_err(|error| Failure::Failed(format!("cannot write settings of ZooKeeper: {error}")))?;
        let mut command = server::watched(Path::new("java"), traced(number));
        command
            .args([ZOOKEEPER_MEMORY, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"])
            .args([
                "-cp",
                ZOOKEEPER_CLASSES,
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            ])
            .arg(settings);
        Ok(command)
    })
}

fn start(
    system: System,
    ports: &[Ports],
    command: impl Fn(usize) -> Result<std::process::Command, Failure>,
) -> Result<Vec<Server>, Failure> {
    let start_one = |(number, ports): (usize, &Ports)| {
        let mut command = command(number)?;
        // It is told on standard error when something is wrong; a leader that goes is not.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Server::spawn(system, &mut command)?;
        server.address = local(ports.client);
        Ok(server)
    };
    ports.iter().enumerate().map(start_one).collect()
}

fn name(number: usize) -> String {
    format!("node-{}", number + 1)
}

fn local(port: u16) -> String {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string()
}

fn etcd_arguments(number: usize, ports: &[Ports]) -> Vec<String> {
    let client = format!("http://{}", local(ports[number].client));
    let peer = |ports: &Ports| format!("http://{}", local(ports.peer));
    let all: Vec<String> = ports
        .iter()
        .enumerate()
        .map(|(number, ports)| format!("{}={}", name(number), peer(ports)))
        .collect();
    let own = peer(&ports[number]);
    [
        ("--name", name(number)),
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client),
        ("--listen-peer-urls", own.clone()),
        ("--initial-advertise-peer-urls", own),
        ("--initial-cluster", all.join(",")),
        ("--initial-cluster-state", "new".to_owned()),
        ("--logger", "zap".to_owned()),
        ("--log-level", "error".to_owned()),
    ]
    .into_iter()
    .flat_map(|(option, value)| [option.to_owned(), value])
    .collect()
}

/// The intervals are those of the example that comes with it; a sync before each answer is its default, spelled out.
fn zookeeper_settings(number: usize, ports: &[Ports], data: &Path) -> String {
    let mut text = format!(
        "tickTime=2000\ninitLimit=10\nsyncLimit=5\nforceSync=yes\ndataDir={}\nclientPortAddress=127.0.0.1\n\
         clientPort={}\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n",
        data.display(),
        ports[number].client
    );
    // A node that knows others of itself alone serves without an election.
    if ports.len() > 1 {
        for (number, Ports { peer, election, .. }) in ports.iter().enumerate() {
            text.push_str(&format!("server.{}=127.0.0.1:{peer}:{election}\n", number + 1));
        }
    }
    text
}

/// Ports that nobody uses now.
fn free_ports(nodes: usize) -> Result<Vec<Ports>, Failure> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // All are held until the last is known, so that none comes twice.
    let listeners = (0..nodes * PORTS).map(bind).collect::<io::Result<Vec<TcpListener>>>();
    let numbers = listeners.and_then(|listeners| {
        let port = |listener: &TcpListener| Ok(listener.local_addr()?.port());
        listeners.iter().map(port).collect::<io::Result<Vec<u16>>>()
    });
    let numbers = numbers.map_err(|error| Failure::Failed(format!("no port is free: {error}")))?;
    let (nodes, _) = numbers.as_chunks::<PORTS>();
    let ports = nodes.iter().map(|[client, peer, election]| Ports {
        client: *client,
        peer: *peer,
        election: *election,
    });
    Ok(ports.collect())
}

#[cfg(test)]
mod tests;
