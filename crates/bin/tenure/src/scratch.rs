//! A folder for what is needed while a command runs, and for no longer.

use std::path::Path;

use tempfile::TempDir;

use crate::exit::Failure;

/// A folder of its own that is removed when this is dropped.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// Makes the folder where the machine keeps what is temporary.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new() -> Result<Scratch, Failure> {
        let made = tempfile::Builder::new().prefix("tenure-").tempdir();
        made.map(Scratch).map_err(|error| {
            let folder = std::env::temp_dir();
            let what = format!("a temporary folder cannot be made in {}: {error}", folder.display());
            Failure::failed(
                what,
                "give it room and the right to write, or set TMPDIR to another folder",
            )
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}
