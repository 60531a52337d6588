//! The notes of the next release: `changes/<name>.md`, one for each change that a user can see.

use crate::failure::Failure;
use crate::finding::{self, Finding};
use crate::repository::Repository;

pub(crate) const HELP: &str = "\
Usage: cargo xtask changes

Lists the notes of the next release and checks their form: `changes/README.md` tells it.";

const FOLDER: &str = "changes/";

/// What each note answers, in this order.
const QUESTIONS: &[&str] = &["What changed", "Who is affected", "What to do"];

pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Result<(), Failure> {
    crate::no_arguments("changes", arguments)?;
    for path in notes(repository)? {
        let text = repository.read(&path)?;
        println!("{path}: {}", title(&text).unwrap_or("no title"));
    }
    finding::report("changes", &check(repository)?)
}

/// The form of every note.
pub(crate) fn check(repository: &Repository) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for path in notes(repository)? {
        findings.extend(note(&path, &repository.read(&path)?));
    }
    Ok(findings)
}

fn notes(repository: &Repository) -> Result<Vec<String>, Failure> {
    let is_note = |path: &String| path.starts_with(FOLDER) && path.ends_with(".md") && !path.ends_with("/README.md");
    Ok(repository.files()?.into_iter().filter(is_note).collect())
}

fn title(text: &str) -> Option<&str> {
    text.lines()
        .next()?
        .strip_prefix("# ")
        .map(str::trim)
        .filter(|title| !title.is_empty())
}

/// A title, then an answer to each question.
fn note(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if title(text).is_none() {
        findings.push(Finding::line(path, 1, "begin with `# ` and a title"));
    }
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_start_matches(['#', '*', ' ']))
        .collect();
    let mut from = 0;
    for question in QUESTIONS {
        let Some(at) = (from..lines.len()).find(|index| lines[*index].starts_with(question)) else {
            findings.push(Finding::file(
                path,
                format!("answer `{question}`, after the questions before it"),
            ));
            continue;
        };
        let is_question = |line: &str| QUESTIONS.iter().any(|question| line.starts_with(question));
        let following = lines[at + 1..].iter().take_while(|line| !is_question(line));
        let mut answer = std::iter::once(&lines[at][question.len()..]).chain(following.copied());
        if !answer.any(|line| line.contains(char::is_alphanumeric)) {
            findings.push(Finding::line(path, at + 1, format!("`{question}` has no answer")));
        }
        from = at + 1;
    }
    findings
}

#[cfg(test)]
mod tests;
