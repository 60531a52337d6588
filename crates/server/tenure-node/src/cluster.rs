//! Founding a cluster, and keeping every home group in revisions. `standing` says whose a folder is and lets a fresh one
//! ask to be let in, `book` knows where the nodes are and lets others in, `driver` makes the groups what the placement
//! says, `operator` does what an operator asks.

use std::time::Duration;

use tenure_core::command::{Command, Origin, Request, SystemCommand};
use tenure_core::ids::{GroupId, Namespace};
use tenure_core::response::SystemDone;

use crate::service::{Service, ServiceError};

pub(crate) mod book;
pub(crate) mod driver;
pub(crate) mod operator;
pub(crate) mod standing;

/// Tenant and namespace that exist from the first start.
pub(crate) const DEFAULT_NAME: &str = "default";
/// How long one step of founding may take before it is tried again.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a group is looked at for whether it needs a block.
const BLOCKS_LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// Founds a cluster of so many home groups, if this node is the one that does, as long as it is the only voter: others
/// come in only after that.
///
/// # Errors
/// A step of it failed.
pub(crate) async fn found_alone(service: &Service, home_groups: Option<u32>) -> Result<(), ServiceError> {
    let own = service.identity().node;
    let voters = service.group(GroupId::SYSTEM)?.replica.status().voters;
    match home_groups {
        Some(home_groups) if voters.iter().all(|voter| *voter == own) => found(service, home_groups).await,
        _ => Ok(()),
    }
}

/// Makes the cluster what it must be before the node serves. Every step is idempotent, so a crash in the middle
/// only means that the next start goes on.
async fn found(service: &Service, home_groups: u32) -> Result<(), ServiceError> {
    let cluster = service.identity().cluster;
    let folder = service.identity().folder;
    let address = service.identity().address.clone();
    service
        .system(
            SystemCommand::Found { cluster, home_groups },
            service.now() + STEP_TIMEOUT,
        )
        .await?;
    service
        .system(SystemCommand::AddNode { folder, address }, service.now() + STEP_TIMEOUT)
        .await?;
    let namespace = Namespace {
        tenant: DEFAULT_NAME.to_owned(),
        name: DEFAULT_NAME.to_owned(),
    };
    service
        .system(
            SystemCommand::AssignNamespace { namespace },
            service.now() + STEP_TIMEOUT,
        )
        .await?;
    for home in homes(service) {
        supply(service, home).await?;
    }
    Ok(())
}

/// Gives the groups that this node leads their next block when they run low, for as long as the node lives.
pub(crate) async fn keep_in_revisions(service: Service) {
    loop {
        tokio::time::sleep(BLOCKS_LOOKED_AT_EVERY).await;
        for home in homes(&service) {
            if let Err(error) = supply(&service, home).await {
                tracing::warn!(group = %home, %error, "no block of revisions was taken, trying again");
            }
        }
    }
}

/// Takes a block for a group that is low. If the answer is lost, a block stays unused: a hole, which is allowed.
async fn supply(service: &Service, home: GroupId) -> Result<(), ServiceError> {
    let status = service.group(home)?.replica.status();
    if !status.leads || !status.wants_block {
        return Ok(());
    }
    let mut first = reserve(service, SystemCommand::ReserveBlock).await?;
    let behind = status.revision.0 + 1;
    if first < behind {
        // A group that was recovered alone goes on above a floor of its own, of which the system group knows nothing.
        first = reserve(service, SystemCommand::ReserveBlockFrom { at_least: behind }).await?;
    }
    let request = Request {
        origin: Origin::Anonymous,
        command: Command::TakeBlock { first },
    };
    service.propose_own(home, request, service.now() + STEP_TIMEOUT).await?;
    Ok(())
}

/// Has the system group reserve a block, and returns its first revision.
async fn reserve(service: &Service, command: SystemCommand) -> Result<u64, ServiceError> {
    let reserved = service.system(command, service.now() + STEP_TIMEOUT).await?;
    match reserved {
        SystemDone::BlockReserved { first } => Ok(first),
        _ => Err(ServiceError::Internal(
            "the system group gave another answer".to_owned(),
        )),
    }
}

/// The home groups that run.
fn homes(service: &Service) -> Vec<GroupId> {
    service
        .groups()
        .filter(|group| group.replica.status().stopped.is_none())
        .map(|group| group.id)
        .filter(|group| *group != GroupId::SYSTEM)
        .collect()
}
