//! How long files and functions may be, as a ratchet: what is longer is listed and may only shrink.

use std::collections::BTreeMap;

use super::source::Source;
use crate::finding::Finding;

/// Lines of a file that do not belong to tests.
const FILE_LINES_MAX: usize = 800;

/// Lines of a function outside of tests, from `fn` to its last brace.
const FUNCTION_LINES_MAX: usize = 70;

/// How many exceptions the list may hold. Lower it whenever one goes; it never rises.
const EXCEPTIONS_MAX: usize = 0;

/// Every file and function against the limits and the list of exceptions.
///
/// The list has one exception a line: `file <path> <lines>` or `function <path> <name> <lines>`.
pub(crate) fn check(sources: &[Source], list_path: &str, list: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut exceptions: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (index, line) in list.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed = line
            .rsplit_once(' ')
            .and_then(|(key, lines)| Some((key.to_owned(), lines.parse().ok()?)));
        let is_new = match parsed {
            Some((key, lines)) => exceptions.insert(key, (lines, index + 1)).is_none(),
            None => false,
        };
        if !is_new {
            findings.push(Finding::line(list_path, index + 1, "cannot be read, or is there twice"));
        }
    }
    if exceptions.len() > EXCEPTIONS_MAX {
        let message = format!(
            "{} exceptions, at most {EXCEPTIONS_MAX} are allowed: split something",
            exceptions.len()
        );
        findings.push(Finding::file(list_path, message));
    }
    findings.extend(compare(&measure(sources), exceptions, list_path));
    findings
}

/// Something that has a length.
struct Measured {
    path: String,
    line: usize,
    lines: usize,
    lines_max: usize,
}

/// Lengths by the names that they have in the list; of functions of one name in one file, the longest.
fn measure(sources: &[Source]) -> BTreeMap<String, Measured> {
    let mut measured: BTreeMap<String, Measured> = BTreeMap::new();
    let mut add = |key: String, found: Measured| {
        if measured.get(&key).is_none_or(|known| known.lines < found.lines) {
            measured.insert(key, found);
        }
    };
    for source in sources.iter().filter(|source| !source.is_generated()) {
        let path = &source.path;
        let lines = source.lines_without_tests();
        add(
            format!("file {path}"),
            Measured {
                path: path.clone(),
                line: 1,
                lines,
                lines_max: FILE_LINES_MAX,
            },
        );
        for function in source
            .functions
            .iter()
            .filter(|function| !source.is_test(function.first_line))
        {
            let lines = function.last_line - function.first_line + 1;
            let line = function.first_line;
            let found = Measured {
                path: path.clone(),
                line,
                lines,
                lines_max: FUNCTION_LINES_MAX,
            };
            add(format!("function {path} {}", function.name), found);
        }
    }
    measured
}

fn compare(
    measured: &BTreeMap<String, Measured>,
    mut exceptions: BTreeMap<String, (usize, usize)>,
    list_path: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, found) in measured {
        let name = key
            .split(' ')
            .nth(2)
            .map(|name| format!("`{name}` has "))
            .unwrap_or_default();
        let Measured {
            path,
            line,
            lines,
            lines_max,
        } = found;
        match exceptions.remove(key) {
            None if lines > lines_max => {
                let message = format!("{name}{lines} lines, {lines_max} is the limit: split it by subject");
                findings.push(Finding::line(path, *line, message));
            }
            None => {}
            Some((allowed, _)) if *lines > allowed => {
                let message = format!("{name}{lines} lines, it grew from {allowed}: what is too long may only shrink");
                findings.push(Finding::line(path, *line, message));
            }
            Some((_, at)) if lines <= lines_max => {
                findings.push(Finding::line(
                    list_path,
                    at,
                    format!("`{key}` keeps the limit now: remove the line"),
                ));
            }
            Some((allowed, at)) if *lines < allowed => {
                findings.push(Finding::line(
                    list_path,
                    at,
                    format!("`{key}` is shorter now: lower it to {lines}"),
                ));
            }
            Some(_) => {}
        }
    }
    for (key, (_, at)) in exceptions {
        findings.push(Finding::line(
            list_path,
            at,
            format!("`{key}` does not exist any more: remove the line"),
        ));
    }
    findings
}

#[cfg(test)]
mod tests;
