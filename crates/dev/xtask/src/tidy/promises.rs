//! Every promise in `docs/semantics.md` names a test that exists.
//!
//! The form of that page, which its own introduction tells as well:
//!
//! - A `## ` heading begins a subject. One that ends with `(not built)` is a plan and needs no tests.
//! - Under it every bullet at the left margin is a promise, and its text ends with `Proved by` and names in backticks.
//! - Bullets under `### Where it stops` are limits and need no tests.

use std::collections::BTreeMap;

use super::source::Source;
use crate::finding::Finding;

const PAGE: &str = "docs/semantics.md";

/// Reads the page and looks every name up.
pub(crate) fn check(texts: &[(&str, String)], paths: &[String], sources: &[Source]) -> Vec<Finding> {
    let Some((_, page)) = texts.iter().find(|(path, _)| *path == PAGE) else {
        return vec![Finding::file(
            PAGE,
            "is missing: every promise and the test that proves it",
        )];
    };
    let known = Proofs::collect(paths, sources);
    let mut findings = Vec::new();
    for section in sections(page) {
        if section.promises.is_empty() {
            let message = format!(
                "`{}` promises nothing: mark it `(not built)` or take it out",
                section.title
            );
            findings.push(Finding::line(PAGE, section.line, message));
        }
        for promise in section.promises {
            let Some((_, proof)) = promise.text.rsplit_once("Proved by") else {
                findings.push(Finding::line(
                    PAGE,
                    promise.line,
                    "a promise without `Proved by` and a test",
                ));
                continue;
            };
            let names: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
            if names.is_empty() {
                findings.push(Finding::line(
                    PAGE,
                    promise.line,
                    "`Proved by` names no test in backticks",
                ));
            }
            for name in names.iter().filter(|name| !known.contain(name)) {
                findings.push(Finding::line(PAGE, promise.line, format!("there is no test `{name}`")));
            }
        }
    }
    findings
}

/// A subject of the page that is built.
struct Section {
    title: String,
    line: usize,
    promises: Vec<Promise>,
}

struct Promise {
    line: usize,
    text: String,
}

/// The subjects that are built, with their promises.
fn sections(page: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    // Which bullets count: none in the introduction, in a plan, and where a subject tells its limits.
    let mut is_built = false;
    let mut counts = false;
    let mut is_open = false;
    let mut is_fenced = false;
    for (index, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced {
            continue;
        } else if let Some(title) = line.strip_prefix("## ") {
            is_built = !title.trim_end().ends_with("(not built)");
            counts = is_built;
            is_open = false;
            if is_built {
                sections.push(Section {
                    title: title.trim().to_owned(),
                    line: index + 1,
                    promises: Vec::new(),
                });
            }
        } else if let Some(title) = line.strip_prefix("### ") {
            counts = is_built && !title.trim().eq_ignore_ascii_case("where it stops");
            is_open = false;
        } else if let Some(section) = sections.last_mut().filter(|_| counts) {
            if let Some(text) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
                section.promises.push(Promise {
                    line: index + 1,
                    text: text.to_owned(),
                });
                is_open = true;
            } else if is_open && line.starts_with(' ') {
                if let Some(promise) = section.promises.last_mut() {
                    promise.text.push('\n');
                    promise.text.push_str(line.trim());
                }
            } else if !line.trim().is_empty() {
                is_open = false;
            }
        }
    }
    sections
}

/// Everything that can prove a promise.
struct Proofs {
    /// For each package the full names of its tests.
    tests: BTreeMap<String, Vec<String>>,
    transcripts: Vec<String>,
}

impl Proofs {
    fn collect(paths: &[String], sources: &[Source]) -> Self {
        let mut tests: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for source in sources {
            let modules = source.module_path();
            let prefix = if modules.is_empty() {
                String::new()
            } else {
                format!("{modules}::")
            };
            let names = source.tests.iter().map(|test| format!("{prefix}{}", test.name));
            tests.entry(package(&source.path)).or_default().extend(names);
        }
        let is_transcript = |path: &&String| path.contains("/tests/transcripts/") && path.ends_with(".txt");
        Proofs {
            tests,
            transcripts: paths.iter().filter(is_transcript).cloned().collect(),
        }
    }

    /// Whether a name is that of a test, `package::name` with as many modules between as one likes to give, or the
    /// end of a transcript's path.
    fn contain(&self, name: &str) -> bool {
        if name.ends_with(".txt") {
            return self.transcripts.iter().any(|path| ends_with_parts(path, name, "/"));
        }
        let Some((package, test)) = name.split_once("::") else {
            return false;
        };
        let tests = self.tests.get(package).map(Vec::as_slice).unwrap_or_default();
        tests.iter().any(|full| ends_with_parts(full, test, "::"))
    }
}

/// The folder name of the crate that a file belongs to; ours are called like their folders.
fn package(path: &str) -> String {
    let end = ["/src/", "/tests/"]
        .iter()
        .filter_map(|folder| path.find(folder))
        .min()
        .unwrap_or(0);
    path[..end].rsplit('/').next().unwrap_or_default().to_owned()
}

/// Whether a path ends with another one, at a boundary between parts.
fn ends_with_parts(path: &str, end: &str, separator: &str) -> bool {
    path.strip_suffix(end)
        .is_some_and(|before| before.is_empty() || before.ends_with(separator))
}

#[cfg(test)]
mod tests;
