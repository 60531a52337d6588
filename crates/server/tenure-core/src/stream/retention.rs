//! What streams lose with time and by their size: the oldest records, message ids whose window has ended, and the
//! rows of what was trimmed. All of it is bookkeeping in bounded steps: no revision, no effect.

use bytes::Bytes;

use super::{Stream, first_end, first_id_end, is_too_long};
use crate::ids::Incarnation;
use crate::keyspace;
use crate::machine::Run;
use crate::table::{Visit, prefix_end};
use crate::time::Timestamp;

/// Removes what is due of a stream, at most so many records and ids, and says how many. What is left stays due.
pub(crate) fn expire(run: &mut Run<'_>, incarnation: Incarnation, budget: usize) -> usize {
    let mut stream = Stream::load(run.table, incarnation);
    let mut left = budget;
    while left > 0 && stream.has_aged(run.now) {
        stream.drop_first(run);
        left -= 1;
    }
    let ended = ended_ids(run, incarnation, left);
    left -= ended.len();
    for (until, id) in &ended {
        run.table.delete(&keyspace::message_id(incarnation, id));
        run.table.delete(&keyspace::id_end(incarnation, *until, id));
    }
    if !ended.is_empty() {
        stream.head.ids -= ended.len() as u64;
        stream.head.ids_until = first_id_end(run.table, incarnation);
    }
    stream.save(run);
    budget - left
}

/// Removes rows of streams that are to be shortened, at most so many.
pub(crate) fn shorten(run: &mut Run<'_>, budget: usize) {
    let mut left = budget;
    while left > 0
        && let Some(incarnation) = run.memory.shortening.first().copied()
    {
        let mut stream = Stream::load(run.table, incarnation);
        while left > 0 && stream.head.swept < stream.head.first {
            let swept = stream.head.swept;
            if let Some(gap) = run.memory.gaps.around(incarnation, swept) {
                run.memory.gaps.remove(incarnation, gap.start);
                run.table.delete(&keyspace::gap(incarnation, gap.start));
                stream.head.swept = gap.end;
            } else {
                run.table.delete(&keyspace::record(incarnation, swept));
                stream.head.swept += 1;
            }
            left -= 1;
        }
        left -= stream.drop_by_size(run, left);
        stream.save(run);
    }
}

impl Stream {
    /// Drops the first records while those behind them are enough, at most so many, and says how many.
    pub(super) fn drop_by_size(&mut self, run: &mut Run<'_>, at_most: usize) -> usize {
        let mut dropped = 0;
        while dropped < at_most && is_too_long(&self.head) {
            self.drop_first(run);
            dropped += 1;
        }
        dropped
    }

    fn has_aged(&self, now: Timestamp) -> bool {
        first_end(&self.head).is_some_and(|end| end.is_due_at(now))
    }

    fn drop_first(&mut self, run: &mut Run<'_>) {
        let first = self.head.first;
        run.table.delete(&keyspace::record(self.incarnation, first));
        if self.head.swept == first {
            self.head.swept += 1;
        }
        self.move_first(run, first + 1);
    }
}

/// The first message ids whose window has ended, at most so many.
fn ended_ids(run: &Run<'_>, incarnation: Incarnation, at_most: usize) -> Vec<(Timestamp, Bytes)> {
    let from = keyspace::id_ends_of(incarnation);
    let to = prefix_end(&from).expect("a kind byte is below 255");
    let mut ended = Vec::new();
    run.table.scan(&from, &to, &mut |key, _| {
        let until = Timestamp(keyspace::number_at(key, 9));
        if ended.len() == at_most || !until.is_due_at(run.now) {
            return Visit::Break(());
        }
        ended.push((until, Bytes::copy_from_slice(&key[17..])));
        Visit::Continue(())
    });
    ended
}
