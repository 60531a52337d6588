//! The arguments of what deals with sessions.
//!
//! A session's secret is taken as text and read by the command, so that no message about wrong arguments repeats it.

use std::ffi::OsString;
use std::time::Duration;

use clap::Subcommand;

use crate::duration;

/// The commands of `tenure session`.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Open a session and print `session ID:SECRET`; nobody renews it
    Open {
        /// How long it lives after each renewal, from 500ms to 24h
        #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
        ttl: Duration,
        /// What is shown wherever the session holds something
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
    },
    /// Renew a session once
    Renew {
        /// The session with its secret
        #[arg(value_name = "ID:SECRET", env = "TENURE_SESSION", hide_env_values = true)]
        session: String,
    },
    /// Renew a session while a command runs, and exit as that does; stop the command if the session is lost, with exit 4
    Keep {
        /// The session with its secret
        #[arg(value_name = "ID:SECRET", env = "TENURE_SESSION", hide_env_values = true)]
        session: String,
        /// The command with its arguments, behind --
        #[arg(value_name = "COMMAND", last = true, required = true)]
        command: Vec<OsString>,
    },
    /// End a session and remove what it owns
    Close {
        /// The session with its secret, or its id alone with --force
        #[arg(value_name = "ID:SECRET", env = "TENURE_SESSION", hide_env_values = true)]
        session: String,
        /// End it without its secret
        #[arg(long, requires = "yes")]
        force: bool,
        /// Yes, it may belong to somebody
        #[arg(long)]
        yes: bool,
    },
    /// Show a session and what it owns
    Show {
        /// The session by its id; what stands behind a colon is not looked at
        #[arg(value_name = "ID", env = "TENURE_SESSION", hide_env_values = true)]
        id: String,
    },
    /// List the sessions of the namespace that are open
    Ls {
        /// Those too that have ended and are still remembered
        #[arg(long)]
        all: bool,
    },
}
