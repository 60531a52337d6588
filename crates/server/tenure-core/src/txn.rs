//! Transactions: guards choose a branch, and the branch is done whole or not at all.
//!
//! A branch is judged before the first write: every key is met (what has lapsed ends then, under a revision of its
//! own), every object looked up, every bound counted. Since a branch writes a key at most once and appends to a stream
//! at most once, what is judged against the state before is true when it is done, and doing it cannot fail. All changes
//! share one revision, consumed by the first of them.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::command::{Operation, Txn, TxnGuard};
use crate::ids::{Incarnation, ObjectName, SessionId};
use crate::keyspace::{self, KeyRow};
use crate::kv::counter::Addition;
use crate::kv::{self, New, Old, counter};
use crate::limits::TXN_READ_BYTES_MAX;
use crate::machine::{Run, StepRevision};
use crate::refusal::{EndReason, Failure, Halt};
use crate::response::{Done, KeyFound, OperationResult, Removed};
use crate::session;
use crate::stream::{self, Judged};
use crate::time::Timestamp;

/// An operation that may be done.
enum Step<'a> {
    Put {
        place: Place<'a>,
        old: Option<Old>,
        value: &'a Bytes,
        deadline: Option<Timestamp>,
        owner: Option<SessionId>,
    },
    Delete {
        place: Place<'a>,
        old: Option<Old>,
    },
    Add {
        place: Place<'a>,
        addition: Addition,
    },
    Append(Judged<'a>),
    Get(Place<'a>),
}

/// Where a key is. The order is that of rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    incarnation: Incarnation,
    key: &'a Bytes,
}

/// What the operations judged so far will have done to the state.
#[derive(Default)]
struct Judge<'a> {
    /// How many more keys each session will own.
    owned: BTreeMap<SessionId, i64>,
    /// Bytes of the value that each key will have; nothing if it will be gone.
    written: BTreeMap<Place<'a>, usize>,
    /// Bytes of what will have been read.
    read_bytes: usize,
}

/// Runs a transaction. In order: its form; the guards, up to the first that does not hold; the operations of the
/// branch with what they read; what the entry reads.
pub(crate) fn execute(run: &mut Run<'_>, txn: &Txn) -> Result<Done, Halt> {
    txn.check()?;
    let failed_guard = first_failed(run, &txn.guards)?;
    let branch = if failed_guard.is_none() {
        &txn.then
    } else {
        &txn.otherwise
    };
    let mut judge = Judge::default();
    let mut steps = Vec::with_capacity(branch.len());
    for operation in branch {
        steps.push(judge.judge(run, operation)?);
    }
    run.count_read(judge.read_bytes)?;
    let mut revision = StepRevision::default();
    let results = steps
        .into_iter()
        .map(|step| perform(run, step, &mut revision))
        .collect();
    Ok(Done::Txn {
        applied: failed_guard.is_none(),
        failed_guard,
        revision: revision.consumed(),
        results,
    })
}

/// The place of the first guard that does not hold.
fn first_failed(run: &mut Run<'_>, guards: &[TxnGuard]) -> Result<Option<u32>, Failure> {
    for (at, guard) in (0..).zip(guards) {
        let holds = match guard {
            TxnGuard::Key { cache, key, guard } => {
                let incarnation = run.incarnation(cache)?;
                let row = kv::meet(run, incarnation, key);
                kv::holds(row.as_ref(), guard)
            }
            TxnGuard::Counter { cache, key, min, max } => {
                let incarnation = run.incarnation(cache)?;
                let value = counter::value(kv::meet(run, incarnation, key).as_ref())?;
                min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max)
            }
            TxnGuard::StreamTail { stream, tail } => stream::tail(run, stream)? == *tail,
            TxnGuard::SessionAlive { session } => session::alive(run, *session).is_ok(),
        };
        if !holds {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

impl<'a> Judge<'a> {
    /// Whether an operation may be done after those before it.
    fn judge(&mut self, run: &mut Run<'_>, operation: &'a Operation) -> Result<Step<'a>, Halt> {
        Ok(match operation {
            Operation::Put {
                cache,
                key,
                value,
                ttl,
                owner,
            } => {
                let place = Place::of(run, cache, key)?;
                let old = kv::meet_old(run, place.incarnation, key);
                let owner = match owner {
                    Some(owner) => {
                        let more = self.owned.get(&owner.id).copied().unwrap_or(0);
                        Some(kv::may_own(run, *owner, old.as_ref(), more)?)
                    }
                    None => None,
                };
                self.count_owned(old.and_then(|old| old.owner), owner);
                self.written.insert(place, value.len());
                let deadline = ttl.map(|ttl| run.now + ttl);
                Step::Put {
                    place,
                    old,
                    value,
                    deadline,
                    owner,
                }
            }
            Operation::Delete { cache, key } => {
                let place = Place::of(run, cache, key)?;
                let old = kv::meet_old(run, place.incarnation, key);
                self.count_owned(old.and_then(|old| old.owner), None);
                self.written.insert(place, 0);
                Step::Delete { place, old }
            }
            Operation::Add { cache, key, delta, ttl } => {
                let place = Place::of(run, cache, key)?;
                let addition = counter::judge(run, place.incarnation, key, *delta, *ttl)?;
                self.written.insert(place, counter::text(addition.sum).len());
                Step::Add { place, addition }
            }
            Operation::Append { stream, append } => Step::Append(stream::judge(run, stream, append)?),
            Operation::Get { cache, key } => {
                let place = Place::of(run, cache, key)?;
                let old = kv::meet_old(run, place.incarnation, key);
                let before = old.map_or(0, |old| old.value_len);
                self.count_read(self.written.get(&place).copied().unwrap_or(before))?;
                Step::Get(place)
            }
        })
    }

    fn count_owned(&mut self, from: Option<SessionId>, to: Option<SessionId>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            *self.owned.entry(from).or_default() -= 1;
        }
        if let Some(to) = to {
            *self.owned.entry(to).or_default() += 1;
        }
    }

    fn count_read(&mut self, bytes: usize) -> Result<(), Failure> {
        self.read_bytes += bytes;
        Failure::unless_within("bytes that a transaction reads", self.read_bytes, TXN_READ_BYTES_MAX)
    }
}

impl<'a> Place<'a> {
    fn of(run: &Run<'_>, cache: &ObjectName, key: &'a Bytes) -> Result<Place<'a>, Failure> {
        let incarnation = run.incarnation(cache)?;
        Ok(Place { incarnation, key })
    }
}

fn perform(run: &mut Run<'_>, step: Step<'_>, revision: &mut StepRevision) -> OperationResult {
    match step {
        Step::Put {
            place,
            old,
            value,
            deadline,
            owner,
        } => {
            let version = revision.of(run);
            let new = New {
                value: value.clone(),
                deadline,
                owner,
            };
            let created = kv::write(run, version, place.incarnation, place.key, old.as_ref(), new);
            OperationResult::Put { version, created }
        }
        Step::Delete { place, old } => {
            let removed = old.map(|old| {
                let revision = revision.of(run);
                kv::remove_at(run, revision, place.incarnation, place.key, &old, EndReason::Delete);
                let version = old.version;
                Removed { revision, version }
            });
            OperationResult::Deleted { removed }
        }
        Step::Add { place, addition } => {
            let version = revision.of(run);
            let sum = addition.sum;
            let created = counter::perform(run, version, place.incarnation, place.key, &addition);
            OperationResult::Added { sum, version, created }
        }
        Step::Append(judged) => OperationResult::Appended(stream::perform(run, judged, revision)),
        Step::Get(place) => {
            let row: Option<KeyRow> = keyspace::read(run.table, &keyspace::key(place.incarnation, place.key));
            OperationResult::Got(row.map(|row| KeyFound {
                value: row.value,
                version: row.version,
                created: row.created,
                owner: row.owner,
            }))
        }
    }
}
