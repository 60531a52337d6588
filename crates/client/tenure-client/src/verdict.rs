//! Done or refused: the two normal answers to a mutation.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use tenure_api::ErrorCode;
use tenure_api::v1::{self, CacheInfo, refusal};

use crate::error::Error;

/// The answer to a mutation that may be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a refusal is a normal answer: look at it, or turn it into an error by `done()?`"]
pub enum Verdict<T> {
    /// It was done.
    Done(T),
    /// Nothing changed.
    Refused(Refusal),
}

impl<T> Verdict<T> {
    /// What was done; a refusal becomes an error.
    ///
    /// # Errors
    /// [`Error::Refused`]: nothing changed.
    pub fn done(self) -> Result<T, Error> {
        match self {
            Verdict::Done(done) => Ok(done),
            Verdict::Refused(refusal) => Err(Error::Refused(Box::new(refusal))),
        }
    }

    /// Whether it was done.
    pub fn is_done(&self) -> bool {
        matches!(self, Verdict::Done(_))
    }

    /// What stood in the way, if it was refused.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Verdict::Done(_) => None,
            Verdict::Refused(refusal) => Some(refusal),
        }
    }

    /// The same verdict about something else.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Verdict<U> {
        match self {
            Verdict::Done(done) => Verdict::Done(change(done)),
            Verdict::Refused(refusal) => Verdict::Refused(refusal),
        }
    }
}

/// What stood in the way of a mutation. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A guard did not hold.
    ConditionFailed {
        /// The key that stood in the way; `None`: there is no such key.
        key: Option<KeyFacts>,
    },
    /// An object of this name exists with other settings.
    ExistsOtherwise {
        /// What it has.
        cache: Option<CacheInfo>,
    },
    /// A verdict that this program does not know: nothing changed.
    Other {
        /// Its code.
        code: String,
    },
}

impl Refusal {
    /// The code from the table of errors.
    pub fn code(&self) -> ErrorCode {
        match self {
            Refusal::ConditionFailed { .. } => ErrorCode::ConditionFailed,
            Refusal::ExistsOtherwise { .. } => ErrorCode::ExistsOtherwise,
            Refusal::Other { code } => ErrorCode::from_name(code).unwrap_or(ErrorCode::ConditionFailed),
        }
    }

    /// The key that stood in the way, if one did.
    pub fn key(&self) -> Option<&KeyFacts> {
        match self {
            Refusal::ConditionFailed { key } => key.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn from_wire(refusal: v1::Refusal) -> Refusal {
        match refusal.detail {
            Some(refusal::Detail::ConditionFailed(failed)) => Refusal::ConditionFailed {
                key: failed.key.map(KeyFacts::from_wire),
            },
            Some(refusal::Detail::ExistsOtherwise(exists)) => Refusal::ExistsOtherwise { cache: exists.cache },
            None if refusal.code == ErrorCode::ConditionFailed.name() => Refusal::ConditionFailed { key: None },
            None => Refusal::Other { code: refusal.code },
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::ConditionFailed { key: Some(key) } => key.fmt(f),
            Refusal::ConditionFailed { key: None } => f.write_str("no such key"),
            Refusal::ExistsOtherwise { cache: Some(cache) } => write!(
                f,
                "{} exists with {} {}, replication {}, consistency {}",
                cache.name,
                cache.shards,
                if cache.shards == 1 { "shard" } else { "shards" },
                cache.replication,
                match cache.consistency() {
                    v1::Consistency::Leader => "leader",
                    v1::Consistency::Quorum | v1::Consistency::Unspecified => "quorum",
                }
            ),
            Refusal::ExistsOtherwise { cache: None } => f.write_str("it exists with other settings"),
            Refusal::Other { code } => f.write_str(code),
        }
    }
}

/// The key that stood in the way of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFacts {
    /// Revision of its last write.
    pub version: u64,
    /// Revision of its creation, its fencing token.
    pub created: u64,
    /// The session that holds it; `None`: nobody.
    pub holder: Option<u64>,
    /// How long it lives if nobody renews it, as of this answer: a refusal that the server remembered says it anew.
    /// `None`: without end.
    pub remaining: Option<Duration>,
    /// Its value, if that is at most 4,096 bytes.
    pub value: Option<Bytes>,
    /// Bytes of its value.
    pub value_len: u64,
}

impl KeyFacts {
    fn from_wire(facts: v1::KeyFacts) -> KeyFacts {
        KeyFacts {
            version: facts.version,
            created: facts.created,
            holder: facts.holder,
            remaining: facts.remaining_us.map(Duration::from_micros),
            value: facts.value,
            value_len: facts.value_len,
        }
    }
}

impl fmt::Display for KeyFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}", self.version)?;
        if let Some(holder) = self.holder {
            write!(f, ", held by s-{holder}")?;
        }
        if let Some(remaining) = self.remaining {
            write!(f, ", {} ms left", remaining.as_millis())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
