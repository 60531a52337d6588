//! What an operator asks of the cluster: who is there, who votes and leads, and changing that.

use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use tenure_core::command::SystemCommand;
use tenure_core::ids::{GroupId, NodeId};
use tenure_core::query::NodesView;
use tenure_replica::{MembershipError, Outcome, Progress, ReplicaStatus, Unavailable};

use super::book;
use crate::service::{Group, Service, ServiceError};

/// Groups that are asked at a time.
const GROUPS_AT_A_TIME: usize = 16;

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum OperatorError {
    /// A verdict: nothing changed, and why.
    Refused(String),
    /// There is no answer.
    Service(ServiceError),
}

impl From<ServiceError> for OperatorError {
    fn from(error: ServiceError) -> OperatorError {
        OperatorError::Service(error)
    }
}

/// A group as this node knows it, and as its leader does if that could be asked.
pub(crate) struct GroupSeen {
    pub(crate) group: GroupId,
    pub(crate) status: ReplicaStatus,
    pub(crate) progress: Option<Progress>,
}

/// All groups that run here, by id.
pub(crate) async fn groups(service: &Service, deadline: Duration) -> Vec<GroupSeen> {
    let left = deadline.saturating_sub(service.now()) / 2;
    let ask = async |group: &Group| GroupSeen {
        group: group.id,
        status: group.replica.status(),
        progress: match tokio::time::timeout(left, group.replica.progress()).await {
            Ok(Ok(progress)) => Some(progress),
            Ok(Err(_)) | Err(_) => None,
        },
    };
    let all = stream::iter(service.groups().cloned().collect::<Vec<_>>());
    let asked = all.map(|group| async move { ask(&group).await });
    asked.buffered(GROUPS_AT_A_TIME).collect().await
}

/// The nodes as of now.
///
/// # Errors
/// The system group did not answer.
pub(crate) async fn nodes(service: &Service, deadline: Duration) -> Result<NodesView, OperatorError> {
    Ok(book::nodes(service, deadline).await?)
}

/// Takes a node out of the cluster, if every group goes on without it.
///
/// # Errors
/// [`OperatorError`]; a verdict names the first group that does not.
pub(crate) async fn remove(service: &Service, node: NodeId, deadline: Duration) -> Result<(), OperatorError> {
    let view = book::nodes(service, deadline).await?;
    let is_there = view.nodes.iter().any(|known| known.id == node);
    if is_there && view.nodes.len() == 1 {
        return Err(OperatorError::Refused(format!(
            "node {} is the last one of the cluster",
            node.0
        )));
    }
    if is_there {
        if let Some((group, _)) = service.stopped_groups().next() {
            let why = format!(
                "group {} has stopped on the node that was asked: ask another one",
                group.0
            );
            return Err(OperatorError::Refused(why));
        }
        let all = stream::iter(service.groups().cloned().collect::<Vec<_>>());
        let asked = all.map(|group| async move { may_lose(&group, node).await });
        asked.buffered(GROUPS_AT_A_TIME).try_collect::<Vec<()>>().await?;
    }
    let of = view.nodes.len() as u64;
    service.system(SystemCommand::RemoveNode { node, of }, deadline).await?;
    tracing::info!(node = node.0, "a node is removed");
    Ok(())
}

async fn may_lose(group: &Group, node: NodeId) -> Result<(), OperatorError> {
    group.replica.may_lose(node).await.map_err(|error| match error {
        MembershipError::Refused { why } => OperatorError::Refused(why.to_string()),
        // It was a question: whatever became of it, nothing was changed.
        MembershipError::Unavailable(error) if error.outcome() == Outcome::Unknown => {
            unavailable(group, Unavailable::NoLeader)
        }
        MembershipError::Unavailable(error) => unavailable(group, error),
    })
}

/// Marks a node as drained, or takes the mark away.
///
/// # Errors
/// There is no such node, or the system group did not answer.
pub(crate) async fn drain(
    service: &Service,
    node: NodeId,
    draining: bool,
    deadline: Duration,
) -> Result<(), OperatorError> {
    let marked = service.system(SystemCommand::DrainNode { node, draining }, deadline);
    marked.await?;
    tracing::info!(node = node.0, draining, "a node is marked");
    Ok(())
}

/// Hands a group to a voter, and notes that it is to lead it.
///
/// # Errors
/// [`OperatorError`]. If that is unknown, it may lead and yet not be noted.
pub(crate) async fn transfer(
    service: &Service,
    group: GroupId,
    node: NodeId,
    deadline: Duration,
) -> Result<(), OperatorError> {
    let known = service.group(group)?;
    let view = book::nodes(service, deadline).await?;
    if view.draining.contains(&node) {
        return Err(OperatorError::Refused(format!("node {} is drained", node.0)));
    }
    let handed = known.replica.hand_to(node).await;
    handed.map_err(|error| match error {
        MembershipError::Refused { why } => OperatorError::Refused(why.to_string()),
        MembershipError::Unavailable(error) => unavailable(known, error),
    })?;
    // Before the placement hands it back.
    let chosen = service.system(SystemCommand::ChooseLeader { group, node }, deadline);
    chosen.await?;
    Ok(())
}

fn unavailable(group: &Group, error: Unavailable) -> OperatorError {
    OperatorError::Service(ServiceError::Unavailable { group: group.id, error })
}
