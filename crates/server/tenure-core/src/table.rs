//! The ordered table of bytes that holds all replicated state.
//!
//! Reads cannot fail from the machine's point of view: a storage fault stops the group in the adapter, so
//! the rules have no I/O branch at all.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use bytes::Bytes;

/// What a visitor of [`TableRead::scan`] says after each row.
pub type Visit = ControlFlow<()>;

/// Reading an ordered table.
pub trait TableRead {
    /// The row's value, or `None`.
    fn get(&self, key: &[u8]) -> Option<Bytes>;

    /// Visits the rows with `from <= key < to` in ascending order until the visitor breaks or they end.
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit);
}

/// Writing an ordered table.
pub trait Table: TableRead {
    /// Sets a row.
    fn put(&mut self, key: Vec<u8>, value: Bytes);

    /// Removes a row; nothing happens if there is none.
    fn delete(&mut self, key: &[u8]);
}

/// The writes of one entry, in key order: `Some` sets a row, `None` removes it.
pub type Writes = BTreeMap<Vec<u8>, Option<Bytes>>;

/// A table of its own in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemTable {
    rows: BTreeMap<Vec<u8>, Bytes>,
}

impl MemTable {
    /// An empty table.
    pub fn new() -> MemTable {
        MemTable::default()
    }

    /// Puts the writes of an entry into the table.
    pub fn commit(&mut self, writes: Writes) {
        for (key, value) in writes {
            match value {
                Some(value) => {
                    self.rows.insert(key, value);
                }
                None => {
                    self.rows.remove(&key);
                }
            }
        }
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl TableRead for MemTable {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.rows.get(key).cloned()
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) {
        if from >= to {
            return;
        }
        for (key, value) in self.rows.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))) {
            if visit(key, value).is_break() {
                return;
            }
        }
    }
}

impl Table for MemTable {
    fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.rows.insert(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.rows.remove(key);
    }
}

/// The writes of one entry over a table that stays as it is until they are committed.
pub struct Overlay<'a> {
    base: &'a dyn TableRead,
    writes: Writes,
}

impl<'a> Overlay<'a> {
    /// An overlay without writes.
    pub fn new(base: &'a dyn TableRead) -> Overlay<'a> {
        Overlay {
            base,
            writes: Writes::new(),
        }
    }

    /// The writes, to be committed to the table below.
    pub fn into_writes(self) -> Writes {
        self.writes
    }
}

impl TableRead for Overlay<'_> {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        match self.writes.get(key) {
            Some(written) => written.clone(),
            None => self.base.get(key),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) {
        scan_over(&self.writes, self.base, from, to, visit);
    }
}

impl Table for Overlay<'_> {
    fn put(&mut self, key: Vec<u8>, value: Bytes) {
        self.writes.insert(key, Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.writes.insert(key.to_vec(), None);
    }
}

/// Visits in order the rows of `base` as `writes` change them. This is how every overlay reads.
pub fn scan_over(
    writes: &Writes,
    base: &dyn TableRead,
    from: &[u8],
    to: &[u8],
    visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit,
) {
    if from >= to {
        return;
    }
    let mut written = writes
        .range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
        .peekable();
    let mut broken = false;
    base.scan(from, to, &mut |key, value| {
        while let Some((written_key, written_value)) = written.next_if(|(written_key, _)| written_key.as_slice() < key)
        {
            if let Some(written_value) = written_value
                && visit(written_key, written_value).is_break()
            {
                broken = true;
                return Visit::Break(());
            }
        }
        let step = match written.next_if(|(written_key, _)| written_key.as_slice() == key) {
            Some((_, None)) => Visit::Continue(()),
            Some((_, Some(written_value))) => visit(key, written_value),
            None => visit(key, value),
        };
        broken = step.is_break();
        step
    });
    if broken {
        return;
    }
    for (written_key, written_value) in written {
        if let Some(written_value) = written_value
            && visit(written_key, written_value).is_break()
        {
            return;
        }
    }
}

/// The first key behind every key that begins with `prefix`, or `None` if there is no such key.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests;
