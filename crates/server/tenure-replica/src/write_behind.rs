//! Writing the state behind the log, and purging the log behind the state.
//!
//! The state is written in batches, never ahead of what this replica's log has synced. The log is purged only
//! up to what the state has made durable, by this crate's own trigger: the library is only asked to take note
//! of a snapshot, which costs nothing, and to purge.

use std::sync::Arc;
use std::time::Duration;

use tenure_storage::state::{WRITE_BEHIND_BYTES, WRITE_BEHIND_EVERY};

use crate::apply::Applier;
use crate::lane::Lane;
use crate::log_adapter::LogAdapter;
use crate::raft_types::{Raft, in_scope};
use crate::shared::Told;

/// When and how far the log is purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeLimits {
    /// It is purged when so many entries lie behind the applied one.
    pub entries_max: u64,
    /// It is purged when so many bytes were appended since the last time.
    pub bytes_max: u64,
    /// So many entries are left for replicas that are a little behind, unless it was purged for its bytes or for want of
    /// room.
    pub entries_kept: u64,
}

impl Default for PurgeLimits {
    fn default() -> PurgeLimits {
        PurgeLimits {
            entries_max: 50_000,
            bytes_max: 256 << 20,
            entries_kept: 10_000,
        }
    }
}

/// Entries left when the log was purged for its bytes, or because the disk is almost full.
const ENTRIES_KEPT_FOR_BYTES: u64 = 64;
/// How long a snapshot may take to be noted before the purge is put off.
const NOTED_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A group that is idle is looked at now and then.
const IDLE_EVERY: Duration = Duration::from_secs(10);

/// Writes the state of one group behind until the group stops.
pub(crate) struct WriteBehind {
    pub(crate) applier: Arc<Applier>,
    pub(crate) log: LogAdapter,
    pub(crate) lane: Arc<Lane>,
    pub(crate) raft: Raft,
    pub(crate) limits: PurgeLimits,
}

impl WriteBehind {
    /// Runs until the group stops.
    pub(crate) async fn run(self) {
        let shared = self.applier.shared.clone();
        let mut progress = shared.progress.subscribe();
        let mut appended = 0;
        loop {
            if shared.stopped().is_some() {
                return;
            }
            if self.applier.state.pending().commits == 0 {
                // Nothing to do until something is applied.
                let idle = tokio::time::sleep(IDLE_EVERY);
                tokio::select! {
                    biased;
                    changed = progress.changed() => if changed.is_err() { return },
                    () = shared.purge_wake.notified() => {}
                    () = idle => continue,
                }
            }
            self.wait_for_a_batch().await;
            if write_now(&self.applier, &self.log, &self.lane).await.is_err() {
                return;
            }
            progress.mark_unchanged();
            appended += self.log.take_appended_bytes();
            if let Some(keep) = self.purge_is_due(appended)
                && self.purge(keep).await
            {
                appended = 0;
            }
        }
    }

    async fn wait_for_a_batch(&self) {
        let ends = tokio::time::sleep(WRITE_BEHIND_EVERY);
        tokio::pin!(ends);
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            if self.applier.state.pending().bytes >= WRITE_BEHIND_BYTES {
                return;
            }
            tokio::select! {
                biased;
                () = &mut ends => return,
                _ = look.tick() => {}
            }
        }
    }

    /// How many entries are to be kept, if a purge is due.
    fn purge_is_due(&self, appended: u64) -> Option<u64> {
        let applied = self.applier.state.applied()?.index;
        let first = self.log.first_and_flushed().0?;
        let wanted = self.applier.shared.take_purge_wanted();
        if wanted || appended > self.limits.bytes_max {
            return Some(ENTRIES_KEPT_FOR_BYTES.min(self.limits.entries_kept));
        }
        (applied.saturating_sub(first) > self.limits.entries_max).then_some(self.limits.entries_kept)
    }

    /// Makes the state durable and purges the log up to there, but for the entries to be kept. False if the
    /// library has not noted a snapshot in time; then nothing was purged.
    async fn purge(&self, keep: u64) -> bool {
        let shared = &self.applier.shared;
        let applier = self.applier.clone();
        let Some(flushed) = self.log.first_and_flushed().1 else {
            return false;
        };
        let made = self.lane.run(move || {
            applier
                .state
                .make_durable(flushed)
                .map_err(|error| applier.fail(&error))
        });
        let durable = match made.await {
            Ok(Ok(Some(durable))) => durable,
            Ok(Ok(None) | Err(_)) => return false,
            Err(_) => {
                shared.stop("making the state durable ended in a panic", Told::Node);
                return false;
            }
        };
        if in_scope(shared.next_seed(), self.raft.trigger().snapshot())
            .await
            .is_err()
        {
            return false;
        }
        let mut waited = Duration::ZERO;
        while self.noted() < Some(durable) {
            if waited >= NOTED_WITHIN || shared.stopped().is_some() {
                return false;
            }
            tokio::time::sleep(LOOK_EVERY).await;
            waited += LOOK_EVERY;
        }
        let Some(upto) = durable.checked_sub(keep) else {
            return true;
        };
        in_scope(shared.next_seed(), self.raft.trigger().purge_log(upto))
            .await
            .is_ok()
    }

    /// The entry up to which the library knows a snapshot.
    fn noted(&self) -> Option<u64> {
        use openraft::async_runtime::WatchReceiver;
        self.raft
            .data_metrics()
            .borrow_watched()
            .snapshot
            .as_ref()
            .map(|id| id.index)
    }
}

/// Writes behind what the log has synced.
///
/// # Errors
/// What the state said; the group has been stopped.
pub(crate) async fn write_now(applier: &Arc<Applier>, log: &LogAdapter, lane: &Lane) -> Result<(), String> {
    let Some(flushed) = log.first_and_flushed().1 else {
        return Ok(());
    };
    let writer = applier.clone();
    let written = lane.run(move || writer.state.write_behind(flushed).map_err(|error| writer.fail(&error)));
    match written.await {
        Ok(written) => written,
        Err(lost) => {
            applier
                .shared
                .stop("writing the state behind ended in a panic", Told::Node);
            Err(lost.to_string())
        }
    }
}
