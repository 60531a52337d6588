//! What can go wrong with the state, and who has to stop because of it.

use std::error::Error;
use std::sync::Arc;

use tenure_core::ids::GroupId;
use tenure_core::snapshot::ImportError;

/// A call on the state that failed. [`StateError::stops`] tells who must not go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StateError {
    /// Rows of this group could not be read or installed. Every later call on the group gives this error again,
    /// and nothing that was built on the failed read is kept. Other groups go on.
    #[error("the state of group {group} failed and is no longer used: {cause}")]
    GroupFailed {
        /// Which group.
        group: GroupId,
        /// What the engine said.
        cause: Arc<dyn Error + Send + Sync>,
    },
    /// The journal that all groups share could not be written or synced, or the engine could not be opened. A
    /// failed sync is never tried again: the node must stop.
    #[error("the state on disk cannot be written or synced, so this node must stop: {cause}")]
    EngineFailed {
        /// What the engine said.
        cause: Arc<dyn Error + Send + Sync>,
    },
    /// The rows are readable but are not what was once written. Set the group's state aside and fetch a snapshot.
    #[error("the state of group {group} is damaged: {what}")]
    Damaged {
        /// Which group.
        group: GroupId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The state folder was written by a release that this one does not understand. Nothing was touched.
    #[error("the state folder has format {found}, which this release does not know")]
    UnknownFormat {
        /// The number found.
        found: u64,
    },
    /// An entry was committed that does not lie behind the last one. Nothing was done; a fault of the caller.
    #[error("entry {index} of group {group} does not lie behind what is applied: {what}")]
    OutOfOrder {
        /// Which group.
        group: GroupId,
        /// The entry that was offered.
        index: u64,
        /// Its index, or one of its revisions.
        what: &'static str,
    },
    /// The snapshot is not whole or not in order. Nothing was installed; the state is as it was.
    #[error("the snapshot was not installed: {0}")]
    Snapshot(#[from] ImportError),
    /// The state behind this handle is gone: it began anew, or the crash of its engine was simulated.
    #[error("this handle of the state of group {group} is closed")]
    Closed {
        /// Which group.
        group: GroupId,
    },
}

/// Who must stop after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// Nobody: nothing was done.
    Nobody,
    /// The group; others go on.
    Group(GroupId),
    /// The whole node.
    Node,
}

impl StateError {
    /// Who must stop because of it.
    pub fn stops(&self) -> Stops {
        match self {
            StateError::GroupFailed { group, .. }
            | StateError::Damaged { group, .. }
            | StateError::OutOfOrder { group, .. }
            | StateError::Closed { group } => Stops::Group(*group),
            StateError::EngineFailed { .. } | StateError::UnknownFormat { .. } => Stops::Node,
            StateError::Snapshot(_) => Stops::Nobody,
        }
    }

    pub(crate) fn group_failed(group: GroupId, cause: impl Error + Send + Sync + 'static) -> StateError {
        StateError::GroupFailed {
            group,
            cause: Arc::new(cause),
        }
    }

    pub(crate) fn engine_failed(cause: impl Error + Send + Sync + 'static) -> StateError {
        StateError::EngineFailed { cause: Arc::new(cause) }
    }
}
