//! From the file of a backup to the folder of the first node of a new cluster. No node runs.
//!
//! The file is read twice: once to see that all of it is whole and can be restored, before anything is written, and once to
//! write. The folder cannot be opened before the last step: see [`DataDir::begin_restore`].

pub use tenure_core::restore::RestoreError as RowsError;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek as _};
use std::path::{Path, PathBuf};

use tenure_core::ids::{GroupId, Revision};
use tenure_core::restore::{GroupRestore, NewCluster, Outcome, RESTORED_NODE};
use tenure_core::snapshot::ImportError;
use tenure_core::table::Table;
use tenure_replica::{Runtime, restored_mark};
use tenure_storage::backup::{BackupError, BackupHead, BackupReader, GroupHead, Item};
use tenure_storage::error::OpenError;
use tenure_storage::layout::{DataDir, Identity};
use tenure_storage::log::{Log, LogOptions};
use tenure_storage::state::{StateEngine, StateError};

use crate::config::HOME_GROUPS_MAX;
use crate::node::OpenState;

/// What to restore, and where.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The file of a backup.
    pub from: PathBuf,
    /// An empty folder, or none yet.
    pub data_dir: PathBuf,
    /// Where the revisions of the new cluster begin: above every one that the old one can have handed out.
    pub floor: u64,
}

/// A cluster that was restored.
#[derive(Clone, Debug)]
pub struct Restored {
    /// Its id.
    pub cluster: u128,
    /// What the backup is about.
    pub backup: BackupHead,
    /// What became of each group.
    pub groups: Vec<(GroupHead, Outcome)>,
}

/// Nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The file cannot be opened. Nothing was written.
    #[error("{} cannot be opened: {error}", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
        /// What the disk said.
        error: std::io::Error,
    },
    /// The file is not a whole backup. Nothing was written, unless it has changed while it was read.
    #[error("{} cannot be restored: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: BackupError,
    },
    /// What the file says of a group cannot be restored. Nothing was written, unless it has changed while it was read.
    #[error("group {group} of the backup cannot be restored: {error}")]
    Rows {
        /// The group.
        group: u32,
        /// What is wrong with it.
        error: RowsError,
    },
    /// The groups in the file are not those of a cluster. Nothing was written.
    #[error("the backup cannot be restored: {what}")]
    Groups {
        /// What is wrong with them.
        what: String,
    },
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// The state could not be written.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Restores a backup. Blocks for as long as it takes to read the file twice and write it once. `progress` is told each
/// group that was checked, and then each that was written.
///
/// # Errors
/// [`RestoreError`]. If anything was written the folder says of itself that it is not whole, and is to be removed.
pub fn restore(
    options: &RestoreOptions,
    runtime: &Runtime,
    open_state: OpenState,
    progress: &mut dyn FnMut(Progress),
) -> Result<Restored, RestoreError> {
    let new = NewCluster {
        cluster: runtime.random.next_u128(),
        folder: runtime.random.next_u128(),
        floor: options.floor,
    };
    let source = Source::open(&options.from)?;
    let checked = source.check(new, progress)?;
    let folder = DataDir::begin_restore(runtime.disk.clone(), &options.data_dir)?;
    let log = LogOptions {
        salt: runtime.random.next_u64(),
        ..LogOptions::default()
    };
    let log = Log::open(folder.disk().clone(), &folder.log_dir(), log, runtime.log_writer())?;
    let engine = open_state(&folder.state_dir())?;
    let written = source.write(new, &*engine, progress)?;
    if written.groups != checked.groups {
        let what = "it has changed while it was read".to_owned();
        return Err(RestoreError::Groups { what });
    }
    engine.sync_all()?;
    drop(engine);
    log.close();
    folder.write_identity(&Identity {
        cluster: new.cluster,
        node: RESTORED_NODE.0,
        folder: new.folder,
    })?;
    folder.end_restore()?;
    Ok(Restored {
        cluster: new.cluster,
        backup: written.backup,
        groups: written.groups,
    })
}

/// How far a restore is.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// All of a group was read and can be restored.
    Checked(GroupHead),
    /// It was written.
    Written(GroupHead),
}

/// What was read of a backup.
struct Contents {
    backup: BackupHead,
    groups: Vec<(GroupHead, Outcome)>,
}

/// The file of a backup.
struct Source<'a> {
    path: &'a Path,
    file: File,
}

type Reader<'a> = BackupReader<BufReader<&'a File>>;

impl<'a> Source<'a> {
    fn open(path: &'a Path) -> Result<Source<'a>, RestoreError> {
        let file = File::open(path).map_err(|error| RestoreError::NoFile {
            path: path.to_owned(),
            error,
        })?;
        Ok(Source { path, file })
    }

    fn of_file(&self, error: BackupError) -> RestoreError {
        RestoreError::File {
            path: self.path.to_owned(),
            error,
        }
    }

    /// Reads all of it and sees whether it can be restored.
    fn check(&self, new: NewCluster, progress: &mut dyn FnMut(Progress)) -> Result<Contents, RestoreError> {
        let contents = self.each(&mut |reader, head| {
            let outcome = self.rows(reader, head, new, &mut |_, _| {})?;
            progress(Progress::Checked(*head));
            Ok(outcome)
        })?;
        check_groups(&contents.groups)?;
        Ok(contents)
    }

    /// Reads all of it and writes it.
    fn write(
        &self,
        new: NewCluster,
        engine: &dyn StateEngine,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Contents, RestoreError> {
        // Everything below the first block that the group takes is in the past.
        let behind = Revision(new.floor - 1);
        self.each(&mut |reader, head| {
            let state = engine.group(GroupId(head.group))?;
            let mut rows = Ok(Outcome::default());
            let fill = |table: &mut dyn Table| {
                rows = self.rows(reader, head, new, &mut |key, value| table.put(key, value));
                rows.is_ok().then_some(()).ok_or(ImportError::Damaged("the backup"))
            };
            let installed = state.install(fill, restored_mark(RESTORED_NODE), behind);
            // What was wrong with the rows says more than that they could not be installed.
            let outcome = rows?;
            installed?;
            progress(Progress::Written(*head));
            Ok(outcome)
        })
    }

    /// Reads it from the beginning and hands on each group, whose rows are to be read.
    fn each(
        &self,
        group: &mut dyn FnMut(&mut Reader<'_>, &GroupHead) -> Result<Outcome, RestoreError>,
    ) -> Result<Contents, RestoreError> {
        let mut file = &self.file;
        file.rewind().map_err(|error| self.of_file(error.into()))?;
        let mut reader = BackupReader::begin(BufReader::new(file)).map_err(|error| self.of_file(error))?;
        let mut groups = Vec::new();
        loop {
            match reader.next_item().map_err(|error| self.of_file(error))? {
                Item::Group(head) => {
                    let outcome = group(&mut reader, &head)?;
                    groups.push((head, outcome));
                }
                Item::End => {
                    let backup = *reader.head();
                    return Ok(Contents { backup, groups });
                }
                // The reader gives these only within a group, which was read to its end.
                Item::Rows(_) | Item::GroupEnd(_) => {
                    let what = "rows lie outside a group".to_owned();
                    return Err(RestoreError::Groups { what });
                }
            }
        }
    }

    /// Reads the rows of a group to its end, and hands on what becomes of them.
    fn rows(
        &self,
        reader: &mut Reader<'_>,
        head: &GroupHead,
        new: NewCluster,
        sink: &mut dyn FnMut(Vec<u8>, bytes::Bytes),
    ) -> Result<Outcome, RestoreError> {
        let of_rows = |error| RestoreError::Rows {
            group: head.group,
            error,
        };
        let mut restore = GroupRestore::new(head.kind(), new).map_err(of_rows)?;
        loop {
            match reader.next_item().map_err(|error| self.of_file(error))? {
                Item::Rows(chunk) => {
                    for (key, value) in chunk.rows() {
                        restore.take(key, value, sink).map_err(of_rows)?;
                    }
                }
                Item::GroupEnd(_) => return restore.finish(sink).map_err(of_rows),
                Item::Group(_) | Item::End => {
                    let what = format!("group {} does not end", head.group);
                    return Err(RestoreError::Groups { what });
                }
            }
        }
    }
}

/// Whether these are the groups of a cluster: the system group, and as many home groups as that says, each once.
fn check_groups(groups: &[(GroupHead, Outcome)]) -> Result<(), RestoreError> {
    let wrong = |what: String| Err(RestoreError::Groups { what });
    let by_id: BTreeMap<u32, &Outcome> = groups.iter().map(|(head, outcome)| (head.group, outcome)).collect();
    if by_id.len() != groups.len() {
        return wrong("it has a group twice".to_owned());
    }
    let Some(system) = by_id.get(&GroupId::SYSTEM.0) else {
        return wrong("it has no system group".to_owned());
    };
    let homes = system.home_groups;
    if !(1..=HOME_GROUPS_MAX).contains(&homes) {
        return wrong(format!("it says that there are {homes} home groups"));
    }
    match (1..=homes).find(|group| !by_id.contains_key(group)) {
        Some(missing) => wrong(format!("it has no group {missing}")),
        None if by_id.len() as u64 != u64::from(homes) + 1 => wrong("it has groups of no cluster".to_owned()),
        None => Ok(()),
    }
}
