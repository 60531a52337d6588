//! Which node leads, as each system tells it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::bench::server;

/// A look that takes longer is given up; another follows.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer to `srvr` is a few lines.
const ANSWER_LENGTH_MAX: u64 = 64 << 10;

/// The place among the addresses of the node that leads the group in which the measurement takes place, once that group
/// has a voter on every node. It makes the namespace, since there is no group before.
pub(super) fn leader_of_ours(tenure: &Path, addresses: &[&str]) -> Option<usize> {
    let ask = |words: &[&str]| {
        let mut command = Command::new(tenure);
        command.args(words).args(["--output", "json"]);
        command.args(["--endpoints", &addresses.join(",")]);
        server::output_within(&mut command, LOOK_TIMEOUT).ok()
    };
    ask(&["cache", "create", "tenure-bench"])?;
    let group = home_group(&ask(&["namespace", "ls"])?)?;
    place_of_leader(&ask(&["cluster", "status"])?, group, addresses)
}

fn home_group(namespaces: &str) -> Option<u32> {
    #[derive(Deserialize)]
    struct Namespace {
        tenant: String,
        namespace: String,
        home_group: u32,
    }
    let mut all = namespaces
        .lines()
        .filter_map(|line| serde_json::from_str::<Namespace>(line).ok());
    all.find(|row| row.tenant == "default" && row.namespace == "default")
        .map(|row| row.home_group)
}

fn place_of_leader(status: &str, group: u32, addresses: &[&str]) -> Option<usize> {
    #[derive(Deserialize)]
    struct Status {
        nodes: Vec<Node>,
        groups: Vec<Group>,
    }
    #[derive(Deserialize)]
    struct Node {
        node: String,
        address: String,
    }
    #[derive(Deserialize)]
    struct Group {
        group: u32,
        leader: Option<String>,
        voters: Vec<String>,
    }
    let status: Status = serde_json::from_str(status).ok()?;
    let complete = |group: &&Group| group.voters.len() == addresses.len();
    if status.groups.iter().filter(complete).count() < status.groups.len() {
        return None;
    }
    let leader = status
        .groups
        .iter()
        .find(|known| known.group == group)?
        .leader
        .clone()?;
    let address = status.nodes.iter().find(|node| node.node == leader)?.address.as_str();
    addresses.iter().position(|known| *known == address)
}

/// The place among the addresses of the node that leads, once all nodes answer.
pub(super) fn leader_of_etcd(addresses: &[&str]) -> Option<usize> {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").stderr(std::process::Stdio::null());
    command.args([
        "--endpoints",
        &addresses.join(","),
        "endpoint",
        "status",
        "--write-out",
        "json",
    ]);
    place_of_etcd(&server::output_within(&mut command, LOOK_TIMEOUT).ok()?, addresses)
}

fn place_of_etcd(status: &str, addresses: &[&str]) -> Option<usize> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "Endpoint")]
        endpoint: String,
        #[serde(rename = "Status")]
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        header: Header,
        #[serde(default)]
        leader: u64,
    }
    #[derive(Deserialize)]
    struct Header {
        member_id: u64,
    }
    let answers: Vec<Answer> = serde_json::from_str(status).ok()?;
    if answers.len() < addresses.len() {
        return None;
    }
    let leads = |answer: &&Answer| answer.status.leader == answer.status.header.member_id;
    let leader = answers.iter().find(leads)?;
    addresses.iter().position(|known| *known == leader.endpoint)
}

/// The place among the addresses of the node that leads, once all nodes answer that they serve.
pub(super) fn leader_of_zookeeper(addresses: &[&str]) -> Option<usize> {
    let modes: Vec<String> = addresses
        .iter()
        .map(|address| mode(&srvr(address)?))
        .collect::<Option<_>>()?;
    modes.iter().position(|mode| mode == "leader" || mode == "standalone")
}

/// What a node of ZooKeeper says of itself.
fn srvr(address: &str) -> Option<String> {
    let address: SocketAddr = address.parse().ok()?;
    let mut stream = TcpStream::connect_timeout(&address, LOOK_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(LOOK_TIMEOUT)).ok()?;
    stream.write_all(b"srvr").ok()?;
    let mut text = String::new();
    stream.take(ANSWER_LENGTH_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

fn mode(srvr: &str) -> Option<String> {
    srvr.lines()
        .find_map(|line| line.strip_prefix("Mode: "))
        .map(|mode| mode.trim().to_owned())
}

#[cfg(test)]
mod tests;
