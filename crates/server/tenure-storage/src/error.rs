//! What can go wrong with the data folder. Every error says whether to refuse to open it or to stop the node.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use tenure_core::ids::GroupId;

/// What to do with a folder that cannot be used any more.
pub(crate) const SET_ASIDE: &str = "restore the data folder from a copy, or set it aside and start on an empty one, \
     which on a cluster of one loses everything in it";

/// The folder or something in it was not opened. What was in it before is still there.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the folder open. Nothing was touched.
    #[error("the data folder {} is in use by another process", folder.display())]
    Held {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder has files in it but was not made by Tenure. Nothing was touched.
    #[error(
        "{} is not a data folder of Tenure, and it is not empty (it holds {found:?}); choose an empty one",
        folder.display()
    )]
    NotOurs {
        /// The folder.
        folder: PathBuf,
        /// The first of the names that do not belong there.
        found: String,
    },
    /// The folder was written by a newer release. Nothing was touched.
    #[error(
        "the data folder {} has format {found}, and this release knows formats up to {known}; start a newer release",
        folder.display()
    )]
    FormatNewer {
        /// The folder.
        folder: PathBuf,
        /// The format of the folder.
        found: u32,
        /// The newest format that this release knows.
        known: u32,
    },
    /// The file that names the folder's format says something else. Nothing was touched.
    #[error(
        "the data folder {} names no format that this release understands (its FORMAT file begins {found:?})",
        folder.display()
    )]
    FormatUnknown {
        /// The folder.
        folder: PathBuf,
        /// The beginning of the file.
        found: String,
    },
    /// The file that holds the node's identity cannot be trusted. Nothing was touched.
    #[error(
        "the identity of the node in {} is damaged ({reason}); {}",
        folder.display(),
        SET_ASIDE
    )]
    IdentityDamaged {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is a log or a state of a node but not the file that says whose it is. Nothing was touched.
    #[error(
        "there is no IDENTITY in {}, though a node has been here: put that file back; if it is lost, {}",
        folder.display(),
        SET_ASIDE
    )]
    IdentityMissing {
        /// The folder.
        folder: PathBuf,
    },
    /// A restore into the folder was cut short. Nothing was touched.
    #[error(
        "a restore into {} was cut short, so it is not whole: remove the folder and restore again",
        folder.display()
    )]
    RestoreCutShort {
        /// The folder.
        folder: PathBuf,
    },
    /// A restore needs an empty folder. Nothing was touched.
    #[error("{} is not empty (it holds {found:?}): restore into an empty folder", folder.display())]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
        /// The first of the names in it.
        found: String,
    },
    /// The node has been here before but its log is gone. Nothing was touched.
    #[error(
        "there is no Raft log in {}, though there must be one; {}",
        folder.display(),
        SET_ASIDE
    )]
    LogMissing {
        /// The folder of the log.
        folder: PathBuf,
    },
    /// The log is damaged in a place that may have been acknowledged. Nothing was changed.
    #[error(transparent)]
    LogDamaged(#[from] Damage),
    /// The disk refused. A later attempt may succeed.
    #[error("cannot {action} {}: {source}{}", path.display(), remedy(action, source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
}

impl OpenError {
    /// For `map_err` on calls of the disk.
    pub(crate) fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> OpenError + use<'a> {
        move |source| OpenError::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// A place in the log that cannot be what was written there, though it may have been acknowledged. The node's identity
/// ends with it: a voter that forgot an entry or a vote may not vote on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The folder of the log.
    pub folder: PathBuf,
    /// The number of the segment, which is the name of its file. `None`: the file that notes the last synced batch.
    pub segment: Option<u32>,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Whose record lies there, as far as its header can be trusted.
    pub group: Option<GroupId>,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the Raft log in {} is damaged in ", self.folder.display())?;
        match self.segment {
            Some(segment) => write!(f, "segment {segment}")?,
            None => f.write_str("the file \"synced\"")?,
        }
        write!(f, " at offset {}", self.offset)?;
        match self.group {
            Some(group) => write!(f, " (a record of group {})", group.0)?,
            None => f.write_str(" (group not readable)")?,
        }
        write!(f, ": {}; {SET_ASIDE}", self.reason)
    }
}

impl Error for Damage {}

/// A call on the log did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogFailed {
    /// The entries do not continue the group's log. Nothing was done, and the log goes on.
    #[error("group {}: entry {got} cannot follow, entry {expected} is next", group.0)]
    NotContiguous {
        /// The group.
        group: GroupId,
        /// The index that must come next.
        expected: u64,
        /// The index that came.
        got: u64,
    },
    /// Something is longer than the log can hold. Nothing was done, and the log goes on.
    #[error("group {}: {length} bytes in one record, {length_max} are allowed", group.0)]
    TooLong {
        /// The group.
        group: GroupId,
        /// The length of what was handed in, in bytes.
        length: usize,
        /// The bound, in bytes.
        length_max: usize,
    },
    /// The group has too many entries that are not purged. Nothing was done, and the log goes on.
    #[error("group {}: the log holds {entries_max} entries, purge it first", group.0)]
    GroupFull {
        /// The group.
        group: GroupId,
        /// The bound on the entries of a group.
        entries_max: usize,
    },
    /// The log was closed. Nothing was done.
    #[error("the Raft log is closed")]
    Closed,
    /// The disk refused. What was not called back before may or may not be on the disk, and the log does nothing more:
    /// stop the node.
    #[error("cannot {action} {}: {source}; the node must stop{}", path.display(), remedy(action, source.as_ref()))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the disk said.
        source: Arc<io::Error>,
    },
    /// An entry that was on the disk is not there any more. The log does nothing more: stop the node.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The thread that writes the log ended in a panic. The log does nothing more: stop the node.
    #[error("the writer of the Raft log ended unexpectedly; the node must stop")]
    WriterGone,
}

impl LogFailed {
    /// Whether the log is unusable from now on, so that the node must stop. Otherwise nothing was done.
    pub fn stops_the_node(&self) -> bool {
        match self {
            LogFailed::NotContiguous { .. }
            | LogFailed::TooLong { .. }
            | LogFailed::GroupFull { .. }
            | LogFailed::Closed => false,
            LogFailed::Io { .. } | LogFailed::Damaged(_) | LogFailed::WriterGone => true,
        }
    }

    /// For `map_err` on calls of the disk.
    pub(crate) fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> LogFailed + use<'a> {
        move |source| LogFailed::Io {
            action,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }
}

/// Whether the process, or the machine, may open no more files.
pub(crate) fn is_lack_of_descriptors(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|lack| number == Some(lack.raw_os_error()))
}

/// What to do about a disk that refused, as the end of a message; empty if there is nothing to add.
pub(crate) fn remedy(action: &str, cause: &(dyn Error + 'static)) -> &'static str {
    let mut is_full = false;
    let mut lacks_descriptors = false;
    let mut next = Some(cause);
    while let Some(cause) = next {
        let error = cause.downcast_ref::<io::Error>();
        is_full |= error
            .is_some_and(|error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded));
        lacks_descriptors |= error.is_some_and(is_lack_of_descriptors);
        next = cause.source();
    }
    if lacks_descriptors {
        "; there are too few file descriptors: raise the limit on open files (ulimit -n), then start the node again"
    } else if is_full {
        "; the disk is full: free some room, then start the node again"
    } else if action.starts_with("sync") {
        "; a failed sync is never tried again: look at the disk, then start the node again"
    } else {
        ""
    }
}
