//! Measures Tenure, and beside it the peers, under the same work.
//!
//! A [`Work`] is what each worker does over and over. A [`Target`] is one connection to the system under measurement;
//! several workers share one. [`run`] lets workers loose for some seconds and gives a [`Report`]. The peers' clients
//! are behind the feature `peers`, so that the product's binary, which measures only itself, has none of them.
//!
//! The loop is closed: a worker asks again when it has its answer, so a slow system is asked less. Latencies are those
//! that workers saw, on the machine that the program runs on, which it shares with a server on the same machine.

pub mod failover;
pub mod floor;
mod histogram;
mod report;
mod run;
pub mod target;
mod work;

pub use histogram::Histogram;
pub use report::Report;
pub use run::{Settings, WORKERS_MAX, run};
pub use target::{Failure, Target, Watcher};
pub use work::{UnknownWork, Work};
