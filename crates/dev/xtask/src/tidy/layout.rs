//! Where files are, what they are called and how they begin.

use super::source::{Source, identifiers};
use crate::finding::Finding;

/// Names that say nothing: a grab-bag becomes everyone's dependency.
const GRAB_BAGS: &[&str] = &["common", "helpers", "misc", "types", "util", "utils"];

/// The folder of a crate's one integration test binary.
const TEST_BINARY: &str = "it";

/// A module doc on each file, no `mod.rs`, no grab-bags, one test binary a crate.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| !source.is_generated()) {
        let path = &source.path;
        let first = source
            .text
            .lines()
            .find(|line| !line.trim().is_empty() && !line.starts_with("#!"));
        if !first.is_some_and(|line| line.starts_with("//!") && line.trim_end().len() > 3) {
            findings.push(Finding::line(
                path,
                1,
                "begin with a module doc: what it is for (`//! …`)",
            ));
        }
        let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
        if parts.last() == Some(&"mod") {
            findings.push(Finding::file(
                path,
                "name the file after its module: `foo.rs` beside `foo/`, not mod.rs",
            ));
        }
        if let Some(part) = parts.iter().find(|part| GRAB_BAGS.contains(part)) {
            findings.push(Finding::file(
                path,
                format!("`{part}` says nothing: name it after what it holds"),
            ));
        }
        findings.extend(inline_grab_bags(source));
        let (manifest_dir, inside) = path.split_once("/tests/").unwrap_or((path, ""));
        let binary = inside.split('/').next().unwrap_or_default();
        let is_binary = binary.ends_with(".rs") || inside == format!("{binary}/main.rs");
        if !manifest_dir.contains("/src/") && is_binary && binary != TEST_BINARY {
            findings.push(Finding::file(
                path,
                "integration tests of a crate are one binary: put it under tests/it/",
            ));
        }
    }
    findings
}

/// Modules inside a file; the file's own name is looked at elsewhere.
fn inline_grab_bags(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut previous = "";
    for (at, word) in identifiers(&source.code) {
        if previous == "mod"
            && GRAB_BAGS.contains(&word)
            && source.code[at + word.len()..].trim_start().starts_with('{')
        {
            let message = format!("`{word}` says nothing: name it after what it holds");
            findings.push(Finding::line(&source.path, source.line_of(at), message));
        }
        previous = word;
    }
    findings
}

#[cfg(test)]
mod tests;
