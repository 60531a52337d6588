//! A group's log as far as its records were read. What it holds follows the records, never what one of them claims: a
//! checkpoint may name very many entries of which none is there.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::super::group::{GroupMeta, Location, Written};

/// Becomes [`Written`] when every live entry was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) meta: GroupMeta,
    /// Where entries lie that the first checkpoint names: they were copied forward, since what lies before it is gone.
    copied: BTreeMap<u64, Location>,
    /// Where those lie that were read, up to the last live one.
    appended: VecDeque<Location>,
}

impl Found {
    /// As the first checkpoint says. Where its entries lie is said by the records that follow, or nowhere if they are
    /// dropped later on.
    pub(super) fn of_checkpoint(meta: GroupMeta) -> Found {
        Found {
            meta,
            ..Found::default()
        }
    }

    /// Takes one more entry, if it is the next one.
    pub(super) fn append(&mut self, index: u64, location: Location) -> bool {
        let fits = self.meta.append(index).is_ok();
        if fits {
            self.appended.push_back(location);
        }
        fits
    }

    /// Notes where a live entry lies now; whether it is alive.
    pub(super) fn relocate(&mut self, index: u64, location: Location) -> bool {
        if !self.meta.live().contains(&index) {
            return false;
        }
        match index.checked_sub(self.appended_start()) {
            Some(place) => self.appended[place as usize] = location,
            None => drop(self.copied.insert(index, location)),
        }
        true
    }

    /// Drops the entries from `next` on.
    pub(super) fn truncate(&mut self, next: u64) {
        let start = self.appended_start();
        self.meta.truncate(next);
        let end = self.meta.live().end;
        self.appended
            .truncate(usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX));
        self.copied.split_off(&end);
    }

    /// Drops the entries up to `upto`, which may lie beyond the last one.
    pub(super) fn purge(&mut self, upto: u64, id: Bytes) {
        let start = self.appended_start();
        self.meta.purge(upto, id);
        let live = self.meta.live();
        let gone = live.start.saturating_sub(start).min(self.appended.len() as u64);
        self.appended.drain(..gone as usize);
        self.copied = self.copied.split_off(&live.start);
    }

    /// Whether no more entries than these are said to be alive.
    pub(super) fn holds_at_most(&self, entries_max: usize) -> bool {
        let live = self.meta.live();
        live.end - live.start <= entries_max as u64
    }

    /// The group as it is written.
    ///
    /// # Errors
    /// The first live entry that was not found.
    pub(super) fn into_written(self) -> Result<Written, u64> {
        let start = self.appended_start();
        let mut locations = VecDeque::with_capacity(self.copied.len() + self.appended.len());
        for index in self.meta.live().start..start {
            locations.push_back(*self.copied.get(&index).ok_or(index)?);
        }
        locations.extend(self.appended);
        Ok(Written {
            meta: self.meta,
            locations,
        })
    }

    /// The index of the first entry that was read itself; the next one if none was.
    fn appended_start(&self) -> u64 {
        self.meta.live().end - self.appended.len() as u64
    }
}

#[cfg(test)]
mod tests;
