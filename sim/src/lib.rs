//! The simulation: the real node and the real client in one process, under one seed.
//!
//! Time, network, randomness, tasks and disk are simulated; everything else is the code that runs in production. One
//! seed fixes all that happens, so a failure is repeated by its number: `cargo run -- --seed N`.
//!
//! - [`run`]: one run, from a seed to a report.
//! - `plan`: what the seed decides beforehand: latencies, crashes.
//! - `cluster`: the machines: a node that crashes and comes back, and clients.
//! - `workload`: what the clients do.
//! - `ledger`: what each client was promised, checked while it runs and at its end.
//! - `journal`: all that can be observed, as text.
//! - `clock`, `net`, `random`, `tasks`, `disk`: the simulated world.

#[cfg(not(tokio_unstable))]
compile_error!(
    "the simulation needs `--cfg tokio_unstable`: run cargo inside `sim/`, whose .cargo/config.toml sets it, and unset \
     RUSTFLAGS, which would replace it"
);

mod clock;
mod cluster;
mod disk;
mod journal;
mod ledger;
#[cfg(test)]
mod machine_tests;
mod net;
mod plan;
mod random;
mod records;
pub mod run;
mod tasks;
mod workload;

pub use run::{Planted, Report, run, run_with};
