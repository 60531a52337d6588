//! Rules that a history must keep, against the whole list of changes that a watch told from the beginning on.
//!
//! No two writes of a run have the same value, so each change is matched with the one call that made it. Together
//! the rules say: what was acknowledged happened and was told; what happened had been asked for and was not denied;
//! its guard held; versions agree with real time; tokens rise; and the changes add up to the state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::history::{Call, Event, EventKind, Guarded, Operation, Told};

pub mod linearizability;

/// A rule that was broken, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// What broke it.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

impl std::error::Error for Violation {}

/// Keys with what they hold.
pub type State = BTreeMap<String, Held>;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The value.
    pub value: String,
    /// Revision of its last write.
    pub version: u64,
    /// Revision of its creation.
    pub created: u64,
}

/// How many calls a history has, by what was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Done.
    pub acknowledged: usize,
    /// Read.
    pub read: usize,
    /// Refused.
    pub refused: usize,
    /// Not applied.
    pub not_applied: usize,
    /// Unknown.
    pub unknown: usize,
}

impl Counts {
    /// Counts the calls.
    pub fn of(calls: &[Call]) -> Counts {
        let mut counts = Counts::default();
        for call in calls {
            *match call.told {
                Told::Written { .. } | Told::Deleted { .. } => &mut counts.acknowledged,
                Told::Read { .. } => &mut counts.read,
                Told::Refused { .. } => &mut counts.refused,
                Told::NotApplied => &mut counts.not_applied,
                Told::Unknown => &mut counts.unknown,
            } += 1;
        }
        counts
    }
}

/// Every rule. `events` are all changes since before the first call; `state` was read at `revision`.
///
/// # Errors
/// The first rule that was broken.
pub fn everything(calls: &[Call], events: &[Event], state: &State, revision: u64) -> Result<Counts, Violation> {
    versions_are_unique(calls)?;
    versions_agree_with_real_time(calls)?;
    events_are_ordered_and_unique(events)?;
    events_follow_from_each_other(events)?;
    what_was_acknowledged_happened(calls, events)?;
    what_happened_was_asked_for(calls, events)?;
    guards_held(calls, events)?;
    refusals_name_what_was_there(calls, events)?;
    changes_add_up(events, state, revision)?;
    Ok(Counts::of(calls))
}

/// No two calls were told the same revision.
///
/// # Errors
/// Two were.
pub fn versions_are_unique(calls: &[Call]) -> Result<(), Violation> {
    let mut seen = BTreeMap::new();
    for call in calls {
        if let Some(revision) = revision(call)
            && let Some(other) = seen.insert(revision, call)
        {
            return violation("no revision twice", format!("{other:?} and {call:?}"));
        }
    }
    Ok(())
}

/// A call that began after another was answered has a higher revision.
///
/// # Errors
/// One has not.
pub fn versions_agree_with_real_time(calls: &[Call]) -> Result<(), Violation> {
    let done = || calls.iter().filter_map(|call| Some((call, revision(call)?)));
    let mut by_call: Vec<(&Call, u64)> = done().collect();
    by_call.sort_by_key(|(call, _)| call.called);
    let mut by_return: Vec<(Duration, &Call, u64)> = done()
        .filter_map(|(call, revision)| Some((call.returned?, call, revision)))
        .collect();
    by_return.sort_by_key(|(returned, _, _)| *returned);
    let mut answered = by_return.into_iter().peekable();
    let mut highest: Option<(&Call, u64)> = None;
    for (call, version) in by_call {
        while let Some((_, earlier, revision)) = answered.next_if(|(returned, _, _)| *returned < call.called) {
            if highest.is_none_or(|(_, known)| revision > known) {
                highest = Some((earlier, revision));
            }
        }
        if let Some((earlier, _)) = highest.filter(|(_, known)| *known >= version) {
            return violation("revisions agree with real time", format!("{earlier:?} before {call:?}"));
        }
    }
    Ok(())
}

/// Changes come in the order of their revisions, none of them twice.
///
/// # Errors
/// One does not.
pub fn events_are_ordered_and_unique(events: &[Event]) -> Result<(), Violation> {
    let mut seen = BTreeSet::new();
    let mut last = 0;
    for event in events {
        if event.revision < last {
            return violation("changes are ordered", format!("{event:?} after revision {last}"));
        }
        last = event.revision;
        if !seen.insert((event.revision, &event.key)) {
            return violation("changes are unique", format!("{event:?}"));
        }
    }
    Ok(())
}

/// Each change fits what was there before: the version before, the token of a key that exists, a higher token for
/// one that is created anew.
///
/// # Errors
/// One does not.
pub fn events_follow_from_each_other(events: &[Event]) -> Result<(), Violation> {
    let mut state = State::new();
    let mut tokens: BTreeMap<&str, u64> = BTreeMap::new();
    for event in events {
        let before = state.get(&event.key);
        if before.map(|held| held.version) != event.previous_version {
            return violation("the version before is right", format!("{event:?} after {before:?}"));
        }
        match &event.kind {
            EventKind::Put { version, created, .. } => {
                let token = tokens.insert(&event.key, *created);
                let fits = match (before, token) {
                    (Some(held), _) => held.created == *created,
                    (None, Some(token)) => token < *created && created == version,
                    (None, None) => created == version,
                };
                if !fits || *version != event.revision {
                    return violation("tokens rise and stay", format!("{event:?} after {before:?}"));
                }
            }
            EventKind::Removed { .. } if before.is_none() => {
                return violation("only what is there is removed", format!("{event:?}"));
            }
            EventKind::Removed { .. } => {}
        }
        apply(&mut state, event);
    }
    Ok(())
}

/// What a client was told to be done is among the changes, as it was told.
///
/// # Errors
/// Something is missing.
pub fn what_was_acknowledged_happened(calls: &[Call], events: &[Event]) -> Result<(), Violation> {
    let told: BTreeMap<(u64, &str), &Event> = events
        .iter()
        .map(|event| ((event.revision, event.key.as_str()), event))
        .collect();
    for call in calls {
        let Some(revision) = revision(call) else { continue };
        let event = told.get(&(revision, call.operation.key())).copied();
        let fits = match (&call.operation, &call.told, event.map(|event| &event.kind)) {
            (
                Operation::Put { value: asked, .. },
                Told::Written { version, created },
                Some(EventKind::Put {
                    value,
                    version: event_version,
                    created: event_created,
                }),
            ) => (asked, version, created) == (value, event_version, event_created),
            (Operation::Delete { .. }, Told::Deleted { .. }, Some(EventKind::Removed { .. })) => true,
            _ => false,
        };
        if !fits {
            return violation("what was acknowledged happened", format!("{call:?}, told {event:?}"));
        }
    }
    Ok(())
}

/// Every write among the changes was asked for once, and nobody was told that it did not happen.
///
/// # Errors
/// One was not, or somebody was.
pub fn what_happened_was_asked_for(calls: &[Call], events: &[Event]) -> Result<(), Violation> {
    let asked: BTreeMap<&str, &Call> = calls
        .iter()
        .filter_map(|call| match &call.operation {
            Operation::Put { value, .. } => Some((value.as_str(), call)),
            Operation::Delete { .. } | Operation::Get { .. } => None,
        })
        .collect();
    let mut written = BTreeSet::new();
    for event in events {
        let EventKind::Put { value, version, .. } = &event.kind else {
            continue;
        };
        if !written.insert(value) {
            return violation("no write happens twice", format!("{event:?}"));
        }
        let call = asked.get(value.as_str()).copied();
        let fits = match call.map(|call| (call.operation.key(), &call.told)) {
            Some((key, Told::Written { version: told, .. })) => key == event.key && told == version,
            Some((key, Told::Unknown)) => key == event.key,
            _ => false,
        };
        if !fits {
            return violation("what happened was asked for", format!("{event:?}, by {call:?}"));
        }
    }
    Ok(())
}

/// What had to hold for a write that was done did hold. So of all who name one version at most one succeeds.
///
/// # Errors
/// It did not.
pub fn guards_held(calls: &[Call], events: &[Event]) -> Result<(), Violation> {
    let mut state = State::new();
    let by_revision: BTreeMap<u64, &Call> = calls.iter().filter_map(|call| Some((revision(call)?, call))).collect();
    for event in events {
        let before = state.get(&event.key);
        if let Some(call) = by_revision
            .get(&event.revision)
            .filter(|call| call.operation.key() == event.key)
        {
            let held = match call.operation.guard() {
                Guarded::Nothing => true,
                Guarded::Absent => before.is_none(),
                Guarded::Version(version) => before.is_some_and(|held| held.version == version),
                Guarded::Created(created) => before.is_some_and(|held| held.created == created),
            };
            if !held {
                return violation("the guard of a write held", format!("{call:?} after {before:?}"));
            }
        }
        apply(&mut state, event);
    }
    Ok(())
}

/// A refusal names a version that the key once had, and not the one that would have let the write through.
///
/// # Errors
/// One does not.
pub fn refusals_name_what_was_there(calls: &[Call], events: &[Event]) -> Result<(), Violation> {
    let versions: BTreeSet<(&str, u64)> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Put { version, .. } => Some((event.key.as_str(), version)),
            EventKind::Removed { .. } => None,
        })
        .collect();
    for call in calls {
        let Told::Refused { version } = call.told else {
            continue;
        };
        let fits = match (call.operation.guard(), version) {
            (Guarded::Nothing, _) | (Guarded::Absent, None) => false,
            (Guarded::Version(asked), Some(actual)) if asked == actual => false,
            (_, Some(actual)) => versions.contains(&(call.operation.key(), actual)),
            (_, None) => true,
        };
        if !fits {
            return violation("a refusal names what was there", format!("{call:?}"));
        }
    }
    Ok(())
}

/// The changes up to a revision, one after another, give the state that was read there.
///
/// # Errors
/// They give another.
pub fn changes_add_up(events: &[Event], state: &State, revision: u64) -> Result<(), Violation> {
    let until = events.partition_point(|event| event.revision <= revision);
    let replayed = replay(&State::new(), &events[..until]);
    for key in replayed.keys().chain(state.keys()) {
        let (told, read) = (replayed.get(key), state.get(key));
        if told != read {
            return violation(
                "the changes add up to the state",
                format!("{key}: told {told:?}, read {read:?}"),
            );
        }
    }
    Ok(())
}

/// Two watches of the same keys told the same from the revision at which the later one began.
///
/// # Errors
/// They did not.
pub fn watches_agree(one: &[Event], other: &[Event], from: u64, to: u64) -> Result<(), Violation> {
    let part = |events: &[Event]| -> Vec<Event> {
        let inside = events.iter().filter(|event| (from..=to).contains(&event.revision));
        inside.cloned().collect()
    };
    let (one, other) = (part(one), part(other));
    let difference = one.iter().zip(&other).position(|(left, right)| left != right);
    if let Some(at) = difference {
        let around = at.saturating_sub(2)..at + 3;
        let part = |events: &[Event]| format!("{:?}", &events[around.start..around.end.min(events.len())]);
        return violation("watches agree", format!("{} and {}", part(&one), part(&other)));
    }
    if one.len() != other.len() {
        let longer = if one.len() > other.len() { &one } else { &other };
        let missing = &longer[one.len().min(other.len())];
        return violation(
            "watches agree",
            format!("one told {missing:?} and the other nothing more"),
        );
    }
    Ok(())
}

/// The state after these changes.
pub fn replay(state: &State, events: &[Event]) -> State {
    let mut state = state.clone();
    for event in events {
        apply(&mut state, event);
    }
    state
}

fn apply(state: &mut State, event: &Event) {
    match &event.kind {
        EventKind::Put {
            value,
            version,
            created,
        } => {
            let held = Held {
                value: value.clone(),
                version: *version,
                created: *created,
            };
            state.insert(event.key.clone(), held);
        }
        EventKind::Removed { .. } => {
            state.remove(&event.key);
        }
    }
}

/// The revision that a call consumed, if it was told one.
fn revision(call: &Call) -> Option<u64> {
    match call.told {
        Told::Written { version, .. } => Some(version),
        Told::Deleted { removed } => removed.map(|(revision, _)| revision),
        Told::Read { .. } | Told::Refused { .. } | Told::NotApplied | Told::Unknown => None,
    }
}

fn violation<T>(rule: &'static str, what: String) -> Result<T, Violation> {
    Err(Violation { rule, what })
}

#[cfg(test)]
mod tests;
