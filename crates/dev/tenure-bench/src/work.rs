//! What is measured.

use std::fmt;
use std::str::FromStr;

/// What each worker does over and over. The names are those of the command line and of the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Claims a key of its own that does not exist, with a TTL, and releases it again if it is still its own. The two
    /// commits count as one operation, and its latency is that of both.
    Claim,
    /// Claims a new key each time and leaves it to its TTL. One commit.
    Unique,
    /// Renews the TTL of a key that it holds, if it is still its own. One commit.
    Renew,
    /// Reads a key: the newest value there is, not a copy that may be old.
    Get,
    /// Appends one record to a stream that all workers share. One commit.
    Publish,
    /// Writes a key that is watched. The latency is the delay from the write's answer to the event, zero if the event
    /// came first.
    Watch,
    /// Claims a key with a short TTL and leaves it. The latency is the delay from the end of the TTL, counted from
    /// the sending of the claim, to the event that says so: what the claim itself took is in it.
    Lateness,
    /// Asks for something that touches no data: what a round trip costs.
    Echo,
}

/// A name that is no work's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no work {name:?}: choose of {}", names())]
pub struct UnknownWork {
    /// The name.
    pub name: String,
}

impl Work {
    /// All of it, in the order in which it is measured.
    pub const ALL: [Work; 8] = [
        Work::Claim,
        Work::Unique,
        Work::Renew,
        Work::Get,
        Work::Publish,
        Work::Watch,
        Work::Lateness,
        Work::Echo,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Work::Claim => "claim",
            Work::Unique => "unique",
            Work::Renew => "renew",
            Work::Get => "get",
            Work::Publish => "publish",
            Work::Watch => "watch",
            Work::Lateness => "lateness",
            Work::Echo => "echo",
        }
    }

    /// Whether its events are watched.
    pub(crate) fn is_watched(self) -> bool {
        matches!(self, Work::Watch | Work::Lateness)
    }
}

impl fmt::Display for Work {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Work {
    type Err = UnknownWork;

    fn from_str(name: &str) -> Result<Work, UnknownWork> {
        let found = Work::ALL.into_iter().find(|work| work.name() == name);
        found.ok_or_else(|| UnknownWork { name: name.to_owned() })
    }
}

fn names() -> String {
    Work::ALL.map(Work::name).join(", ")
}
