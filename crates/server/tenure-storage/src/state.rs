//! The state of the groups: one ordered table each, with its applied mark and its change feed.
//!
//! Entries are committed to an overlay in memory, which reads see at once. Behind it the overlay is written to the
//! engine, in atomic batches that hold the rows, the mark and the changes of the same entries and **never reach
//! beyond what this replica's log has synced**; so whatever the disk holds after a crash is the state at exactly
//! the mark it holds, and the log has the entries behind it. Batches are not synced by themselves:
//! [`GroupState::make_durable`] syncs before the log is purged.
//!
//! The overlay is a queue of generations. Commits go into the youngest, the one in use; a write behind seals it
//! and writes the oldest ones as soon as the log is flushed up to their ends. A read looks at the youngest first
//! and at the disk last, so it does not matter whether a generation that is just being written is on disk already.
//!
//! Two engines keep the rows: [`DiskEngine`] and, for tests, the simulator and clusters that live in memory,
//! [`MemEngine`](crate::mem::MemEngine). Everything above the rows is the same code for both.

mod engine;
mod error;
mod image;
mod inspect;
mod install;
mod journal;
mod names;
pub(crate) mod overlay;
mod reclaim;
pub(crate) mod rows;
pub(crate) mod shared;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_core::effect::Change;
use tenure_core::ids::{GroupId, Revision};
use tenure_core::snapshot::ImportError;
use tenure_core::table::{Table, TableRead, Writes};
use tenure_core::time::Timestamp;

pub(crate) use inspect::all_set_aside;
pub(crate) use names::Holds;

pub use engine::{DiskEngine, DiskOptions};
pub use error::{StateError, Stops};
pub use image::Image;

use crate::feed::{Feed, FeedLimits};
use overlay::View;
use rows::GroupRows;
use shared::Shared;

/// How often the overlay is written behind.
pub const WRITE_BEHIND_EVERY: Duration = Duration::from_millis(100);
/// Bytes in the overlay at which it is written behind at once.
pub const WRITE_BEHIND_BYTES: usize = 8 << 20;
/// Bytes in the overlay at which nothing more is applied until it is written behind.
pub const OVERLAY_BYTES_MAX: usize = 64 << 20;

// There is room to apply while a write behind is under way.
const _: () = assert!(WRITE_BEHIND_BYTES * 4 <= OVERLAY_BYTES_MAX);

/// Keeps the state of all groups of a node.
pub trait StateEngine: Send + Sync {
    /// The state of a group, made empty if there is none. Asked again, it gives another handle of the same state.
    ///
    /// # Errors
    /// [`StateError`], and who must stop, if its rows cannot be read or made.
    fn group(&self, group: GroupId) -> Result<GroupState, StateError>;

    /// Gives the group an empty state in place of the one it has, which is deleted even if it cannot be read: for a
    /// replica that is to get a snapshot because its state is damaged. Handles of the old state are closed.
    ///
    /// # Errors
    /// [`StateError`]; on disk there is then the old state or the empty one.
    fn begin_anew(&self, group: GroupId) -> Result<GroupState, StateError>;

    /// Returns when everything that was written behind survives a loss of power. What is only in overlays does
    /// not: see [`GroupState::make_durable`].
    ///
    /// # Errors
    /// [`StateError::EngineFailed`]: the node must stop.
    fn sync_all(&self) -> Result<(), StateError>;

    /// Bytes that what was taken in already may take on the disk on its way, beyond what it takes now: about, and rather
    /// more than less.
    fn owed(&self) -> u64 {
        0
    }

    /// Gives back room on the disk that is held and not needed, as far as that is safe with as little room as `room`
    /// says there is (`None`: nobody knows, and nothing is done that needs any). Blocks for as long as it takes to
    /// write all rows anew; commits, reads and write behinds go on meanwhile. An engine without a disk has nothing to
    /// give.
    ///
    /// # Errors
    /// What the engine said. Nothing is lost, nobody has to stop, and asking again is of no use.
    fn give_back(&self, _room: &dyn Fn() -> Option<u64>) -> Result<(), StateError> {
        Ok(())
    }
}

/// One group's state: an ordered table behind an overlay in memory, its applied mark, and its change feed.
///
/// A handle: clones are the same state. One thread commits; any number read.
#[derive(Clone)]
pub struct GroupState {
    shared: Arc<Shared>,
    feed: Feed,
}

/// How far the log is applied to a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedMark {
    /// Index of the last applied entry.
    pub index: u64,
    /// What consensus keeps with it (log id, membership). Not looked into here.
    pub bytes: Bytes,
}

/// How much of a state is not on disk yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Bytes that the overlay takes, about.
    pub bytes: usize,
    /// Commits that are only in the overlay.
    pub commits: u64,
    /// Index of the last entry that was written behind; `None` while there is none.
    pub written: Option<u64>,
    /// Index of the last entry whose effects survive a loss of power; `None` while there is none.
    pub durable: Option<u64>,
}

impl GroupState {
    pub(crate) fn open(group: GroupId, rows: Arc<dyn GroupRows>, limits: FeedLimits) -> Result<GroupState, StateError> {
        let shared = Arc::new(Shared::open(group, rows, limits)?);
        let feed = Feed::new(shared.clone());
        Ok(GroupState { shared, feed })
    }

    /// Every later call on any handle of this state fails.
    pub(crate) fn close(&self) {
        self.shared.fault.set(StateError::Closed {
            group: self.shared.group,
        });
    }

    /// Which group's state it is.
    pub fn group(&self) -> GroupId {
        self.shared.group
    }

    /// How far the log is applied; `None` when nothing is.
    pub fn applied(&self) -> Option<AppliedMark> {
        self.shared.read_inner().applied.clone()
    }

    /// Runs `read` on the table as it is now. Nothing is committed meanwhile, so `read` is to be short, and must not
    /// call this state again.
    ///
    /// # Errors
    /// The error of the group, if a row could not be read now or earlier. The table then had holes, so what `read`
    /// made of it is dropped here and cannot be used by mistake.
    pub fn read<T>(&self, read: impl FnOnce(&dyn TableRead) -> T) -> Result<T, StateError> {
        self.shared.fault.check()?;
        let inner = self.shared.read_inner();
        let layers = inner.layers();
        let found = read(&View {
            layers: &layers,
            rows: inner.rows.as_ref(),
            fault: &self.shared.fault,
        });
        self.shared.fault.check()?;
        Ok(found)
    }

    /// Commits the writes of one or more applied entries, their changes, cluster time after them, and the mark of the
    /// last one. Readers see them at once; the disk gets them with a later write behind.
    ///
    /// # Errors
    /// The error of the group, if a read of it failed before: what was built on that read is not kept.
    /// [`StateError::OutOfOrder`] if it does not lie behind everything so far. Nothing is committed then.
    pub fn commit(
        &self,
        writes: Writes,
        changes: Vec<Change>,
        time: Timestamp,
        mark: AppliedMark,
    ) -> Result<(), StateError> {
        self.shared.fault.check()?;
        let mut inner = self.shared.write_inner();
        if let Err(what) = inner.check_order(mark.index, &changes) {
            return Err(StateError::OutOfOrder {
                group: self.shared.group,
                index: mark.index,
                what,
            });
        }
        inner.applied = Some(mark.clone());
        inner.active.absorb(writes, changes, time, mark);
        Ok(())
    }

    /// How much is not on disk yet.
    pub fn pending(&self) -> Pending {
        let inner = self.shared.read_inner();
        Pending {
            bytes: inner.generations().map(|generation| generation.bytes).sum(),
            commits: inner.generations().map(|generation| generation.commits).sum(),
            written: inner.written,
            durable: inner.durable,
        }
    }

    /// Writes the overlay behind, as far as this replica's log is flushed, in atomic batches that the operating
    /// system has when this returns. What lies beyond `log_flushed_index` stays in the overlay. Blocks; commits and
    /// reads go on meanwhile.
    ///
    /// # Errors
    /// [`StateError`]; the group, or the node, is to be stopped.
    pub fn write_behind(&self, log_flushed_index: u64) -> Result<(), StateError> {
        self.shared.fault.check()?;
        let _writer = self.shared.lock_writer();
        self.shared.write_flushed(log_flushed_index)
    }

    /// Writes behind and syncs. Returns the index up to which the log is no longer needed to rebuild the state:
    /// `None` if there is none.
    ///
    /// # Errors
    /// [`StateError`]; the group, or the node, is to be stopped, and the log must not be purged.
    pub fn make_durable(&self, log_flushed_index: u64) -> Result<Option<u64>, StateError> {
        self.shared.fault.check()?;
        let _writer = self.shared.lock_writer();
        self.shared.write_flushed(log_flushed_index)?;
        let (rows, written) = {
            let inner = self.shared.read_inner();
            (inner.rows.clone(), inner.written)
        };
        rows.sync().map_err(|error| self.shared.fault.set(error))?;
        self.shared.write_inner().durable = written;
        Ok(written)
    }

    /// All rows as they are now, for a snapshot. Takes no longer than a look, whatever the size of the state.
    ///
    /// # Errors
    /// The error of the group, if a read of it failed before.
    pub fn image(&self) -> Result<Image, StateError> {
        self.shared.fault.check()?;
        let mut inner = self.shared.write_inner();
        let mark = inner.applied.clone();
        let generations = inner.freeze();
        let rows = inner.rows.snapshot();
        Ok(Image {
            generations,
            rows,
            mark,
            fault: self.shared.fault.clone(),
        })
    }

    /// Replaces everything by the rows that `fill` puts into an empty table, in ascending order as
    /// [`tenure_core::snapshot::import`] does (reads of that table find nothing). They are durable when this returns.
    /// Who reads sees all of the old rows or all of the new ones; images of the old ones stay what they are. The feed
    /// begins anew behind `revision`. To be called where commits are made.
    ///
    /// # Errors
    /// [`StateError::Snapshot`] if `fill` fails or its rows are not in order: then nothing has changed. Any other
    /// error stops the group or the node; on disk there is then the old state or the new one, whole.
    pub fn install(
        &self,
        fill: impl FnOnce(&mut dyn Table) -> Result<(), ImportError>,
        mark: AppliedMark,
        revision: Revision,
    ) -> Result<(), StateError> {
        self.shared.fault.check()?;
        install::install(&self.shared, fill, mark, revision)
    }

    /// Why the change feed began anew when the state was opened, if it did.
    pub(crate) fn lost_feed(&self) -> Option<&str> {
        self.shared.lost_feed.as_deref()
    }

    /// Its change feed.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }
}

impl fmt::Debug for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupState")
            .field("group", &self.group())
            .field("pending", &self.pending())
            .finish()
    }
}
