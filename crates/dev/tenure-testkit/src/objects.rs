//! Rules for what clients were told of streams, counters and transactions, against what is there in the end.
//!
//! No two appends of a run have a record in common unless they carry the same message id, so each record is matched with
//! the call that made it. Like the rules of [`check`](crate::check) these know nothing of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::check::Violation;

/// One append of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendCall {
    /// The records, which no append with another message id has.
    pub records: Vec<String>,
    /// Where they had to begin.
    pub expected: Option<u64>,
    /// The fencing token.
    pub token: Option<u64>,
    /// The message id.
    pub message_id: Option<String>,
    /// When it was asked for, since the run began.
    pub called: Duration,
    /// When the answer came; `None`: it may take effect at any later time.
    pub returned: Option<Duration>,
    /// What the client was told.
    pub told: AppendTold,
}

/// What a client was told of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendTold {
    /// The records are in the stream.
    Appended {
        /// The offset of the first.
        first: u64,
        /// Another append had the same message id, and those are its offsets.
        duplicate: bool,
    },
    /// Somebody else had appended: the tail was this.
    WrongTail {
        /// The tail.
        tail: u64,
    },
    /// A higher token had been accepted.
    StaleToken {
        /// The highest.
        current: u64,
    },
    /// It was not applied and never will be.
    NotApplied,
    /// It may or may not have been applied.
    Unknown,
}

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where it is.
    pub offset: u64,
    /// What it holds.
    pub data: String,
    /// The token of its append.
    pub token: Option<u64>,
}

/// One addition of one to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddCall {
    /// When it was asked for, since the run began.
    pub called: Duration,
    /// When the answer came; `None`: it may take effect at any later time.
    pub returned: Option<Duration>,
    /// The sum and the version, or `None`: unknown.
    pub told: Option<(i64, u64)>,
}

/// Every rule of a stream that was read from its first record to its tail.
///
/// # Errors
/// The first rule that was broken.
pub fn stream(calls: &[AppendCall], kept: &[Kept]) -> Result<(), Violation> {
    offsets_have_no_gaps(kept)?;
    tokens_never_fall(kept)?;
    let places = records_are_there_once(kept)?;
    what_was_acknowledged_is_there(calls, kept)?;
    what_is_there_was_asked_for(calls, kept)?;
    batches_are_whole(calls, &places)?;
    expected_tails_held(calls)?;
    one_message_is_one_append(calls)?;
    offsets_agree_with_real_time(calls)
}

/// Offsets begin with 0 and have no gaps.
///
/// # Errors
/// There is a gap.
pub fn offsets_have_no_gaps(kept: &[Kept]) -> Result<(), Violation> {
    match kept.iter().zip(0..).find(|(record, offset)| record.offset != *offset) {
        Some((record, offset)) => violation("offsets have no gaps", format!("{record:?} where {offset} was due")),
        None => Ok(()),
    }
}

/// Along a stream the tokens of its records never fall.
///
/// # Errors
/// One does.
pub fn tokens_never_fall(kept: &[Kept]) -> Result<(), Violation> {
    let mut highest = None;
    for record in kept.iter().filter(|record| record.token.is_some()) {
        if record.token < highest {
            return violation("tokens never fall", format!("{record:?} after {highest:?}"));
        }
        highest = record.token;
    }
    Ok(())
}

fn records_are_there_once(kept: &[Kept]) -> Result<BTreeMap<&str, u64>, Violation> {
    let mut places = BTreeMap::new();
    for record in kept {
        if let Some(other) = places.insert(record.data.as_str(), record.offset) {
            return violation("no record is there twice", format!("{record:?}, and at {other}"));
        }
    }
    Ok(places)
}

/// What a client was told to be in the stream is there, at the offsets that it was told.
///
/// # Errors
/// Something is missing.
pub fn what_was_acknowledged_is_there(calls: &[AppendCall], kept: &[Kept]) -> Result<(), Violation> {
    for call in calls {
        let AppendTold::Appended { first, .. } = call.told else {
            continue;
        };
        let there = kept.iter().skip(usize::try_from(first).unwrap_or(usize::MAX));
        let there: Vec<&str> = there
            .take(call.records.len())
            .map(|record| record.data.as_str())
            .collect();
        if there != call.records {
            return violation(
                "what was acknowledged is there",
                format!("{call:?}, and there is {there:?}"),
            );
        }
    }
    Ok(())
}

/// Every record was asked for, and nobody was told that it is not there.
///
/// # Errors
/// One was not, or somebody was.
pub fn what_is_there_was_asked_for(calls: &[AppendCall], kept: &[Kept]) -> Result<(), Violation> {
    let may_be_there = |call: &&AppendCall| matches!(call.told, AppendTold::Appended { .. } | AppendTold::Unknown);
    let asked: BTreeSet<&String> = calls
        .iter()
        .filter(may_be_there)
        .flat_map(|call| &call.records)
        .collect();
    match kept.iter().find(|record| !asked.contains(&record.data)) {
        Some(record) => violation("what is there was asked for", format!("{record:?}")),
        None => Ok(()),
    }
}

/// Of the records of one append all are there, one behind the other, or none.
fn batches_are_whole(calls: &[AppendCall], places: &BTreeMap<&str, u64>) -> Result<(), Violation> {
    for call in calls {
        let found: Vec<Option<u64>> = call
            .records
            .iter()
            .map(|data| places.get(data.as_str()).copied())
            .collect();
        let first = found.first().copied().flatten();
        let whole = match first {
            None => found.iter().all(Option::is_none),
            Some(first) => found.iter().zip(first..).all(|(place, offset)| *place == Some(offset)),
        };
        if !whole {
            return violation("an append is whole", format!("{call:?}: {found:?}"));
        }
    }
    Ok(())
}

/// An append that named the tail begins there, so of all that named one tail one succeeds; who is refused is told another
/// tail, or a higher token.
///
/// # Errors
/// It does not, or is not.
pub fn expected_tails_held(calls: &[AppendCall]) -> Result<(), Violation> {
    for call in calls {
        let fits = match (call.told, call.expected) {
            (
                AppendTold::Appended {
                    first,
                    duplicate: false,
                },
                Some(expected),
            ) => first == expected,
            (AppendTold::WrongTail { tail }, expected) => expected.is_some_and(|expected| expected != tail),
            (AppendTold::StaleToken { current }, _) => call.token.is_some_and(|token| token < current),
            _ => true,
        };
        if !fits {
            return violation("an expected tail held", format!("{call:?}"));
        }
    }
    Ok(())
}

/// Whoever sent a message under one id was told one offset, and one of them at most that it was new.
///
/// # Errors
/// They were told otherwise.
pub fn one_message_is_one_append(calls: &[AppendCall]) -> Result<(), Violation> {
    let mut known: BTreeMap<&str, (u64, u32)> = BTreeMap::new();
    for call in calls {
        let (Some(id), AppendTold::Appended { first, duplicate }) = (&call.message_id, call.told) else {
            continue;
        };
        let (offset, new) = known.entry(id).or_insert((first, 0));
        *new += u32::from(!duplicate);
        if *offset != first || *new > 1 {
            return violation(
                "one message is one append",
                format!("{call:?}, at {offset} before, new {new} times"),
            );
        }
    }
    Ok(())
}

/// An append that was asked for after another was answered lies behind it.
///
/// # Errors
/// One does not.
pub fn offsets_agree_with_real_time(calls: &[AppendCall]) -> Result<(), Violation> {
    let done = calls.iter().filter_map(|call| match call.told {
        AppendTold::Appended {
            first,
            duplicate: false,
        } => Some((call.called, call.returned?, first)),
        _ => None,
    });
    agree_with_real_time("offsets agree with real time", done.collect())
}

/// Additions of one: each sum is told once, higher with a higher version, in the order of real time, and the counter holds
/// in the end what was acknowledged and at most what is unknown beside it.
///
/// # Errors
/// The first rule that was broken.
pub fn counter(calls: &[AddCall], value: i64) -> Result<(), Violation> {
    let mut told: Vec<(u64, i64)> = calls
        .iter()
        .filter_map(|call| call.told)
        .map(|(sum, version)| (version, sum))
        .collect();
    told.sort_unstable();
    if let Some(pair) = told
        .windows(2)
        .find(|pair| pair[0].0 == pair[1].0 || pair[0].1 >= pair[1].1)
    {
        return violation("sums rise with versions", format!("{pair:?}"));
    }
    let unknown = calls.iter().filter(|call| call.told.is_none()).count() as i64;
    let acknowledged = told.len() as i64;
    if !(acknowledged..=acknowledged + unknown).contains(&value) {
        let what = format!("{value} after {acknowledged} acknowledged and {unknown} unknown additions");
        return violation("a counter holds what was added", what);
    }
    let done = calls
        .iter()
        .filter_map(|call| Some((call.called, call.returned?, call.told?.1)));
    agree_with_real_time("sums agree with real time", done.collect())
}

/// Of (called, returned, place): who was called after another returned has a higher place.
fn agree_with_real_time(rule: &'static str, mut calls: Vec<(Duration, Duration, u64)>) -> Result<(), Violation> {
    let mut returned: Vec<(Duration, u64)> = calls.iter().map(|(_, returned, place)| (*returned, *place)).collect();
    returned.sort_unstable();
    calls.sort_unstable();
    let (mut before, mut highest) = (returned.into_iter().peekable(), None);
    for (called, _, place) in calls {
        while let Some((_, earlier)) = before.next_if(|(returned, _)| *returned < called) {
            highest = highest.max(Some(earlier));
        }
        if highest >= Some(place) {
            return violation(rule, format!("{place} was asked for after {highest:?} was told"));
        }
    }
    Ok(())
}

fn violation<T>(rule: &'static str, what: String) -> Result<T, Violation> {
    Err(Violation { rule, what })
}

#[cfg(test)]
mod tests;
