//! The house rules that no other tool checks.
//!
//! Each rule is a function from what it reads to findings, so that its tests can show it bad examples. The whole runs
//! as a command and as a test of this crate; it must pass on a clean checkout and needs neither network nor build.

mod arrows;
mod documents;
mod frame;
mod layout;
mod lengths;
mod promises;
mod source;
mod words;

use crate::changes;
use crate::failure::Failure;
use crate::finding::{self, Finding};
use crate::metadata::{self, Metadata};
use crate::repository::Repository;
use source::Source;

pub(crate) const HELP: &str = "\
Usage: cargo xtask tidy

Checks the house rules that no other tool checks, and prints what to put right as `path:line: message`:

  files      a module doc on each, no mod.rs, no grab-bag modules, one test binary a crate
  words      no leftovers, no ignored tests, no unwrap() outside tests, no sleeping in tests,
             nothing that points outside the project
  lengths    800 lines a file and 70 a function, tests not counted; what is longer stands in
             crates/dev/xtask/ratchet.txt and may only shrink
  arrows     which crate may use which
  promises   every promise in docs/semantics.md names a test that exists
  documents  links lead somewhere, the README shows the first command, notes have their form

It edits nothing.";

/// The longest file and function that are allowed to stay, relative to the root.
const RATCHET: &str = "crates/dev/xtask/ratchet.txt";

pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Result<(), Failure> {
    crate::no_arguments("tidy", arguments)?;
    let findings = check(repository)?;
    finding::report("tidy", &findings)
}

/// Every rule on the whole repository.
fn check(repository: &Repository) -> Result<Vec<Finding>, Failure> {
    let paths = repository.files()?;
    let mut sources = Vec::new();
    let mut texts = Vec::new();
    for path in &paths {
        if path.ends_with(".rs") {
            sources.push(Source::read(path, &repository.read(path)?));
        }
        if words::is_text(path) {
            // A file that is not UTF-8 is data of some test, whatever its name.
            if let Ok(text) = repository.read(path) {
                texts.push((path.as_str(), text));
            }
        }
    }
    source::spread_test_modules(&mut sources);

    let mut findings = Vec::new();
    findings.extend(layout::check(&sources));
    findings.extend(words::check(&sources, &texts));
    findings.extend(lengths::check(&sources, RATCHET, &repository.read(RATCHET)?));
    findings.extend(documents::check(&texts, &paths, &sources));
    findings.extend(promises::check(&texts, &paths, &sources));
    findings.extend(frame::check(repository)?);
    findings.extend(changes::check(repository)?);
    let members = metadata::members(repository, "")?;
    findings.extend(frame::default_member(&members));
    let mut workspaces = vec![members];
    if repository.has("sim/Cargo.toml") {
        workspaces.push(metadata::members(repository, "sim")?);
    }
    for workspace in &workspaces {
        findings.extend(arrows::check(&packages(repository, workspace)));
    }
    findings.sort();
    Ok(findings)
}

/// The members of a workspace, with their manifests relative to the root.
fn packages(repository: &Repository, workspace: &Metadata) -> Vec<arrows::Member> {
    let root = format!("{}/", repository.root().display());
    let members = workspace
        .packages
        .iter()
        .filter(|package| workspace.workspace_members.contains(&package.id));
    members
        .map(|package| {
            let manifest = package
                .manifest_path
                .strip_prefix(&root)
                .unwrap_or(&package.manifest_path);
            arrows::Member::new(manifest, package)
        })
        .collect()
}

#[cfg(test)]
mod tests;
