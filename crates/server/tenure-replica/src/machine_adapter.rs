//! The consensus library's state machine over the core's machine and the group's state.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};

use tenure_storage::state::OVERLAY_BYTES_MAX;

use crate::apply::{Answerable, Applier};
use crate::lane::Lane;
use crate::log_adapter::LogAdapter;
use crate::raft_types::{LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};
use crate::shared::Told;
use crate::snapshot_adapter::{SnapshotBuilder, SnapshotData};
use crate::write_behind;

/// Entries handed to the thread of the apply at once.
const APPLY_ENTRIES_MAX: usize = 64;
/// The next apply is done in place if the last took less than this: then it costs less than the two switches of
/// threads that it would take elsewhere, and holds up nobody on a thread that answers (docs/adr/0006-threads.md).
pub(crate) const QUICK: Duration = Duration::from_millis(1);
/// Entries of more bytes are not applied in place whatever the ones before took.
const IN_PLACE_BYTES_MAX: usize = 64 << 10;
/// How long apply waits before it looks again whether the overlay has room.
const OVERLAY_WAIT: Duration = Duration::from_millis(2);

/// One group's state machine.
pub(crate) struct MachineAdapter {
    pub(crate) applier: Arc<Applier>,
    /// Where entries are applied that may take long.
    pub(crate) apply_lane: Arc<Lane>,
    /// Whether the last apply was quick; then the next is done in place.
    quick: bool,
    /// Where the state is written behind.
    pub(crate) write_lane: Arc<Lane>,
    pub(crate) log: LogAdapter,
    /// Whether a snapshot was made or installed since the opening. It is not kept: it is made again from the
    /// state as it is when somebody asks for it.
    snapshot_known: AtomicBool,
}

impl MachineAdapter {
    pub(crate) fn new(
        applier: Arc<Applier>,
        apply_lane: Arc<Lane>,
        write_lane: Arc<Lane>,
        log: LogAdapter,
    ) -> MachineAdapter {
        MachineAdapter {
            applier,
            apply_lane,
            quick: true,
            write_lane,
            log,
            snapshot_known: AtomicBool::new(false),
        }
    }

    /// Waits until the overlay has room for more.
    async fn wait_for_room(&self) -> Result<(), io::Error> {
        while self.applier.state.pending().bytes > OVERLAY_BYTES_MAX {
            write_behind::write_now(&self.applier, &self.log, &self.write_lane)
                .await
                .map_err(io::Error::other)?;
            if self.applier.state.pending().bytes > OVERLAY_BYTES_MAX {
                tokio::time::sleep(OVERLAY_WAIT).await;
            }
        }
        Ok(())
    }

    async fn apply_chunk(&mut self, entries: Vec<Answerable>) -> Result<(), io::Error> {
        self.wait_for_room().await?;
        let in_place = self.quick && bytes_of(&entries) <= IN_PLACE_BYTES_MAX;
        let applier = self.applier.clone();
        let apply = move || {
            let clock = &applier.shared.runtime.clock;
            let begun = clock.now();
            let applied = applier.apply_all(entries);
            (applied, clock.now().saturating_sub(begun))
        };
        let done = if in_place {
            Lane::run_here(apply)
        } else {
            self.apply_lane.run(apply).await
        };
        match done {
            Ok((applied, took)) => {
                self.quick = took < QUICK;
                applied.map_err(io::Error::other)
            }
            Err(lost) => {
                self.applier
                    .shared
                    .stop("apply ended in a panic outside the machine", Told::Node);
                Err(io::Error::other(lost))
            }
        }
    }

    fn builder(&self) -> SnapshotBuilder {
        self.snapshot_known.store(true, Ordering::Relaxed);
        let log = self.log.clone();
        SnapshotBuilder {
            applier: self.applier.clone(),
            writer: self.write_lane.clone(),
            flushed: Box::new(move || log.first_and_flushed().1),
        }
    }
}

impl RaftStateMachine<TypeConfig> for MachineAdapter {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let applied = self.applier.applied();
        Ok((applied.last, applied.membership))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        // Chunks of what is ready: the first entry is never held up for the last.
        let mut chunks = entries.ready_chunks(APPLY_ENTRIES_MAX);
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.into_iter().collect::<Result<Vec<Answerable>, io::Error>>()?;
            self.apply_chunk(chunk).await?;
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        self.builder()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotData) -> Result<(), io::Error> {
        let applier = self.applier.clone();
        let meta = meta.clone();
        let installed = self
            .apply_lane
            .run(move || applier.install(&meta, &snapshot.into_bytes()?));
        match installed.await {
            Ok(Ok(())) => {
                self.snapshot_known.store(true, Ordering::Relaxed);
                let shared = &self.applier.shared;
                shared.snapshots_installed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ok(Err(why)) => Err(io::Error::other(why)),
            Err(lost) => Err(io::Error::other(lost)),
        }
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        if !self.snapshot_known.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (meta, image) = self.applier.image().map_err(io::Error::other)?;
        Ok(Some(Snapshot {
            meta,
            snapshot: SnapshotData::Image(Box::new(image)),
        }))
    }
}

fn bytes_of(entries: &[Answerable]) -> usize {
    let payloads = entries.iter().map(|(entry, _)| &entry.payload);
    payloads
        .map(|payload| match payload {
            EntryPayload::Normal(data) => data.bytes.len(),
            EntryPayload::Blank | EntryPayload::Membership(_) => 0,
        })
        .sum()
}
