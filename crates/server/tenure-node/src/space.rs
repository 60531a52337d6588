//! Free room on the disk: below a reserve whatever grows is refused, while what renews, ends, deletes or expires goes on.
//!
//! The reserve is what those need: segments of the log, the journal of the state, and what is applied and not yet
//! written when the room runs out. A disk that is really full stops the node, because a failed write is never tried
//! again; the reserve is there so that this happens to nobody who only uses what is left for releasing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::command::Command;
use tenure_replica::{Lane, Replica};
use tenure_storage::disk::Disk;
use tenure_storage::log::Log;
use tenure_storage::state::StateEngine;

use crate::service::grows;

/// How much is kept free if nobody says otherwise, in bytes.
pub const RESERVE_BYTES_DEFAULT: u64 = 256 << 20;
/// Of a small disk no larger part is kept free by default than this one.
const RESERVE_PART_MAX: u64 = 4;
/// How often it is looked at how much is free. At a gibibyte a second this is a part of the reserve.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(100);

/// How long after the room has become short what can be given back is, and again while it stays short.
const GIVEN_BACK_EVERY: Duration = Duration::from_secs(3);
/// How long at most until the next time, if nothing came of it.
const GIVEN_BACK_EVERY_MAX: Duration = Duration::from_secs(60);
/// Less than this part of the reserve is nothing.
const NOTHING_PART: u64 = 64;

/// How much room there is.
pub(crate) struct Space {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    free: AtomicU64,
    /// What was taken in already and will take room yet.
    owed: AtomicU64,
    reserve: u64,
}

/// There is less room than is kept in reserve, if what is owed is taken off. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    pub(crate) free: u64,
    pub(crate) reserve: u64,
}

impl Space {
    /// Looks at the disk that a folder lies on.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn open(disk: Arc<dyn Disk>, folder: &Path, reserve: Option<u64>) -> io::Result<Space> {
        let reserve = match reserve {
            Some(reserve) => reserve,
            None => RESERVE_BYTES_DEFAULT.min(disk.size(folder)? / RESERVE_PART_MAX),
        };
        let free = disk.free_space(folder)?;
        let space = Space {
            disk,
            folder: folder.to_owned(),
            free: AtomicU64::new(u64::MAX),
            owed: AtomicU64::new(0),
            reserve,
        };
        space.note(free, 0);
        Ok(space)
    }

    /// Whether there is room for a command. Those that do not grow always have it.
    pub(crate) fn check(&self, command: &Command) -> Result<(), NoRoom> {
        if grows(command) { self.check_growth() } else { Ok(()) }
    }

    /// Whether there is room for what grows.
    pub(crate) fn check_growth(&self) -> Result<(), NoRoom> {
        let free = self.free().saturating_sub(self.owed.load(Ordering::Relaxed));
        let reserve = self.reserve;
        if free < reserve {
            return Err(NoRoom { free, reserve });
        }
        Ok(())
    }

    /// Bytes that were free at the last look.
    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Bytes that are free now, if the disk says so.
    fn free_now(&self) -> Option<u64> {
        self.disk.free_space(&self.folder).ok()
    }

    /// Looks again, while so much is owed.
    fn look(&self, owed: u64) -> io::Result<()> {
        self.note(self.disk.free_space(&self.folder)?, owed);
        Ok(())
    }

    fn note(&self, free: u64, owed: u64) {
        let before = self.free.swap(free, Ordering::Relaxed);
        let before = before.saturating_sub(self.owed.swap(owed, Ordering::Relaxed));
        let reserve = self.reserve;
        let free = free.saturating_sub(owed);
        if free < reserve && before >= reserve {
            tracing::warn!(
                free,
                owed,
                reserve,
                "the disk is almost full: what grows is refused until there is more room than the reserve"
            );
        } else if free >= reserve && before < reserve {
            tracing::info!(free, reserve, "there is room on the disk again");
        }
    }
}

/// Looks at the room for as long as the node lives.
pub(crate) async fn keep_looking(space: Arc<Space>, engine: Arc<dyn StateEngine>) {
    let mut failed = false;
    loop {
        tokio::time::sleep(LOOKED_AT_EVERY).await;
        match space.look(engine.owed()) {
            Ok(()) => failed = false,
            // What was known stays; a disk that really fails shows at the next sync.
            Err(error) if !failed => {
                tracing::warn!(%error, folder = %space.folder.display(), "the room on the disk cannot be looked at");
                failed = true;
            }
            Err(_) => {}
        }
    }
}

/// What may hold room on the disk that it does not need.
pub(crate) struct Holders {
    pub(crate) log: Log,
    pub(crate) engine: Arc<dyn StateEngine>,
    pub(crate) replicas: Vec<Replica>,
    /// Where the engine works, which takes as long as all rows take to be written.
    pub(crate) lane: Lane,
}

/// Gives back what is held and not needed for as long as the room is short. On such a disk nothing grows any more, so
/// what the log and the state do when they have grown enough would never come.
pub(crate) async fn keep_giving_back(space: Arc<Space>, holders: Holders) {
    let mut wait = GIVEN_BACK_EVERY;
    let mut written = None;
    loop {
        tokio::time::sleep(wait).await;
        if space.check_growth().is_ok() {
            wait = GIVEN_BACK_EVERY;
            continue;
        }
        let batches = holders.log.stats().batches;
        // Each time writes a little itself, but for that nothing has changed if nobody else has written.
        if written.replace(batches) == Some(batches) {
            continue;
        }
        let before = space.free();
        if !holders.give_back(&space).await {
            return;
        }
        let freed = space.free_now().map_or(0, |free| free.saturating_sub(before));
        tracing::info!(
            freed,
            free = before + freed,
            reserve = space.reserve,
            "room was given back on a disk that is almost full"
        );
        wait = match freed > space.reserve / NOTHING_PART {
            true => GIVEN_BACK_EVERY,
            false => (wait * 2).min(GIVEN_BACK_EVERY_MAX),
        };
    }
}

impl Holders {
    /// Whether to go on with it the next time.
    async fn give_back(&self, space: &Arc<Space>) -> bool {
        // They do it in their own time: what they free is seen the next time.
        self.replicas.iter().for_each(Replica::purge_soon);
        if let Err(error) = self.log.give_back_spares() {
            tracing::warn!(%error, "spare segments of the log cannot be deleted");
        }
        let (engine, space) = (self.engine.clone(), space.clone());
        let done = self.lane.run(move || engine.give_back(&|| space.free_now())).await;
        match done {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, "the state cannot give back room on the disk, and is not asked to again");
                false
            }
            Err(error) => {
                tracing::error!(%error, "the state cannot give back room on the disk, and is not asked to again");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
