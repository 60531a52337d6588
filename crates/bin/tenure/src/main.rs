//! The one binary: it serves, and it talks to a cluster.
//!
//! Answers go to standard output and everything else to standard error. The exit status tells a script what became of
//! its call: see [`exit`].

mod args;
mod cache;
mod cluster;
mod connect;
mod duration;
mod exit;
mod logs;
mod output;
mod session;
#[cfg(feature = "server")]
mod start;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use args::{Arguments, Command};
use exit::Failure;
use output::{Format, Output};

fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    let arguments = match Arguments::try_parse_from(&given) {
        Ok(arguments) => arguments,
        Err(error) => return not_parsed(&error, &given),
    };
    let format = arguments.global.output;
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => exit::report(&failure, format),
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { global, command } = arguments;
    let mut output = Output::new(global.output);
    match command {
        #[cfg(feature = "server")]
        Command::Dev(arguments) => start::dev(&arguments, &mut output),
        #[cfg(feature = "server")]
        Command::Start(arguments) => start::start(&arguments, &mut output),
        Command::Completions { shell } => {
            // The generator panics if it cannot write, so it writes where that cannot happen.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "tenure", &mut script);
            output.raw(&script)
        }
        Command::Cache(command) => connect::run(&global, async |client| cache::run(command, client, &mut output).await),
        Command::Session(command) => {
            connect::run(&global, async |client| session::run(command, client, &mut output).await)
        }
        Command::Tenant(command) => connect::run(&global, async |client| {
            cluster::tenant(&command, &client, &mut output).await
        }),
        Command::Namespace(command) => connect::run(&global, async |client| {
            cluster::namespace(&command, global.tenant.as_deref(), &client, &mut output).await
        }),
        Command::Cluster(command) => connect::run(&global, async |client| {
            cluster::cluster(&command, &client, &mut output).await
        }),
    }
}

/// Help and version, or what is wrong with the arguments.
fn not_parsed(error: &clap::Error, given: &[OsString]) -> ExitCode {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Who asked for help and closed the pipe has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = std::io::stderr().write_all(text.as_bytes());
            ExitCode::from(exit::USAGE)
        }
        _ => {
            let what = text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned();
            exit::report(&Failure::Arguments { what }, Format::wanted_by(given))
        }
    }
}
