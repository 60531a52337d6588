//! Why a task stopped, and the exit code that says so.

use std::fmt;

/// Why a task stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong; nothing was run.
    Usage(String),
    /// A check found something, or a needed tool or file is missing. Later steps were not run.
    Failed(String),
    /// As `Failed`, and the message was printed already, so that something else can be the last line.
    Told,
}

impl Failure {
    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) | Failure::Told => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Failed(message) => formatter.write_str(message),
            Failure::Told => formatter.write_str("failed, as told above"),
        }
    }
}
