//! The log over a disk in memory, written by its caller.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tenure_storage::disk::RecordingDisk;
use tenure_storage::log::{GroupId, Log, LogOptions, WriterMode};

/// Entries of one batch, which is written and synced at once.
const BATCH_ENTRIES: u64 = 64;
const PAYLOAD: Bytes = Bytes::from_static(&[7; 100]);

/// Appends a batch and syncs it.
pub(super) fn batches(operations: u64) {
    let options = LogOptions {
        segment_bytes: 1 << 20,
        salt: 1,
        ..LogOptions::default()
    };
    let log = Log::open(
        Arc::new(RecordingDisk::new()),
        Path::new("data/log"),
        options,
        WriterMode::Inline,
    )
    .expect("an empty disk in memory can be opened");
    let group = log.group(GroupId(1));
    let done = Arc::new(AtomicU64::new(0));
    for batch in 0..operations {
        let first = 1 + batch * BATCH_ENTRIES;
        let counted = Arc::clone(&done);
        group.append(
            (first..first + BATCH_ENTRIES).map(|index| (index, PAYLOAD)).collect(),
            Box::new(move |result| {
                result.expect("a disk in memory does not fail");
                counted.fetch_add(1, Ordering::Relaxed);
            }),
        );
    }
    assert_eq!(done.load(Ordering::Relaxed), operations, "every batch was called back");
    log.close();
}
