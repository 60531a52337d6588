//! The arguments of what deals with caches and keys. Keys and values are bytes, so they need not be UTF-8.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use tenure_client::Consistency;

/// The commands of `tenure cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Create a cache; one that exists with the same settings is fine
    Create(Create),
    /// List the caches of the namespace
    Ls,
    /// Show the settings of a cache
    Info {
        /// The cache
        name: String,
    },
    /// Delete a cache with all its keys
    Rm {
        /// The cache
        name: String,
        /// Yes, delete every key
        #[arg(long)]
        yes: bool,
    },
    /// Write a key and print `version V`
    Put(Put),
    /// Renew the TTL of a key: no new version, no event
    Touch(Touch),
    /// Print the value of a key, and a newline
    Get {
        #[command(flatten)]
        target: Target,
        /// Print value, version, created and TTL left in milliseconds, separated by tabs
        #[arg(long)]
        with_meta: bool,
    },
    /// Delete a key, or every key with a prefix; deleting what is not there is done, too
    Delete(Delete),
    /// List the keys of a cache in order of their bytes
    LsKeys(LsKeys),
    /// Print every change as it happens, beginning with the next one
    Watch(Watch),
}

/// Which key.
#[derive(Args, Debug)]
pub(crate) struct Target {
    /// The cache
    pub(crate) cache: String,
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
}

/// The arguments of `tenure cache create`.
#[derive(Args, Debug)]
pub(crate) struct Create {
    /// The cache: 1 to 128 of a-z A-Z 0-9 . _ -
    pub(crate) name: String,
    /// How many groups its keys are spread over; this version knows 1 only
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<u32>,
    /// How many copies are wished for; with fewer nodes there are fewer
    #[arg(long, value_name = "N")]
    pub(crate) replication: Option<u32>,
    /// When its writes are acknowledged; this version knows `quorum` only
    #[arg(long, value_name = "LEVEL")]
    pub(crate) consistency: Option<ConsistencyLevel>,
}

/// How the writes of a cache are made safe.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ConsistencyLevel {
    // Acknowledged once a majority has it on disk.
    Quorum,
    // Acknowledged once the leader has it.
    Leader,
}

impl From<ConsistencyLevel> for Consistency {
    fn from(level: ConsistencyLevel) -> Consistency {
        match level {
            ConsistencyLevel::Quorum => Consistency::Quorum,
            ConsistencyLevel::Leader => Consistency::Leader,
        }
    }
}

/// The arguments of `tenure cache put`.
#[derive(Args, Debug)]
pub(crate) struct Put {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The value; from --file or else from standard input if it is left out
    #[arg(allow_negative_numbers = true, conflicts_with = "file")]
    pub(crate) value: Option<OsString>,
    /// How long the key lives; without end if it is left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ttl_ms: Option<u64>,
    #[command(flatten)]
    pub(crate) condition: Condition,
    /// The session that owns the key from now on, with which it goes; nobody if it is left out
    #[arg(long, value_name = "ID:SECRET")]
    pub(crate) session: Option<String>,
    /// Take the value from a file
    #[arg(long, value_name = "F")]
    pub(crate) file: Option<PathBuf>,
}

/// What must hold for a write; at most one.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct Condition {
    /// Only if the key does not exist
    #[arg(long)]
    pub(crate) if_absent: bool,
    /// Only if the key exists
    #[arg(long)]
    pub(crate) if_present: bool,
    /// Only if its last write had this version
    #[arg(long, value_name = "V")]
    pub(crate) if_version: Option<u64>,
    /// Only if it has this value
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) if_value: Option<OsString>,
    /// Only if it is still held under this token, the `created` of its claim
    #[arg(long, value_name = "TOKEN")]
    pub(crate) if_created: Option<u64>,
}

/// The arguments of `tenure cache touch`.
#[derive(Args, Debug)]
pub(crate) struct Touch {
    #[command(flatten)]
    pub(crate) target: Target,
    /// How long the key lives from now on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ttl_ms: u64,
    /// Only if its last write had this version
    #[arg(long, value_name = "V", conflicts_with = "if_created")]
    pub(crate) if_version: Option<u64>,
    /// Only if it is still held under this token, the `created` of its claim
    #[arg(long, value_name = "TOKEN")]
    pub(crate) if_created: Option<u64>,
}

/// The arguments of `tenure cache delete`.
#[derive(Args, Debug)]
pub(crate) struct Delete {
    /// The cache
    pub(crate) cache: String,
    /// The key
    #[arg(allow_negative_numbers = true, required_unless_present = "prefix")]
    pub(crate) key: Option<OsString>,
    /// Only if its last write had this version
    #[arg(long, value_name = "V", conflicts_with = "if_created")]
    pub(crate) if_version: Option<u64>,
    /// Only if it is still held under this token, the `created` of its claim
    #[arg(long, value_name = "TOKEN")]
    pub(crate) if_created: Option<u64>,
    /// Delete every key that begins with this, some thousands in one step; an empty one means all
    #[arg(
        long,
        value_name = "P",
        allow_hyphen_values = true,
        conflicts_with_all = ["key", "if_version", "if_created"]
    )]
    pub(crate) prefix: Option<OsString>,
    /// Yes, delete all of them
    #[arg(long)]
    pub(crate) yes: bool,
}

/// The arguments of `tenure cache ls-keys`.
#[derive(Args, Debug)]
pub(crate) struct LsKeys {
    /// The cache
    pub(crate) cache: String,
    /// Only keys that begin with this
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub(crate) prefix: Option<OsString>,
    /// At most so many keys
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

/// The arguments of `tenure cache watch`.
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// The cache
    pub(crate) cache: String,
    /// Only this key
    #[arg(long, value_name = "K", allow_hyphen_values = true, conflicts_with = "prefix")]
    pub(crate) key: Option<OsString>,
    /// Only keys that begin with this
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub(crate) prefix: Option<OsString>,
    /// Begin with the changes of this revision; one that is still to come is waited for in silence
    #[arg(long, value_name = "REV", conflicts_with = "with_state")]
    pub(crate) from: Option<u64>,
    /// Print what is there first
    #[arg(long)]
    pub(crate) with_state: bool,
    /// End after so many lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}
