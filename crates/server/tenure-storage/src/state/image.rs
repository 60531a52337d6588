//! The whole table at one applied index, for a snapshot.

use std::sync::Arc;

use bytes::Bytes;
use tenure_core::table::{TableRead, Visit, Writes};

use super::overlay::{Fault, Generation, View};
use super::rows::RowRead;
use super::{AppliedMark, StateError};

/// All rows of a group as they were when the image was made, whatever is committed, written or installed later.
///
/// It keeps the memory and the files of its rows from being freed, so it is not to be kept longer than a snapshot
/// takes.
pub struct Image {
    pub(crate) generations: Vec<Arc<Generation>>,
    pub(crate) rows: Box<dyn RowRead>,
    pub(crate) mark: Option<AppliedMark>,
    pub(crate) fault: Arc<Fault>,
}

impl Image {
    /// What is applied in it; `None` if nothing is.
    pub fn mark(&self) -> Option<&AppliedMark> {
        self.mark.as_ref()
    }

    /// Whether everything read from it so far is true. To be asked when the last row was read and before
    /// anything is made of it.
    ///
    /// # Errors
    /// The error of the group, if a read of it has failed: what was read from the image is then to be thrown away.
    pub fn verify(&self) -> Result<(), StateError> {
        self.fault.check()
    }

    fn with_view<T>(&self, read: impl FnOnce(&View<'_>) -> T) -> T {
        let layers: Vec<&Writes> = self.generations.iter().map(|generation| &generation.writes).collect();
        read(&View {
            layers: &layers,
            rows: self.rows.as_ref(),
            fault: &self.fault,
        })
    }
}

impl TableRead for Image {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.with_view(|view| view.get(key))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) {
        self.with_view(|view| view.scan(from, to, visit));
    }
}
