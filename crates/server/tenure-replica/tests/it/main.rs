//! One group on one node: in a world with virtual time and a disk in memory, and on the real one.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail the test, as the tests do")]

mod cluster;
mod expiry;
mod failure;
mod power_loss;
mod propose;
mod purge;
mod read;
#[cfg(feature = "deterministic")]
mod replay;
mod restart;
mod switches;
mod three_nodes;
mod time;
mod world;
