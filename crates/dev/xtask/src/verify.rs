//! All that a change must pass, in one command.

use crate::failure::Failure;
use crate::repository::Repository;
use crate::{lint, sim, testing};

pub(crate) const HELP: &str = "\
Usage: cargo xtask verify

Runs lint, the simulation on fixed seeds, and every test, and stops at the first of them that fails. It edits
no file: `cargo xtask fix` does.";

pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Result<(), Failure> {
    crate::no_arguments("verify", arguments)?;
    lint::run(repository, &[])?;
    sim::run(repository, &[])?;
    testing::run(repository, &[])
}
