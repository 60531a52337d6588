//! The real binary: every command with its whole output, every exit status, starting and stopping.
//!
//! The binary is found by `TENURE_BIN`, else it is the one that was built beside these tests.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on may panic like the test"
)]

mod binary;
mod felix;
mod process_backup;
mod process_bench;
mod process_commands;
mod process_demo;
mod process_help;
mod process_inspect;
mod process_keep;
mod process_members;
mod process_recover;
mod process_serving;
mod process_status;
mod process_streams;
mod process_watch;
mod readme;
mod transcript;
