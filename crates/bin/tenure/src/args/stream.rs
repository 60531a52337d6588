//! The arguments of what deals with streams. Records are bytes, so they need not be UTF-8.

use std::ffi::OsString;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};

use super::cache::ConsistencyLevel;

/// The commands of `tenure stream`.
#[derive(Debug, Subcommand)]
pub(crate) enum StreamCommand {
    /// Create a stream; one that exists with the same settings is fine
    Create(Create),
    /// List the streams of the namespace
    Ls,
    /// Show the settings of a stream, and where it begins and ends
    Info {
        /// The stream
        name: String,
    },
    /// Delete a stream with all its records
    Rm {
        /// The stream
        name: String,
        /// Yes, delete every record
        #[arg(long)]
        yes: bool,
    },
    /// Delete the records before an offset and print `first N`, the first that is left
    Trim {
        /// The stream
        name: String,
        /// The first offset that stays
        #[arg(long, value_name = "N")]
        before: u64,
    },
    /// Append records, all or none, and print their offsets
    Publish(Publish),
    /// Print records, each on a line, up to the end of the stream
    Read(Read),
}

/// The arguments of `tenure stream create`.
#[derive(Args, Debug)]
pub(crate) struct Create {
    /// The stream: 1 to 128 of a-z A-Z 0-9 . _ -
    pub(crate) name: String,
    /// How long records are kept; without end if it is left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) retention_secs: Option<u64>,
    /// How many bytes of records are kept; all if it is left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) retention_bytes: Option<u64>,
    /// Whether every publish must carry a fencing token
    #[arg(long, value_name = "MODE", default_value = "optional", value_enum)]
    pub(crate) fence: Fence,
    /// How long a --dedup-id is remembered; 0 takes none. Two minutes if it is left out
    #[arg(long, value_name = "N")]
    pub(crate) dedup_window_ms: Option<u64>,
    /// How many groups it is spread over; this version knows 1 only
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<u32>,
    /// How many copies are wished for; with fewer nodes there are fewer
    #[arg(long, value_name = "N")]
    pub(crate) replication: Option<u32>,
    /// When its writes are acknowledged; this version knows `quorum` only
    #[arg(long, value_name = "LEVEL")]
    pub(crate) consistency: Option<ConsistencyLevel>,
}

/// Whether appends need a token.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Fence {
    // An append without a token is not checked.
    Optional,
    // An append without a token is an error.
    Mandatory,
}

/// The arguments of `tenure stream publish`.
#[derive(Args, Debug)]
pub(crate) struct Publish {
    /// The stream
    pub(crate) stream: String,
    /// The records, which are one batch. Without any, each line of standard input is a record
    #[arg(value_name = "DATA", allow_negative_numbers = true)]
    pub(crate) data: Vec<OsString>,
    /// Only if the first record gets this offset; later batches of standard input must follow the first
    #[arg(long, value_name = "N")]
    pub(crate) if_offset: Option<u64>,
    /// The token of the writer: one lower than the highest that the stream has seen is refused
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) fence_token: Option<u64>,
    /// A name of this batch, for which the stream appends once: again it prints the offsets of the first time, and says so
    /// on standard error. Standard input must then fit into one batch
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub(crate) dedup_id: Option<OsString>,
    /// Append nothing and only raise the token of the stream, so that older writers are refused
    #[arg(long, requires = "fence_token", conflicts_with_all = ["data", "if_offset", "dedup_id"])]
    pub(crate) seal: bool,
}

/// The arguments of `tenure stream read`.
#[derive(Args, Debug)]
pub(crate) struct Read {
    /// The stream
    pub(crate) stream: String,
    /// Where to begin: earliest, latest or an offset; with --follow one that is still to come is waited for in silence
    #[arg(long, value_name = "FROM", default_value = "earliest")]
    pub(crate) from: From,
    /// Go on with what comes
    #[arg(long)]
    pub(crate) follow: bool,
    /// End after so many records
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Print the offset and a tab before each record
    #[arg(long)]
    pub(crate) with_offsets: bool,
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// With the oldest record that is kept.
    Earliest,
    /// Behind the last record.
    Latest,
    /// At this offset.
    Offset(u64),
}

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<From, String> {
        match text {
            "earliest" => Ok(From::Earliest),
            "latest" => Ok(From::Latest),
            offset => offset
                .parse()
                .map(From::Offset)
                .map_err(|_| "earliest, latest or the number of a record".to_owned()),
        }
    }
}
