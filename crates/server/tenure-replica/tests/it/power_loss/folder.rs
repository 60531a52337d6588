//! A folder as it was at one moment: every file as the page cache showed it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::power_loss::Random;

/// Files are kept in pieces of this length, and pieces of zeros are not kept: journals are mostly made ahead.
const PIECE_LENGTH: usize = 4_096;
/// How often a copy is begun again because a thread of the engine was at work.
const ATTEMPTS_MAX: usize = 10_000;

/// All files of a folder at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Folder {
    dirs: Vec<PathBuf>,
    files: BTreeMap<PathBuf, Arc<Content>>,
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    length: u64,
    /// What is not zero, by the number of the piece.
    pieces: BTreeMap<u64, Bytes>,
}

/// What tells whether a file was changed while it was copied.
type Listing = BTreeMap<PathBuf, (u64, u64, i64, i64)>;

impl Folder {
    /// Copies a folder whose writer stands still. Its threads may be at work: the copy is begun again until none was.
    pub(crate) fn copy(root: &Path) -> Folder {
        for _ in 0..ATTEMPTS_MAX {
            let copied = (|| {
                let before = list(root)?;
                let folder = read(root)?;
                Ok::<_, io::Error>((before == list(root)?).then_some(folder))
            })();
            match copied {
                Ok(Some(folder)) => return folder,
                Ok(None) => {}
                // A file that was listed and is gone.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => panic!("{} cannot be copied: {error}", root.display()),
            }
        }
        panic!("{} never stands still", root.display());
    }

    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Makes the files in an empty folder.
    pub(crate) fn write_to(&self, root: &Path) {
        for dir in &self.dirs {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        for (path, content) in &self.files {
            let file = File::create(root.join(path)).unwrap();
            file.set_len(content.length).unwrap();
            for (number, piece) in &content.pieces {
                file.write_all_at(piece, number * PIECE_LENGTH as u64).unwrap();
            }
        }
    }

    /// This folder on its way to a later one, if only journals were written meanwhile: each write up to some byte has
    /// reached the disk, and nothing behind it.
    pub(crate) fn torn_towards(&self, later: &Folder, random: &mut Random) -> Option<Folder> {
        if self.dirs != later.dirs || !self.files.keys().eq(later.files.keys()) {
            return None;
        }
        let mut torn = self.clone();
        for (path, content) in &mut torn.files {
            let later = &later.files[path];
            if *content == *later {
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "jnl") || later.length < content.length {
                return None;
            }
            *content = Arc::new(content.torn_towards(later, random));
        }
        Some(torn)
    }
}

impl Content {
    fn torn_towards(&self, later: &Content, random: &mut Random) -> Content {
        let changed: Vec<u64> = later
            .pieces
            .iter()
            .filter(|(number, piece)| self.pieces.get(number) != Some(piece))
            .map(|(number, _)| *number)
            .collect();
        let mut torn = self.clone();
        let (Some(first), Some(last)) = (changed.first(), changed.last()) else {
            return torn;
        };
        let piece_length = PIECE_LENGTH as u64;
        let cut = first * piece_length + random.below((last - first + 1) * piece_length + 1);
        for number in changed {
            let begin = number * piece_length;
            let kept = usize::try_from(cut.saturating_sub(begin).min(piece_length)).unwrap();
            let mut piece = torn
                .pieces
                .get(&number)
                .map_or_else(|| vec![0; PIECE_LENGTH], |piece| piece.to_vec());
            let written = &later.pieces[&number];
            let kept = kept.min(written.len());
            piece.resize(piece.len().max(kept), 0);
            piece[..kept].copy_from_slice(&written[..kept]);
            torn.pieces.insert(number, piece.into());
            torn.length = torn.length.max((begin + kept as u64).min(later.length));
        }
        // A piece that begins behind the end was not reached.
        let length = torn.length;
        torn.pieces.retain(|number, _| number * piece_length < length);
        for (number, piece) in &mut torn.pieces {
            let inside = usize::try_from(length - number * piece_length).unwrap_or(usize::MAX);
            piece.truncate(inside);
        }
        torn
    }

    fn read(path: &Path) -> io::Result<Content> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut content = Content {
            length,
            pieces: BTreeMap::new(),
        };
        let piece_length = PIECE_LENGTH as u64;
        let mut at = 0;
        while at < length {
            // Holes are skipped. A file system that knows none says that all of it is data.
            match seek(&file, SeekFrom::Data(at)) {
                Ok(data) => at = data - data % piece_length,
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            }
            let mut piece = vec![0; usize::try_from((length - at).min(piece_length)).unwrap()];
            file.read_exact_at(&mut piece, at)?;
            if piece.iter().any(|byte| *byte != 0) {
                content.pieces.insert(at / piece_length, piece.into());
            }
            at += piece_length;
        }
        Ok(content)
    }
}

/// The folders and files under a root, with paths that begin there; folders before what is in them.
fn walk(root: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut dirs, mut files) = (vec![PathBuf::new()], Vec::new());
    let mut next = 0;
    while let Some(dir) = dirs.get(next).cloned() {
        next += 1;
        for entry in fs::read_dir(root.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                dirs.push(path);
            } else {
                files.push(path);
            }
        }
    }
    dirs.sort();
    Ok((dirs, files))
}

fn read(root: &Path) -> io::Result<Folder> {
    let (dirs, paths) = walk(root)?;
    let mut files = BTreeMap::new();
    for path in paths {
        let content = Content::read(&root.join(&path))?;
        files.insert(path, Arc::new(content));
    }
    Ok(Folder { dirs, files })
}

fn list(root: &Path) -> io::Result<Listing> {
    let (_, paths) = walk(root)?;
    paths
        .into_iter()
        .map(|path| {
            let metadata = root.join(&path).metadata()?;
            let facts = (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec());
            Ok((path, facts))
        })
        .collect()
}
