//! Development tasks: `cargo xtask <command>`.
//!
//! Built before everything else, so it depends on almost nothing. Each command is one module; what a command prints
//! while it works goes to stderr. Exit codes: 0 passed, 1 failed, 2 wrong usage.

mod audit;
mod bench;
mod changes;
mod failure;
mod finding;
mod fix;
mod generate;
mod image;
mod lint;
mod metadata;
mod repository;
mod sim;
mod steps;
mod testing;
mod tidy;
mod toml;
mod verify;

use std::process::ExitCode;

use failure::Failure;
use repository::Repository;

/// One subcommand.
struct Command {
    name: &'static str,
    summary: &'static str,
    help: &'static str,
    run: fn(&Repository, &[String]) -> Result<(), Failure>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "verify",
        summary: "lint, sim and test: all that a change must pass; never edits a file",
        help: verify::HELP,
        run: verify::run,
    },
    Command {
        name: "fix",
        summary: "format, apply what clippy can fix, and write generated files anew",
        help: fix::HELP,
        run: fix::run,
    },
    Command {
        name: "lint",
        summary: "format, clippy, tidy, generated files, audit",
        help: lint::HELP,
        run: lint::run,
    },
    Command {
        name: "tidy",
        summary: "the house rules that no other tool checks",
        help: tidy::HELP,
        run: tidy::run,
    },
    Command {
        name: "test",
        summary: "every test of the product; arguments are a filter",
        help: testing::HELP,
        run: testing::run,
    },
    Command {
        name: "sim",
        summary: "the simulation on fixed seeds",
        help: sim::HELP,
        run: sim::run,
    },
    Command {
        name: "bench",
        summary: "ours beside Redis, or with --nodes beside etcd and ZooKeeper, in turns, with all syncs counted",
        help: bench::HELP,
        run: bench::run,
    },
    Command {
        name: "image",
        summary: "a container image of one static binary, written without a daemon",
        help: image::HELP,
        run: image::run,
    },
    Command {
        name: "generate",
        summary: "write generated files, or --check them",
        help: generate::HELP,
        run: generate::run,
    },
    Command {
        name: "changes",
        summary: "list and check the notes of the next release",
        help: changes::HELP,
        run: changes::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Told) {
                eprintln!("xtask: {failure}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Finds the command that the first argument names and runs it with the rest.
fn dispatch(arguments: &[String]) -> Result<(), Failure> {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::Usage(format!("a command is missing\n\n{}", overview())));
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        println!("{}", overview());
        return Ok(());
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(Failure::Usage(format!(
            "there is no command {name:?}\n\n{}",
            overview()
        )));
    };
    // What follows `--` belongs to the program that the command starts.
    if rest
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument == "--help" || argument == "-h")
    {
        println!("{}", command.help);
        return Ok(());
    }
    (command.run)(&Repository::find()?, rest)
}

/// The list of commands, as `--help` shows it.
fn overview() -> String {
    let mut text =
        String::from("Development tasks of Tenure.\n\nUsage: cargo xtask <command> [arguments]\n\nCommands:\n");
    for command in COMMANDS {
        text.push_str(&format!("  {:<9} {}\n", command.name, command.summary));
    }
    text.push_str("\n`cargo xtask <command> --help` tells more about one of them.");
    text
}

/// Refuses arguments of a command that takes none.
fn no_arguments(name: &str, arguments: &[String]) -> Result<(), Failure> {
    match arguments.first() {
        None => Ok(()),
        Some(argument) => Err(Failure::Usage(format!("`{name}` takes no argument {argument:?}"))),
    }
}

#[cfg(test)]
mod tests;
