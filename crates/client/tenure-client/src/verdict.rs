//! Done or refused: the two normal answers to a mutation.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use tenure_api::ErrorCode;
use tenure_api::v1::{self, CacheInfo, FenceMode, StreamInfo, refusal};

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
    /// A stream of this name exists with other settings.
    StreamExistsOtherwise {
        /// What it has.
        stream: StreamInfo,
    },
    /// The stream's tail is not the offset that was expected: somebody else has appended.
    WrongTail {
        /// The offset that the next record gets.
        tail: u64,
    },
    /// A writer with a higher fencing token has appended to the stream, or sealed it.
    StaleToken {
        /// The highest token that the stream has accepted.
        current: u64,
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
            Refusal::ExistsOtherwise { .. } | Refusal::StreamExistsOtherwise { .. } => ErrorCode::ExistsOtherwise,
            Refusal::WrongTail { .. } => ErrorCode::WrongTail,
            Refusal::StaleToken { .. } => ErrorCode::StaleToken,
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
            Some(refusal::Detail::ExistsOtherwise(exists)) => match exists.stream {
                Some(stream) => Refusal::StreamExistsOtherwise { stream },
                None => Refusal::ExistsOtherwise { cache: exists.cache },
            },
            Some(refusal::Detail::WrongTail(tail)) => Refusal::WrongTail { tail },
            Some(refusal::Detail::StaleToken(current)) => Refusal::StaleToken { current },
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
                consistency_name(cache.consistency()),
            ),
            Refusal::StreamExistsOtherwise { stream } => write_stream(f, stream),
            Refusal::ExistsOtherwise { cache: None } => f.write_str("it exists with other settings"),
            Refusal::WrongTail { tail } => write!(f, "the tail is {tail}"),
            Refusal::StaleToken { current } => write!(f, "the stream has accepted the fencing token {current}"),
            Refusal::Other { code } => f.write_str(code),
        }
    }
}

fn consistency_name(consistency: v1::Consistency) -> &'static str {
    match consistency {
        v1::Consistency::Leader => "leader",
        v1::Consistency::Quorum | v1::Consistency::Unspecified => "quorum",
    }
}

/// A stream with its settings, for people.
fn write_stream(f: &mut fmt::Formatter<'_>, stream: &StreamInfo) -> fmt::Result {
    let settings = stream.settings.unwrap_or_default();
    let fence = match settings.fence() {
        FenceMode::Mandatory => "mandatory",
        FenceMode::Optional | FenceMode::Unspecified => "optional",
    };
    write!(f, "{} exists with fence {fence}", stream.name)?;
    match settings.retention_ms {
        Some(time) => write!(f, ", retention {time} ms")?,
        None => f.write_str(", no end of retention")?,
    }
    match settings.retention_bytes {
        Some(bytes) => write!(f, ", {bytes} bytes")?,
        None => f.write_str(", all bytes")?,
    }
    if let Some(window) = settings.dedup_window_ms {
        write!(f, ", deduplication window {window} ms")?;
    }
    if let Some(copies) = settings.replication {
        write!(f, ", replication {copies}")?;
    }
    write!(f, ", consistency {}", consistency_name(settings.consistency()))
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
