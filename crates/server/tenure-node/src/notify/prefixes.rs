//! Who wants the keys that begin with a prefix, found by the key: what has nothing in common with a key costs nothing.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

/// Values by prefix.
#[derive(Debug)]
pub(super) struct Prefixes<T> {
    by_prefix: BTreeMap<Bytes, Vec<T>>,
}

impl<T> Default for Prefixes<T> {
    fn default() -> Prefixes<T> {
        Prefixes {
            by_prefix: BTreeMap::new(),
        }
    }
}

impl<T> Prefixes<T> {
    /// Adds a value.
    pub(super) fn insert(&mut self, prefix: Bytes, value: T) {
        self.by_prefix.entry(prefix).or_default().push(value);
    }

    /// Removes the values of a prefix that do not pass.
    pub(super) fn retain(&mut self, prefix: &[u8], keep: impl FnMut(&T) -> bool) {
        if let Some(values) = self.by_prefix.get_mut(prefix) {
            values.retain(keep);
            if values.is_empty() {
                self.by_prefix.remove(prefix);
            }
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_prefix.is_empty()
    }

    /// All values.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.by_prefix.values().flatten()
    }

    /// Visits the values of every prefix that the key begins with, the longest first. Returns how many prefixes it looked
    /// at: those that match, and at most one for each length that others have in common with the key.
    pub(super) fn visit(&self, key: &[u8], mut visit: impl FnMut(&T)) -> usize {
        let mut looked_at = 0;
        // What is left to be found is a beginning of this.
        let mut rest = key;
        loop {
            let upto = (Bound::Unbounded, Bound::Included(rest));
            let Some((prefix, values)) = self.by_prefix.range::<[u8], _>(upto).next_back() else {
                return looked_at;
            };
            looked_at += 1;
            let common = prefix.iter().zip(rest).take_while(|(one, other)| one == other).count();
            let next = if common == prefix.len() {
                values.iter().for_each(&mut visit);
                common.checked_sub(1)
            } else {
                // Whatever lies between this one and the shorter beginnings of the key is none of them.
                Some(common)
            };
            let Some(next) = next else { return looked_at };
            rest = &key[..next];
        }
    }
}

#[cfg(test)]
mod tests;
