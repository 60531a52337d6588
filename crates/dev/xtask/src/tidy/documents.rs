//! Links and file names in documents lead somewhere, and the README shows the first command.

use super::source::Source;
use crate::finding::Finding;

/// What a newcomer types first.
const FIRST_COMMAND: &str = "cargo run --release -- dev";

/// Every document, and the comments of every source.
pub(crate) fn check(texts: &[(&str, String)], paths: &[String], sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    match texts.iter().find(|(path, _)| *path == "README.md") {
        None => findings.push(Finding::file("README.md", "is missing")),
        Some((_, text)) if !text.contains(FIRST_COMMAND) => {
            findings.push(Finding::file(
                "README.md",
                format!("show the first command: `{FIRST_COMMAND}`"),
            ));
        }
        Some(_) => {}
    }
    for (path, text) in texts {
        if path.ends_with(".md") {
            findings.extend(links(path, text, paths));
        }
        if !path.ends_with(".rs") {
            findings.extend(mentions(path, text, paths));
        }
    }
    for source in sources {
        findings.extend(mentions(&source.path, &source.comments, paths));
    }
    findings
}

/// Links to files, from the folder of the document.
fn links(path: &str, text: &str, paths: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    for (index, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', '#', ' ']).next().unwrap_or_default();
            if target.is_empty() || target.contains(':') {
                continue;
            }
            let resolved = resolve(folder, target);
            let leads = resolved.as_deref().is_some_and(|file| {
                paths
                    .iter()
                    .any(|known| known == file || known.strip_prefix(file).is_some_and(|rest| rest.starts_with('/')))
            });
            if !leads {
                findings.push(Finding::line(
                    path,
                    index + 1,
                    format!("the link to `{target}` leads nowhere"),
                ));
            }
        }
    }
    findings
}

/// A relative path seen from a folder; `None` when it leaves the repository.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Documents that are named in running text: a reader will look for them.
fn mentions(path: &str, text: &str, paths: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_part = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    for (index, line) in text.lines().enumerate() {
        for word in line.split(|c| !is_part(c)).map(|word| word.trim_end_matches('.')) {
            let Some(stem) = word.strip_suffix(".md") else {
                continue;
            };
            // A web address, an ending by itself, and a number still to be chosen are no files of ours.
            let is_name = !word.starts_with("//") && stem.ends_with(char::is_alphanumeric) && !stem.contains("NNNN");
            let name = word.rsplit("./").next().unwrap_or(word);
            let is_known = paths.iter().any(|known| {
                known
                    .strip_suffix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
            });
            if is_name && !is_known {
                findings.push(Finding::line(path, index + 1, format!("there is no `{word}`")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests;
