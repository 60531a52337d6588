//! The members of the cluster: `cluster nodes`, `groups`, `transfer-leader`, `drain` and `remove`.
//!
//! Each call may be made again, so it goes from endpoint to endpoint until one answers or the time is over.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use tenure_api::Outcome;
use tenure_api::v1::membership_client::MembershipClient;
use tenure_api::v1::{
    DrainNodeRequest, GroupState, ListGroupsRequest, ListNodesRequest, MembershipReply, NodeState, RemoveNodeRequest,
    TransferLeaderRequest, WireError,
};
use tenure_client::Error;

use super::{ASK_PART, list};
use crate::args::Global;
use crate::duration;
use crate::exit::Failure;
use crate::output::{Answer, Decimal, Output};

/// The pause after every endpoint was asked in vain.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How long a drained node may take to hand over what it leads and where it votes.
const DRAINED_WITHIN: Duration = Duration::from_secs(60);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A node.
#[derive(Serialize)]
struct Node {
    node: Decimal,
    address: String,
    connected: bool,
    drained: bool,
    leads: u32,
    votes: u32,
    behind: Option<Decimal>,
}

/// A group.
#[derive(Serialize)]
struct Group {
    group: u32,
    leader: Option<Decimal>,
    chosen_leader: Option<Decimal>,
    term: Decimal,
    last_index: Decimal,
    voters: Vec<Decimal>,
    learners: Vec<Decimal>,
    changing: bool,
    replicas: Vec<Replica>,
    stopped_reason: String,
}

/// A replica that follows.
#[derive(Serialize)]
struct Replica {
    node: Decimal,
    behind: Option<Decimal>,
    connected: bool,
}

/// What was done.
#[derive(Serialize)]
#[serde(untagged)]
enum Done {
    Leads { group: u32, leader: Decimal },
    Marked { node: Decimal, drained: bool },
    Removed { removed: Decimal },
}

impl Answer for Done {
    fn text(&self, line: &mut Vec<u8>) {
        let text = match self {
            Done::Leads { group, leader } => format!("group {group} leader {leader}"),
            Done::Marked { node, drained: true } => format!("drained {node}"),
            Done::Marked { node, drained: false } => format!("not drained {node}"),
            Done::Removed { removed } => format!("removed {removed}"),
        };
        line.extend(text.into_bytes());
    }
}

/// `tenure cluster nodes`.
///
/// # Errors
/// Those of the call.
pub(super) async fn nodes(global: &Global, output: &mut Output) -> Result<(), Failure> {
    let nodes: Vec<Node> = list_nodes(global).await?.into_iter().map(Node::new).collect();
    let titles = ["NODE", "ADDRESS", "STATE", "LEADS", "VOTES", "BEHIND"];
    output.rows(titles, &nodes, |node| {
        [
            node.node.to_string(),
            node.address.clone(),
            node.state(),
            node.leads.to_string(),
            node.votes.to_string(),
            or_dash(node.behind),
        ]
    })
}

/// `tenure cluster groups`.
///
/// # Errors
/// Those of the call.
pub(super) async fn groups(global: &Global, output: &mut Output) -> Result<(), Failure> {
    let timeout_ms = duration::whole_ms(global.timeout / ASK_PART);
    let reply = ask(global, async |mut client: Members| {
        client.list_groups(ListGroupsRequest { timeout_ms }).await
    });
    let groups: Vec<Group> = reply.await?.groups.into_iter().map(Group::new).collect();
    let titles = [
        "GROUP", "LEADER", "CHOSEN", "TERM", "LAST", "VOTERS", "LEARNERS", "BEHIND", "STATE",
    ];
    output.rows(titles, &groups, |group| {
        [
            group.group.to_string(),
            or_dash(group.leader),
            or_dash(group.chosen_leader),
            group.term.to_string(),
            group.last_index.to_string(),
            list(&group.voters),
            list(&group.learners),
            group.behind(),
            group.state(),
        ]
    })
}

/// `tenure cluster transfer-leader`.
///
/// # Errors
/// Those of the call, or a verdict.
pub(super) async fn transfer(global: &Global, group: u32, node: u64, output: &mut Output) -> Result<(), Failure> {
    let request = TransferLeaderRequest {
        group,
        node,
        timeout_ms: duration::whole_ms(global.timeout),
    };
    let reply = ask(global, async |mut client: Members| {
        client.transfer_leader(request).await
    });
    verdict(reply.await?)?;
    output.answer(&Done::Leads {
        group,
        leader: Decimal(node),
    })
}

/// `tenure cluster remove`.
///
/// # Errors
/// Those of the call, or a verdict.
pub(super) async fn remove(global: &Global, node: u64, yes: bool, output: &mut Output) -> Result<(), Failure> {
    if !yes {
        return Err(Failure::unconfirmed(format!("node {node} would be removed for good")));
    }
    let request = RemoveNodeRequest {
        node,
        timeout_ms: duration::whole_ms(global.timeout),
    };
    let reply = ask(global, async |mut client: Members| client.remove_node(request).await);
    verdict(reply.await?)?;
    output.answer(&Done::Removed { removed: Decimal(node) })
}

/// `tenure cluster drain`.
///
/// # Errors
/// Those of the call; the node still leads or votes after a minute, where others could.
pub(super) async fn drain(global: &Global, node: u64, undo: bool, output: &mut Output) -> Result<(), Failure> {
    let request = DrainNodeRequest {
        node,
        undo,
        timeout_ms: duration::whole_ms(global.timeout),
    };
    let reply = ask(global, async |mut client: Members| client.drain_node(request).await);
    verdict(reply.await?)?;
    if !undo {
        wait_until_spare(global, node).await?;
    }
    output.answer(&Done::Marked {
        node: Decimal(node),
        drained: !undo,
    })
}

/// Says on standard error what a drained node still does, until that is all that it has to.
async fn wait_until_spare(global: &Global, node: u64) -> Result<(), Failure> {
    let deadline = Instant::now() + DRAINED_WITHIN;
    let mut said = String::new();
    loop {
        let known = list_nodes(global).await?.into_iter().find(|known| known.id == node);
        let known = known.ok_or_else(|| Failure::Missing {
            what: format!("node {node}"),
            remedy: "look at `tenure cluster nodes`".to_owned(),
        })?;
        let still = format!("node {node} leads {} groups and votes in {}", known.leads, known.votes);
        if still != said {
            // It goes on where nobody reads it.
            let _ = writeln!(std::io::stderr(), "{still}");
        }
        if known.spare {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::failed(
                format!("{still}, although it is drained"),
                "it goes on by itself: look at `tenure cluster nodes`",
            ));
        }
        said = still;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn list_nodes(global: &Global) -> Result<Vec<NodeState>, Failure> {
    let timeout_ms = duration::whole_ms(global.timeout / ASK_PART);
    let reply = ask(global, async |mut client: Members| {
        client.list_nodes(ListNodesRequest { timeout_ms }).await
    });
    Ok(reply.await?.nodes)
}

fn verdict(reply: MembershipReply) -> Result<(), Failure> {
    match reply.refused {
        done if done.is_empty() => Ok(()),
        why => Err(Failure::Kept { why }),
    }
}

type Members = MembershipClient<Channel>;

/// Asks one endpoint after the other until one answers, for as long as a request may take. Of what was in vain the worst is
/// told: it may have been done.
async fn ask<A>(global: &Global, call: impl AsyncFn(Members) -> Result<Response<A>, Status>) -> Result<A, Failure> {
    let deadline = Instant::now() + global.timeout;
    let mut worst: Option<Error> = None;
    loop {
        for endpoint in &global.endpoints {
            let error = match tokio::time::timeout_at(deadline, ask_one(endpoint, &call)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => Error::NoAnswer {
                    why: format!("{endpoint} did not answer in {}", duration::display(global.timeout)),
                    outcome: Outcome::Unknown,
                },
            };
            if matches!(error, Error::Server { .. }) && !error.code().retryable() {
                return Err(error.into());
            }
            if worst.as_ref().is_none_or(|worst| worst.outcome() <= error.outcome()) {
                worst = Some(error);
            }
        }
        if Instant::now() + ASK_AGAIN_AFTER >= deadline {
            let no_endpoint = || Failure::settings("there is no endpoint", "give one with --endpoints");
            return Err(worst.map_or_else(no_endpoint, Failure::from));
        }
        tokio::time::sleep(ASK_AGAIN_AFTER).await;
    }
}

async fn ask_one<A>(endpoint: &str, call: &impl AsyncFn(Members) -> Result<Response<A>, Status>) -> Result<A, Error> {
    let endpoint = endpoint.trim();
    let unreachable = |why: String| Error::Unreachable {
        why,
        outcome: Outcome::NotApplied,
    };
    let node = Endpoint::from_shared(format!("http://{endpoint}")).map_err(|error| unreachable(error.to_string()))?;
    let connected = node.connect().await;
    let channel = connected.map_err(|error| unreachable(format!("{endpoint}: {error}")))?;
    let answered = call(MembershipClient::new(channel)).await;
    answered.map(Response::into_inner).map_err(|status| of_status(&status))
}

fn of_status(status: &Status) -> Error {
    match WireError::from_status(status) {
        Ok(Some(error)) => Error::Server {
            outcome: error.known_outcome(),
            error: Box::new(error),
        },
        Ok(None) | Err(_) => Error::NoAnswer {
            why: status.message().to_owned(),
            outcome: Outcome::Unknown,
        },
    }
}

impl Node {
    fn new(state: NodeState) -> Node {
        Node {
            node: Decimal(state.id),
            address: state.address,
            connected: state.connected,
            drained: state.drained,
            leads: state.leads,
            votes: state.votes,
            behind: state.behind.map(Decimal),
        }
    }

    fn state(&self) -> String {
        let connected = if self.connected { "connected" } else { "not connected" };
        let drained = if self.drained { ", drained" } else { "" };
        format!("{connected}{drained}")
    }
}

impl Group {
    fn new(state: GroupState) -> Group {
        let all = |nodes: Vec<u64>| nodes.into_iter().map(Decimal).collect();
        let replicas = state.replicas.into_iter().map(|replica| Replica {
            node: Decimal(replica.node),
            behind: replica.behind.map(Decimal),
            connected: replica.connected,
        });
        Group {
            group: state.group,
            leader: state.leader.map(Decimal),
            chosen_leader: state.chosen_leader.map(Decimal),
            term: Decimal(state.term),
            last_index: Decimal(state.last_index),
            voters: all(state.voters),
            learners: all(state.learners),
            changing: state.changing,
            replicas: replicas.collect(),
            stopped_reason: state.stopped_reason,
        }
    }

    /// `NODE:ENTRIES` for each replica that follows.
    fn behind(&self) -> String {
        let each = self.replicas.iter().map(|replica| match replica.connected {
            true => format!("{}:{}", replica.node, or_dash(replica.behind)),
            false => format!("{}:gone", replica.node),
        });
        match each.collect::<Vec<_>>() {
            none if none.is_empty() => "-".to_owned(),
            each => each.join(","),
        }
    }

    fn state(&self) -> String {
        match (self.stopped_reason.as_str(), self.changing) {
            ("", false) => "runs".to_owned(),
            ("", true) => "voters change".to_owned(),
            (reason, _) => format!("stopped: {reason}"),
        }
    }
}

fn or_dash(number: Option<Decimal>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}
