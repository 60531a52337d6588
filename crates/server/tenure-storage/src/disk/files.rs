//! The system's disk.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use super::{Disk, DiskFile, DiskLock, OpenMode};

/// The files of the machine, relative names against the working directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

impl Disk for Files {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // A name that is not text is none of ours; it is shown in replacement characters and matches nothing.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut options = File::options();
        options
            .read(true)
            .write(mode != OpenMode::Read)
            .create(mode == OpenMode::Create);
        Ok(Box::new(SystemFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        let status = rustix::fs::statvfs(dir)?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    fn size(&self, dir: &Path) -> io::Result<u64> {
        let status = rustix::fs::statvfs(dir)?;
        Ok(status.f_blocks.saturating_mul(status.f_frsize))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let folder = lock_folder_of(path)?;
        Ok(DiskLock::new((file, folder)))
    }
}

/// Locks the folder in which a lock file lies: the file can be deleted by somebody who takes it for a leftover, and made
/// anew, and then two processes would each hold the lock of that name.
pub(crate) fn lock_folder_of(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")))?;
    rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

struct SystemFile(File);

impl DiskFile for SystemFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match self.0.read_at(&mut buffer[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, length) {
            Ok(()) => Ok(()),
            // Some file systems cannot reserve; there a full disk shows at the write.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                if self.length()? < length {
                    self.0.set_len(length)?;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
