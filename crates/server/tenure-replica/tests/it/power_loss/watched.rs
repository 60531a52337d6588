//! The log's disk, which has the folder of the state copied whenever that was written since the log's last change.
//!
//! Everything runs on one thread, so between two changes of the log the state stands still but for its own writes; a
//! copy before each change of the log that finds the state written is therefore a copy of every state there was.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tenure_storage::disk::{Disk, DiskFile, DiskLock, OpenMode, RecordingDisk};
use tenure_storage::state::GroupState;

use crate::power_loss::folder::Folder;
use crate::power_loss::life::Fault;

/// The folder of the state as it was at one moment.
#[derive(Clone)]
pub(crate) struct Copied {
    /// How many changes of the log had been recorded.
    pub(crate) events: usize,
    /// Whether everything in it was synced.
    pub(crate) synced: bool,
    pub(crate) folder: Arc<Folder>,
}

/// A recording disk that watches a state.
#[derive(Clone)]
pub(crate) struct WatchedDisk {
    recording: RecordingDisk,
    watch: Arc<Watch>,
    fault: Option<Fault>,
}

struct Watch {
    folder: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    states: Vec<GroupState>,
    /// What is written and what is durable of each group.
    reached: Vec<(Option<u64>, Option<u64>)>,
    copies: Vec<Copied>,
}

impl WatchedDisk {
    /// Over a disk that records, beside a folder of which these copies are what a crash before the first change leaves.
    pub(crate) fn new(
        recording: RecordingDisk,
        folder: &Path,
        copies: Vec<Copied>,
        fault: Option<Fault>,
    ) -> WatchedDisk {
        let seen = Seen {
            copies,
            ..Seen::default()
        };
        WatchedDisk {
            recording,
            watch: Arc::new(Watch {
                folder: folder.to_owned(),
                seen: Mutex::new(seen),
            }),
            fault,
        }
    }

    /// From now on these states are watched.
    pub(crate) fn watch(&self, states: Vec<GroupState>) {
        let mut seen = self.watch.seen.lock().unwrap();
        seen.reached = states.iter().map(reached).collect();
        seen.states = states;
    }

    /// Copies the folder as it is now.
    pub(crate) fn copy_now(&self, synced: bool) {
        let copied = Copied {
            events: self.recording.events(),
            synced,
            folder: Arc::new(Folder::copy(&self.watch.folder)),
        };
        self.watch.seen.lock().unwrap().copies.push(copied);
    }

    /// All copies so far, oldest first.
    pub(crate) fn copies(&self) -> Vec<Copied> {
        self.copy_if_written();
        self.watch.seen.lock().unwrap().copies.clone()
    }

    fn copy_if_written(&self) {
        let synced = {
            let mut seen = self.watch.seen.lock().unwrap();
            let now: Vec<_> = seen.states.iter().map(reached).collect();
            if now == seen.reached {
                return;
            }
            let synced = now.iter().zip(&seen.reached).any(|(now, before)| now.1 != before.1);
            seen.reached = now;
            synced
        };
        self.copy_now(synced);
    }
}

fn reached(state: &GroupState) -> (Option<u64>, Option<u64>) {
    let pending = state.pending();
    (pending.written, pending.durable)
}

impl Disk for WatchedDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.recording.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.copy_if_written();
        self.recording.create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        self.copy_if_written();
        let file = self.recording.open(path, mode)?;
        Ok(Box::new(WatchedFile {
            file,
            disk: self.clone(),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.copy_if_written();
        self.recording.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.copy_if_written();
        self.recording.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.copy_if_written();
        self.recording.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.recording.exists(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.recording.free_space(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.recording.lock(path)
    }
}

struct WatchedFile {
    file: Box<dyn DiskFile>,
    disk: WatchedDisk,
}

impl DiskFile for WatchedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.copy_if_written();
        self.file.write_at(offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.copy_if_written();
        if self.disk.fault == Some(Fault::SyncsNothing) {
            return Ok(());
        }
        self.file.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.disk.copy_if_written();
        self.file.set_length(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.disk.copy_if_written();
        self.file.allocate(length)
    }
}
