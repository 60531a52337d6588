//! The crate seen from outside.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on may panic like the test"
)]

mod decoders;
mod feed_contract;
mod inspect;
mod layout;
mod log_contract;
mod log_crash;
mod log_damage;
mod log_failure;
mod log_model;
mod log_segments;
mod log_support;
mod log_thread;
#[expect(unreachable_pub, reason = "the harness exports it, and this crate only includes it")]
#[path = "../../../../dev/tenure-testkit/src/mutations.rs"]
mod mutations;
mod state_concurrent;
mod state_contract;
mod state_damage;
mod state_faults;
mod state_harness;
mod state_kill;
mod state_reclaim;
