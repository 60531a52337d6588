//! What can go wrong with the state, and who has to stop because of it.

use std::borrow::Cow;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_core::ids::GroupId;
use tenure_core::snapshot::ImportError;

use crate::error::{SET_ASIDE, remedy};

/// A call on the state that failed. [`StateError::stops`] tells who must not go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StateError {
    /// Rows of this group could not be read or installed. Every later call on the group gives this error again,
    /// and nothing that was built on the failed read is kept. Other groups go on.
    #[error("the state of group {group} cannot be read and is no longer used: {cause}")]
    GroupFailed {
        /// Which group.
        group: GroupId,
        /// What the engine said.
        cause: Arc<dyn Error + Send + Sync>,
    },
    /// What all groups share could not be opened, written or synced. A failed write or sync is never tried again:
    /// the node must stop. What the log has synced is applied again at the next start, so nothing acknowledged is lost.
    #[error("the state on disk cannot be {action}, so this node must stop: {cause}{}", remedy(action, cause.as_ref()))]
    EngineFailed {
        /// What was tried: `opened`, `written` or `synced`.
        action: &'static str,
        /// What the engine said.
        cause: Arc<dyn Error + Send + Sync>,
    },
    /// Files or rows of this group are missing or are not what was once written. Other groups go on. The group's
    /// state is to be made anew from a snapshot.
    #[error("the state of group {group} is damaged: {what}")]
    Damaged {
        /// Which group.
        group: GroupId,
        /// What is wrong with it, and in which file as far as that is known.
        what: Cow<'static, str>,
    },
    /// A file that all groups share is missing or is not what was once written. Nothing was changed.
    #[error(
        "the state on disk is damaged in {}, which all groups share: {what}; put the right file back, or {}",
        path.display(),
        SET_ASIDE
    )]
    EngineDamaged {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
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
            StateError::EngineFailed { .. } | StateError::EngineDamaged { .. } | StateError::UnknownFormat { .. } => {
                Stops::Node
            }
            StateError::Snapshot(_) => Stops::Nobody,
        }
    }

    pub(crate) fn group_failed(group: GroupId, cause: impl Error + Send + Sync + 'static) -> StateError {
        StateError::GroupFailed {
            group,
            cause: Arc::new(cause),
        }
    }

    pub(crate) fn engine_failed(action: &'static str, cause: impl Error + Send + Sync + 'static) -> StateError {
        StateError::EngineFailed {
            action,
            cause: Arc::new(cause),
        }
    }

    pub(crate) fn damaged(group: GroupId, what: impl Into<Cow<'static, str>>) -> StateError {
        StateError::Damaged {
            group,
            what: what.into(),
        }
    }
}
