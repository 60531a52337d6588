//! Counters: keys whose value is the decimal text of a 64-bit number with a sign, so that any reader understands it.

use bytes::Bytes;

use super::{New, Old};
use crate::ids::{Incarnation, ObjectName};
use crate::keyspace::KeyRow;
use crate::kv;
use crate::machine::Run;
use crate::refusal::Failure;
use crate::response::Done;
use crate::time::{Span, Timestamp};

/// An addition that may be done.
pub(crate) struct Addition {
    /// What the counter will hold.
    pub(crate) sum: i64,
    /// The counter as it is, if it exists.
    pub(crate) old: Option<Old>,
    /// Its end, if this creates it.
    deadline: Option<Timestamp>,
}

/// Adds to a counter. In order: the cache exists, the key is a counter or absent, the sum fits.
pub(crate) fn add(
    run: &mut Run<'_>,
    cache: &ObjectName,
    key: &Bytes,
    delta: i64,
    ttl: Option<Span>,
) -> Result<Done, Failure> {
    let incarnation = run.incarnation(cache)?;
    let addition = judge(run, incarnation, key, delta, ttl)?;
    let sum = addition.sum;
    let version = run.consume_revision();
    let created = perform(run, version, incarnation, key, &addition);
    Ok(Done::Added { sum, version, created })
}

/// Whether an addition may be done.
pub(crate) fn judge(
    run: &mut Run<'_>,
    incarnation: Incarnation,
    key: &Bytes,
    delta: i64,
    ttl: Option<Span>,
) -> Result<Addition, Failure> {
    let row = kv::meet(run, incarnation, key);
    let sum = value(row.as_ref())?
        .checked_add(delta)
        .ok_or_else(|| Failure::Invalid {
            field: "delta".to_owned(),
            rule: "the sum must fit 64 bits with a sign".to_owned(),
        })?;
    let deadline = match &row {
        Some(row) => row.deadline,
        None => ttl.map(|ttl| run.now + ttl),
    };
    Ok(Addition {
        sum,
        old: row.as_ref().map(Old::from),
        deadline,
    })
}

/// Does what was judged under a revision, and returns the counter's token.
pub(crate) fn perform(
    run: &mut Run<'_>,
    version: u64,
    incarnation: Incarnation,
    key: &Bytes,
    addition: &Addition,
) -> u64 {
    let new = New {
        value: Bytes::from(text(addition.sum)),
        deadline: addition.deadline,
        owner: addition.old.and_then(|old| old.owner),
    };
    kv::write(run, version, incarnation, key, addition.old.as_ref(), new)
}

/// What a counter holds; one that does not exist holds 0.
pub(crate) fn value(row: Option<&KeyRow>) -> Result<i64, Failure> {
    match row {
        None => Ok(0),
        Some(row) => parse(&row.value).ok_or_else(|| Failure::WrongType { is: "value".to_owned() }),
    }
}

/// How a number is written.
pub(crate) fn text(number: i64) -> String {
    number.to_string()
}

/// The number that is written exactly so.
fn parse(written: &[u8]) -> Option<i64> {
    let number = std::str::from_utf8(written).ok()?.parse().ok()?;
    (text(number).as_bytes() == written).then_some(number)
}

#[cfg(test)]
mod tests;
