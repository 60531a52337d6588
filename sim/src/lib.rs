//! The simulation: the real node and the real client in one process, under one seed.
//!
//! Time, network, randomness, tasks and disk are simulated; everything else is the code that runs in production. One
//! seed fixes all that happens, so a failure is repeated by its number: `cargo run -- --seed N`.
//!
//! - [`run()`]: one run, from a seed to a report.
//! - `setup`: what determines a run.
//! - `plan`: what the seed decides beforehand: latencies, crashes, faults of the network.
//! - `cluster`: the machines: nodes that crash and come back, and clients.
//! - `workload`: what the clients do.
//! - `ledger`, `records`, `calls`: what each client was promised, checked while it runs and at its end.
//! - `leaders`: who leads, as the nodes say.
//! - `journal`: all that can be observed, as text.
//! - `clock`, `net`, `random`, `tasks`, `disk`: the simulated world.

#[cfg(not(tokio_unstable))]
compile_error!(
    "the simulation needs `--cfg tokio_unstable`: run cargo inside `sim/`, whose .cargo/config.toml sets it, and unset \
     RUSTFLAGS, which would replace it"
);

mod calls;
mod clock;
mod cluster;
mod disk;
#[cfg(test)]
mod failover_tests;
mod journal;
mod leaders;
mod ledger;
#[cfg(test)]
mod lost_reply_tests;
#[cfg(test)]
mod machine_tests;
mod net;
mod plan;
mod random;
mod records;
mod run;
mod setup;
mod tasks;
mod workload;

pub use run::{Report, run};
pub use setup::{Planted, Setup, Skew, Speed};
