//! Where the repository is and which files belong to it.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Folders that hold no source of ours: version control, and what a server leaves behind.
const SKIPPED: &[&str] = &[".git", "tenure-data"];

/// Marks a folder that a program can fill again; cargo puts it into the folders that it builds in.
const CACHE_MARK: &str = "CACHEDIR.TAG";

/// The checkout that a task works on.
#[derive(Debug)]
pub(crate) struct Repository {
    root: PathBuf,
}

impl Repository {
    /// The repository that this program was built from.
    pub(crate) fn find() -> Result<Self, Failure> {
        // Cargo sets the variable when it runs us; the compiled value serves when the binary is started by hand.
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
            .map(PathBuf::from)
            .filter(|path| path.ends_with("crates/dev/xtask"))
            .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        let root = manifest_dir
            .ancestors()
            .nth(3)
            .map(Path::to_path_buf)
            .unwrap_or_default();
        if !root.join("Cargo.toml").is_file() {
            return Err(Failure::Failed(format!(
                "no Cargo.toml in {}: build xtask again",
                root.display()
            )));
        }
        Ok(Repository { root })
    }

    /// The root folder, absolute.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether a file or folder exists at a path relative to the root.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// The text of a file at a path relative to the root.
    pub(crate) fn read(&self, path: &str) -> Result<String, Failure> {
        std::fs::read_to_string(self.root.join(path))
            .map_err(|error| Failure::Failed(format!("cannot read {path}: {error}")))
    }

    /// Every file of the project, relative to the root, with `/` between parts, sorted.
    pub(crate) fn files(&self) -> Result<Vec<String>, Failure> {
        let mut files = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let absolute = self.root.join(&folder);
            if absolute.join(CACHE_MARK).is_file() {
                continue;
            }
            let cannot = |error| Failure::Failed(format!("cannot list {}: {error}", absolute.display()));
            for entry in std::fs::read_dir(&absolute).map_err(cannot)? {
                let entry = entry.map_err(cannot)?;
                let name = entry.file_name();
                let kind = entry.file_type().map_err(cannot)?;
                let path = folder.join(&name);
                if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
                    folders.push(path);
                } else if kind.is_file() {
                    files.push(path.to_string_lossy().replace('\\', "/"));
                }
            }
        }
        files.sort();
        Ok(files)
    }
}
