//! A disk on which nothing changes: what is written stays in memory, over what really lies there.
//!
//! So the opening of a folder, which repairs and syncs, can be run to its end on a folder that must stay as it is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::FlockOperation;

use crate::disk::{Disk, DiskFile, DiskLock, Files, OpenMode, lock_folder_of};

/// What is written is kept in pieces of this length.
const PAGE_BYTES: usize = 4096;
const NO_PANIC: &str = "nothing panics while it changes what this lock guards";

/// The system's disk, read only, with everything that was written since in memory.
#[derive(Default)]
pub(super) struct Frozen {
    changed: Mutex<BTreeMap<PathBuf, Changed>>,
}

/// A name that means something else than on the disk.
enum Changed {
    Folder,
    Removed,
    File(Arc<Written>),
}

/// A file with what was written over it.
struct Written {
    base: Option<Box<dyn DiskFile>>,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    length: u64,
    /// What the base has beyond this is cut off.
    base_length: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

/// A handle on a file.
struct Handle(Arc<Written>);

impl Frozen {
    fn changed(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Changed>> {
        self.changed.lock().expect(NO_PANIC)
    }
}

impl Disk for Frozen {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let changed = self.changed();
        let mut names = match Files.list(dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound && changed.contains_key(dir) => Vec::new(),
            Err(error) => return Err(error),
        };
        names.retain(|name| !matches!(changed.get(&dir.join(name)), Some(Changed::Removed)));
        for (path, change) in changed.iter() {
            let is_here = path.parent() == Some(dir) && !matches!(change, Changed::Removed);
            if let Some(name) = path.file_name().filter(|_| is_here) {
                names.push(name.to_string_lossy().into_owned());
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if !Files.exists(dir)? {
            self.changed().insert(dir.to_owned(), Changed::Folder);
        }
        Ok(())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut changed = self.changed();
        match changed.get(path) {
            Some(Changed::File(file)) => return Ok(Box::new(Handle(file.clone()))),
            Some(Changed::Folder) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Changed::Removed) if mode != OpenMode::Create => return Err(io::ErrorKind::NotFound.into()),
            Some(Changed::Removed) => {
                let file = Arc::new(Written::new(None)?);
                changed.insert(path.to_owned(), Changed::File(file.clone()));
                return Ok(Box::new(Handle(file)));
            }
            None => {}
        }
        let base = match Files.open(path, OpenMode::Read) {
            Ok(base) => Some(base),
            Err(error) if error.kind() == io::ErrorKind::NotFound && mode == OpenMode::Create => None,
            Err(error) => return Err(error),
        };
        let file = Arc::new(Written::new(base)?);
        if mode != OpenMode::Read {
            changed.insert(path.to_owned(), Changed::File(file.clone()));
        }
        Ok(Box::new(Handle(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        drop(self.open(from, OpenMode::Write)?);
        let mut changed = self.changed();
        if let Some(file) = changed.insert(from.to_owned(), Changed::Removed) {
            changed.insert(to.to_owned(), file);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        drop(self.open(path, OpenMode::Read)?);
        self.changed().insert(path.to_owned(), Changed::Removed);
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.changed().get(path) {
            Some(Changed::Removed) => Ok(false),
            Some(_) => Ok(true),
            None => Files.exists(path),
        }
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        Files.free_space(dir)
    }

    /// Takes the locks of the real file and folder, so that no node starts meanwhile. A file that is not there is not made.
    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        let file = match File::open(path) {
            Ok(file) => {
                rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
                Some(file)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(DiskLock::new((file, lock_folder_of(path)?)))
    }
}

impl Written {
    fn new(base: Option<Box<dyn DiskFile>>) -> io::Result<Written> {
        let length = base.as_ref().map_or(Ok(0), |base| base.length())?;
        let content = Content {
            length,
            base_length: length,
            pages: BTreeMap::new(),
        };
        Ok(Written {
            base,
            content: Mutex::new(content),
        })
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().expect(NO_PANIC)
    }

    /// Fills `buffer` with what lies at `offset`, with zeros where nothing does.
    fn fill(&self, content: &Content, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(0);
        let of_base = content.base_length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if let Some(base) = self.base.as_ref().filter(|_| of_base > 0) {
            base.read_at(offset, &mut buffer[..of_base])?;
        }
        let end = offset + buffer.len() as u64;
        for (page, bytes) in content
            .pages
            .range(offset / PAGE_BYTES as u64..=end / PAGE_BYTES as u64)
        {
            let page_start = page * PAGE_BYTES as u64;
            let from = offset.max(page_start);
            let to = end.min(page_start + PAGE_BYTES as u64);
            if from < to {
                let source = &bytes[(from - page_start) as usize..(to - page_start) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(())
    }
}

impl DiskFile for Handle {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let content = self.0.content();
        let length = content.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        self.0.fill(&content, offset, &mut buffer[..length])?;
        Ok(length)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut content = self.0.content();
        let mut written = 0;
        while written < bytes.len() {
            let at = offset + written as u64;
            let (page, inside) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let piece = &bytes[written..bytes.len().min(written + PAGE_BYTES - inside)];
            written += piece.len();
            let is_beyond = page * PAGE_BYTES as u64 >= content.base_length;
            // A file that is filled with zeros ahead takes no memory.
            if is_beyond && !content.pages.contains_key(&page) && piece.iter().all(|byte| *byte == 0) {
                continue;
            }
            let mut whole = vec![0; PAGE_BYTES];
            self.0.fill(&content, page * PAGE_BYTES as u64, &mut whole)?;
            whole[inside..inside + piece.len()].copy_from_slice(piece);
            content.pages.insert(page, whole);
        }
        content.length = content.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.content().length)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut content = self.0.content();
        content.length = length;
        content.base_length = content.base_length.min(length);
        let page = length / PAGE_BYTES as u64;
        drop(content.pages.split_off(&(page + 1)));
        if let Some(bytes) = content.pages.get_mut(&page) {
            bytes[(length % PAGE_BYTES as u64) as usize..].fill(0);
        }
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut content = self.0.content();
        content.length = content.length.max(length);
        Ok(())
    }
}
