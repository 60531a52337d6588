//! The arguments of what measures a cluster.

use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use tenure_bench::{WORKERS_MAX, Work};

/// What is measured if nothing is said.
const WORKS: [Work; 7] = [
    Work::Claim,
    Work::Unique,
    Work::Renew,
    Work::Get,
    Work::Publish,
    Work::Watch,
    Work::Lateness,
];
/// An hour.
const SECONDS_MAX: u64 = 3_600;

/// The arguments of `tenure bench`.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// What is measured, one after another: claim (with its release), unique, renew, get, publish, watch (from the answer
    /// to a write to its event; 0 where the event came first, as it mostly does), lateness (from the end of a TTL, counted
    /// from the sending of the claim, to the event that says so), echo; all but echo if nothing is said
    #[arg(value_name = "WORK")]
    works: Vec<Work>,
    /// Workers, each with one operation under way
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count())]
    pub(crate) workers: usize,
    /// Connections that the workers share
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count())]
    pub(crate) connections: usize,
    /// For how long each work is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
}

impl Bench {
    /// What is measured, in this order.
    pub(crate) fn works(&self) -> &[Work] {
        match self.works.as_slice() {
            [] => &WORKS,
            works => works,
        }
    }

    /// For how long each work is measured.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=WORKERS_MAX as u64)
}
