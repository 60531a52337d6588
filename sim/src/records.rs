//! What was promised of streams: which records are there, where, and when a message may be new again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For how long the stream of the simulation knows message ids, in the cluster's time.
pub(crate) const WINDOW: Duration = Duration::from_secs(6);

/// What was told of the records of one stream. Each record's data is appended by one call only, but for messages.
pub(crate) struct Records {
    /// The shortest time in which a window passes: the cluster's time goes as the leader's clock does.
    window_min: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    told: BTreeMap<String, Fate>,
    messages: BTreeMap<String, Message>,
}

/// What is known of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is at this offset.
    At(u64),
    /// Nobody knows whether it is there.
    Unknown,
    /// It is not there and never will be.
    Refused,
}

/// The last append of a message that was known to be new.
#[derive(Clone, Copy, Debug)]
struct Message {
    offset: u64,
    /// When it was asked for, so that it was not accepted before.
    asked: Duration,
    /// Attempts of unknown outcome since: one of them may have been new after the window.
    unknown: bool,
}

impl Records {
    /// Nothing yet, of a stream whose window passes in no less time than this.
    pub(crate) fn new(window_min: Duration) -> Records {
        Records {
            window_min,
            inner: Mutex::default(),
        }
    }

    /// A record is at this offset.
    pub(crate) fn appended(&self, data: &str, offset: u64) {
        self.lock().told.insert(data.to_owned(), Fate::At(offset));
    }

    /// Nobody knows whether a record is there.
    pub(crate) fn unknown(&self, data: &str) {
        self.lock().told.entry(data.to_owned()).or_insert(Fate::Unknown);
    }

    /// A record was refused, and so is not there.
    pub(crate) fn refused(&self, data: &str) {
        self.lock().told.insert(data.to_owned(), Fate::Refused);
    }

    /// A message was sent at this time, with an outcome that nobody knows.
    pub(crate) fn message_unknown(&self, id: &str) {
        if let Some(message) = self.lock().messages.get_mut(id) {
            message.unknown = true;
        }
    }

    /// A message that was asked for at this time was answered: new, or known from before. Returns what is wrong with that.
    pub(crate) fn message(&self, id: &str, asked: Duration, now: Duration, offset: u64, new: bool) -> Option<String> {
        let mut inner = self.lock();
        let Some(message) = inner.messages.get_mut(id) else {
            let unknown = false;
            inner.messages.insert(id.to_owned(), Message { offset, asked, unknown });
            return None;
        };
        let before = *message;
        if new {
            *message = Message {
                offset,
                asked,
                unknown: false,
            };
            // The cluster's time is never ahead of the time that passes on the leader's clock.
            let early = now < before.asked + self.window_min;
            return early.then(|| format!("{id} was new at {offset} before its window was over, since {before:?}"));
        }
        if before.unknown {
            message.offset = offset;
            message.asked = message.asked.max(asked.saturating_sub(WINDOW));
            message.unknown = false;
            return None;
        }
        (offset != before.offset).then(|| format!("{id} is at {offset} and was accepted at {}", before.offset))
    }

    /// Compares what is in the stream in the end, from its first record to its tail, with what was told.
    pub(crate) fn settle(&self, kept: &[(u64, String)]) -> Vec<String> {
        let inner = self.lock();
        let mut violations = Vec::new();
        let mut places: BTreeMap<&str, u64> = BTreeMap::new();
        for ((offset, data), due) in kept.iter().zip(0..) {
            if *offset != due {
                violations.push(format!("record {offset} lies where {due} was due"));
            }
            if inner.messages.contains_key(data) {
                continue;
            }
            if let Some(earlier) = places.insert(data, *offset) {
                violations.push(format!("{data} is there twice, at {earlier} and {offset}"));
            }
            match inner.told.get(data) {
                Some(Fate::At(told)) if told == offset => {}
                Some(Fate::Unknown) => {}
                told => violations.push(format!("{data} is at {offset}, and what was told of it is {told:?}")),
            }
        }
        for (data, fate) in &inner.told {
            if matches!(fate, Fate::At(_)) && !places.contains_key(data.as_str()) {
                violations.push(format!("{data} was acknowledged and is gone"));
            }
        }
        violations
    }

    /// A line about all that was promised.
    pub(crate) fn summary(&self) -> String {
        let inner = self.lock();
        let count = |wanted: fn(&Fate) -> bool| inner.told.values().filter(|fate| wanted(fate)).count();
        format!(
            "{} records acknowledged, {} refused, {} of unknown outcome; {} messages",
            count(|fate| matches!(fate, Fate::At(_))),
            count(|fate| matches!(fate, Fate::Refused)),
            count(|fate| matches!(fate, Fate::Unknown)),
            inner.messages.len()
        )
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
