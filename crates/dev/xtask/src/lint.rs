//! What can be found without running anything: format, clippy, tidy, generated files, audit.

use crate::failure::Failure;
use crate::repository::Repository;
use crate::{audit, generate, steps, tidy};

pub(crate) const HELP: &str = "\
Usage: cargo xtask lint

Checks the format of every file, clippy without a warning, the house rules (`tidy`), that generated files
are up to date (`generate --check`), and what we take from others (licences, sources, duplicates, bans and
versions with known faults, by `deny.toml`). Every check runs, also after one has failed. It edits nothing.";

pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Result<(), Failure> {
    crate::no_arguments("lint", arguments)?;
    steps::all(vec![
        ("format", Box::new(|| format(repository))),
        ("tidy", Box::new(|| tidy::run(repository, &[]))),
        ("clippy", Box::new(|| clippy(repository))),
        (
            "generated files",
            Box::new(|| generate::run(repository, &["--check".to_owned()])),
        ),
        ("audit", Box::new(|| audit::run(repository))),
    ])
}

fn format(repository: &Repository) -> Result<(), Failure> {
    steps::run(steps::cargo(repository).args(["fmt", "--all", "--check"]))?;
    if repository.has("sim/Cargo.toml") {
        let mut command = steps::cargo(repository);
        command
            .current_dir(repository.root().join("sim"))
            .args(["fmt", "--check"]);
        steps::run(&mut command)?;
    }
    Ok(())
}

fn clippy(repository: &Repository) -> Result<(), Failure> {
    // Warnings are errors here only: as a flag for the whole build it would split the cache.
    let arguments = [
        "clippy",
        "--profile",
        "ci",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    steps::run(steps::cargo(repository).args(arguments))
}
