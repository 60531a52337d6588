//! What the engine's keyspaces are called, and so which of them belong to whom.

use std::fmt;

use tenure_core::ids::GroupId;

const ROWS_PREFIX: &str = "group-";
const FEED_PREFIX: &str = "feed-";

/// What a keyspace holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// The rows of one life of a group, but for the segments of its change feed.
    Rows { group: GroupId, life: u64 },
    /// The segments of the change feed of one life of a group. Of several the one with the highest number counts.
    Feed { group: GroupId, life: u64, number: u64 },
}

impl Holds {
    /// What a keyspace of this name holds; `None` if it belongs to no group.
    pub(crate) fn parse(name: &str) -> Option<Holds> {
        if let Some(numbers) = name.strip_prefix(ROWS_PREFIX) {
            let (group, life) = numbers.split_once('-')?;
            return Some(Holds::Rows {
                group: GroupId(group.parse().ok()?),
                life: life.parse().ok()?,
            });
        }
        let (group, rest) = name.strip_prefix(FEED_PREFIX)?.split_once('-')?;
        let (life, number) = rest.split_once('-')?;
        Some(Holds::Feed {
            group: GroupId(group.parse().ok()?),
            life: life.parse().ok()?,
            number: number.parse().ok()?,
        })
    }

    /// The highest number in the name. Numbers of lives and of feeds come from one counter and are never used again.
    pub(crate) fn number(self) -> u64 {
        match self {
            Holds::Rows { life, .. } => life,
            Holds::Feed { life, number, .. } => life.max(number),
        }
    }
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holds::Rows { group, life } => write!(f, "{ROWS_PREFIX}{}-{life}", group.0),
            Holds::Feed { group, life, number } => write!(f, "{FEED_PREFIX}{}-{life}-{number}", group.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written_and_other_names_are_nobodys() {
        let group = GroupId(7);
        for holds in [
            Holds::Rows { group, life: 3 },
            Holds::Feed {
                group,
                life: 3,
                number: 12,
            },
        ] {
            assert_eq!(Holds::parse(&holds.to_string()), Some(holds));
        }
        for other in ["groups", "group-7", "group-x-3", "feed-7-3", "feed-7-3-", ""] {
            assert_eq!(Holds::parse(other), None, "{other:?}");
        }
    }
}
