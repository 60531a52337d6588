//! The simulation: a workspace of its own, with its own flags and its own target folder.

use std::process::Command;

use crate::failure::Failure;
use crate::repository::Repository;
use crate::{steps, testing};

/// The build profile, the same as in the main workspace.
const PROFILE: &str = "ci";

pub(crate) const HELP: &str = "\
Usage: cargo xtask sim [--seeds COUNT] [arguments of `cargo nextest run`]

Runs clippy on the simulation, then the real node and client on simulated clocks, networks and disks, on
fixed seeds, then the replica on a seeded runtime. --seeds runs each scenario on that many seeds. Says so and
passes where there is no simulation.";

pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Result<(), Failure> {
    let (seeds, rest) = split(arguments)?;
    if !repository.has("sim/Cargo.toml") {
        eprintln!("    there is no simulation in this checkout");
        return Ok(());
    }
    testing::install_nextest(repository)?;
    steps::step("clippy of the simulation", || {
        let arguments = ["clippy", "--profile", PROFILE, "--all-targets", "--", "-D", "warnings"];
        steps::run(cargo_in_sim(repository).args(arguments))
    })?;
    steps::step("simulation", || {
        let mut command = cargo_in_sim(repository);
        command.args(["nextest", "run", "--cargo-profile", PROFILE]);
        if let Some(seeds) = seeds {
            command.env("TENURE_SIM_SEEDS", seeds.to_string());
        }
        steps::run(command.args(&rest))
    })?;
    // The seeded runtime of the consensus library is a feature of this crate, which the product does not build with.
    steps::step("replica on a seeded runtime", || {
        let arguments = [
            "nextest",
            "run",
            "--cargo-profile",
            PROFILE,
            "--package",
            "tenure-replica",
        ];
        let seeded = ["--features", "deterministic", "replay"];
        steps::run(steps::cargo(repository).args(arguments).args(seeded))
    })
}

/// cargo in the workspace of the simulation, with that workspace's own flags and target folder. Flags from outside
/// would silently replace those that it sets for itself.
fn cargo_in_sim(repository: &Repository) -> Command {
    let folder = repository.root().join("sim");
    let mut command = steps::cargo(repository);
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .current_dir(&folder);
    command
}

/// The number of seeds, and what is for the test runner.
fn split(arguments: &[String]) -> Result<(Option<u64>, Vec<String>), Failure> {
    let mut seeds = None;
    let mut rest = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--seeds") {
            Some("") => arguments.next().map(String::as_str),
            Some(value) if value.starts_with('=') => value.strip_prefix('='),
            _ => {
                rest.push(argument.clone());
                continue;
            }
        };
        let count = value.and_then(|value| value.parse().ok()).filter(|count| *count > 0);
        seeds = Some(count.ok_or_else(|| Failure::Usage("--seeds takes a number from 1 on".to_owned()))?);
    }
    Ok((seeds, rest))
}

#[cfg(test)]
mod tests;
