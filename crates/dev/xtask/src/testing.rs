//! Every test of the product, and what it needs to run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::repository::Repository;
use crate::{metadata, steps};

pub(crate) const HELP: &str = "\
Usage: cargo xtask test [arguments of `cargo nextest run`]

Installs what the tests need where that is missing, builds everything once, then runs the doctests and every
test. With arguments only the tests that nextest selects by them run, without doctests:

  cargo xtask test -p tenure-core
  cargo xtask test a_paused_holder
  cargo xtask test -E 'test(/lock/)' --no-capture

Tests find the binary by TENURE_BIN. The last line counts the tests.";

/// Packages of Debian that tests start or use.
const DEBIAN_PACKAGES: &[&str] = &["faketime", "redis-server", "strace", "valgrind"];

/// The version of the test runner that is installed where there is none.
const NEXTEST_VERSION: &str = "0.9.143";

pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Result<(), Failure> {
    steps::step("what tests need", || {
        install_debian_packages(DEBIAN_PACKAGES)?;
        install_nextest(repository)
    })?;
    let mut binary = PathBuf::new();
    steps::step("build", || {
        binary = build(repository)?;
        Ok(())
    })?;
    let mut outcome = Ok(());
    if arguments.is_empty()
        && let Err(failure) = steps::step("doctests", || doctests(repository, &binary))
    {
        eprintln!("{failure}");
        outcome = Err(Failure::Told);
    }
    nextest(repository, &binary, arguments)?;
    outcome
}

/// Installs packages that are missing, if we may.
pub(crate) fn install_debian_packages(packages: &[&str]) -> Result<(), Failure> {
    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let is_root = steps::output(Command::new("id").arg("-u"))?.trim() == "0";
    if !is_root {
        let list = missing.join(" ");
        return Err(Failure::Failed(format!(
            "the tests need packages that only root can install: apt-get install {list}"
        )));
    }
    let mut update = Command::new("apt-get");
    steps::run(
        update
            .args(["update", "--quiet"])
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )?;
    let mut install = Command::new("apt-get");
    install
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(&missing);
    steps::run(install.env("DEBIAN_FRONTEND", "noninteractive"))
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status}", package]);
    query
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

/// Installs the test runner where there is none.
pub(crate) fn install_nextest(repository: &Repository) -> Result<(), Failure> {
    if steps::succeeds(steps::cargo(repository).args(["nextest", "--version"])) {
        return Ok(());
    }
    let mut command = steps::cargo(repository);
    steps::run(command.args(["install", "cargo-nextest", "--locked", "--version", NEXTEST_VERSION]))
}

/// Builds everything that the tests run and returns the absolute path of the binary.
fn build(repository: &Repository) -> Result<PathBuf, Failure> {
    // The same selection as the test run's: built alone, the binary would be built again with other features.
    let mut command = steps::cargo(repository);
    steps::run(command.args(["build", "--profile", "ci", "--workspace", "--bins", "--lib", "--tests"]))?;
    let target = metadata::members(repository, "")?.target_directory;
    let binary = Path::new(&target)
        .join("ci")
        .join(format!("tenure{}", std::env::consts::EXE_SUFFIX));
    if !binary.is_file() {
        return Err(Failure::Failed(format!("the build left no {}", binary.display())));
    }
    Ok(binary)
}

fn doctests(repository: &Repository, binary: &Path) -> Result<(), Failure> {
    let mut command = steps::cargo(repository);
    command.args([
        "test",
        "--profile",
        "ci",
        "--workspace",
        "--doc",
        "--quiet",
        "--no-fail-fast",
    ]);
    steps::run(command.env("TENURE_BIN", binary))
}

fn nextest(repository: &Repository, binary: &Path, arguments: &[String]) -> Result<(), Failure> {
    let mut command = steps::cargo(repository);
    command.args(["nextest", "run", "--cargo-profile", "ci", "--workspace"]);
    if std::env::var_os("CI").is_some() {
        command.args(["--profile", "ci"]);
    }
    command.args(select(arguments)).env("TENURE_BIN", binary);
    count_last(&mut command)
}

/// Turns `-p CRATE` into a filter over the whole workspace: built apart, a crate's tests would be built again with
/// other features, and the binary with them.
fn select(arguments: &[String]) -> Vec<String> {
    let (mut packages, mut filters, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (name, value) = word
            .split_once('=')
            .map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        let list = match name {
            "--" => {
                rest.push(word.clone());
                rest.extend(words.cloned());
                break;
            }
            "-p" | "--package" => &mut packages,
            "-E" | "--filterset" => &mut filters,
            _ => {
                rest.push(word.clone());
                continue;
            }
        };
        list.extend(value.map(str::to_owned).or_else(|| words.next().cloned()));
    }
    let packages: Vec<String> = packages.iter().map(|package| format!("package(={package})")).collect();
    let groups = [packages, filters].into_iter().filter(|group| !group.is_empty());
    let all: Vec<String> = groups.map(|group| format!("({})", group.join(" | "))).collect();
    if all.is_empty() {
        rest
    } else {
        ["-E".to_owned(), all.join(" & ")].into_iter().chain(rest).collect()
    }
}

/// Runs nextest so that its counts are the last line, also after a failure.
fn count_last(command: &mut Command) -> Result<(), Failure> {
    let (summary, outcome) = steps::run_and_keep_line(command, is_summary)?;
    match (outcome, summary) {
        (Err(failure), Some(summary)) => {
            eprintln!("{failure}");
            eprintln!("{summary}");
            Err(Failure::Told)
        }
        (outcome, _) => outcome,
    }
}

/// Whether a line is nextest's count of the tests: `Summary [   1.234s] 12 tests run: 12 passed, 0 skipped`.
fn is_summary(line: &str) -> bool {
    line.starts_with("Summary [") && (line.contains(" test run: ") || line.contains(" tests run: "))
}

#[cfg(test)]
mod tests;
