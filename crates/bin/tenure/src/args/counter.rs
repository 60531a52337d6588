//! The arguments of what deals with counters.

use clap::Subcommand;

use super::cache::Target;

/// The commands of `tenure counter`.
#[derive(Debug, Subcommand)]
pub(crate) enum CounterCommand {
    /// Add to a counter and print the sum; one that does not exist counts as 0, and only a `txn` keeps it within bounds
    Add {
        #[command(flatten)]
        target: Target,
        /// What is added; may be negative
        #[arg(allow_negative_numbers = true)]
        delta: i64,
        /// How long it lives if it is created by this; one that exists keeps its own TTL
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        ttl_ms: Option<u64>,
    },
    /// Print what a counter holds; 0 if it does not exist
    Get {
        #[command(flatten)]
        target: Target,
    },
}
