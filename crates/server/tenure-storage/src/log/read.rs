//! Reading entries: from the tail in memory, or from segments with their checksums verified.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tenure_core::ids::GroupId;

use super::group::{Group, GroupMemory, Location};
use super::record::{HEADER_LENGTH, Kind, Record};
use super::segment::Segment;
use super::{Inner, NO_PANIC};
use crate::disk::read_exact_at;
use crate::error::{Damage, LogFailed};

/// Entries that lie close together are read at once, up to so many bytes.
const SPAN_LENGTH_MAX: usize = 1 << 20;

/// Entries that one read of a file brings.
struct Span {
    /// Held while it is read, so that the file is not used again meanwhile.
    segment: Arc<Segment>,
    entries: Vec<(u64, Location)>,
}

impl Inner {
    /// The live entries of a range, as many as fit, at least one.
    pub(super) fn read(
        &self,
        group: &Group,
        range: Range<u64>,
        max_bytes: usize,
    ) -> Result<Vec<(u64, Bytes)>, LogFailed> {
        let mut spans = Vec::new();
        let mut tail = Vec::new();
        {
            let memory = group.memory();
            let live = memory.seen.live();
            let tail_start = memory.tail_start();
            let mut length = 0;
            for index in range.start.max(live.start)..range.end.min(live.end) {
                let in_memory = index
                    .checked_sub(tail_start)
                    .and_then(|at| memory.tail.get(at as usize));
                let payload_length = match in_memory {
                    Some(payload) => payload.len(),
                    None => self.plan(&memory, index, &mut spans),
                };
                length += payload_length + HEADER_LENGTH;
                if let Some(payload) = in_memory {
                    tail.push((index, payload.clone()));
                }
                if length >= max_bytes {
                    break;
                }
            }
        }
        if spans.is_empty() {
            return Ok(tail);
        }
        let mut entries = Vec::new();
        for span in spans {
            span.read(group.id, self.seed, &self.dir, &mut entries)
                .map_err(|failed| self.fail(failed))?;
        }
        entries.append(&mut tail);
        Ok(entries)
    }

    /// Puts the payload of the last entry into memory if it is not there.
    pub(super) fn load_last(&self, memory: &mut GroupMemory, group: GroupId) -> Result<(), LogFailed> {
        let live = memory.seen.live();
        if live.is_empty() || !memory.tail.is_empty() {
            return Ok(());
        }
        let mut spans = Vec::new();
        self.plan(memory, live.end - 1, &mut spans);
        let mut entries = Vec::new();
        for span in spans {
            span.read(group, self.seed, &self.dir, &mut entries)
                .map_err(|failed| self.fail(failed))?;
        }
        for (_, payload) in entries {
            self.tail_bytes
                .fetch_add(payload.len(), std::sync::atomic::Ordering::Relaxed);
            memory.tail.push_back(payload);
        }
        Ok(())
    }

    /// Notes that an entry is to be read from its segment; gives back the length of its payload.
    fn plan(&self, memory: &GroupMemory, index: u64, spans: &mut Vec<Span>) -> usize {
        let location = memory
            .written
            .location(index)
            .expect("an entry is in memory until it is written");
        let length = location.payload_length as usize;
        if let Some(span) = spans.last_mut()
            && span.takes(location)
        {
            span.entries.push((index, location));
            return length;
        }
        let segments = self.segments.read().expect(NO_PANIC);
        let segment = segments
            .get(&location.segment)
            .expect("a segment stays while an entry in it is alive")
            .clone();
        spans.push(Span {
            segment,
            entries: vec![(index, location)],
        });
        length
    }
}

impl Span {
    fn takes(&self, next: Location) -> bool {
        let (Some((_, first)), Some((_, last))) = (self.entries.first(), self.entries.last()) else {
            return true;
        };
        next.segment == last.segment && next.offset >= last.end() && next.end() - first.offset <= SPAN_LENGTH_MAX as u32
    }

    fn read(&self, group: GroupId, seed: u32, dir: &Path, entries: &mut Vec<(u64, Bytes)>) -> Result<(), LogFailed> {
        read_entries(&self.segment, &self.entries, group, seed, dir, entries)
    }
}

impl Location {
    fn end(&self) -> u32 {
        self.offset + HEADER_LENGTH as u32 + self.payload_length
    }
}

/// Reads entries of one group that lie one behind the other in a segment, and verifies that they are what was written.
pub(super) fn read_entries(
    segment: &Segment,
    located: &[(u64, Location)],
    group: GroupId,
    seed: u32,
    dir: &Path,
    entries: &mut Vec<(u64, Bytes)>,
) -> Result<(), LogFailed> {
    let (Some((_, first)), Some((_, last))) = (located.first(), located.last()) else {
        return Ok(());
    };
    let mut buffer = vec![0; (last.end() - first.offset) as usize];
    match read_exact_at(&*segment.file, u64::from(first.offset), &mut buffer) {
        Ok(()) => {}
        // What is missing is found below.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => buffer.fill(0),
        Err(error) => return Err(LogFailed::io("read", &segment.path)(error)),
    }
    let buffer = Bytes::from(buffer);
    for (index, location) in located {
        let at = (location.offset - first.offset) as usize;
        let written = Record::read(&buffer, at, seed).filter(|record| {
            let header = &record.header;
            header.crc == location.crc
                && header.group == group
                && header.index == *index
                && matches!(header.kind, Kind::Entry | Kind::Copied)
        });
        let Some(record) = written else {
            return Err(LogFailed::Damaged(Damage {
                folder: dir.to_owned(),
                segment: Some(segment.number),
                offset: u64::from(location.offset),
                group: Some(group),
                reason: format!("entry {index} is not what was written"),
            }));
        };
        entries.push((*index, buffer.slice_ref(record.payload)));
    }
    Ok(())
}
