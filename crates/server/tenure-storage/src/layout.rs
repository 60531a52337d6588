//! The data folder: who may use it, which format it has, whose it is, and where things lie in it.
//!
//! `LOCK` is locked by the process that uses the folder. `FORMAT` names the version of everything in it. `IDENTITY`
//! says which node of which cluster it belongs to; `JOINING`, in the folder of a node that was let into a cluster, what it
//! was told then. `log/` and `state/` are the log's and the state's. `RESTORE` lies there while a backup is restored into it,
//! so that half of one is never taken for the whole.

mod joining;

pub use joining::{JoinedNode, Joining};

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{self, Disk, DiskLock, Files};
use crate::error::OpenError;
use crate::log;

/// The version of the folder's format that this release writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

const LOCK_FILE: &str = "LOCK";
const FORMAT_FILE: &str = "FORMAT";
const IDENTITY_FILE: &str = "IDENTITY";
const JOINING_FILE: &str = "JOINING";
const RESTORE_FILE: &str = "RESTORE";
const LOG_FOLDER: &str = "log";
const STATE_FOLDER: &str = "state";
const FORMAT_PREFIX: &str = "tenure data folder, format ";
const IDENTITY_FIRST_LINE: &str = "tenure identity 1";
/// Both files are a few lines; anything longer is not ours.
const SMALL_FILE_LENGTH_MAX: u64 = 4096;
/// It has a line for each node.
const JOINING_LENGTH_MAX: u64 = 1 << 20;

/// The data folder of one node, locked against other processes until it is dropped.
pub struct DataDir {
    root: PathBuf,
    disk: Arc<dyn Disk>,
    _lock: DiskLock,
}

/// Which node of which cluster a folder belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster, chosen when it was founded.
    pub cluster: u128,
    /// The node, counted by the cluster and never given twice.
    pub node: u64,
    /// The folder, chosen when it was first used: a node whose folder was replaced is told apart from itself.
    pub folder: u128,
}

impl DataDir {
    /// Opens the folder on the system's disk, creating it if needed, and locks it.
    ///
    /// # Errors
    /// `Held`, `NotOurs`, `FormatNewer`, `FormatUnknown`: nothing was touched. `Io`: the folder may be half made, and
    /// the next attempt goes on from there.
    pub fn open(root: &Path) -> Result<DataDir, OpenError> {
        DataDir::open_on(Arc::new(Files), root)
    }

    /// The same on any disk. A disk in memory needs no lock and has none.
    ///
    /// # Errors
    /// As for [`DataDir::open`].
    pub fn open_on(disk: Arc<dyn Disk>, root: &Path) -> Result<DataDir, OpenError> {
        let restoring = root.join(RESTORE_FILE);
        if disk.exists(&restoring).map_err(OpenError::io("look for", &restoring))? {
            return Err(OpenError::RestoreCutShort {
                folder: root.to_owned(),
            });
        }
        DataDir::make(disk, root)
    }

    /// Whether there is a data folder, whole or not. Nothing is made or changed.
    ///
    /// # Errors
    /// `Io` if it cannot be looked at.
    pub fn is_there(disk: &dyn Disk, root: &Path) -> Result<bool, OpenError> {
        // The second is there before the first while a backup is restored.
        for name in [FORMAT_FILE, RESTORE_FILE] {
            let path = root.join(name);
            if disk.exists(&path).map_err(OpenError::io("look for", &path))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes a folder that a backup is to be restored into. Nothing but [`DataDir::end_restore`] makes it one that can be
    /// opened.
    ///
    /// # Errors
    /// `NotEmpty`, `RestoreCutShort`: nothing was touched. As for [`DataDir::open`] otherwise; what is there then is to be
    /// removed before another attempt.
    pub fn begin_restore(disk: Arc<dyn Disk>, root: &Path) -> Result<DataDir, OpenError> {
        let names = match disk.list(root) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(OpenError::io("list", root)(error)),
        };
        let folder = root.to_owned();
        if names.iter().any(|name| name == RESTORE_FILE) {
            return Err(OpenError::RestoreCutShort { folder });
        }
        if let Some(found) = names.into_iter().find(|name| name != "lost+found") {
            return Err(OpenError::NotEmpty { folder, found });
        }
        disk.create_dir_all(root)
            .map_err(OpenError::io("create the folder", root))?;
        let restoring = root.join(RESTORE_FILE);
        disk::write_file(&*disk, &restoring, b"").map_err(OpenError::io("write", &restoring))?;
        DataDir::make(disk, root)
    }

    /// Says that what was restored is whole and durable. To be called last.
    ///
    /// # Errors
    /// `Io`: the folder may be one that can be opened, or not yet.
    pub fn end_restore(&self) -> Result<(), OpenError> {
        let restoring = self.root.join(RESTORE_FILE);
        self.disk
            .remove(&restoring)
            .map_err(OpenError::io("remove", &restoring))?;
        self.disk
            .sync_dir(&self.root)
            .map_err(OpenError::io("sync the folder", &self.root))
    }

    fn make(disk: Arc<dyn Disk>, root: &Path) -> Result<DataDir, OpenError> {
        // Looked at before the lock is taken, which would leave a file in a folder that is not ours.
        check_format(&*disk, root)?;
        disk.create_dir_all(root)
            .map_err(OpenError::io("create the folder", root))?;
        let lock_path = root.join(LOCK_FILE);
        let lock = disk.lock(&lock_path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::Held {
                folder: root.to_owned(),
            },
            _ => OpenError::Io {
                action: "lock",
                path: lock_path.clone(),
                source: error,
            },
        })?;
        // Another process may have made the folder since.
        if !check_format(&*disk, root)? {
            let path = root.join(FORMAT_FILE);
            let line = format!("{FORMAT_PREFIX}{FORMAT_VERSION}\n");
            disk::write_file(&*disk, &path, line.as_bytes()).map_err(OpenError::io("write", &path))?;
        }
        let dir = DataDir {
            root: root.to_owned(),
            disk,
            _lock: lock,
        };
        for folder in [dir.log_dir(), dir.state_dir()] {
            dir.disk
                .create_dir_all(&folder)
                .map_err(OpenError::io("create the folder", &folder))?;
        }
        dir.disk
            .sync_dir(root)
            .map_err(OpenError::io("sync the folder", root))?;
        if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            dir.disk
                .sync_dir(parent)
                .map_err(OpenError::io("sync the folder", parent))?;
        }
        Ok(dir)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The disk that the folder is on.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Where the Raft log lies.
    pub fn log_dir(&self) -> PathBuf {
        self.root.join(LOG_FOLDER)
    }

    /// Where the state lies.
    pub fn state_dir(&self) -> PathBuf {
        self.root.join(STATE_FOLDER)
    }

    /// The node's identity, `None` if it was never written.
    ///
    /// # Errors
    /// `IdentityDamaged` if the file is not what was written, `Io` if it cannot be read.
    pub fn read_identity(&self) -> Result<Option<Identity>, OpenError> {
        self.read_small(IDENTITY_FILE, SMALL_FILE_LENGTH_MAX, Identity::decode)
    }

    /// What the node was told when it was let in, or with which folder it is asking; `None` on a folder that founded.
    ///
    /// # Errors
    /// `IdentityDamaged` if the file is not what was written, `Io` if it cannot be read.
    pub fn read_joining(&self) -> Result<Option<Joining>, OpenError> {
        self.read_small(JOINING_FILE, JOINING_LENGTH_MAX, Joining::decode)
    }

    /// Writes that in one step and returns once it is durable.
    ///
    /// # Errors
    /// `Io`: the old one or the new one is there.
    pub fn write_joining(&self, joining: &Joining) -> Result<(), OpenError> {
        let path = self.root.join(JOINING_FILE);
        disk::write_file(&*self.disk, &path, joining.encode().as_bytes()).map_err(OpenError::io("write", &path))
    }

    fn read_small<T>(
        &self,
        name: &str,
        length_max: u64,
        decode: impl FnOnce(&[u8]) -> Result<T, &'static str>,
    ) -> Result<Option<T>, OpenError> {
        let path = self.root.join(name);
        let damaged = |reason| OpenError::IdentityDamaged {
            folder: self.root.clone(),
            reason,
        };
        let bytes = match disk::read_file(&*self.disk, &path, length_max) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(damaged("it is too long")),
            Err(source) => {
                return Err(OpenError::Io {
                    action: "read",
                    path,
                    source,
                });
            }
        };
        bytes.map(|bytes| decode(&bytes).map_err(damaged)).transpose()
    }

    /// Whether a node has been here although there is no identity: then the file was lost. The identity is written
    /// before the log takes anything in and before there is any state, so a start that a crash cut short is none.
    ///
    /// # Errors
    /// `Io` if it cannot be looked at. Nothing is changed.
    pub fn has_lost_identity(&self) -> Result<bool, OpenError> {
        let path = self.root.join(IDENTITY_FILE);
        let there = self.disk.exists(&path).map_err(OpenError::io("look for", &path))?;
        if there {
            return Ok(false);
        }
        let state = self.state_dir();
        let has_state = match self.disk.list(&state) {
            Ok(names) => !names.is_empty(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(OpenError::io("list", &state)(error)),
        };
        Ok(has_state || log::holds_anything(&*self.disk, &self.log_dir())?)
    }

    /// Writes the node's identity in one step and returns once it is durable.
    ///
    /// # Errors
    /// `Io`: the old identity or the new one is there.
    pub fn write_identity(&self, identity: &Identity) -> Result<(), OpenError> {
        let path = self.root.join(IDENTITY_FILE);
        disk::write_file(&*self.disk, &path, identity.encode().as_bytes()).map_err(OpenError::io("write", &path))
    }
}

impl std::fmt::Debug for DataDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataDir")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Identity {
    fn encode(&self) -> String {
        let Identity { cluster, node, folder } = self;
        let body = format!("{IDENTITY_FIRST_LINE}\ncluster {cluster:032x}\nnode {node}\nfolder {folder:032x}\n");
        let sum = crc32c::crc32c(body.as_bytes());
        format!("{body}crc32c {sum:08x}\n")
    }

    fn decode(bytes: &[u8]) -> Result<Identity, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
        let mut lines = text.lines();
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        if field("tenure") != IDENTITY_FIRST_LINE.strip_prefix("tenure ") {
            return Err("its first line is unknown");
        }
        let cluster = field("cluster").and_then(|hex| u128::from_str_radix(hex, 16).ok());
        let node = field("node").and_then(|number| number.parse().ok());
        let folder = field("folder").and_then(|hex| u128::from_str_radix(hex, 16).ok());
        let (Some(cluster), Some(node), Some(folder)) = (cluster, node, folder) else {
            return Err("a line is missing or unreadable");
        };
        let identity = Identity { cluster, node, folder };
        // One way to write it: a file that differs in any byte is not what was written.
        if identity.encode() == text {
            Ok(identity)
        } else {
            Err("its checksum does not fit")
        }
    }
}

/// Whether the folder already has our format. `false`: it is absent or empty and may be made.
fn check_format(disk: &dyn Disk, root: &Path) -> Result<bool, OpenError> {
    let path = root.join(FORMAT_FILE);
    let text = match disk::read_file(disk, &path, SMALL_FILE_LENGTH_MAX) {
        Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Ok(None) => return check_empty(disk, root).map(|()| false),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => "(a long file)".to_owned(),
        Err(source) => {
            return Err(OpenError::Io {
                action: "read",
                path,
                source,
            });
        }
    };
    let number = text
        .strip_prefix(FORMAT_PREFIX)
        .and_then(|rest| rest.strip_suffix('\n'));
    match number.and_then(|number| number.parse::<u32>().ok()) {
        Some(FORMAT_VERSION) => Ok(true),
        Some(found) if found > FORMAT_VERSION => Err(OpenError::FormatNewer {
            folder: root.to_owned(),
            found,
            known: FORMAT_VERSION,
        }),
        _ => Err(OpenError::FormatUnknown {
            folder: root.to_owned(),
            found: text.chars().take(60).collect::<String>(),
        }),
    }
}

/// Refuses a folder with files that a crash while making ours cannot have left.
fn check_empty(disk: &dyn Disk, root: &Path) -> Result<(), OpenError> {
    let names = match disk.list(root) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(OpenError::Io {
                action: "list",
                path: root.to_owned(),
                source,
            });
        }
    };
    // The last is what every new file system has in its root.
    let expected = [LOCK_FILE, &format!("{FORMAT_FILE}.tmp"), RESTORE_FILE, "lost+found"];
    match names.into_iter().find(|name| !expected.contains(&name.as_str())) {
        Some(found) => Err(OpenError::NotOurs {
            folder: root.to_owned(),
            found,
        }),
        None => Ok(()),
    }
}
