//! Words that must not stand in the repository, and where.
//!
//! The words themselves are put together from parts here, so that this file passes its own rules.

use super::source::{Source, is_identifier, matching};
use crate::finding::Finding;

/// Notes to oneself.
const NOTES: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

/// Macros that are for the moment of writing.
const MACROS: &[&str] = &[concat!("dbg", "!"), concat!("todo", "!"), concat!("unimplemented", "!")];

/// Paths of somebody's machine, and hosts that serve packages: a clone elsewhere has neither.
const OUTSIDE: &[&str] = &[
    concat!("..", "/shared"),
    concat!("/", "work/"),
    concat!("/", "home/"),
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("crates", ".io-index"),
    concat!("proxy.golang", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("files.pythonhosted", ".org"),
    concat!("deb.debian", ".org"),
];

/// Names of files that are read as text.
const TEXT_ENDINGS: &[&str] = &[
    "rs", "md", "toml", "proto", "txt", "sh", "py", "json", "yml", "yaml", "html", "css", "js", "lua", "sql",
];

/// Whether a file is text that the rules look at.
pub(crate) fn is_text(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => TEXT_ENDINGS.contains(&ending),
        _ => path.starts_with(".ci/"),
    }
}

/// Everything about words, in sources and in all other text.
pub(crate) fn check(sources: &[Source], texts: &[(&str, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in texts {
        if path.contains("/generated/") {
            continue;
        }
        // In documents a word in backticks is spoken about, not used.
        let spoken = if path.ends_with(".md") {
            without_code_spans(text)
        } else {
            text.clone()
        };
        findings.extend(notes(path, &spoken));
        findings.extend(outside(path, text));
    }
    for source in sources.iter().filter(|source| !source.is_generated()) {
        findings.extend(macros(source));
        findings.extend(forgotten_assertions(source));
        findings.extend(ignored_tests(source));
        findings.extend(unwraps(source));
        findings.extend(sleeps(source));
    }
    findings
}

/// Notes to oneself, as whole words.
fn notes(path: &str, text: &str) -> Vec<Finding> {
    find_lines(path, text, |line| {
        let found = NOTES.iter().find(|word| contains_word(line, word))?;
        Some(format!(
            "`{found}` is left over: do it, or say in words how things stand"
        ))
    })
}

/// Places that only exist on somebody's machine.
fn outside(path: &str, text: &str) -> Vec<Finding> {
    find_lines(path, text, |line| {
        let found = OUTSIDE.iter().find(|place| {
            line.match_indices(**place).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                !place.starts_with('/') || !before.is_some_and(|c| is_identifier(c) || ".-/}".contains(c))
            })
        })?;
        Some(format!("`{found}` is outside of the project"))
    })
}

fn macros(source: &Source) -> Vec<Finding> {
    find_lines(&source.path, &source.code, |line| {
        let found = MACROS.iter().find(|word| {
            line.match_indices(**word)
                .any(|(at, _)| !line[..at].chars().next_back().is_some_and(is_identifier))
        })?;
        Some(format!("`{found}` is left over"))
    })
}

/// A `matches!(…);` whose value nobody looks at: it reads like an assertion and can never fail.
fn forgotten_assertions(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let code = &source.code;
    for (at, name) in code.match_indices("matches!(") {
        let begins = code[..at]
            .trim_end()
            .chars()
            .next_back()
            .is_none_or(|c| ";{}".contains(c));
        let end = matching(code, at + name.len() - 1).map_or(code.len(), |end| end + 1);
        if begins && code[end..].trim_start().starts_with(';') {
            findings.push(Finding::line(
                &source.path,
                source.line_of(at),
                "nobody looks at it: `assert!(matches!(…))`",
            ));
        }
    }
    findings
}

fn ignored_tests(source: &Source) -> Vec<Finding> {
    let ignore = concat!("#[", "ignore");
    find_lines(&source.path, &source.code, |line| {
        let conditional = line.contains("#[cfg_attr(") && contains_word(line, "ignore");
        (line.contains(ignore) || conditional).then(|| "no ignored tests: mend it or take it out".to_owned())
    })
}

fn unwraps(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, _) in source.code.match_indices(concat!(".unwrap", "()")) {
        let line = source.line_of(at);
        if !source.is_test(line) {
            findings.push(Finding::line(
                &source.path,
                line,
                "say why it cannot fail: `expect(\"…\")`",
            ));
        }
    }
    findings
}

/// Sleeping in tests. Only a function that waits for a condition with a limit may, between two looks.
fn sleeps(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.code.lines().enumerate() {
        let imported = line.contains("time::{") && contains_word(line, "sleep");
        let called = ["thread", "time"]
            .iter()
            .any(|module| line.contains(&format!("{module}::sleep")));
        let waits = |name: &str| name.starts_with("wait_") || name.starts_with("eventually");
        if (imported || called) && source.is_test(index + 1) && !source.is_inside(index + 1, waits) {
            let message = "no sleeping in tests: wait for a condition, in a function named `wait_…` that has a limit";
            findings.push(Finding::line(&source.path, index + 1, message));
        }
    }
    findings
}

/// A finding for every line that `judge` has something to say about.
fn find_lines(path: &str, text: &str, judge: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let judged = text
        .lines()
        .enumerate()
        .filter_map(|(index, line)| judge(line).map(|message| (index + 1, message)));
    judged
        .map(|(line, message)| Finding::line(path, line, message))
        .collect()
}

/// Whether a word stands in a line by itself, not as a part of a longer one.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_identifier) && !after.is_some_and(is_identifier)
    })
}

/// A document with the insides of `code spans` and fenced blocks blanked.
pub(crate) fn without_code_spans(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fenced = false;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            out.push('\n');
        } else if fenced {
            out.push('\n');
        } else {
            let parts: Vec<&str> = line.split('`').collect();
            // Every second part stands between two backticks, unless the last one never closes.
            let closed = parts.len() - usize::from(parts.len().is_multiple_of(2));
            for (index, part) in parts.iter().enumerate() {
                if index % 2 == 0 || index >= closed {
                    out.push_str(part);
                } else {
                    out.push(' ');
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
