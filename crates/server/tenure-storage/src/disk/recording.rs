//! A disk in memory that knows what a crash would leave of it.
//!
//! It keeps each file twice: as a reader sees it (the page cache), and as it is durable, with the writes in between.
//! A power loss keeps what is durable and any part of those writes: none, all, a prefix that ends at any byte, or any
//! choice of sectors. Of the names in a folder it keeps what was synced and a prefix of the changes since. A failed
//! sync leaves its writes visible but never makes them durable by a later sync, which is how Linux behaves.
//!
//! Folders themselves are durable at once: that their names survive is not what is tested here.

mod state;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use super::{Disk, DiskFile, DiskLock, OpenMode};
use state::{Event, State};

/// A disk in memory. Clones are handles on the same disk; [`RecordingDisk::after_kill`] and
/// [`RecordingDisk::after_power_loss`] give another disk, so that a writer that is not dead yet cannot reach it.
///
/// Everything about it is deterministic: what a power loss keeps is asked of the caller.
#[derive(Clone, Default)]
pub struct RecordingDisk {
    shared: Arc<Mutex<State>>,
}

impl RecordingDisk {
    /// An empty disk without faults and without bound, that does not record.
    pub fn new() -> RecordingDisk {
        RecordingDisk::default()
    }

    /// From now on keeps every change, for [`RecordingDisk::at`]. What was kept before is forgotten.
    pub fn start_recording(&self) {
        self.state().start_recording();
    }

    /// How many changes were recorded: writes, syncs, changes of names. Zero if nothing is recorded.
    pub fn events(&self) -> usize {
        self.state().events()
    }

    /// The disk as it was after the first `events` recorded changes, to be handed to [`RecordingDisk::after_kill`] or
    /// [`RecordingDisk::after_power_loss`]. With `torn`, of the change after them, if it is a write, the first `torn`
    /// bytes were written too.
    ///
    /// # Panics
    /// If nothing was recorded.
    pub fn at(&self, events: usize, torn: Option<usize>) -> RecordingDisk {
        RecordingDisk::from_state(self.state().at(events, torn))
    }

    /// What a new process finds when this one was killed: everything written is seen, and what was not synced is still
    /// not durable.
    pub fn after_kill(&self) -> RecordingDisk {
        RecordingDisk::from_state(self.state().copy())
    }

    /// What is found after a power loss. `choose(bound)` decides the fate of what was not synced and returns a number
    /// below `bound`.
    pub fn after_power_loss(&self, choose: &mut dyn FnMut(u64) -> u64) -> RecordingDisk {
        let mut state = self.state().copy();
        state.lose_power(choose);
        RecordingDisk::from_state(state)
    }

    /// Lets the sync after the next `skip` ones fail, of files and folders alike. The writes it was to make durable
    /// stay visible and are lost at the next power loss, unless they are written again.
    pub fn fail_sync_after(&self, skip: u64) {
        self.state().faults.fail_sync_after = Some(skip);
    }

    /// Lets the write after the next `skip` ones fail, with half of it written.
    pub fn fail_write_after(&self, skip: u64) {
        self.state().faults.fail_write_after = Some(skip);
    }

    /// Bounds the sum of the files' lengths, in bytes. A write beyond it fails with `StorageFull`, in part written.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.state().faults.capacity = capacity;
    }

    /// What the disk says is free, whatever is written: `None`, what its capacity leaves.
    pub fn set_free_space(&self, free: Option<u64>) {
        self.state().faults.free_space = free;
    }

    /// Turns one bit of a file around, in what is read and in what is durable.
    ///
    /// # Errors
    /// `NotFound` or `UnexpectedEof` if there is no such bit.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> io::Result<()> {
        self.state().flip_bit(path, bit)
    }

    /// The number of syncs of files so far, failed ones included.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// The sum of the files' lengths, in bytes.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    fn from_state(state: State) -> RecordingDisk {
        RecordingDisk {
            shared: Arc::new(Mutex::new(state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, and if it did the state would still be the best there is.
        self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl std::fmt::Debug for RecordingDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingDisk")
            .field("used", &self.used())
            .field("events", &self.events())
            .finish()
    }
}

impl Disk for RecordingDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.state().list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.state().apply(&Event::CreateDir { dir: dir.to_owned() })
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        if mode == OpenMode::Create && !state.names.contains_key(path) {
            state.apply(&Event::Create { path: path.to_owned() })?;
        }
        let inode = state.open(path)?;
        Ok(Box::new(RecordingFile {
            disk: self.clone(),
            inode,
            path: path.to_owned(),
            mode,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state().apply(&Event::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state().apply(&Event::Remove { path: path.to_owned() })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.state().sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state();
        Ok(state.names.contains_key(path) || state.dirs.contains(path))
    }

    fn free_space(&self, _dir: &Path) -> io::Result<u64> {
        let state = self.state();
        let left = |capacity: u64| capacity.saturating_sub(state.used());
        Ok(state
            .faults
            .free_space
            .unwrap_or_else(|| state.faults.capacity.map_or(u64::MAX, left)))
    }

    fn size(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.state().faults.capacity.unwrap_or(u64::MAX))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.open(path, OpenMode::Create)?;
        Ok(DiskLock::not_needed())
    }
}

struct RecordingFile {
    disk: RecordingDisk,
    inode: u64,
    path: PathBuf,
    mode: OpenMode,
}

impl RecordingFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.mode == OpenMode::Read {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is open for reading", self.path.display()),
            ));
        }
        Ok(())
    }
}

impl DiskFile for RecordingFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.disk.state().read(self.inode, offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        self.disk
            .state()
            .write(self.inode, offset, Bytes::copy_from_slice(bytes))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.state().sync(self.inode)
    }

    fn length(&self) -> io::Result<u64> {
        self.disk.state().length(self.inode)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.state().set_length(self.inode, length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        if self.length()? < length {
            self.set_length(length)
        } else {
            Ok(())
        }
    }
}

impl Drop for RecordingFile {
    fn drop(&mut self) {
        self.disk.state().close(self.inode);
    }
}

#[cfg(test)]
mod tests;
