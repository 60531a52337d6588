//! The client against a node that lives in the test: what it says, and how it answers, is scripted frame by frame.
//! Time is virtual and the network is memory, so nothing here waits and nothing depends on luck.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers included")]

mod calls;
mod counters;
mod fake;
mod felix;
mod felix_program;
mod follows;
mod nodes;
mod objects;
mod sessions;
mod starved;
mod streams;
mod transactions;
mod watches;
mod world;
