//! The real binary: every command with its whole output, every exit status, starting and stopping.
//!
//! The binary is found by `TENURE_BIN`, else it is the one that was built beside these tests.

mod binary;
mod process_commands;
mod process_help;
mod process_serving;
mod process_watch;
mod transcript;
