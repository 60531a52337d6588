//! The disk as the rest of the crate sees it: a small trait, so that everything that must survive a crash can be
//! tested on a disk that crashes.
//!
//! [`Files`] is the system's disk. [`RecordingDisk`] lives in memory, is deterministic, and can show what would be
//! left after a power loss at any point.
//!
//! What the trait promises is what POSIX promises and no more: a write is on the disk after `sync_data` of its file,
//! a name is on the disk after `sync_dir` of its folder, and before that any part of it may be.

mod files;
mod recording;

use std::any::Any;
use std::io;
use std::path::Path;

pub use files::Files;
pub(crate) use files::lock_folder_of;
pub use recording::RecordingDisk;

/// How [`Disk::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; the file must exist.
    Read,
    /// For reading and writing; the file must exist.
    Write,
    /// For reading and writing; the file is created empty if it does not exist.
    Create,
}

/// A disk: named files in folders. All calls block.
pub trait Disk: Send + Sync + 'static {
    /// The names of the files and folders in `dir`, sorted. An error of kind `NotFound` when there is no such folder.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Creates `dir` and what is missing above it. Folders that exist are no error.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Opens a file. The name of a created file is durable only after [`Disk::sync_dir`].
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name and replaces what had that name: after a crash the new name shows the one file or the
    /// other. Durable only after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Durable only after [`Disk::sync_dir`]. A file that is open stays readable through its handle.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Whether there is a file or folder of this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// The number of bytes that can still be written under `dir`.
    fn free_space(&self, dir: &Path) -> io::Result<u64>;

    /// The size of the file system that `dir` lies on, in bytes; `u64::MAX` where it has no bound.
    fn size(&self, dir: &Path) -> io::Result<u64> {
        let _ = dir;
        Ok(u64::MAX)
    }

    /// Takes a lock that ends with the process, creating the file if needed, and one on the folder that it is in, which
    /// outlives the file's deletion. An error of kind `WouldBlock` when somebody else holds either. A disk in memory
    /// belongs to one process and always grants.
    fn lock(&self, path: &Path) -> io::Result<DiskLock>;
}

/// An open file. Offsets and lengths are in bytes.
pub trait DiskFile: Send + Sync {
    /// Reads at `offset` until the buffer is full or the file ends, and says how many bytes that were.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, extending the file if needed. On an error any part may be written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything written to this file durable, its length included. After an error nothing is known about the
    /// writes since the last success, and another call may succeed without having written them: never retry it.
    fn sync_data(&self) -> io::Result<()>;

    /// The length of the file.
    fn length(&self) -> io::Result<u64>;

    /// Cuts or extends the file; what is added reads as zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Reserves room so that later writes below `length` do not run out of space, extending the file with zeros.
    fn allocate(&self, length: u64) -> io::Result<()>;
}

/// A lock on a folder, held until it is dropped.
pub struct DiskLock {
    _held: Option<Box<dyn Any + Send + Sync>>,
}

impl DiskLock {
    /// A lock that lasts as long as `held` does.
    pub fn new(held: impl Any + Send + Sync) -> DiskLock {
        DiskLock {
            _held: Some(Box::new(held)),
        }
    }

    /// The lock of a disk that nobody else can reach.
    pub fn not_needed() -> DiskLock {
        DiskLock { _held: None }
    }
}

impl std::fmt::Debug for DiskLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiskLock")
    }
}

/// Reads exactly `buffer.len()` bytes at `offset`, or fails with `UnexpectedEof`.
pub fn read_exact_at(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    if file.read_at(offset, buffer)? == buffer.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Reads a whole file of at most `length_max` bytes. `None` if there is no such file; `InvalidData` if it is longer.
pub fn read_file(disk: &dyn Disk, path: &Path, length_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.length()?;
    if length > length_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("longer than {length_max} bytes"),
        ));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    read_exact_at(&*file, 0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Writes a small file so that after a crash it shows the old content or the new one, and returns once the new one is
/// durable. Uses `path` with `.tmp` behind it on the way.
pub fn write_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let file = disk.open(temporary, OpenMode::Create)?;
    file.set_length(0)?;
    file.write_at(0, bytes)?;
    file.sync_data()?;
    drop(file);
    disk.rename(temporary, path)?;
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}
