//! A copy of the state's folder that its engine may write to, made without copying what it never writes to.
//!
//! Tables are written once and later only removed, so in the copy they are links to the real ones. Everything else,
//! the journals and the lists of tables, is copied.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The folder of tables that never change once they are written.
const TABLES_FOLDER: &str = "tables";
const JOURNAL_SUFFIX: &str = "jnl";
/// What every whole batch of a journal ends with.
const BATCH_END: &[u8] = b"FJL\x03";
/// Folders in folders up to this depth; the engine has three.
const DEPTH_MAX: usize = 8;
const PIECE_BYTES: usize = 64 << 10;

/// What was copied.
pub(super) struct Copied {
    from: PathBuf,
    to: PathBuf,
    journals: Vec<PathBuf>,
    files: usize,
}

/// Where a journal was cut.
pub(super) struct Cut {
    /// The first byte that does not count.
    pub(super) offset: u64,
    /// Nothing behind it was ever whole: its writer was interrupted.
    pub(super) is_torn: bool,
}

impl Copied {
    /// Copies the folder into an empty one.
    pub(super) fn make(from: &Path, to: &Path) -> io::Result<Copied> {
        let mut copied = Copied {
            from: fs::canonicalize(from).unwrap_or_else(|_| from.to_owned()),
            to: to.to_owned(),
            journals: Vec::new(),
            files: 0,
        };
        match copied.copy_folder(PathBuf::new(), DEPTH_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && copied.files == 0 => {}
            other => other?,
        }
        copied.from = from.to_owned();
        Ok(copied)
    }

    /// Whether there was nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.files == 0
    }

    /// The folder that was copied.
    pub(super) fn from(&self) -> &Path {
        &self.from
    }

    /// The file that this one of the copy stands for.
    pub(super) fn original_of(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.to)
            .map_or_else(|_| path.to_owned(), |inside| self.from.join(inside))
    }

    /// A message of the engine with the names of the original.
    pub(super) fn in_words_of_the_original(&self, what: &str) -> String {
        what.replace(&*self.to.to_string_lossy(), &self.from.to_string_lossy())
    }

    /// The journals that are shorter in the copy by now, with where that was.
    pub(super) fn cut_journals(&self) -> Vec<(PathBuf, Cut)> {
        let cut = |journal: &PathBuf| {
            let original = self.from.join(journal);
            let before = fs::metadata(&original).ok()?.len();
            let offset = fs::metadata(self.to.join(journal)).ok()?.len();
            // Behind the last batch a journal is filled with zeros, ahead of what is written to it.
            if offset >= before || rest_is_zero(&original, offset).unwrap_or(false) {
                return None;
            }
            let is_torn = !ends_follow(&original, offset).unwrap_or(true);
            Some((original, Cut { offset, is_torn }))
        };
        self.journals.iter().filter_map(cut).collect()
    }

    fn copy_folder(&mut self, inside: PathBuf, depth_left: usize) -> io::Result<()> {
        if depth_left == 0 {
            return Err(io::Error::other("folders lie too deep in one another"));
        }
        fs::create_dir_all(self.to.join(&inside))?;
        let are_tables = inside.file_name().is_some_and(|name| name == TABLES_FOLDER);
        for entry in fs::read_dir(self.from.join(&inside))? {
            let entry = entry?;
            let inside = inside.join(entry.file_name());
            let (from, to) = (self.from.join(&inside), self.to.join(&inside));
            if entry.file_type()?.is_dir() {
                self.copy_folder(inside, depth_left - 1)?;
                continue;
            }
            self.files += 1;
            if are_tables {
                symlink(&from, &to)?;
            } else {
                copy_file(&from, &to)?;
            }
            if inside.extension().is_some_and(|suffix| suffix == JOURNAL_SUFFIX) {
                self.journals.push(inside);
            }
        }
        Ok(())
    }
}

/// Copies a file and leaves out what is zero, of which journals have much ahead.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::create(to)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut length = 0;
    loop {
        let read = source.read(&mut piece)?;
        if read == 0 {
            break;
        }
        if piece[..read].iter().any(|byte| *byte != 0) {
            target.seek(SeekFrom::Start(length))?;
            target.write_all(&piece[..read])?;
        }
        length += read as u64;
    }
    target.set_len(length)
}

/// Whether there is nothing but zeros behind `offset`.
fn rest_is_zero(journal: &Path, offset: u64) -> io::Result<bool> {
    let mut file = File::open(journal)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(true);
        }
        if piece[..read].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
}

/// Whether the end of a batch lies anywhere behind `offset`.
fn ends_follow(journal: &Path, offset: u64) -> io::Result<bool> {
    let mut file = File::open(journal)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(false);
        }
        bytes.extend_from_slice(&piece[..read]);
        if bytes.windows(BATCH_END.len()).any(|window| window == BATCH_END) {
            return Ok(true);
        }
        let kept = bytes.len().saturating_sub(BATCH_END.len() - 1);
        bytes.drain(..kept);
    }
}
