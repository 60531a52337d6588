//! Gaps of streams. After a restore a stream goes on far behind the tail that its backup has, because nobody knows how
//! many records were appended, and read, after the backup was made. Between the two there are no records and never will
//! be, and whoever reads across is told.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ids::Incarnation;
use crate::keyspace;
use crate::table::{TableRead, Visit, prefix_end};

/// The gaps of all streams of a group: few, so memory holds them. The first offset of no stream lies in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gaps {
    of: BTreeMap<Incarnation, BTreeMap<u64, u64>>,
}

impl Gaps {
    /// Those that a table has.
    pub(crate) fn load(table: &(impl TableRead + ?Sized)) -> Gaps {
        let mut gaps = Gaps::default();
        let to = prefix_end(b"J").expect("a kind byte is below 255");
        table.scan(b"J", &to, &mut |key, value| {
            let incarnation = Incarnation(keyspace::number_in(key));
            let start = keyspace::number_at(key, 9);
            gaps.of
                .entry(incarnation)
                .or_default()
                .insert(start, keyspace::decode(key, value));
            Visit::Continue(())
        });
        gaps
    }

    /// The first gap that ends behind an offset.
    pub(crate) fn at_or_behind(&self, incarnation: Incarnation, offset: u64) -> Option<Range<u64>> {
        let of_stream = self.of.get(&incarnation)?;
        let first = of_stream.iter().find(|(_, end)| **end > offset);
        first.map(|(start, end)| *start..*end)
    }

    /// The gap in which an offset lies.
    pub(crate) fn around(&self, incarnation: Incarnation, offset: u64) -> Option<Range<u64>> {
        self.at_or_behind(incarnation, offset)
            .filter(|gap| gap.contains(&offset))
    }

    /// Forgets a gap before which no record is left.
    pub(crate) fn remove(&mut self, incarnation: Incarnation, start: u64) {
        if let Some(of_stream) = self.of.get_mut(&incarnation) {
            of_stream.remove(&start);
            if of_stream.is_empty() {
                self.of.remove(&incarnation);
            }
        }
    }

    /// Forgets those of a stream that is deleted, and says where they began.
    pub(crate) fn forget_stream(&mut self, incarnation: Incarnation) -> impl Iterator<Item = u64> + use<> {
        self.of.remove(&incarnation).unwrap_or_default().into_keys()
    }
}
