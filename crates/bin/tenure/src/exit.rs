//! What became of a command that did not do what was asked: a message on standard error and an exit status.
//!
//! | status | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | any other failure |
//! | 2 | usage or settings |
//! | 3 | no node could serve it in time and nothing was applied |
//! | 4 | refused |
//! | 5 | does not exist |
//! | 6 | outcome unknown: it may or may not have been applied |

pub(crate) mod refusal;

use std::io;
use std::process::ExitCode;

use serde::Serialize;

use tenure_api::v1::wire_error::Detail;
use tenure_api::{ErrorCode, Outcome};
use tenure_client::{Error, Refusal};

use crate::output::{Decimal, Format, json};

/// Exit status: any other failure.
const FAILED: u8 = 1;
/// Exit status: usage or settings.
pub(crate) const USAGE: u8 = 2;
/// The code of a failure of this program or its machine, which the table of errors does not have.
const FAILED_CODE: &str = "failed";
/// The code of damage, which the table of errors does not have either.
const DAMAGED_CODE: &str = "damaged";

/// Settings of caches and streams that later versions take other values of.
const LATER_FIELDS: [&str; 2] = ["shards", "consistency"];

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Settings that cannot be understood; the text is that of whoever reads them.
    #[error("{what}")]
    Arguments {
        /// What is wrong, and what to do.
        what: String,
    },
    /// Arguments or settings that this program does not take. Nothing was sent.
    #[error("{what}: {remedy}")]
    Settings {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The program or its machine could not do its part. Nothing was sent.
    #[error("{what}: {remedy}")]
    Failed {
        /// What happened.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// There is no such thing.
    #[error("{what} does not exist: {remedy}")]
    Missing {
        /// What.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The node answers and does not serve.
    #[error("{what}: {remedy}")]
    NotServing {
        /// Which node, and why.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A verdict: nothing changed.
    #[error("refused: {}", refusal::text(.0))]
    Refused(Box<Refusal>),
    /// A verdict about the members of the cluster: nothing changed.
    #[error("refused: {why}")]
    Kept {
        /// What stood in the way.
        why: String,
    },
    /// The cluster gave no answer, or an error.
    #[error("{}", client_text(.0))]
    Client(Box<Error>),
    /// A guard of a transaction did not hold, and its other branch was run. The answer was written.
    #[error("a guard did not hold")]
    Otherwise,
    /// The session that a command was run under is lost, and the command was stopped.
    #[error("session s-{id} is lost, and the command was stopped: {why}")]
    Lost {
        /// Which.
        id: u64,
        /// Why.
        why: String,
    },
    /// The command that was run ended with this status, and has said why.
    #[error("the command ended with status {status}")]
    Ended {
        /// Its exit status.
        status: u8,
    },
    /// A folder holds something that is not as it was written.
    #[error("{what}: {remedy}")]
    Damaged {
        /// Where, and how much.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// Nobody reads standard output any more.
    #[error("standard output was closed")]
    Closed,
}

impl Failure {
    /// Arguments or settings that this program does not take.
    pub(crate) fn settings(what: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure::Settings {
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// The program or its machine could not do its part.
    pub(crate) fn failed(what: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure::Failed {
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// Something destructive was not confirmed.
    pub(crate) fn unconfirmed(what: impl Into<String>) -> Failure {
        Failure::settings(what, "say --yes")
    }

    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::Closed => 0,
            Failure::Failed { .. } | Failure::Damaged { .. } => FAILED,
            Failure::Otherwise | Failure::Kept { .. } => ErrorCode::ConditionFailed.exit(),
            Failure::Lost { .. } => ErrorCode::SessionExpired.exit(),
            Failure::Ended { status } => *status,
            Failure::Arguments { .. } | Failure::Settings { .. } => USAGE,
            Failure::Missing { .. } => ErrorCode::NotFound.exit(),
            Failure::NotServing { .. } => ErrorCode::Unavailable.exit(),
            Failure::Refused(refusal) => refusal.code().exit(),
            Failure::Client(error) => error.exit_code(),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Failure::Closed | Failure::Failed { .. } | Failure::Ended { .. } => FAILED_CODE,
            Failure::Lost { .. } => ErrorCode::SessionExpired.name(),
            Failure::Damaged { .. } => DAMAGED_CODE,
            Failure::Otherwise | Failure::Kept { .. } => ErrorCode::ConditionFailed.name(),
            Failure::Arguments { .. } | Failure::Settings { .. } => ErrorCode::Invalid.name(),
            Failure::Missing { .. } => ErrorCode::NotFound.name(),
            Failure::NotServing { .. } => ErrorCode::Unavailable.name(),
            Failure::Refused(refusal) => refusal.code().name(),
            Failure::Client(error) => error.code().name(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Failure::Client(error) => error.outcome(),
            Failure::Refused(_) | Failure::Otherwise | Failure::Kept { .. } => Outcome::Refused,
            // What the command did is not known here.
            Failure::Lost { .. } | Failure::Ended { .. } => Outcome::Unknown,
            _ => Outcome::NotApplied,
        }
    }

    fn resume_from(&self) -> Option<Decimal> {
        match self {
            Failure::Client(error) => error.server().and_then(|error| error.resume_from()).map(Decimal),
            _ => None,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Refused(refusal) => Failure::Refused(refusal),
            other => Failure::Client(Box::new(other)),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(Box::new(refusal))
    }
}

impl From<io::Error> for Failure {
    /// An error in writing standard output.
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::failed(format!("standard output cannot be written: {error}"), "give it room"),
        }
    }
}

/// Says what happened and returns the exit status. A refusal is an answer, so in JSON it goes to standard output.
pub(crate) fn report(failure: &Failure, format: Format) -> ExitCode {
    let status = failure.status();
    // Where even standard error is closed, the exit status is all that is left to say it with.
    let _ = match (failure, format) {
        // The answer says it.
        (Failure::Closed | Failure::Otherwise | Failure::Ended { .. }, _) => Ok(()),
        (Failure::Refused(refused), Format::Json) => write_line(io::stdout(), json(&refusal::object(refused))),
        (Failure::Kept { why }, Format::Json) => write_line(io::stdout(), json(&refusal::kept(why))),
        (Failure::Refused(_) | Failure::Kept { .. }, Format::Text) => {
            write_line(io::stderr(), Ok(failure.to_string().into_bytes()))
        }
        (_, Format::Text) => write_line(io::stderr(), Ok(format!("tenure: {failure}").into_bytes())),
        (_, Format::Json) => write_line(io::stderr(), json(&ErrorObject::new(failure))),
    };
    ExitCode::from(status)
}

fn write_line(mut to: impl io::Write, line: Result<Vec<u8>, Failure>) -> io::Result<()> {
    let mut line = line.unwrap_or_else(|failure| failure.to_string().into_bytes());
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// An error in JSON.
#[derive(Serialize)]
struct ErrorObject {
    error: String,
    code: &'static str,
    outcome: &'static str,
    exit: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume_from: Option<Decimal>,
}

impl ErrorObject {
    fn new(failure: &Failure) -> ErrorObject {
        ErrorObject {
            error: failure.to_string(),
            code: failure.code(),
            outcome: failure.outcome().name(),
            exit: failure.status(),
            resume_from: failure.resume_from(),
        }
    }
}

/// What happened, and what to do where the message does not say it itself.
fn client_text(error: &Error) -> String {
    let what = match error {
        Error::NoAnswer { why, outcome } => {
            let known = match outcome {
                Outcome::Unknown => "it may or may not have been done",
                Outcome::Refused | Outcome::NotApplied => "nothing was done",
            };
            format!("no answer came in time, and {known} ({why})")
        }
        other => other.to_string(),
    };
    match remedy(error) {
        Some(remedy) => format!("{what}: {remedy}"),
        None => what,
    }
}

fn remedy(error: &Error) -> Option<String> {
    let fixed = match error {
        Error::Unreachable { .. } => "check --endpoints, and whether a node runs there",
        Error::NoAnswer {
            outcome: Outcome::Unknown,
            ..
        } => {
            "look at the data before you ask again, or ask so that it cannot be done twice (--if-absent, --if-version, --dedup-id)"
        }
        Error::NoAnswer { .. } => "ask again, or give it more time with --timeout",
        Error::Invalid { .. } => "correct it",
        Error::Busy { .. } => "ask again later",
        Error::Server { .. } => return server_remedy(error),
        // These say it.
        _ => return None,
    };
    Some(fixed.to_owned())
}

fn server_remedy(error: &Error) -> Option<String> {
    if let Some(Detail::Invalid(invalid)) = error.detail()
        && LATER_FIELDS.contains(&invalid.field.as_str())
    {
        return Some("leave it out".to_owned());
    }
    if let Some(Detail::NotFound(missing)) = error.detail() {
        // Of the full name, tenant and namespace come from the options.
        let name = missing
            .name
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default()
            .escape_ascii();
        return match missing.kind.as_str() {
            "cache" => Some(format!(
                "create it with `tenure cache create {name}`, or correct the name"
            )),
            "namespace" => Some("it comes into being with the first object created in it".to_owned()),
            "stream" => Some(format!(
                "create it with `tenure stream create {name}`, or correct the name"
            )),
            "key" => Some("write it first, or correct the name".to_owned()),
            "session" => Some("look at `tenure session ls`".to_owned()),
            _ => None,
        };
    }
    let fixed = match error.code() {
        ErrorCode::Invalid => "correct it",
        ErrorCode::Limit => "make it smaller",
        ErrorCode::ObjectDeleted => "create it anew if it is still wanted",
        ErrorCode::Unavailable => "try again, or look at `tenure cluster status`",
        ErrorCode::Internal => "report it with the node's log",
        // The messages of all others say what to do.
        _ => return None,
    };
    Some(fixed.to_owned())
}

#[cfg(test)]
mod tests;
