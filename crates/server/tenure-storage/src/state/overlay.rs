//! What is committed but not yet on disk, and how it is read: the youngest writes first, the disk last.

use std::sync::OnceLock;

use bytes::Bytes;
use tenure_core::effect::{Change, ChangeKind};
use tenure_core::table::{TableRead, Visit, Writes, scan_over};
use tenure_core::time::Timestamp;

use super::rows::{RowRead, key_of_table, table_key};
use super::{AppliedMark, StateError};

/// What a row in memory costs beyond its key and value, about.
const ROW_OVERHEAD_BYTES: usize = 96;
/// What a change in memory costs beyond its key and value, about.
const CHANGE_OVERHEAD_BYTES: usize = 128;

/// The writes of successive commits that reach the disk together.
#[derive(Default)]
pub(crate) struct Generation {
    pub(crate) writes: Writes,
    pub(crate) changes: Vec<Change>,
    /// The mark of the last commit; `None` while there is none.
    pub(crate) mark: Option<AppliedMark>,
    /// Cluster time of the last commit.
    pub(crate) time: Timestamp,
    pub(crate) bytes: usize,
    pub(crate) commits: u64,
}

impl Generation {
    /// Takes in one more commit.
    pub(crate) fn absorb(&mut self, writes: Writes, changes: Vec<Change>, time: Timestamp, mark: AppliedMark) {
        for (key, value) in writes {
            let key_len = key.len();
            self.bytes += row_bytes(key_len, value.as_ref());
            if let Some(replaced) = self.writes.insert(key, value) {
                self.bytes -= row_bytes(key_len, replaced.as_ref());
            }
        }
        self.bytes += changes.iter().map(change_bytes).sum::<usize>();
        self.changes.extend(changes);
        self.mark = Some(mark);
        self.time = time;
        self.commits += 1;
    }

    /// Index of its last entry; `None` if nothing was committed into it.
    pub(crate) fn last_index(&self) -> Option<u64> {
        self.mark.as_ref().map(|mark| mark.index)
    }
}

/// A table read through layers of writes, youngest first, over rows.
pub(crate) struct View<'a> {
    pub(crate) layers: &'a [&'a Writes],
    pub(crate) rows: &'a dyn RowRead,
    pub(crate) fault: &'a Fault,
}

impl TableRead for View<'_> {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        if let Some(written) = self.layers.iter().find_map(|writes| writes.get(key)) {
            return written.clone();
        }
        self.rows.get(&table_key(key)).unwrap_or_else(|error| {
            self.fault.set(error);
            None
        })
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) {
        if from >= to {
            return;
        }
        if let Some((youngest, older)) = self.layers.split_first() {
            let base = View {
                layers: older,
                rows: self.rows,
                fault: self.fault,
            };
            return scan_over(youngest, &base, from, to, visit);
        }
        let scanned = self.rows.scan(&table_key(from), &table_key(to), &mut |row_key, value| {
            visit(key_of_table(row_key), value)
        });
        if let Err(error) = scanned {
            self.fault.set(error);
        }
    }
}

/// The first error of a group, after which nothing of it is used any more. Table reads have no error of their
/// own: they record it here, and whoever reads looks here before it believes what it read.
#[derive(Default)]
pub(crate) struct Fault(OnceLock<StateError>);

impl Fault {
    /// Records the error unless there is one already, and gives the one that counts.
    pub(crate) fn set(&self, error: StateError) -> StateError {
        self.0.get_or_init(|| error).clone()
    }

    /// The recorded error, if any.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        match self.0.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }
}

/// What a change costs in memory, about.
pub(crate) fn change_bytes(change: &Change) -> usize {
    let value_len = match &change.kind {
        ChangeKind::Put { value, .. } => value.len(),
        ChangeKind::Removed { .. } => 0,
    };
    CHANGE_OVERHEAD_BYTES + change.key.len() + value_len
}

fn row_bytes(key_len: usize, value: Option<&Bytes>) -> usize {
    ROW_OVERHEAD_BYTES + key_len + value.map_or(0, Bytes::len)
}
