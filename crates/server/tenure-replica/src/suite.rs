//! The consensus library's own storage suite, on our log and state: in memory, and on real files.

use std::path::Path;
use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, NodeId, Revision};
use tenure_core::machine::GroupKind;
use tenure_core::time::Timestamp;
use tenure_storage::disk::{Disk, RecordingDisk};
use tenure_storage::feed::FeedLimits;
use tenure_storage::log::{Log, LogOptions, WriterMode};
use tenure_storage::mem::MemEngine;
use tenure_storage::state::{DiskEngine, DiskOptions, StateEngine};

use crate::effects::EffectSink;
use crate::log_adapter::LogAdapter;
use crate::machine_adapter::MachineAdapter;
use crate::raft_types::TypeConfig;
use crate::replica::{Parts, ReplicaOptions, assemble};
use crate::runtime::Runtime;

const GROUP: GroupId = GroupId(3);

/// Hears nothing.
pub(crate) struct Deaf;

impl EffectSink for Deaf {
    fn applied(&self, _group: GroupId, _effects: &[Effect], _revision: Revision, _time: Timestamp) {}

    fn reset(&self, _group: GroupId, _revision: Revision) {}

    fn stopped(&self, _group: GroupId, _why: &str) {}
}

/// A group over a log and a state engine.
pub(crate) fn options(
    disk: Arc<dyn Disk>,
    folder: &Path,
    mode: WriterMode,
    engine: &dyn StateEngine,
) -> ReplicaOptions {
    let log = Log::open(
        disk,
        folder,
        LogOptions {
            segment_bytes: 1 << 20,
            ..LogOptions::default()
        },
        mode,
    )
    .unwrap();
    let state = engine.group(GROUP).unwrap();
    ReplicaOptions::new(
        GROUP,
        GroupKind::Home,
        NodeId(0),
        (log.group(GROUP), state),
        Runtime::system(),
        Arc::new(Deaf),
    )
}

struct InMemory;

impl StoreBuilder<TypeConfig, LogAdapter, MachineAdapter> for InMemory {
    async fn build(&self) -> Result<((), LogAdapter, MachineAdapter), StorageError<TypeConfig>> {
        let engine = MemEngine::new(FeedLimits::default());
        let options = options(
            Arc::new(RecordingDisk::new()),
            Path::new("/log"),
            WriterMode::Inline,
            &engine,
        );
        let Parts { log, machine, .. } = assemble(&options).unwrap();
        Ok(((), log, machine))
    }
}

struct OnFiles;

impl StoreBuilder<TypeConfig, LogAdapter, MachineAdapter, TempDir> for OnFiles {
    async fn build(&self) -> Result<(TempDir, LogAdapter, MachineAdapter), StorageError<TypeConfig>> {
        let folder = tempfile::tempdir().unwrap();
        let engine = DiskEngine::open(&folder.path().join("state"), DiskOptions::default()).unwrap();
        let runtime = Runtime::system();
        let options = options(
            runtime.disk.clone(),
            &folder.path().join("log"),
            runtime.log_writer(),
            &engine,
        );
        let Parts { log, machine, .. } = assemble(&options).unwrap();
        Ok((folder, log, machine))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openraft_storage_suite_passes_on_our_log_and_state() {
    Suite::test_all(InMemory).await.unwrap();
    Suite::test_all(OnFiles).await.unwrap();
}
