//! The writer: takes a batch from the queue, writes it with one write, syncs it, notes that, and calls back.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use bytes::Bytes;
use tenure_core::ids::GroupId;

use super::group::{Group, Location};
use super::mark::{Mark, MarkFile};
use super::queue::Op;
use super::record::{BatchBuilder, HEADER_LENGTH, Kind};
use super::rewrite::Rewrite;
use super::segment::{SPARES_MAX, Segment, SegmentHeader, Spare, segment_path};
use super::{BATCH_LENGTH_MAX, Inner, NO_PANIC, Spawner, SyncCost};
use crate::error::LogFailed;

/// Pieces of the tail in memory are dropped one at a time; a piece is one group's share of some batches, closed when it
/// has so many bytes.
const TAIL_PIECE_LENGTH: usize = 64 << 10;

/// So many pieces are remembered; beyond that the oldest are dropped from memory however small they are.
const TAIL_PIECES_MAX: usize = 1 << 16;

/// Where the log goes on.
pub(super) struct Position {
    /// The segment that is written, where it ends, and whether it holds nothing but its first batch. `None`: a new log.
    pub(super) active: Option<(Arc<Segment>, u64, bool)>,
    pub(super) batch_next: u64,
    pub(super) run: u32,
}

pub(super) struct Writer {
    active: Arc<Segment>,
    /// Where the next batch goes.
    offset: u64,
    /// The segment holds nothing but its first batch: whatever comes fits, or would fit nowhere.
    pub(super) fresh: bool,
    batch_next: u64,
    run: u32,
    pub(super) builder: BatchBuilder,
    mark_file: MarkFile,
    /// What may be dropped from memory, oldest first.
    tail_pieces: VecDeque<TailPiece>,
    pub(super) rewrite: Option<Rewrite>,
}

struct TailPiece {
    group: Arc<Group>,
    upto: u64,
    length: usize,
}

/// The thread that makes segments ahead: filling one takes longer than an election may.
#[derive(Default)]
pub(super) struct Maker {
    state: Mutex<MakerState>,
    changed: Condvar,
}

#[derive(Default)]
struct MakerState {
    running: bool,
    wanted: bool,
    busy: bool,
    stopping: bool,
}

/// Tells everybody when the writer is gone, however it went.
struct EndGuard<'a> {
    inner: &'a Inner,
    ended: bool,
}

/// Starts the writer's thread and the one that makes segments.
pub(super) fn start_threads(inner: &Arc<Inner>, writer: Writer, spawner: &Spawner) -> io::Result<()> {
    let shared = inner.clone();
    inner.maker.set_running(true);
    let started = spawner("log-segments", Box::new(move || shared.maker.run(&shared)));
    if started.is_err() {
        inner.maker.set_running(false);
        return started;
    }
    if inner.spares.lock().expect(NO_PANIC).len() == 0 {
        inner.maker.want();
    }
    let shared = inner.clone();
    let started = spawner("log-writer", Box::new(move || run(&shared, writer)));
    if started.is_err() {
        inner.maker.stop();
    }
    started
}

fn run(inner: &Inner, mut writer: Writer) {
    let guard = EndGuard { inner, ended: true };
    let mut ops = Vec::new();
    while inner.queue.wait(BATCH_LENGTH_MAX, &mut ops) {
        writer.process(inner, &mut ops);
    }
    drop(guard);
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.ended = true;
            self.inner.fail(LogFailed::WriterGone);
        }
        if self.ended {
            let left = self.inner.queue.end();
            let failed = self.inner.failed.get().cloned().unwrap_or(LogFailed::Closed);
            for op in left {
                op.finish(&Err(failed.clone()));
            }
        }
    }
}

impl Inner {
    /// Without a thread: writes until nothing is left. The queue lets one caller at a time in here.
    pub(super) fn drain(&self) {
        let mut guard = EndGuard {
            inner: self,
            ended: false,
        };
        let mut slot = self
            .writer
            .lock()
            .expect("a writer that panicked ends the queue, and nobody drains it again");
        let Some(writer) = slot.as_mut() else { return };
        let mut ops = Vec::new();
        while self.queue.take_or_leave(BATCH_LENGTH_MAX, &mut ops) {
            writer.process(self, &mut ops);
        }
        guard.ended = self.queue.is_closed();
        drop(slot);
        drop(guard);
    }

    /// A file to write next.
    fn take_spare(&self) -> Result<Spare, LogFailed> {
        let take = || {
            let mut spares = self.spares.lock().expect(NO_PANIC);
            (spares.take(), spares.len())
        };
        let (mut spare, mut left) = take();
        if spare.is_none() && self.maker.wait_idle() {
            (spare, left) = take();
        }
        if left == 0 {
            self.maker.want();
        }
        match spare {
            Some(spare) => Ok(spare),
            None => self.make_spare().map_err(LogFailed::io("make a segment in", &self.dir)),
        }
    }

    fn make_spare(&self) -> io::Result<Spare> {
        let name = self.spares.lock().expect(NO_PANIC).next_name();
        Spare::make(&*self.disk, &self.dir, name, self.options.segment_bytes)
    }

    /// Counts an entry out of the segment where it lay.
    pub(super) fn drop_location(&self, location: Location) {
        if let Some(segment) = self.segments.read().expect(NO_PANIC).get(&location.segment) {
            segment.remove_live(location.record_length());
        }
    }
}

impl Location {
    pub(super) fn record_length(&self) -> u64 {
        HEADER_LENGTH as u64 + u64::from(self.payload_length)
    }
}

impl Writer {
    pub(super) fn new(inner: &Inner, position: Position, mark_file: MarkFile) -> Result<Writer, LogFailed> {
        let mut builder = BatchBuilder::new(inner.seed, position.run);
        let is_new = position.active.is_none();
        let (active, offset, fresh) = match position.active {
            Some(active) => active,
            None => {
                let (segment, end) = begin_segment(inner, &mut builder, 1, position.batch_next, position.run)?;
                (segment, end, true)
            }
        };
        let batch_next = position.batch_next + u64::from(is_new);
        let run = position.run;
        let (tail_pieces, rewrite) = (VecDeque::new(), None);
        let mut writer = Writer {
            active,
            offset,
            fresh,
            batch_next,
            run,
            builder,
            mark_file,
            tail_pieces,
            rewrite,
        };
        if is_new {
            writer.write_mark(inner)?;
        }
        Ok(writer)
    }

    /// Writes what was taken from the queue, calls back in order, and then does what can wait.
    fn process(&mut self, inner: &Inner, ops: &mut Vec<Op>) {
        let written = inner
            .failed_already()
            .and_then(|()| self.write(inner, ops))
            .map_err(|failed| inner.fail(failed));
        for op in ops.drain(..) {
            op.finish(&written);
        }
        if written.is_ok()
            && let Err(failed) = self.tidy(inner)
        {
            inner.fail(failed);
        }
    }

    fn write(&mut self, inner: &Inner, ops: &[Op]) -> Result<(), LogFailed> {
        self.make_room(inner, ops.iter().map(Op::length).sum())?;
        self.begin_batch();
        for op in ops {
            match op {
                Op::Append { group, entries, .. } => {
                    for (index, payload) in entries {
                        self.builder.push(Kind::Entry, group.id, *index, payload);
                    }
                }
                Op::Vote { group, vote, .. } => self.builder.push(Kind::Vote, group.id, 0, vote),
                Op::Committed { group, committed } => self.builder.push(Kind::Committed, group.id, 0, committed),
                Op::Truncate { group, next, .. } => self.builder.push(Kind::Truncate, group.id, *next, &[]),
                Op::Purge { group, upto, id, .. } => self.builder.push(Kind::Purge, group.id, *upto, id),
                Op::Remove { group, .. } => self.builder.push(Kind::Remove, group.id, 0, &[]),
                Op::Refused { .. } => {}
            }
        }
        let Some(start) = self.write_batch(inner)? else {
            return Ok(());
        };
        let mut at = 0;
        for op in ops {
            self.apply(inner, op, start, &mut at);
        }
        self.write_mark(inner)
    }

    /// Begins the next segment if a batch of this length does not fit the active one.
    pub(super) fn make_room(&mut self, inner: &Inner, length: usize) -> Result<(), LogFailed> {
        if length == 0 || self.fresh || self.offset + length as u64 <= inner.options.segment_bytes {
            return Ok(());
        }
        let number = self.active.number + 1;
        let (segment, end) = begin_segment(inner, &mut self.builder, number, self.batch_next, self.run)?;
        self.active = segment;
        self.offset = end;
        self.fresh = true;
        self.batch_next += 1;
        self.write_mark(inner)
    }

    pub(super) fn begin_batch(&mut self) {
        self.builder.begin(self.batch_next, &[]);
    }

    /// Writes and syncs the batch that was built, and says where it begins. `None` if nothing was put into it.
    pub(super) fn write_batch(&mut self, inner: &Inner) -> Result<Option<u64>, LogFailed> {
        let start = self.offset;
        let Some(bytes) = self.builder.finish() else {
            return Ok(None);
        };
        write_and_sync(inner, &self.active, start, bytes)?;
        self.offset += bytes.len() as u64;
        self.batch_next += 1;
        self.fresh = false;
        Ok(Some(start))
    }

    /// Notes that the last batch is synced.
    pub(super) fn write_mark(&mut self, inner: &Inner) -> Result<(), LogFailed> {
        let mark = Mark {
            run: self.run,
            segment: self.active.number,
            batch: self.batch_next - 1,
            end: self.offset,
            salt: inner.salt,
        };
        self.mark_file
            .write(&mark)
            .map_err(LogFailed::io("write", self.mark_file.path()))
    }

    /// Where the record at `at` of the batch that begins at `start` lies.
    pub(super) fn location(&self, start: u64, at: usize, payload: &Bytes) -> Location {
        let narrow = |number: u64| u32::try_from(number).expect("segments are bounded so that offsets fit");
        Location {
            segment: self.active.number,
            offset: narrow(start + at as u64),
            payload_length: narrow(payload.len() as u64),
            crc: self.builder.crc_at(at),
        }
    }

    pub(super) fn active(&self) -> &Arc<Segment> {
        &self.active
    }

    /// Moves what is written on by one operation. `at` is where its records begin in the batch.
    fn apply(&mut self, inner: &Inner, op: &Op, start: u64, at: &mut usize) {
        match op {
            Op::Append { group, entries, .. } => self.apply_append(inner, group, entries, start, *at),
            Op::Vote { group, vote, .. } => group.memory().written.meta.vote = Some(vote.clone()),
            Op::Committed { group, committed } => group.memory().written.meta.committed = Some(committed.clone()),
            Op::Truncate { group, next, .. } => {
                let mut memory = group.memory();
                memory.written.truncate(*next, |location| inner.drop_location(location));
                memory.truncations.pop_front();
            }
            Op::Purge { group, upto, id, .. } => {
                group
                    .memory()
                    .written
                    .purge(*upto, id.clone(), |location| inner.drop_location(location));
            }
            Op::Remove { group, .. } => {
                let mut memory = group.memory();
                memory.written.remove(|location| inner.drop_location(location));
                memory.truncations.pop_front();
            }
            Op::Refused { .. } => {}
        }
        *at += op.length();
    }

    fn apply_append(&mut self, inner: &Inner, group: &Arc<Group>, entries: &[(u64, Bytes)], start: u64, mut at: usize) {
        let Some((last, _)) = entries.last() else { return };
        let mut length = 0;
        let mut memory = group.memory();
        for (index, payload) in entries {
            let location = self.location(start, at, payload);
            memory
                .written
                .append(*index, location)
                .expect("it was checked before it was queued");
            at += HEADER_LENGTH + payload.len();
            length += payload.len();
        }
        memory.flushed(last + 1);
        drop(memory);
        let count = entries.len();
        self.active
            .add_live(count as u64, (length + count * HEADER_LENGTH) as u64);
        inner
            .counters
            .entries
            .fetch_add(entries.len() as u64, Ordering::Relaxed);
        match self.tail_pieces.back_mut() {
            Some(piece) if Arc::ptr_eq(&piece.group, group) && piece.length < TAIL_PIECE_LENGTH => {
                piece.upto = *last;
                piece.length += length;
            }
            _ => self.tail_pieces.push_back(TailPiece {
                group: group.clone(),
                upto: *last,
                length,
            }),
        }
    }

    /// What nobody waits for.
    fn tidy(&mut self, inner: &Inner) -> Result<(), LogFailed> {
        while self.tail_pieces.len() > TAIL_PIECES_MAX
            || inner.tail_bytes.load(Ordering::Relaxed) > inner.options.tail_bytes_max
        {
            let Some(piece) = self.tail_pieces.pop_front() else {
                break;
            };
            let freed = piece.group.memory().evict(piece.upto);
            inner.tail_bytes.fetch_sub(freed, Ordering::Relaxed);
        }
        self.free_segments(inner)?;
        self.rewrite_some(inner)
    }

    /// Takes the oldest segments out of use while nothing in them is alive.
    pub(super) fn free_segments(&mut self, inner: &Inner) -> Result<(), LogFailed> {
        loop {
            let segment = {
                let mut segments = inner.segments.write().expect(NO_PANIC);
                match segments.first_entry() {
                    Some(oldest)
                        if *oldest.key() != self.active.number
                            && oldest.get().live_entries.load(Ordering::Relaxed) == 0 =>
                    {
                        oldest.remove()
                    }
                    _ => return Ok(()),
                }
            };
            free_segment(inner, segment).map_err(LogFailed::io("free a segment in", &inner.dir))?;
        }
    }
}

/// Makes a file the next segment. Its first batch is the state of all groups without their entries, so that no older
/// segment is needed for anything but entries.
fn begin_segment(
    inner: &Inner,
    builder: &mut BatchBuilder,
    number: u32,
    batch: u64,
    run: u32,
) -> Result<(Arc<Segment>, u64), LogFailed> {
    let spare = inner.take_spare()?;
    let path = segment_path(&inner.dir, number);
    inner
        .disk
        .rename(&spare.path, &path)
        .map_err(LogFailed::io("rename", &spare.path))?;
    // Before anything is written: the name under which the file held something older must not come back.
    inner
        .disk
        .sync_dir(&inner.dir)
        .map_err(LogFailed::io("sync the folder", &inner.dir))?;
    let segment = Arc::new(Segment::new(number, path, spare.file));
    let header = SegmentHeader {
        number,
        first_batch: batch,
        run,
        salt: inner.salt,
    };
    builder.begin(batch, &header.encode());
    let mut states = Vec::new();
    for group in inner.all_groups() {
        let memory = group.memory();
        if !memory.written.meta.is_blank() {
            let mut state = Vec::new();
            memory.written.meta.encode(&mut state);
            states.push((group.id, state));
        }
    }
    builder.push(Kind::Checkpoint, GroupId(0), states.len() as u64, &[]);
    for (group, state) in states {
        builder.push(Kind::GroupState, group, 0, &state);
    }
    let bytes = builder.finish().expect("a checkpoint was put into the batch");
    write_and_sync(inner, &segment, 0, bytes)?;
    let end = bytes.len() as u64;
    inner.segments.write().expect(NO_PANIC).insert(number, segment.clone());
    Ok((segment, end))
}

fn write_and_sync(inner: &Inner, segment: &Segment, offset: u64, bytes: &[u8]) -> Result<(), LogFailed> {
    segment
        .file
        .write_at(offset, bytes)
        .map_err(LogFailed::io("write", &segment.path))?;
    let begun = (inner.options.clock)();
    // Never again after a failure: the system may have dropped what it could not write.
    segment.file.sync_data().map_err(LogFailed::io("sync", &segment.path))?;
    let took = (inner.options.clock)().saturating_sub(begun);
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let counters = &inner.counters;
    counters.batches.fetch_add(1, Ordering::Relaxed);
    counters.syncs.fetch_add(1, Ordering::Relaxed);
    counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    counters.sync_last_us.store(took_us, Ordering::Relaxed);
    counters.sync_max_us.fetch_max(took_us, Ordering::Relaxed);
    counters.sync_sum_us.fetch_add(took_us, Ordering::Relaxed);
    let bytes = bytes.len();
    (inner.options.on_sync)(SyncCost { bytes, took });
    Ok(())
}

fn free_segment(inner: &Inner, segment: Arc<Segment>) -> io::Result<()> {
    let path = segment.path.clone();
    let name = {
        let mut spares = inner.spares.lock().expect(NO_PANIC);
        (spares.len() < SPARES_MAX).then(|| spares.next_name())
    };
    match (Arc::try_unwrap(segment), name) {
        (Ok(segment), Some(name)) if segment.file.length()? == inner.options.segment_bytes => {
            let spare = Spare {
                path: super::segment::spare_path(&inner.dir, name),
                file: segment.file,
            };
            inner.disk.rename(&path, &spare.path)?;
            // One at a time, so that segments go in order whatever the file system makes of it.
            inner.disk.sync_dir(&inner.dir)?;
            inner.spares.lock().expect(NO_PANIC).put(spare);
            Ok(())
        }
        // Somebody still reads it, or it has another length, or there are enough.
        _ => {
            inner.disk.remove(&path)?;
            inner.disk.sync_dir(&inner.dir)
        }
    }
}

impl Maker {
    fn run(&self, inner: &Inner) {
        loop {
            let mut state = self.state();
            while !state.wanted && !state.stopping {
                state = self.changed.wait(state).expect(NO_PANIC);
            }
            if state.stopping {
                state.running = false;
                self.changed.notify_all();
                return;
            }
            state.wanted = false;
            state.busy = true;
            drop(state);
            match inner.make_spare() {
                Ok(spare) => inner.spares.lock().expect(NO_PANIC).put(spare),
                // Not the log's failure yet: the writer tries by itself when it needs one.
                Err(error) => tracing::warn!(%error, dir = %inner.dir.display(), "cannot make a log segment ahead"),
            }
            self.state().busy = false;
            self.changed.notify_all();
        }
    }

    fn want(&self) {
        let mut state = self.state();
        state.wanted = state.running;
        self.changed.notify_all();
    }

    /// Waits while a segment is being made; whether there is anybody who makes them.
    fn wait_idle(&self) -> bool {
        let mut state = self.state();
        while state.running && !state.stopping && (state.wanted || state.busy) {
            state = self.changed.wait(state).expect(NO_PANIC);
        }
        state.running
    }

    pub(super) fn stop(&self) {
        self.state().stopping = true;
        self.changed.notify_all();
    }

    pub(super) fn wait_ended(&self) {
        let mut state = self.state();
        while state.running {
            state = self.changed.wait(state).expect(NO_PANIC);
        }
    }

    fn set_running(&self, running: bool) {
        self.state().running = running;
    }

    fn state(&self) -> MutexGuard<'_, MakerState> {
        self.state.lock().expect(NO_PANIC)
    }
}
