//! How many instructions hot paths take for one operation, compared with the table in `instructions.txt`.
//!
//! Time on a busy machine says little; instructions are the same every time, so a path that has become a tenth more
//! expensive is found here. Each path is a deterministic program of one thread without input, run under valgrind twice:
//! with all its operations and with none, which takes the start of the process out of the count.
//!
//! This program is its own test harness, since the path must be all that runs in the counted process. As a test it is
//! started with the name of a path's test; `--update` counts all of them and writes the table anew:
//! `cargo test --profile ci -p tenure-bench --test it -- --update`.

mod count;
mod paths;
mod table;

use std::process::ExitCode;

use paths::{PATHS, Path};
use table::Table;

/// Says that this process is a counted one: the path's name and how many operations follow.
pub(crate) const COUNTED: &str = "--counted-path";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [COUNTED, name, operations] => run_path(name, operations),
        ["--update"] => update(),
        words if words.contains(&"--list") => {
            list(words.contains(&"--ignored"));
            Ok(())
        }
        words => check(words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run_path(name: &str, operations: &str) -> Result<(), String> {
    let path = PATHS.iter().find(|path| path.name == name);
    let path = path.ok_or_else(|| format!("there is no path {name:?}"))?;
    let operations = operations.parse().map_err(|error| format!("{operations:?}: {error}"))?;
    (path.run)(operations);
    Ok(())
}

/// The name of a path's test.
fn test_name(path: &Path) -> String {
    format!("process_instructions_of_{}_are_what_they_were", path.name)
}

/// As a test runner asks for it. None is ignored.
fn list(ignored: bool) {
    for path in PATHS.iter().filter(|_| !ignored) {
        println!("{}: test", test_name(path));
    }
}

/// Runs the tests that were chosen: those named, or those whose name has one of the words in it; all without a word.
fn check(words: &[&str]) -> Result<(), String> {
    let exact = words.contains(&"--exact");
    let filters: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with('-')).collect();
    let is_chosen = |path: &&Path| {
        let name = test_name(path);
        let matches = |filter: &&str| {
            if exact {
                name == **filter
            } else {
                name.contains(*filter)
            }
        };
        filters.is_empty() || filters.iter().any(matches)
    };
    let table = Table::read()?;
    let mut findings = Vec::new();
    for path in PATHS.iter().filter(is_chosen) {
        let counted = count::instructions(path)?;
        println!("{}: {counted} instructions an operation", path.name);
        findings.extend(table.compare(path.name, counted).err());
    }
    if findings.is_empty() {
        Ok(())
    } else {
        Err(findings.join("\n"))
    }
}

fn update() -> Result<(), String> {
    let mut counts = Vec::new();
    for path in PATHS {
        let counted = count::instructions(path)?;
        println!("{}: {counted} instructions an operation", path.name);
        counts.push((path.name, counted));
    }
    Table::write(&counts)
}
