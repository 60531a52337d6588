//! Opening a log after whatever happened to it.
//!
//! A batch is written only when the one before it is synced. So after a crash at most the last batch may be torn, and
//! it is torn only if it was never called back. Everything else that is not whole was damaged:
//!
//! - The log must reach the batch that the mark names (see `mark`), and segments before the last end exactly where the
//!   next one begins.
//! - Behind a batch that is not whole nothing whole and newer may lie: it would have been written after a sync of the
//!   former.
//! - A segment whose header and first batch are not whole was not begun, if nothing newer lies in it: both are written
//!   at once. It is deleted, and the log ends in the segment before it.
//! - Batches of a lower number in a segment that is used again are what it held before, and batches beyond the mark
//!   that are not of the mark's run are what an earlier run left torn. Both count as nothing.
//! - Each segment begins with the state of all groups, which must agree with what was read before it; and each entry
//!   that is alive in the end must have been found.
//!
//! Nothing is changed until all this is known. Then the last batch, which may be in the page cache only, is written
//! again and synced (again, because a sync that failed leaves pages that no later sync writes), and then
//! the mark of a new run is written and synced.

mod found;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tenure_core::ids::GroupId;

use found::Found;

use super::group::{Group, GroupMemory, GroupMeta, Location, Written};
use super::mark::{Mark, MarkFile, MarkFound};
use super::read::read_entries;
use super::record::{HEADER_LENGTH, Header, Kind, PAYLOAD_LENGTH_MAX, Record};
use super::segment::{Listing, SEGMENT_HEADER_LENGTH, Segment, SegmentHeader, Spares, segment_path};
use super::writer::Position;
use super::{BATCH_LENGTH_MAX, ENTRIES_PER_GROUP_LIMIT, LogOptions, SEGMENT_BYTES_RANGE};
use crate::disk::{Disk, OpenMode, read_exact_at};
use crate::error::{Damage, LogFailed, OpenError};

/// No segment is longer.
const SEGMENT_LENGTH_MAX: u64 = SEGMENT_BYTES_RANGE.end + BATCH_LENGTH_MAX as u64 + PAYLOAD_LENGTH_MAX as u64;

/// A log as it was found, repaired and synced.
pub(super) struct Recovered {
    pub(super) salt: u64,
    pub(super) seed: u32,
    pub(super) groups: BTreeMap<GroupId, Arc<Group>>,
    pub(super) segments: BTreeMap<u32, Arc<Segment>>,
    pub(super) spares: Spares,
    pub(super) tail_bytes: usize,
    pub(super) position: Position,
    pub(super) mark_file: MarkFile,
}

/// Reads the segments in order, without changing anything.
struct Replay<'a> {
    dir: &'a Path,
    mark: Mark,
    seed: u32,
    groups: BTreeMap<GroupId, Found>,
    segments: BTreeMap<u32, Arc<Segment>>,
    /// The number of the batch that must come next.
    batch_next: u64,
    /// Of the last batch.
    run: u32,
    last: Option<LastSegment>,
    /// The number of a segment that was not begun.
    unbegun: Option<u32>,
}

/// The segment that is read, and the last one in the end.
struct LastSegment {
    segment: Arc<Segment>,
    bytes: Vec<u8>,
    /// The last batch.
    batch: Range<usize>,
    /// It is the first of the segment.
    batch_is_first: bool,
    /// What was found where the next batch would be.
    end: NotWhole,
}

/// A batch that is not whole.
#[derive(Clone, Copy, Debug)]
struct NotWhole {
    /// Of the first record that is not right.
    offset: usize,
    /// Whose record it is, if its header is right.
    group: Option<GroupId>,
}

/// Opens what lies in `dir`.
///
/// # Errors
/// `LogMissing` and `LogDamaged`, with nothing changed; `Io`.
pub(super) fn recover(disk: &dyn Disk, dir: &Path, options: &LogOptions) -> Result<Recovered, OpenError> {
    let (listing, replay) = replay(disk, dir, options)?;
    replay.repair(disk, &listing, options)
}

/// Whether anything was ever written for any group in what lies in `dir`. Nothing is changed. What is damaged was
/// written; a log that was only made, whether to its end or not, holds nothing.
///
/// # Errors
/// `Io`.
pub(super) fn holds_anything(disk: &dyn Disk, dir: &Path) -> Result<bool, OpenError> {
    let options = LogOptions {
        create: false,
        ..LogOptions::default()
    };
    match replay(disk, dir, &options) {
        Ok((_, replay)) => Ok(replay.groups.values().any(|found| !found.meta.is_blank())),
        Err(OpenError::LogMissing { .. }) => Ok(false),
        Err(OpenError::LogDamaged(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Reads everything and changes nothing, unless the folder itself is to be made.
fn replay<'a>(disk: &dyn Disk, dir: &'a Path, options: &LogOptions) -> Result<(Listing, Replay<'a>), OpenError> {
    let missing = || OpenError::LogMissing { folder: dir.to_owned() };
    let listing = match Listing::read(disk, dir) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.create => {
            disk.create_dir_all(dir)
                .map_err(OpenError::io("create the folder", dir))?;
            Listing::default()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
        Err(error) => return Err(OpenError::io("list", dir)(error)),
    };
    let found = MarkFound::read(disk, dir).map_err(OpenError::io("read the mark in", dir))?;
    let before_the_first = Mark {
        run: 0,
        segment: 0,
        batch: 0,
        end: 0,
        salt: options.salt,
    };
    let mark = match found {
        MarkFound::Good(mark) => mark,
        // The mark is durable before the first segment is made.
        MarkFound::Absent | MarkFound::Unreadable if listing.segments.is_empty() => before_the_first,
        MarkFound::Absent => return Err(mark_damaged(dir, "it is missing, though there are segments")),
        MarkFound::Unreadable => return Err(mark_damaged(dir, "none of its slots can be read")),
    };
    let mut replay = Replay::new(dir, mark);
    replay.read_segments(disk, &listing.segments)?;
    if replay.batch_next == 1 && !options.create {
        return Err(missing());
    }
    Ok((listing, replay))
}

impl<'a> Replay<'a> {
    fn new(dir: &'a Path, mark: Mark) -> Replay<'a> {
        Replay {
            dir,
            mark,
            seed: seed(mark.salt),
            groups: BTreeMap::new(),
            segments: BTreeMap::new(),
            batch_next: 1,
            run: 0,
            last: None,
            unbegun: None,
        }
    }

    fn read_segments(&mut self, disk: &dyn Disk, numbers: &[u32]) -> Result<(), OpenError> {
        for (place, &number) in numbers.iter().enumerate() {
            if place > 0 && numbers[place - 1] + 1 != number {
                return Err(self.damage(numbers[place - 1] + 1, 0, None, "the segment is missing".to_owned()));
            }
            let path = segment_path(self.dir, number);
            let file = disk
                .open(&path, OpenMode::Write)
                .map_err(OpenError::io("open", &path))?;
            let length = file
                .length()
                .map_err(OpenError::io("read", &path))?
                .min(SEGMENT_LENGTH_MAX);
            let mut bytes = vec![0; length as usize];
            read_exact_at(&*file, 0, &mut bytes).map_err(OpenError::io("read", &path))?;
            let segment = Arc::new(Segment::new(number, path, file));
            if !self.begin_segment(&segment, &bytes, place + 1 == numbers.len())? {
                self.unbegun = Some(number);
                break;
            }
            self.read_batches(segment, bytes)?;
        }
        self.check_end()
    }

    /// Whether the segment was begun. If it cannot be told from a damaged one, it is damaged.
    fn begin_segment(&mut self, segment: &Segment, bytes: &[u8], is_final: bool) -> Result<bool, OpenError> {
        let number = segment.number;
        let header = SegmentHeader::decode(bytes).filter(|header| header.number == number);
        if let Some(header) = header {
            if header.salt != self.mark.salt {
                return Err(self.damage(number, 0, None, "it belongs to another log".to_owned()));
            }
            match &self.last {
                None => self.batch_next = header.first_batch,
                Some(before) if header.first_batch > self.batch_next => {
                    let reason = format!("batch {} is not whole, and a later segment follows", self.batch_next);
                    return Err(self.damage(before.segment.number, before.end.offset, before.end.group, reason));
                }
                Some(_) => {}
            }
        }
        let first_batch = self.whole_batch(bytes, SEGMENT_HEADER_LENGTH);
        if let (Some(header), Ok(_)) = (header, first_batch)
            && header.first_batch == self.batch_next
        {
            return Ok(true);
        }
        // When the first segment is begun there is none before it, and when any other is, the one before it stays until
        // the first batch is synced.
        let may_be_unbegun = is_final && (self.last.is_some() || number == 1);
        if may_be_unbegun && self.mark.batch < self.batch_next && self.newer_record(bytes, 0).is_none() {
            return Ok(false);
        }
        let (offset, group) = match first_batch {
            Err(end) if header.is_some() => (end.offset, end.group),
            _ => (0, None),
        };
        Err(self.damage(
            number,
            offset,
            group,
            "its beginning is not what was written".to_owned(),
        ))
    }

    /// Reads as many whole batches as there are.
    fn read_batches(&mut self, segment: Arc<Segment>, bytes: Vec<u8>) -> Result<(), OpenError> {
        let mut batch = SEGMENT_HEADER_LENGTH..SEGMENT_HEADER_LENGTH;
        let mut batch_is_first = false;
        let end = loop {
            match self.whole_batch(&bytes, batch.end) {
                Ok(end) => {
                    batch_is_first = batch.end == SEGMENT_HEADER_LENGTH;
                    batch = batch.end..end;
                    if batch_is_first {
                        self.apply_checkpoint(segment.number, &bytes, batch.clone())?;
                    } else {
                        self.apply_batch(segment.number, &bytes, batch.clone())?;
                    }
                    self.batch_next += 1;
                }
                Err(end) => break end,
            }
        };
        self.segments.insert(segment.number, segment.clone());
        self.last = Some(LastSegment {
            segment,
            bytes,
            batch,
            batch_is_first,
            end,
        });
        Ok(())
    }

    /// Where the next batch ends, if it lies whole at `start`.
    fn whole_batch(&self, bytes: &[u8], start: usize) -> Result<usize, NotWhole> {
        let mut at = start;
        let mut run = None;
        loop {
            let header = Header::read(bytes, at, self.seed).filter(|header| header.batch == self.batch_next);
            let not_whole = NotWhole {
                offset: at,
                group: header.map(|header| header.group),
            };
            let record = Record::read(bytes, at, self.seed).ok_or(not_whole)?;
            let header = record.header;
            if header.batch != self.batch_next
                || header.first != (at == start)
                || !self.run_fits(header.run)
                || *run.get_or_insert(header.run) != header.run
            {
                return Err(not_whole);
            }
            at += header.record_length();
            if header.last {
                return Ok(at);
            }
        }
    }

    /// Whether the next batch may be of this run.
    fn run_fits(&self, run: u32) -> bool {
        if self.batch_next > self.mark.batch {
            run == self.mark.run
        } else {
            (self.run..=self.mark.run).contains(&run)
        }
    }

    /// The first right record of a later batch than the next one, at or behind `start`. Or of a later run than the mark
    /// knows: a run's mark is synced before anything is written in it.
    fn newer_record(&self, bytes: &[u8], start: usize) -> Option<(usize, u64)> {
        (start..bytes.len().saturating_sub(HEADER_LENGTH - 1)).find_map(|at| {
            let header = Header::read(bytes, at, self.seed)?;
            let newer = header.batch > self.batch_next && header.run == self.mark.run;
            if !newer && header.run <= self.mark.run {
                return None;
            }
            Record::read(bytes, at, self.seed).map(|record| (at, record.header.batch))
        })
    }

    /// The first batch of a segment: the state of all groups. Of the oldest segment it is where everything begins; of
    /// the others it must be what was read so far.
    fn apply_checkpoint(&mut self, number: u32, bytes: &[u8], batch: Range<usize>) -> Result<(), OpenError> {
        let mut states = BTreeMap::new();
        let mut count = None;
        for (at, record) in records(bytes, batch.clone(), self.seed) {
            self.run = record.header.run;
            let group = record.header.group;
            match (record.header.kind, count) {
                (Kind::Checkpoint, None) => count = Some(record.header.index),
                (Kind::GroupState, Some(_)) => match GroupMeta::decode(record.payload) {
                    Some(state) => drop(states.insert(group, state)),
                    None => return Err(self.nonsense(number, at, &record)),
                },
                _ => return Err(self.nonsense(number, at, &record)),
            }
        }
        let dir = self.dir;
        let differs = |group| {
            let reason = "a group's state is not what the segments before it say".to_owned();
            damage(dir, number, batch.start, group, reason)
        };
        if count != Some(states.len() as u64) {
            return Err(differs(None));
        }
        if self.last.is_some() {
            let known = self.groups.iter().filter(|(_, found)| !found.meta.is_blank());
            let known: BTreeMap<_, _> = known.map(|(group, found)| (*group, &found.meta)).collect();
            let other = states
                .iter()
                .find(|(group, state)| known.get(group) != Some(state))
                .map(|(group, _)| *group);
            if other.is_some() || known.len() != states.len() {
                return Err(differs(other));
            }
            return Ok(());
        }
        for (group, meta) in states {
            let found = Found::of_checkpoint(meta);
            if !found.holds_at_most(ENTRIES_PER_GROUP_LIMIT) {
                return Err(differs(Some(group)));
            }
            self.groups.insert(group, found);
        }
        Ok(())
    }

    fn apply_batch(&mut self, number: u32, bytes: &[u8], batch: Range<usize>) -> Result<(), OpenError> {
        for (at, record) in records(bytes, batch, self.seed) {
            let Header {
                index,
                group,
                crc,
                payload_length,
                run,
                ..
            } = record.header;
            self.run = run;
            let found = self.groups.entry(group).or_default();
            let location = Location {
                segment: number,
                offset: at as u32,
                payload_length: payload_length as u32,
                crc,
            };
            let payload = || Bytes::copy_from_slice(record.payload);
            let fits = match record.header.kind {
                Kind::Entry => found.append(index, location),
                Kind::Copied => found.relocate(index, location),
                Kind::Vote => {
                    found.meta.vote = Some(payload());
                    true
                }
                Kind::Committed => {
                    found.meta.committed = Some(payload());
                    true
                }
                Kind::Truncate => {
                    found.truncate(index);
                    true
                }
                Kind::Purge => {
                    found.purge(index, payload());
                    true
                }
                Kind::Remove => {
                    *found = Found::default();
                    true
                }
                Kind::Checkpoint | Kind::GroupState => false,
            };
            if !fits {
                return Err(self.nonsense(number, at, &record));
            }
        }
        Ok(())
    }

    /// Whether the log may end where it does.
    fn check_end(&self) -> Result<(), OpenError> {
        let Some(last) = &self.last else {
            if self.mark.batch == 0 {
                return Ok(());
            }
            let reason = format!("it is missing, though batch {} in it was synced", self.mark.batch);
            return Err(self.damage(self.mark.segment, 0, None, reason));
        };
        let number = last.segment.number;
        if self.batch_next <= self.mark.batch {
            let reason = format!(
                "batch {} is not whole, though batch {} was synced",
                self.batch_next, self.mark.batch
            );
            return Err(self.damage(number, last.end.offset, last.end.group, reason));
        }
        if let Some((at, batch)) = self.newer_record(&last.bytes, last.batch.end) {
            let reason = format!(
                "batch {} is not whole, though batch {batch} follows at {at}",
                self.batch_next
            );
            return Err(self.damage(number, last.end.offset, last.end.group, reason));
        }
        Ok(())
    }

    /// The groups, if every live entry was found.
    fn take_groups(&mut self) -> Result<BTreeMap<GroupId, Written>, OpenError> {
        let oldest = self.segments.keys().next().copied().unwrap_or(0);
        let written = |(group, found): (GroupId, Found)| {
            let written = found.into_written().map_err(|index| {
                let reason = format!("entry {index} lies in no segment, an older one must be missing");
                damage(self.dir, oldest, 0, Some(group), reason)
            })?;
            Ok((group, written))
        };
        std::mem::take(&mut self.groups).into_iter().map(written).collect()
    }

    /// The log is whole. Makes it durable as it was read.
    fn repair(mut self, disk: &dyn Disk, listing: &Listing, options: &LogOptions) -> Result<Recovered, OpenError> {
        let dir = self.dir;
        let found = self.take_groups()?;
        let spares = Spares::open(disk, dir, listing, options.segment_bytes)
            .map_err(OpenError::io("tidy the spare segments in", dir))?;
        if let Some(number) = self.unbegun {
            let path = segment_path(dir, number);
            disk.remove(&path).map_err(OpenError::io("remove", &path))?;
        }
        let mut mark = Mark {
            run: self.mark.run + 1,
            ..self.mark
        };
        let mut active = None;
        if let Some(last) = &self.last {
            last.make_durable(self.batch_next - 1 > self.mark.batch)
                .map_err(OpenError::io("sync", &last.segment.path))?;
            mark.segment = last.segment.number;
            mark.batch = self.batch_next - 1;
            mark.end = last.batch.end as u64;
            active = Some((last.segment.clone(), mark.end, last.batch_is_first));
        }
        disk.sync_dir(dir).map_err(OpenError::io("sync the folder", dir))?;
        let mark_file = MarkFile::create(disk, dir, &mark).map_err(OpenError::io("write the mark in", dir))?;
        let mut tail_bytes = 0;
        let mut groups = BTreeMap::new();
        for (id, written) in found {
            for location in &written.locations {
                self.segments[&location.segment].add_live(1, location.record_length());
            }
            let last = last_entry(&self.segments, id, &written, self.seed, dir)?;
            tail_bytes += last.as_ref().map_or(0, Bytes::len);
            groups.insert(id, Arc::new(Group::new(id, GroupMemory::recovered(written, last))));
        }
        Ok(Recovered {
            salt: self.mark.salt,
            seed: self.seed,
            groups,
            segments: self.segments,
            spares,
            tail_bytes,
            position: Position {
                active,
                batch_next: self.batch_next,
                run: mark.run,
            },
            mark_file,
        })
    }

    fn nonsense(&self, number: u32, offset: usize, record: &Record<'_>) -> OpenError {
        let Header { kind, index, group, .. } = record.header;
        self.damage(
            number,
            offset,
            Some(group),
            format!("{kind:?} {index} cannot stand here"),
        )
    }

    fn damage(&self, segment: u32, offset: usize, group: Option<GroupId>, reason: String) -> OpenError {
        damage(self.dir, segment, offset, group, reason)
    }
}

impl LastSegment {
    fn make_durable(&self, beyond_the_mark: bool) -> io::Result<()> {
        let Range { start, end } = self.batch;
        if beyond_the_mark {
            let start = if self.batch_is_first { 0 } else { start };
            self.segment.file.write_at(start as u64, &self.bytes[start..end])?;
        }
        self.segment.file.sync_data()
    }
}

/// What the checksums of a log's records begin with.
fn seed(salt: u64) -> u32 {
    crc32c::crc32c(&salt.to_le_bytes())
}

fn damage(dir: &Path, segment: u32, offset: usize, group: Option<GroupId>, reason: String) -> OpenError {
    Damage {
        folder: dir.to_owned(),
        segment: Some(segment),
        offset: offset as u64,
        group,
        reason,
    }
    .into()
}

fn mark_damaged(dir: &Path, reason: &str) -> OpenError {
    Damage {
        folder: dir.to_owned(),
        segment: None,
        offset: 0,
        group: None,
        reason: reason.to_owned(),
    }
    .into()
}

/// The records of a whole batch, with their offsets.
fn records(bytes: &[u8], batch: Range<usize>, seed: u32) -> impl Iterator<Item = (usize, Record<'_>)> {
    let mut at = batch.start;
    std::iter::from_fn(move || {
        if at >= batch.end {
            return None;
        }
        let begin = at;
        let header = Header::read(bytes, begin, seed).expect("the batch was found whole");
        at += header.record_length();
        Some((
            begin,
            Record {
                header,
                payload: &bytes[begin + HEADER_LENGTH..at],
            },
        ))
    })
}

fn last_entry(
    segments: &BTreeMap<u32, Arc<Segment>>,
    group: GroupId,
    written: &Written,
    seed: u32,
    dir: &Path,
) -> Result<Option<Bytes>, OpenError> {
    let Some(location) = written.locations.back() else {
        return Ok(None);
    };
    let mut entries = Vec::new();
    let located = [(written.meta.live().end - 1, *location)];
    match read_entries(&segments[&location.segment], &located, group, seed, dir, &mut entries) {
        Ok(()) => Ok(entries.pop().map(|(_, payload)| payload)),
        Err(LogFailed::Damaged(damage)) => Err(damage.into()),
        Err(error) => Err(OpenError::Io {
            action: "read an entry in",
            path: dir.to_owned(),
            source: io::Error::other(error),
        }),
    }
}
