//! The one binary: it serves, and it talks to a cluster.
//!
//! Answers go to standard output and everything else to standard error. The exit status tells a script what became of
//! its call: see [`exit`].

mod args;
#[cfg(feature = "server")]
mod backup;
mod bench;
mod cache;
mod cluster;
mod connect;
mod counter;
#[cfg(feature = "server")]
mod demo;
mod duration;
mod exit;
#[cfg(feature = "server")]
mod floor;
mod input;
#[cfg(feature = "server")]
mod inspect;
mod logs;
mod output;
#[cfg(feature = "server")]
mod recover;
#[cfg(feature = "server")]
mod restore;
#[cfg(feature = "server")]
mod scratch;
mod session;
mod signals;
#[cfg(feature = "server")]
mod start;
mod stream;
mod txn;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use args::{Arguments, Command};
use exit::Failure;
use output::{Format, Output};

/// See the decision on the allocator: `docs/adr/0005-allocator.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
        #[cfg(feature = "server")]
        Command::Demo => demo::run(&mut output),
        #[cfg(feature = "server")]
        Command::DemoPart(part) => demo::part(part),
        #[cfg(feature = "server")]
        Command::Inspect(arguments) => inspect::run(&arguments, &mut output),
        #[cfg(feature = "server")]
        Command::Backup(arguments) => connect::run(&global, async |client| {
            backup::run(&arguments, &global, &client, &mut output).await
        }),
        #[cfg(feature = "server")]
        Command::Restore(arguments) => restore::run(&arguments, &mut output),
        #[cfg(feature = "server")]
        Command::Recover(arguments) => recover::run(&arguments, &mut output),
        Command::KeptPart { keeper, command } => session::become_kept(keeper, &command),
        Command::Bench(arguments) => bench::run(&global, &arguments, &mut output),
        Command::Completions { shell } => {
            // The generator panics if it cannot write, so it writes where that cannot happen.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "tenure", &mut script);
            output.raw(&script)
        }
        Command::Cache(command) => connect::run(&global, async |client| cache::run(command, client, &mut output).await),
        Command::Counter(command) => {
            connect::run(&global, async |client| counter::run(command, client, &mut output).await)
        }
        Command::Stream(command) => {
            connect::run(&global, async |client| stream::run(command, client, &mut output).await)
        }
        Command::Txn => connect::run(&global, async |client| txn::run(&client, &mut output).await),
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
            cluster::cluster(&command, &global, &client, &mut output).await
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
        ErrorKind::MissingSubcommand => wrong_arguments("a command is missing", given),
        _ => wrong_arguments(&what_is_wrong(&text), given),
    }
}

fn wrong_arguments(what: &str, given: &[OsString]) -> ExitCode {
    let failure = Failure::settings(what, format!("see `{} --help`", command_of(given)));
    exit::report(&failure, Format::wanted_by(given))
}

/// What the parser says is wrong, on one line. The usage that it shows besides counts options that the environment
/// sets, and `--help` shows it better.
fn what_is_wrong(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let said = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let said: Vec<&str> = said.filter(|line| !line.is_empty()).collect();
    said.join(" ").replace(" tip: ", "; ")
}

/// The command that was meant, as far as it exists.
fn command_of(given: &[OsString]) -> String {
    let mut command = Arguments::command();
    let mut words = command.get_name().to_owned();
    for word in given.iter().skip(1).take_while(|word| *word != "--") {
        let Some(found) = word.to_str().and_then(|word| command.find_subcommand(word)) else {
            continue;
        };
        let found = found.clone();
        words = format!("{words} {}", found.get_name());
        command = found;
    }
    words
}
