//! The Raft log of all groups of a node.
//!
//! One writer takes what all groups ask for (entries, votes, truncations, purges) in the order in which it was asked,
//! writes it as one batch with one write and one sync, and then calls back in that order. Entries can be read as soon
//! as they are appended. Segments are made ahead, written over and used again; what lagging groups still need is copied
//! forward, so the log's length follows what is alive in it.
//!
//! Opening it is exact: what was called back is there, what was not written is not, and a log of which anything may be
//! missing that was called back is refused. See `recover` for how.
//!
//! The log knows no terms: entries, votes and ids are bytes to it.
//!
//! What it holds in memory: a payload tail of [`LogOptions::tail_bytes_max`] over all groups, plus whatever is not
//! synced yet and the last entry of each group; 16 bytes for each live entry, of which a group has at most
//! [`LogOptions::entries_per_group_max`]; one batch; while it opens, one segment.

mod group;
mod mark;
mod queue;
mod read;
mod record;
mod recover;
mod rewrite;
mod segment;
mod writer;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;

use bytes::Bytes;
pub use tenure_core::ids::GroupId;

use crate::disk::Disk;
use crate::error::{LogFailed, OpenError};
use group::{Group, GroupMemory};
use queue::{Op, Queue, Queued};
use record::{HEADER_LENGTH, PAYLOAD_LENGTH_MAX};
use segment::{SPARES_KEPT, Segment, Spares};
use writer::{Maker, Writer};

/// A batch is closed when it has so many bytes; one entry alone may be longer.
pub(crate) const BATCH_LENGTH_MAX: usize = 4 << 20;

/// The bound on a vote, on what is committed and on a purged id, in bytes.
pub const OPAQUE_LENGTH_MAX: usize = 4096;

/// The bounds of [`LogOptions::segment_bytes`].
pub const SEGMENT_BYTES_RANGE: Range<u64> = 4096..(1 << 30) + 1;

/// The bound of [`LogOptions::entries_per_group_max`]: a gigabyte of locations.
pub const ENTRIES_PER_GROUP_LIMIT: usize = 1 << 26;

const _: () = assert!(
    SEGMENT_BYTES_RANGE.end + BATCH_LENGTH_MAX as u64 + PAYLOAD_LENGTH_MAX as u64 + 4096 < u32::MAX as u64,
    "offsets in a segment are kept in 32 bits"
);

/// Called back once, when what was asked for is durable or did not happen. In thread mode it runs on the writer's
/// thread and holds up every group while it does: hand the news on and return.
pub type Done = Box<dyn FnOnce(Result<(), LogFailed>) + Send>;

/// A monotonic clock that counts from any moment.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// What one sync of a segment took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncCost {
    /// Bytes of the batch that was written before it.
    pub bytes: usize,
    /// How long the sync took.
    pub took: Duration,
}

/// Starts a thread of this name that runs the work.
pub type Spawner = Arc<dyn Fn(&str, Box<dyn FnOnce() + Send>) -> std::io::Result<()> + Send + Sync>;

/// Who writes.
#[derive(Clone)]
pub enum WriterMode {
    /// A thread of its own, and a second one that makes segments ahead.
    Thread(Spawner),
    /// The caller: each call is written, synced and called back before it returns, unless another call is being written
    /// at that moment; then the one who writes that takes it along. For the simulation, which has no threads.
    Inline,
}

/// How a log is opened. The defaults are for production but for the clock, which stands still.
#[derive(Clone)]
pub struct LogOptions {
    /// The length of a segment, bounded by [`SEGMENT_BYTES_RANGE`]. May change from one opening to the next.
    pub segment_bytes: u64,
    /// How many bytes of payloads that are synced stay in memory, over all groups.
    pub tail_bytes_max: usize,
    /// How many live entries a group may have, at most [`ENTRIES_PER_GROUP_LIMIT`]; an append beyond it is refused.
    pub entries_per_group_max: usize,
    /// Whether to make a log where there is none. Say no when the node has been here before: a log that is gone took
    /// votes with it.
    pub create: bool,
    /// A random number that a new log keeps: it makes its records different from those of every other log.
    pub salt: u64,
    /// Measures how long syncs take.
    pub clock: Clock,
    /// Called by the writer after every sync, before anybody is called back: count, and return.
    pub on_sync: Arc<dyn Fn(SyncCost) + Send + Sync>,
    /// Called once, before anybody is called back, when the log has failed for good: stop the process.
    pub on_failure: Arc<dyn Fn(&LogFailed) + Send + Sync>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes: 32 << 20,
            tail_bytes_max: 64 << 20,
            entries_per_group_max: 1 << 20,
            create: true,
            salt: 0,
            clock: Arc::new(|| Duration::ZERO),
            on_sync: Arc::new(|_| ()),
            on_failure: Arc::new(|_| ()),
        }
    }
}

/// The log of a node; clones are handles on it. It stops when the last handle is dropped, and [`Log::close`] waits for
/// that.
#[derive(Clone)]
pub struct Log {
    handle: Arc<Handle>,
}

/// The log of one group; clones are handles on it. The group exists from the first thing that is written for it.
#[derive(Clone)]
pub struct GroupLog {
    handle: Arc<Handle>,
    group: Arc<Group>,
}

/// What a group's log holds, as callers see it: what is queued is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// The index of the first live entry, or of the one that comes next if there is none. `None`: nothing was ever
    /// appended or purged, and any index may come first.
    pub first_index: Option<u64>,
    /// The last live entry. After a purge of everything there is none.
    pub last: Option<(u64, Bytes)>,
    /// The vote.
    pub vote: Option<Bytes>,
    /// What was last saved as committed.
    pub committed: Option<Bytes>,
    /// The highest purge, with its id.
    pub purged: Option<(u64, Bytes)>,
    /// The highest index up to which everything is synced or purged.
    pub flushed_index: Option<u64>,
}

/// Figures of a log since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Batches written.
    pub batches: u64,
    /// Syncs of segments.
    pub syncs: u64,
    /// Bytes written to segments.
    pub bytes: u64,
    /// Entries appended.
    pub entries: u64,
    /// Entries copied forward so that an old segment can go.
    pub entries_copied: u64,
    /// How long the last sync took, in microseconds.
    pub sync_last_us: u64,
    /// How long the longest sync took, in microseconds.
    pub sync_max_us: u64,
    /// How long all syncs took together, in microseconds.
    pub sync_sum_us: u64,
    /// Bytes that wait to be written.
    pub queue_bytes: usize,
    /// The most that ever waited.
    pub queue_bytes_max: usize,
    /// Payloads in memory, in bytes.
    pub tail_bytes: usize,
    /// Segments in use.
    pub segments: usize,
    /// Segments that wait to be used.
    pub spares: usize,
    /// Live entries of all groups that are written.
    pub live_entries: u64,
    /// Their length, in bytes.
    pub live_bytes: u64,
}

/// What all handles and the writer share. Locks are taken in this order: a group's memory, then one of these, and no
/// two of these at once.
struct Inner {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: LogOptions,
    inline: bool,
    salt: u64,
    /// What the checksums of records begin with.
    seed: u32,
    queue: Queue,
    groups: Mutex<BTreeMap<GroupId, Arc<Group>>>,
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    spares: Mutex<Spares>,
    maker: Maker,
    /// The writer while nobody writes, if it has no thread.
    writer: Mutex<Option<Writer>>,
    failed: OnceLock<LogFailed>,
    tail_bytes: AtomicUsize,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    batches: AtomicU64,
    syncs: AtomicU64,
    bytes: AtomicU64,
    entries: AtomicU64,
    entries_copied: AtomicU64,
    sync_last_us: AtomicU64,
    sync_max_us: AtomicU64,
    sync_sum_us: AtomicU64,
}

/// Stops the writer when the last handle is gone.
struct Handle {
    inner: Arc<Inner>,
}

impl Log {
    /// Opens the log in `dir`, which must be this process's alone, and makes it if there is none and the options allow
    /// it. When it returns, everything that it shows is synced.
    ///
    /// # Errors
    /// `LogMissing` and `LogDamaged`: nothing was changed, and another attempt says the same. `Io`: another attempt may
    /// succeed.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions, mode: WriterMode) -> Result<Log, OpenError> {
        let mut options = options;
        options.segment_bytes = options
            .segment_bytes
            .clamp(SEGMENT_BYTES_RANGE.start, SEGMENT_BYTES_RANGE.end - 1);
        options.entries_per_group_max = options.entries_per_group_max.min(ENTRIES_PER_GROUP_LIMIT);
        let recovered = recover::recover(&*disk, dir, &options)?;
        let inner = Arc::new(Inner {
            disk,
            dir: dir.to_owned(),
            inline: matches!(mode, WriterMode::Inline),
            salt: recovered.salt,
            seed: recovered.seed,
            queue: Queue::default(),
            groups: Mutex::new(recovered.groups),
            segments: RwLock::new(recovered.segments),
            spares: Mutex::new(recovered.spares),
            maker: Maker::default(),
            writer: Mutex::new(None),
            failed: OnceLock::new(),
            tail_bytes: AtomicUsize::new(recovered.tail_bytes),
            counters: Counters::default(),
            options,
        });
        let writer = Writer::new(&inner, recovered.position, recovered.mark_file).map_err(|failed| match failed {
            LogFailed::Io { action, path, source } => OpenError::Io {
                action,
                path,
                // The disk's own error cannot be copied; its number can, or else its kind and words.
                source: source.raw_os_error().map_or_else(
                    || std::io::Error::new(source.kind(), source.to_string()),
                    std::io::Error::from_raw_os_error,
                ),
            },
            other => OpenError::Io {
                action: "begin",
                path: dir.to_owned(),
                source: std::io::Error::other(other),
            },
        })?;
        match mode {
            WriterMode::Inline => *inner.writer.lock().expect(NO_PANIC) = Some(writer),
            WriterMode::Thread(spawner) => {
                writer::start_threads(&inner, writer, &spawner).map_err(|source| OpenError::Io {
                    action: "start a thread for",
                    path: dir.to_owned(),
                    source,
                })?
            }
        }
        Ok(Log {
            handle: Arc::new(Handle { inner }),
        })
    }

    /// The log of a group.
    pub fn group(&self, group: GroupId) -> GroupLog {
        let mut groups = self.handle.inner.groups.lock().expect(NO_PANIC);
        let group = groups
            .entry(group)
            .or_insert_with(|| Arc::new(Group::new(group, GroupMemory::default())));
        GroupLog {
            handle: self.handle.clone(),
            group: group.clone(),
        }
    }

    /// The groups that have anything in the log, in order.
    pub fn groups(&self) -> Vec<GroupId> {
        let groups = self.handle.inner.all_groups();
        groups
            .iter()
            .filter(|group| !group.memory().seen.is_blank())
            .map(|group| group.id)
            .collect()
    }

    /// The figures of this moment; they are not taken all at once.
    pub fn stats(&self) -> LogStats {
        self.handle.inner.stats()
    }

    /// What made the log fail for good, if something did.
    pub fn failure(&self) -> Option<LogFailed> {
        self.handle.inner.failed.get().cloned()
    }

    /// Deletes segments that wait to be used, all but the one that is needed next. For a disk that is almost full.
    ///
    /// # Errors
    /// What the disk said; then the others stay.
    pub fn give_back_spares(&self) -> std::io::Result<()> {
        let inner = &self.handle.inner;
        loop {
            let spare = {
                let mut spares = inner.spares.lock().expect(NO_PANIC);
                if spares.len() <= SPARES_KEPT {
                    return Ok(());
                }
                spares.take()
            };
            if let Some(spare) = spare {
                inner.disk.remove(&spare.path)?;
            }
        }
    }

    /// Writes and syncs what is queued, calls back, and ends the threads. Whatever is asked later is `Closed`; reads of
    /// what is written go on.
    pub fn close(&self) {
        let inner = &self.handle.inner;
        inner.stop();
        if !inner.inline {
            inner.queue.wait_ended();
            inner.maker.wait_ended();
        }
    }
}

impl GroupLog {
    /// The group.
    pub fn id(&self) -> GroupId {
        self.group.id
    }

    /// Appends entries; they can be read at once. `done` is called when they are durable.
    ///
    /// # Errors
    /// Through `done`, with nothing appended: `NotContiguous` if the first does not follow the last entry or purge, or
    /// one another; `TooLong`; `GroupFull`; `Closed`. Otherwise the log has failed for good.
    pub fn append(&self, entries: Vec<(u64, Bytes)>, done: Done) {
        let inner = &self.handle.inner;
        let mut memory = self.group.memory();
        if let Err(error) = inner.usable().and_then(|()| self.check_append(&memory, &entries)) {
            return self.queue_and_release(memory, Op::Refused { error, done });
        }
        let mut length = 0;
        for (index, payload) in &entries {
            memory
                .seen
                .append(*index)
                .expect("it was checked above that the entries follow each other");
            memory.tail.push_back(payload.clone());
            length += payload.len();
        }
        inner.tail_bytes.fetch_add(length, Ordering::Relaxed);
        let op = |entries, done| Op::Append {
            group: self.group.clone(),
            entries,
            done,
        };
        if length + entries.len() * HEADER_LENGTH <= BATCH_LENGTH_MAX {
            return self.queue_and_release(memory, op(entries, Some(done)));
        }
        let mut parts = split_to_batches(entries);
        let last = op(parts.pop().unwrap_or_default(), Some(done));
        let before = parts.into_iter().map(|part| op(part, None)).collect();
        self.queue_all_and_release(memory, before, last);
    }

    /// Saves the group's vote. `done` is called when it is durable.
    ///
    /// # Errors
    /// Through `done`, with nothing saved: `TooLong`, `Closed`. Otherwise the log has failed for good.
    pub fn save_vote(&self, vote: Bytes, done: Done) {
        let mut memory = self.group.memory();
        if let Err(error) = self.handle.inner.usable().and_then(|()| self.check_opaque(&vote)) {
            return self.queue_and_release(memory, Op::Refused { error, done });
        }
        memory.seen.vote = Some(vote.clone());
        self.queue_and_release(
            memory,
            Op::Vote {
                group: self.group.clone(),
                vote,
                done,
            },
        );
    }

    /// Notes what is committed. It becomes durable with the next batch of any group, or when the log is closed.
    ///
    /// # Errors
    /// `TooLong`, `Closed`, with nothing noted; or the log has failed for good.
    pub fn save_committed(&self, committed: Bytes) -> Result<(), LogFailed> {
        let inner = &self.handle.inner;
        let mut memory = self.group.memory();
        inner.usable().and_then(|()| self.check_opaque(&committed))?;
        memory.seen.committed = Some(committed.clone());
        let queued = inner.queue.push(
            Vec::new(),
            Op::Committed {
                group: self.group.clone(),
                committed,
            },
            inner.inline,
        );
        drop(memory);
        match queued {
            Queued::Nothing => Ok(()),
            Queued::DrainHere => {
                inner.drain();
                inner.usable()
            }
            Queued::Closed(_) => Err(LogFailed::Closed),
        }
    }

    /// Drops the entries after `last_kept_index`, all of them if there is none to keep. They can no longer be read at
    /// once; `done` is called when that is durable.
    ///
    /// # Errors
    /// Through `done`: `Closed`, with nothing dropped. Otherwise the log has failed for good.
    pub fn truncate_after(&self, last_kept_index: Option<u64>, done: Done) {
        let inner = &self.handle.inner;
        let mut memory = self.group.memory();
        if let Err(error) = inner.usable() {
            return self.queue_and_release(memory, Op::Refused { error, done });
        }
        let next = last_kept_index.map_or(0, |last| last.saturating_add(1));
        let before = memory.seen.live();
        memory.seen.truncate(next);
        let freed = memory.fit_tail(before);
        inner.tail_bytes.fetch_sub(freed, Ordering::Relaxed);
        memory.flushed_next = memory.flushed_next.min(next);
        memory.truncations.push_back(next);
        // The last entry is always in memory; here one becomes the last that may not be.
        if let Err(error) = inner.load_last(&mut memory, self.group.id) {
            return self.queue_and_release(memory, Op::Refused { error, done });
        }
        self.queue_and_release(
            memory,
            Op::Truncate {
                group: self.group.clone(),
                next,
                done,
            },
        );
    }

    /// Drops the entries up to `upto_index`, which may lie beyond the last one: then the entry behind it comes next.
    /// Keeps the vote, what is committed, and `purged_id`. A purge below an earlier one changes nothing. Whoever calls
    /// this has made durable elsewhere what the entries say.
    ///
    /// # Errors
    /// Through `done`, with nothing purged: `TooLong`, `Closed`. Otherwise the log has failed for good.
    pub fn purge(&self, upto_index: u64, purged_id: Bytes, done: Done) {
        let inner = &self.handle.inner;
        let mut memory = self.group.memory();
        if let Err(error) = inner.usable().and_then(|()| self.check_opaque(&purged_id)) {
            return self.queue_and_release(memory, Op::Refused { error, done });
        }
        let before = memory.seen.live();
        memory.seen.purge(upto_index, purged_id.clone());
        let freed = memory.fit_tail(before);
        inner.tail_bytes.fetch_sub(freed, Ordering::Relaxed);
        self.queue_and_release(
            memory,
            Op::Purge {
                group: self.group.clone(),
                upto: upto_index,
                id: purged_id,
                done,
            },
        );
    }

    /// Forgets the group: entries, vote, everything. For a group that this node will never vote in again.
    ///
    /// # Errors
    /// Through `done`: `Closed`, with nothing forgotten. Otherwise the log has failed for good.
    pub fn remove(&self, done: Done) {
        let inner = &self.handle.inner;
        let mut memory = self.group.memory();
        if let Err(error) = inner.usable() {
            return self.queue_and_release(memory, Op::Refused { error, done });
        }
        let before = memory.seen.live();
        memory.seen = Default::default();
        let freed = memory.fit_tail(before);
        inner.tail_bytes.fetch_sub(freed, Ordering::Relaxed);
        memory.flushed_next = 0;
        memory.truncations.push_back(0);
        self.queue_and_release(
            memory,
            Op::Remove {
                group: self.group.clone(),
                done,
            },
        );
    }

    /// The live entries of the range in order, from memory or from the disk with their checksums verified. As many as
    /// fit `max_bytes`, but at least one if there is one. What is purged or not there is left out.
    ///
    /// # Errors
    /// The log has failed for good, if only now, because an entry cannot be read.
    pub fn read(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<(u64, Bytes)>, LogFailed> {
        self.handle.inner.failed_already()?;
        self.handle.inner.read(&self.group, range, max_bytes)
    }

    /// What the group's log holds at this moment, from memory.
    pub fn state(&self) -> GroupState {
        let memory = self.group.memory();
        GroupState {
            first_index: memory.seen.entries.as_ref().map(|entries| entries.start),
            last: memory.last(),
            vote: memory.seen.vote.clone(),
            committed: memory.seen.committed.clone(),
            purged: memory.seen.purged.clone(),
            flushed_index: memory.flushed_index(),
        }
    }

    /// The highest index up to which everything is synced or purged.
    pub fn flushed_index(&self) -> Option<u64> {
        self.group.memory().flushed_index()
    }

    fn check_append(&self, memory: &GroupMemory, entries: &[(u64, Bytes)]) -> Result<(), LogFailed> {
        let group = self.group.id;
        let next = memory
            .seen
            .next()
            .or(entries.first().map(|(index, _)| *index))
            .unwrap_or(0);
        for (place, (index, payload)) in entries.iter().enumerate() {
            let expected = next.saturating_add(place as u64);
            // The highest index has no next one.
            if *index != expected || *index == u64::MAX {
                return Err(LogFailed::NotContiguous {
                    group,
                    expected,
                    got: *index,
                });
            }
            if payload.len() > PAYLOAD_LENGTH_MAX {
                return Err(LogFailed::TooLong {
                    group,
                    length: payload.len(),
                    length_max: PAYLOAD_LENGTH_MAX,
                });
            }
        }
        let live = memory.seen.live();
        let held = usize::try_from(live.end - live.start).unwrap_or(usize::MAX);
        let entries_max = self.handle.inner.options.entries_per_group_max;
        if !entries.is_empty() && entries.len().saturating_add(held) > entries_max {
            return Err(LogFailed::GroupFull { group, entries_max });
        }
        Ok(())
    }

    fn check_opaque(&self, bytes: &Bytes) -> Result<(), LogFailed> {
        if bytes.len() <= OPAQUE_LENGTH_MAX {
            return Ok(());
        }
        Err(LogFailed::TooLong {
            group: self.group.id,
            length: bytes.len(),
            length_max: OPAQUE_LENGTH_MAX,
        })
    }

    fn queue_and_release(&self, memory: MutexGuard<'_, GroupMemory>, op: Op) {
        self.queue_all_and_release(memory, Vec::new(), op);
    }

    /// Queues while the group is held, so that the queue's order is the one in which callers saw it, and lets go of it
    /// before anybody is called back.
    fn queue_all_and_release(&self, memory: MutexGuard<'_, GroupMemory>, before: Vec<Op>, op: Op) {
        let inner = &self.handle.inner;
        let queued = inner.queue.push(before, op, inner.inline);
        drop(memory);
        match queued {
            Queued::Nothing => {}
            Queued::DrainHere => inner.drain(),
            Queued::Closed(op) => {
                let failed = inner.failed.get().cloned().unwrap_or(LogFailed::Closed);
                op.finish(&Err(failed));
            }
        }
    }
}

impl Inner {
    /// Nothing may be asked of a log that failed.
    fn failed_already(&self) -> Result<(), LogFailed> {
        self.failed.get().map_or(Ok(()), |failed| Err(failed.clone()))
    }

    /// Nor of one that is closed: it must not show what will not be written.
    fn usable(&self) -> Result<(), LogFailed> {
        self.failed_already()?;
        if self.queue.is_closed() {
            Err(LogFailed::Closed)
        } else {
            Ok(())
        }
    }

    /// Fails the log for good and tells the node, once. Gives back what it failed of first.
    fn fail(&self, failed: LogFailed) -> LogFailed {
        let mut first = false;
        let kept = self.failed.get_or_init(|| {
            first = true;
            failed
        });
        if first {
            tracing::error!(error = %kept, "the Raft log failed");
            (self.options.on_failure)(kept);
        }
        kept.clone()
    }

    fn all_groups(&self) -> Vec<Arc<Group>> {
        self.groups.lock().expect(NO_PANIC).values().cloned().collect()
    }

    fn stop(&self) {
        self.maker.stop();
        if self.queue.stop(self.inline) {
            self.drain();
        }
    }

    fn stats(&self) -> LogStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (queue_bytes, queue_bytes_max) = self.queue.bytes();
        let counters = &self.counters;
        let mut stats = LogStats {
            batches: read(&counters.batches),
            syncs: read(&counters.syncs),
            bytes: read(&counters.bytes),
            entries: read(&counters.entries),
            entries_copied: read(&counters.entries_copied),
            sync_last_us: read(&counters.sync_last_us),
            sync_max_us: read(&counters.sync_max_us),
            sync_sum_us: read(&counters.sync_sum_us),
            queue_bytes,
            queue_bytes_max,
            tail_bytes: self.tail_bytes.load(Ordering::Relaxed),
            spares: self.spares.lock().expect(NO_PANIC).len(),
            ..LogStats::default()
        };
        for segment in self.segments.read().expect(NO_PANIC).values() {
            stats.segments += 1;
            stats.live_entries += segment.live_entries.load(Ordering::Relaxed);
            stats.live_bytes += segment.live_bytes.load(Ordering::Relaxed);
        }
        stats
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.stop();
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("dir", &self.handle.inner.dir)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for GroupLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupLog")
            .field("group", &self.group.id)
            .finish_non_exhaustive()
    }
}

/// Whether anything was ever written for any group in the log that lies in `dir`, if one does. Nothing is changed.
///
/// # Errors
/// `Io`.
pub(crate) fn holds_anything(disk: &dyn Disk, dir: &Path) -> Result<bool, OpenError> {
    recover::holds_anything(disk, dir)
}

/// The file that notes the last synced batch, and where in it is a byte that is not as it was written, though the log can
/// be opened all the same.
pub(crate) fn strange_byte_of_mark(disk: &dyn Disk, dir: &Path) -> std::io::Result<Option<(PathBuf, u64)>> {
    let path = dir.join(mark::MARK_FILE);
    let bytes = crate::disk::read_file(disk, &path, mark::FILE_LENGTH_MAX)?;
    Ok(bytes.and_then(|bytes| mark::strange_byte(&bytes)).map(|at| (path, at)))
}

/// Why no lock of the log is ever poisoned.
const NO_PANIC: &str = "nothing panics while it holds a lock of the log";

/// Cuts entries into pieces of which each fits a batch or is one entry.
fn split_to_batches(entries: Vec<(u64, Bytes)>) -> Vec<Vec<(u64, Bytes)>> {
    let mut parts: Vec<Vec<(u64, Bytes)>> = Vec::new();
    let mut length = usize::MAX;
    for entry in entries {
        let more = HEADER_LENGTH + entry.1.len();
        match parts.last_mut() {
            Some(part) if length + more <= BATCH_LENGTH_MAX => {
                part.push(entry);
                length += more;
            }
            _ => {
                parts.push(vec![entry]);
                length = more;
            }
        }
    }
    parts
}
