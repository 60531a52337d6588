//! Founding a cluster of one node, and keeping every home group in revisions.

use std::time::Duration;

use tenure_core::command::{Command, Origin, Request, SystemCommand};
use tenure_core::ids::{GroupId, Namespace};
use tenure_core::response::SystemDone;

use crate::service::{Service, ServiceError};

/// Tenant and namespace that exist from the first start.
pub(crate) const DEFAULT_NAME: &str = "default";
/// How long one step of founding may take before it is tried again.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a group is looked at for whether it needs a block.
const BLOCKS_LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// Makes the cluster what it must be before the node serves. Every step is idempotent, so a crash in the middle
/// only means that the next start goes on.
pub(crate) async fn found(service: &Service, folder: u128, home_groups: u32) -> Result<(), ServiceError> {
    let cluster = service.identity().cluster;
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

/// Gives groups their next block when they run low, for as long as the node lives.
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
    if !service.group(home)?.replica.status().wants_block {
        return Ok(());
    }
    let reserved = service
        .system(SystemCommand::ReserveBlock, service.now() + STEP_TIMEOUT)
        .await?;
    let SystemDone::BlockReserved { first } = reserved else {
        return Err(ServiceError::Internal(
            "the system group gave another answer".to_owned(),
        ));
    };
    let request = Request {
        origin: Origin::Anonymous,
        command: Command::TakeBlock { first },
    };
    service.propose_own(home, request, service.now() + STEP_TIMEOUT).await?;
    Ok(())
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
