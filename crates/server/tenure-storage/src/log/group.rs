//! What the log keeps in memory of each group.
//!
//! Twice: as its callers see it, which is ahead of the disk by what is queued, and as it is written. The writer alone
//! moves the second, in the order of the queue; recovery rebuilds it with the same steps from the same records.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use tenure_core::ids::GroupId;

use super::record::field;

/// A group's log without its entries: what a checkpoint holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupMeta {
    /// The live entries; the end is the index that comes next. `None` until the first entry or purge: then any index
    /// may come first.
    pub(super) entries: Option<Range<u64>>,
    pub(super) vote: Option<Bytes>,
    pub(super) committed: Option<Bytes>,
    pub(super) purged: Option<(u64, Bytes)>,
}

/// Where a written entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) payload_length: u32,
    pub(super) crc: u32,
}

/// A group's log as it is written: what recovery finds again.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    pub(super) meta: GroupMeta,
    /// Of each live entry.
    pub(super) locations: VecDeque<Location>,
}

/// One group, shared by the handles on it and the writer.
pub(super) struct Group {
    pub(super) id: GroupId,
    memory: Mutex<GroupMemory>,
}

#[derive(Default)]
pub(super) struct GroupMemory {
    /// As callers see it.
    pub(super) seen: GroupMeta,
    /// As it is written.
    pub(super) written: Written,
    /// The payloads of the newest entries that callers see, up to the last one.
    pub(super) tail: VecDeque<Bytes>,
    /// What callers see below this index is synced.
    pub(super) flushed_next: u64,
    /// The first index that goes, for each truncation that is queued.
    pub(super) truncations: VecDeque<u64>,
}

impl GroupMeta {
    /// Whether there is nothing to remember.
    pub(super) fn is_blank(&self) -> bool {
        *self == GroupMeta::default()
    }

    /// The index that must come next, if only one may.
    pub(super) fn next(&self) -> Option<u64> {
        self.entries.as_ref().map(|entries| entries.end)
    }

    pub(super) fn live(&self) -> Range<u64> {
        self.entries.clone().unwrap_or(0..0)
    }

    /// Takes one more entry, if it is the next one.
    pub(super) fn append(&mut self, index: u64) -> Result<(), u64> {
        match &mut self.entries {
            None => self.entries = Some(index..index.checked_add(1).ok_or(index)?),
            Some(entries) if entries.end == index => entries.end = index.checked_add(1).ok_or(index)?,
            Some(entries) => return Err(entries.end),
        }
        Ok(())
    }

    /// Drops the entries from `next` on.
    pub(super) fn truncate(&mut self, next: u64) {
        if let Some(entries) = &mut self.entries {
            entries.end = next.clamp(entries.start, entries.end);
        }
    }

    /// Drops the entries up to `upto`, which may lie beyond the last one. A purge below an earlier one is none.
    pub(super) fn purge(&mut self, upto: u64, id: Bytes) {
        if self.purged.as_ref().is_some_and(|(earlier, _)| *earlier >= upto) {
            return;
        }
        let next = upto.saturating_add(1);
        let entries = self.live();
        let start = if self.entries.is_some() {
            entries.start.max(next)
        } else {
            next
        };
        self.entries = Some(start..entries.end.max(start));
        self.purged = Some((upto, id));
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let entries = self.live();
        let flags = u8::from(self.entries.is_some())
            | u8::from(self.vote.is_some()) << 1
            | u8::from(self.committed.is_some()) << 2
            | u8::from(self.purged.is_some()) << 3;
        bytes.push(flags);
        bytes.extend_from_slice(&entries.start.to_le_bytes());
        bytes.extend_from_slice(&entries.end.to_le_bytes());
        bytes.extend_from_slice(&self.purged.as_ref().map_or(0, |purged| purged.0).to_le_bytes());
        for part in [
            self.vote.as_ref(),
            self.committed.as_ref(),
            self.purged.as_ref().map(|purged| &purged.1),
        ] {
            let part: &[u8] = part.map_or(&[], |part| part);
            let length = u32::try_from(part.len()).expect("opaque bytes are bounded before they are queued");
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(part);
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<GroupMeta> {
        let fixed: &[u8; 25] = bytes.first_chunk()?;
        let flags = fixed[0];
        let entries = u64::from_le_bytes(field(fixed, 1))..u64::from_le_bytes(field(fixed, 9));
        let mut rest = &bytes[25..];
        let mut parts = [const { None }; 3];
        for (number, part) in parts.iter_mut().enumerate() {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let length = u32::from_le_bytes(*length) as usize;
            let content = behind.get(..length)?;
            rest = &behind[length..];
            *part = (flags & (2 << number) != 0).then(|| Bytes::copy_from_slice(content));
        }
        let [vote, committed, purged_id] = parts;
        (entries.start <= entries.end && rest.is_empty()).then(|| GroupMeta {
            entries: (flags & 1 != 0).then_some(entries),
            vote,
            committed,
            purged: purged_id.map(|id| (u64::from_le_bytes(field(fixed, 17)), id)),
        })
    }
}

impl Written {
    /// Takes one more entry; the index that had to come if it was another.
    pub(super) fn append(&mut self, index: u64, location: Location) -> Result<(), u64> {
        self.meta.append(index)?;
        self.locations.push_back(location);
        Ok(())
    }

    /// Drops the entries from `next` on, and hands on where each of them lay.
    pub(super) fn truncate(&mut self, next: u64, dropped: impl FnMut(Location)) {
        let before = self.meta.live();
        self.meta.truncate(next);
        self.drop_locations(before, dropped);
    }

    /// Drops the entries up to `upto`, and hands on where each of them lay.
    pub(super) fn purge(&mut self, upto: u64, id: Bytes, dropped: impl FnMut(Location)) {
        let before = self.meta.live();
        self.meta.purge(upto, id);
        self.drop_locations(before, dropped);
    }

    /// Drops everything, and hands on where each entry lay.
    pub(super) fn remove(&mut self, dropped: impl FnMut(Location)) {
        self.meta = GroupMeta::default();
        std::mem::take(&mut self.locations).into_iter().for_each(dropped);
    }

    /// Where the entry lies, if it is alive.
    pub(super) fn location(&self, index: u64) -> Option<Location> {
        self.locations.get(self.place(index)?).copied()
    }

    /// Notes that a live entry lies elsewhere now, and says where it lay.
    pub(super) fn relocate(&mut self, index: u64, location: Location) -> Option<Location> {
        let place = self.place(index)?;
        Some(std::mem::replace(self.locations.get_mut(place)?, location))
    }

    fn place(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.meta.live().start)?).ok()
    }

    fn drop_locations(&mut self, before: Range<u64>, mut dropped: impl FnMut(Location)) {
        let live = self.meta.live();
        for _ in live.end.max(before.start)..before.end {
            self.locations.pop_back().into_iter().for_each(&mut dropped);
        }
        // The purge may lie far beyond the last entry.
        let behind = live.start.saturating_sub(before.start).min(self.locations.len() as u64);
        for _ in 0..behind {
            self.locations.pop_front().into_iter().for_each(&mut dropped);
        }
    }
}

impl Group {
    pub(super) fn new(id: GroupId, memory: GroupMemory) -> Group {
        Group {
            id,
            memory: Mutex::new(memory),
        }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, GroupMemory> {
        // A panic while it is held leaves numbers that no longer agree: going on could lose entries in silence.
        self.memory
            .lock()
            .expect("nothing panics while it holds a group's memory")
    }
}

impl GroupMemory {
    /// A group as recovery found it.
    pub(super) fn recovered(written: Written, last: Option<Bytes>) -> GroupMemory {
        GroupMemory {
            seen: written.meta.clone(),
            flushed_next: written.meta.live().end,
            written,
            tail: last.into_iter().collect(),
            truncations: VecDeque::new(),
        }
    }

    /// The first index whose payload is in memory.
    pub(super) fn tail_start(&self) -> u64 {
        self.seen.live().end - self.tail.len() as u64
    }

    /// Drops payloads from memory that callers no longer see, after `seen` has changed from `before`. Gives back how
    /// many bytes that were.
    pub(super) fn fit_tail(&mut self, before: Range<u64>) -> usize {
        let live = self.seen.live();
        let tail_start = before.end - self.tail.len() as u64;
        let mut freed = 0;
        for _ in live.end.max(tail_start)..before.end {
            freed += self.tail.pop_back().map_or(0, |payload| payload.len());
        }
        // The purge may lie far beyond the last entry.
        let behind = live.start.saturating_sub(tail_start).min(self.tail.len() as u64);
        for _ in 0..behind {
            freed += self.tail.pop_front().map_or(0, |payload| payload.len());
        }
        freed
    }

    /// Counts entries before `next` as synced, unless a truncation that is still queued has taken them.
    pub(super) fn flushed(&mut self, next: u64) {
        let kept = self
            .truncations
            .iter()
            .copied()
            .min()
            .map_or(next, |truncation| truncation.min(next));
        self.flushed_next = self.flushed_next.max(kept);
    }

    /// The highest index up to which everything callers see is synced.
    pub(super) fn flushed_index(&self) -> Option<u64> {
        let entries = self.seen.entries.as_ref()?;
        let next = self.flushed_next.clamp(entries.start, entries.end);
        if next == entries.start && self.seen.purged.is_none() {
            return None;
        }
        next.checked_sub(1)
    }

    /// The payload of the last entry.
    pub(super) fn last(&self) -> Option<(u64, Bytes)> {
        let live = self.seen.live();
        (!live.is_empty()).then(|| (live.end - 1, self.tail.back().cloned().unwrap_or_default()))
    }

    /// Drops payloads of synced entries up to `upto` from memory, oldest first, but never the last one.
    pub(super) fn evict(&mut self, upto: u64) -> usize {
        let mut freed = 0;
        let mut index = self.tail_start();
        while self.tail.len() > 1 && index <= upto && index < self.flushed_next {
            freed += self.tail.pop_front().map_or(0, |payload| payload.len());
            index += 1;
        }
        freed
    }
}

#[cfg(test)]
mod tests;
