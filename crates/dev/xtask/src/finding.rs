//! What a check found, where, and how a list of findings ends a task.

use std::fmt;

use crate::failure::Failure;

/// One thing to put right.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the root of the repository, with `/` between parts.
    pub(crate) path: String,
    /// Counted from one; `None` when the whole file is meant.
    pub(crate) line: Option<usize>,
    /// What is wrong, and what to do about it.
    pub(crate) message: String,
}

impl Finding {
    /// A finding about a whole file, or about something that is missing.
    pub(crate) fn file(path: &str, message: impl Into<String>) -> Self {
        Finding {
            path: path.to_owned(),
            line: None,
            message: message.into(),
        }
    }

    /// A finding about one line, counted from one.
    pub(crate) fn line(path: &str, line: usize, message: impl Into<String>) -> Self {
        Finding {
            path: path.to_owned(),
            line: Some(line),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}: {}", self.path, self.message),
            None => write!(formatter, "{}: {}", self.path, self.message),
        }
    }
}

/// Prints every finding and fails if there is one.
pub(crate) fn report(check: &str, findings: &[Finding]) -> Result<(), Failure> {
    for finding in findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => Err(Failure::Failed(format!("{check} found 1 thing to put right"))),
        count => Err(Failure::Failed(format!("{check} found {count} things to put right"))),
    }
}
