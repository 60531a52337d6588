//! The cluster, its tenants and its namespaces, as tables.

mod members;

use serde::Serialize;
use tonic::transport::Endpoint;

use tenure_api::v1::StatusRequest;
use tenure_api::v1::cluster_client::ClusterClient;
use tenure_client::{Client, GroupInfo, NamespaceInfo, NodeInfo, StatusReply};

use crate::args::Global;
use crate::args::cluster::{ClusterCommand, NamespaceCommand, TenantCommand};
use crate::exit::Failure;
use crate::output::{Answer, Decimal, Output, fields, table};

/// An endpoint is asked for this part of the time for a request before the next one is.
const ASK_PART: u32 = 4;

/// Runs a command of `tenure tenant`.
///
/// # Errors
/// Those of the call.
pub(crate) async fn tenant(command: &TenantCommand, client: &Client, output: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Tenant {
        tenant: String,
    }
    let TenantCommand::Ls = command;
    let tenants: Vec<Tenant> = client
        .tenants()
        .await?
        .into_iter()
        .map(|tenant| Tenant { tenant })
        .collect();
    output.rows(["TENANT"], &tenants, |row| [row.tenant.clone()])
}

/// Runs a command of `tenure namespace`, over one tenant or all.
///
/// # Errors
/// Those of the call.
pub(crate) async fn namespace(
    command: &NamespaceCommand,
    tenant: Option<&str>,
    client: &Client,
    output: &mut Output,
) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Namespace {
        tenant: String,
        namespace: String,
        home_group: u32,
    }
    let NamespaceCommand::Ls = command;
    let row = |info: NamespaceInfo| Namespace {
        tenant: info.tenant,
        namespace: info.namespace,
        home_group: info.home_group,
    };
    let namespaces: Vec<Namespace> = client.namespaces(tenant).await?.into_iter().map(row).collect();
    output.rows(["TENANT", "NAMESPACE", "HOME"], &namespaces, |row| {
        [row.tenant.clone(), row.namespace.clone(), row.home_group.to_string()]
    })
}

/// Runs a command of `tenure cluster`.
///
/// # Errors
/// Those of the call; the node does not serve, which is said after what it knows.
pub(crate) async fn cluster(
    command: &ClusterCommand,
    global: &Global,
    client: &Client,
    output: &mut Output,
) -> Result<(), Failure> {
    match *command {
        ClusterCommand::Status => status(global, client, output).await,
        ClusterCommand::Nodes => members::nodes(global, output).await,
        ClusterCommand::Groups => members::groups(global, output).await,
        ClusterCommand::TransferLeader { group, node } => members::transfer(global, group, node, output).await,
        ClusterCommand::Drain { node, undo } => members::drain(global, node, undo, output).await,
        ClusterCommand::Remove { node, yes } => members::remove(global, node, yes, output).await,
    }
}

/// `tenure cluster status`.
async fn status(global: &Global, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let status = match asked_directly(global).await {
        Some(reply) => reply,
        // Nobody answers. The client says best why.
        None => client.status().await?,
    };
    let status = Status::new(status);
    output.answer(&status)?;
    if status.serving {
        return Ok(());
    }
    Err(Failure::NotServing {
        what: format!("node {} does not serve: {}", status.node, status.not_serving_reason),
        remedy: "wait, or look at its log".to_owned(),
    })
}

/// Asks the first node that answers. A node that does not serve takes in no client, but it says of itself what it knows,
/// so this asks without being one.
async fn asked_directly(global: &Global) -> Option<StatusReply> {
    let patience = global.timeout / ASK_PART;
    for endpoint in &global.endpoints {
        let asking = async {
            let node = Endpoint::from_shared(format!("http://{}", endpoint.trim())).ok()?;
            let channel = node.connect().await.ok()?;
            let reply = ClusterClient::new(channel).status(StatusRequest {}).await.ok()?;
            Some(reply.into_inner())
        };
        if let Ok(Some(reply)) = tokio::time::timeout(patience, asking).await {
            return Some(reply);
        }
    }
    None
}

/// What a node knows of the cluster and of itself.
#[derive(Serialize)]
struct Status {
    cluster: String,
    node: Decimal,
    address: String,
    version: String,
    serving: bool,
    not_serving_reason: String,
    home_groups: u32,
    nodes: Vec<Node>,
    groups: Vec<Group>,
}

/// A node.
#[derive(Serialize)]
struct Node {
    node: Decimal,
    address: String,
}

/// A group, as the node's replica knows it.
#[derive(Serialize)]
struct Group {
    group: u32,
    leader: Option<Decimal>,
    term: Decimal,
    last_index: Decimal,
    applied_index: Decimal,
    revision: Decimal,
    voters: Vec<Decimal>,
    learners: Vec<Decimal>,
    stopped_reason: String,
}

impl Status {
    fn new(reply: StatusReply) -> Status {
        Status {
            cluster: reply.cluster_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            node: Decimal(reply.node_id),
            address: reply.address,
            version: reply.version,
            serving: reply.serving,
            not_serving_reason: reply.not_serving_reason,
            home_groups: reply.home_groups,
            nodes: reply.nodes.into_iter().map(Node::new).collect(),
            groups: reply.groups.into_iter().map(Group::new).collect(),
        }
    }
}

impl Node {
    fn new(info: NodeInfo) -> Node {
        Node {
            node: Decimal(info.id),
            address: info.address,
        }
    }
}

impl Group {
    fn new(info: GroupInfo) -> Group {
        Group {
            group: info.group,
            leader: info.leader.map(Decimal),
            term: Decimal(info.term),
            last_index: Decimal(info.last_index),
            applied_index: Decimal(info.applied_index),
            revision: Decimal(info.revision),
            voters: info.voters.into_iter().map(Decimal).collect(),
            learners: info.learners.into_iter().map(Decimal).collect(),
            stopped_reason: info.stopped_reason,
        }
    }

    fn state(&self) -> String {
        match self.stopped_reason.as_str() {
            "" => "runs".to_owned(),
            reason => format!("stopped: {reason}"),
        }
    }
}

impl Answer for Status {
    fn text(&self, line: &mut Vec<u8>) {
        let serving = match self.serving {
            true => "yes".to_owned(),
            false => format!("no: {}", self.not_serving_reason),
        };
        let about = fields(&[
            ("cluster", self.cluster.clone()),
            ("node", format!("{} at {}", self.node, self.address)),
            ("version", self.version.clone()),
            ("serving", serving),
            ("home groups", self.home_groups.to_string()),
        ]);
        let nodes = self
            .nodes
            .iter()
            .map(|node| [node.node.to_string(), node.address.clone()]);
        let groups = self.groups.iter().map(|group| {
            [
                group.group.to_string(),
                group.leader.map_or_else(|| "-".to_owned(), |leader| leader.to_string()),
                group.term.to_string(),
                group.last_index.to_string(),
                group.applied_index.to_string(),
                group.revision.to_string(),
                list(&group.voters),
                list(&group.learners),
                group.state(),
            ]
        });
        let titles = [
            "GROUP", "LEADER", "TERM", "LAST", "APPLIED", "REVISION", "VOTERS", "LEARNERS", "STATE",
        ];
        let text = format!(
            "{about}\n\n{}\n{}",
            table(["NODE", "ADDRESS"], nodes),
            table(titles, groups)
        );
        line.extend(text.trim_end().as_bytes());
    }
}

fn list(nodes: &[Decimal]) -> String {
    match nodes {
        [] => "-".to_owned(),
        nodes => nodes.iter().map(Decimal::to_string).collect::<Vec<_>>().join(","),
    }
}
