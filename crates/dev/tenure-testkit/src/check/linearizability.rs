//! Whether calls, reads among them, could have taken effect one after another, each between its call and its answer.
//!
//! This needs no watch: only what the clients were told. The search is that of Wing and Gong ("Testing and verifying
//! concurrent objects", 1993) with the remembered configurations of Lowe ("Testing for linearizability", 2017), for
//! each key by itself: a history is linearizable exactly if its part for each object is (Herlihy and Wing, 1990).
//!
//! Only for keys that nothing but the calls changes: without a TTL and without an owner. No two writes of a run have
//! the same value, so a value names its write; its version is what anybody was told about it.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::{Violation, violation};
use crate::history::{Call, Guarded, Operation, Told};

/// The rule of which every violation here is one.
const RULE: &str = "calls have an order that explains their answers";
/// Configurations that are looked at for one key before the search is given up, which is a failure.
const CONFIGURATIONS_MAX: usize = 4_000_000;

/// What a key holds in the order that is tried: the write whose value it is, by its place among the calls of the key.
type Holds = Option<usize>;

/// The calls of one key, in the order in which they were made.
struct OfKey<'a> {
    calls: Vec<&'a Call>,
    /// The version of each write, as far as anybody was told.
    versions: Vec<Option<u64>>,
    /// The token that the key had after each write, likewise.
    tokens: Vec<Option<u64>>,
    /// The writes by their values.
    by_value: BTreeMap<&'a str, usize>,
}

/// A set of calls that have taken effect, and what the key holds then.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration {
    /// All calls before this one are in the set.
    first: usize,
    /// Those behind it that are, one bit each.
    beyond: Vec<u64>,
    holds: Holds,
}

/// Checks the calls of every key.
///
/// # Errors
/// The first key whose calls have no such order, with the last of them that could be explained; or one whose calls are
/// too many to be searched.
pub fn linearizable(calls: &[Call]) -> Result<(), Violation> {
    let mut by_key: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    // What was denied took no effect, and a read without an answer says nothing.
    let says_nothing = |call: &&Call| {
        call.told == Told::NotApplied || (call.told == Told::Unknown && matches!(call.operation, Operation::Get { .. }))
    };
    for call in calls.iter().filter(|call| !says_nothing(call)) {
        by_key.entry(call.operation.key()).or_default().push(call);
    }
    for (key, mut calls) in by_key {
        calls.sort_by_key(|call| call.called);
        OfKey::new(key, calls)?.search(key)?;
    }
    Ok(())
}

impl<'a> OfKey<'a> {
    fn new(key: &str, calls: Vec<&'a Call>) -> Result<OfKey<'a>, Violation> {
        let mut by_value = BTreeMap::new();
        for (place, call) in calls.iter().enumerate() {
            if let Operation::Put { value, .. } = &call.operation
                && by_value.insert(value.as_str(), place).is_some()
            {
                return violation(RULE, format!("{key}: the value {value} is written twice"));
            }
        }
        let mut of_key = OfKey {
            versions: vec![None; calls.len()],
            tokens: vec![None; calls.len()],
            calls,
            by_value,
        };
        for (place, call) in of_key.calls.clone().into_iter().enumerate() {
            let (place, version, created) = match &call.told {
                Told::Written { version, created } => (place, *version, *created),
                Told::Read { found: Some(read) } => match of_key.by_value.get(read.value.as_str()) {
                    Some(write) => (*write, read.version, read.created),
                    None => return violation(RULE, format!("{key}: nobody wrote what was read: {call:?}")),
                },
                _ => continue,
            };
            let known = of_key.versions[place].replace(version);
            let token = of_key.tokens[place].replace(created);
            if known.is_some_and(|known| known != version) || token.is_some_and(|token| token != created) {
                return violation(RULE, format!("{key}: a write has two versions: {call:?}"));
            }
        }
        Ok(of_key)
    }

    /// Looks for an order, depth first.
    fn search(&self, key: &str) -> Result<(), Violation> {
        let mut seen = HashSet::new();
        let mut open = vec![Configuration {
            first: 0,
            beyond: Vec::new(),
            holds: None,
        }];
        let mut furthest = 0;
        while let Some(now) = open.pop() {
            if self.is_explained(&now) {
                return Ok(());
            }
            furthest = furthest.max(now.first);
            if seen.len() > CONFIGURATIONS_MAX {
                return violation(RULE, format!("{key}: more than {CONFIGURATIONS_MAX} orders were tried"));
            }
            // The call that was made first is tried first.
            for next in self.steps(&now).into_iter().rev() {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        let around = &self.calls[furthest.saturating_sub(3)..self.calls.len().min(furthest + 4)];
        violation(
            RULE,
            format!("{key}: no order explains call {furthest}, around it {around:?}"),
        )
    }

    /// Whether all that is left are calls that may never have taken effect.
    fn is_explained(&self, now: &Configuration) -> bool {
        let left = now.first..self.calls.len();
        left.filter(|place| !now.has(*place))
            .all(|place| self.calls[place].returned.is_none())
    }

    /// Every configuration that one more call leads to. A call can be next if it was made before any other that is
    /// left was answered.
    fn steps(&self, now: &Configuration) -> Vec<Configuration> {
        let left = || (now.first..self.calls.len()).filter(|place| !now.has(*place));
        // Calls are in the order in which they were made, so those behind the first that comes too late do too.
        let mut first_answer = Duration::MAX;
        let mut next = Vec::new();
        for place in left() {
            let call = self.calls[place];
            if call.called > first_answer {
                break;
            }
            first_answer = first_answer.min(call.returned.unwrap_or(Duration::MAX));
            if let Some(holds) = self.effect(place, now.holds) {
                next.push(now.with(place, holds, self.calls.len()));
            }
        }
        next
    }

    /// What the key holds after a call, if it can have been told what it was told.
    fn effect(&self, place: usize, holds: Holds) -> Option<Holds> {
        let call = self.calls[place];
        let after = match &call.operation {
            Operation::Put { .. } => Some(place),
            Operation::Delete { .. } => None,
            Operation::Get { .. } => holds,
        };
        let version = holds.and_then(|write| self.versions[write]);
        let lets_through = self.lets_through(call.operation.guard(), holds);
        let fits = match &call.told {
            Told::Written { created, .. } => {
                let token = holds.and_then(|write| self.tokens[write]);
                let stays = holds.is_none() || token.is_none_or(|token| token == *created);
                lets_through != Some(false) && stays
            }
            Told::Deleted { removed: None } => holds.is_none(),
            Told::Deleted {
                removed: Some((_, removed)),
            } => lets_through != Some(false) && holds.is_some() && version.is_none_or(|version| version == *removed),
            Told::Refused { version: told } => {
                let same = match told {
                    Some(told) => holds.is_some() && version.is_none_or(|version| version == *told),
                    None => holds.is_none(),
                };
                return (same && lets_through != Some(true)).then_some(holds);
            }
            Told::Read { found } => {
                let read = found.as_ref().map(|read| self.by_value[read.value.as_str()]);
                read == holds
            }
            Told::Unknown if lets_through == Some(false) => return Some(holds),
            Told::Unknown => true,
            Told::NotApplied => false,
        };
        fits.then_some(after)
    }

    /// Whether a guard holds; `None` if nobody was told enough to say.
    fn lets_through(&self, guard: Guarded, holds: Holds) -> Option<bool> {
        let of_write = |known: &[Option<u64>], asked: u64| match holds {
            None => Some(false),
            Some(write) => known[write].map(|known| known == asked),
        };
        match guard {
            Guarded::Nothing => Some(true),
            Guarded::Absent => Some(holds.is_none()),
            Guarded::Version(asked) => of_write(&self.versions, asked),
            Guarded::Created(asked) => of_write(&self.tokens, asked),
        }
    }
}

impl Configuration {
    fn has(&self, place: usize) -> bool {
        place < self.first || {
            let at = place - self.first;
            self.beyond.get(at / 64).is_some_and(|bits| bits >> (at % 64) & 1 == 1)
        }
    }

    /// The same with one call more, in the one form that a set has.
    fn with(&self, place: usize, holds: Holds, calls: usize) -> Configuration {
        let mut first = self.first;
        let has = |at: usize| at == place || self.has(at);
        while first < calls && has(first) {
            first += 1;
        }
        let mut beyond = Vec::new();
        let last = (self.first + self.beyond.len() * 64).max(place + 1).min(calls);
        for at in (first..last).filter(|at| has(*at)) {
            let bit = at - first;
            beyond.resize(beyond.len().max(bit / 64 + 1), 0);
            beyond[bit / 64] |= 1 << (bit % 64);
        }
        Configuration { first, beyond, holds }
    }
}

#[cfg(test)]
mod tests;
