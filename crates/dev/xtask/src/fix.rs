//! What a program can put right by itself.

use crate::failure::Failure;
use crate::repository::Repository;
use crate::{generate, steps};

pub(crate) const HELP: &str = "\
Usage: cargo xtask fix

Writes generated files anew, applies what clippy can mend and formats everything. It works on files that are
not committed yet, so look at the difference afterwards.";

pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Result<(), Failure> {
    crate::no_arguments("fix", arguments)?;
    steps::all(vec![
        ("generate", Box::new(|| generate::run(repository, &[]))),
        ("clippy", Box::new(|| clippy(repository))),
        ("format", Box::new(|| format(repository))),
    ])
}

fn clippy(repository: &Repository) -> Result<(), Failure> {
    let arguments = [
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--profile",
        "ci",
        "--workspace",
        "--all-targets",
    ];
    steps::run(steps::cargo(repository).args(arguments))
}

fn format(repository: &Repository) -> Result<(), Failure> {
    steps::run(steps::cargo(repository).args(["fmt", "--all"]))?;
    if repository.has("sim/Cargo.toml") {
        steps::run(
            steps::cargo(repository)
                .current_dir(repository.root().join("sim"))
                .args(["fmt"]),
        )?;
    }
    Ok(())
}
