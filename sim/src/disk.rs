//! The disk of a simulated node: what is left of it after a crash.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_storage::disk::RecordingDisk;
use tenure_storage::feed::FeedLimits;
use tenure_storage::mem::MemEngine;

use crate::plan::CrashKind;
use crate::random::SeededRandom;

/// What a disk that lies forgets: writes, syncs and changes of names.
const FORGOTTEN_CHANGES: usize = 40;

/// The disk of one node over all its lives: the log's files, and the state, which is kept in memory here and of which
/// a crash leaves what the engine on disk would leave.
pub(crate) struct NodeDisk {
    files: Mutex<RecordingDisk>,
    state: MemEngine,
    /// A defect: what was synced may be lost all the same.
    lies: bool,
}

impl NodeDisk {
    /// An empty disk, honest or not.
    pub(crate) fn new(lies: bool) -> NodeDisk {
        let files = RecordingDisk::new();
        if lies {
            files.start_recording();
        }
        NodeDisk {
            files: Mutex::new(files),
            state: MemEngine::with_crashes(FeedLimits::default()),
            lies,
        }
    }

    /// The files, for a node that starts now.
    pub(crate) fn files(&self) -> RecordingDisk {
        self.locked().clone()
    }

    /// The engine of the state, for a node that starts now.
    pub(crate) fn state(&self) -> MemEngine {
        self.state.clone()
    }

    /// Crashes: whoever still holds files writes to a disk that nobody will read, and whoever still holds state gets
    /// errors. Returns what was lost, in words.
    pub(crate) fn crash(&self, kind: CrashKind, random: &SeededRandom) -> String {
        let mut files = self.locked();
        let unsynced = self.state.unsynced_batches();
        match kind {
            CrashKind::Kill => {
                *files = files.after_kill();
                if self.lies {
                    files.start_recording();
                }
                self.state.crash(unsynced);
                "the process is killed: what it wrote is there".to_owned()
            }
            CrashKind::PowerLoss if self.lies => {
                *files = files.at(files.events().saturating_sub(FORGOTTEN_CHANGES), None);
                files.start_recording();
                self.state.crash(0);
                "power loss: the disk forgets what it had synced".to_owned()
            }
            CrashKind::PowerLoss => {
                *files = files.after_power_loss(&mut |bound| random.between(0, bound));
                let kept = usize::try_from(random.between(0, unsynced as u64 + 1)).unwrap_or(unsynced);
                self.state.crash(kept);
                format!("power loss: {kept} of {unsynced} unsynced batches of the state are left")
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, RecordingDisk> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
