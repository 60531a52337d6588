//! Why a call has no answer, and what is known of its effect.

use std::time::Duration;

use tenure_api::v1::{WireError, wire_error};
use tenure_api::{ErrorCode, Outcome};
use tenure_recipes::LostReason;

use crate::verdict::Refusal;

/// Why a call has no answer. [`outcome`](Error::outcome) says what is known of its effect: never take an error for a
/// "no".
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The server said so.
    #[error("{}", .error.message)]
    Server {
        /// What it said, with what the code carries.
        error: Box<WireError>,
        /// The worst over all attempts of the call.
        outcome: Outcome,
    },
    /// A verdict that the caller turned into an error by [`Verdict::done`](crate::Verdict::done): nothing changed.
    #[error("refused: {0}")]
    Refused(Box<Refusal>),
    /// No endpoint could be reached: check the addresses, and whether a node runs there.
    #[error("no endpoint can be reached: {why}")]
    Unreachable {
        /// What the last one said.
        why: String,
        /// The worst over all attempts of the call.
        outcome: Outcome,
    },
    /// The request was sent and no answer came: look at the data, or ask again under the same identity.
    #[error("no answer came in time ({outcome}): {why}")]
    NoAnswer {
        /// What is known of the last attempt.
        why: String,
        /// Unknown, unless the call changes nothing anyway.
        outcome: Outcome,
    },
    /// An endpoint belongs to another cluster than the one that this client talked to before: check the endpoints.
    #[error("{endpoint} belongs to cluster {actual}, and this client means {expected}: check the endpoints")]
    WrongCluster {
        /// The endpoint.
        endpoint: String,
        /// The cluster that the client means, in hexadecimal digits.
        expected: String,
        /// The cluster that answered.
        actual: String,
    },
    /// The session that should own what is written is lost to its holder.
    #[error("the session is lost ({reason:?}): open a new one")]
    SessionLost {
        /// Why.
        reason: LostReason,
        /// Not applied if it was lost before the request was sent; unknown if it was lost while the answer was
        /// awaited, since the server may have written and may end the session at any moment.
        outcome: Outcome,
    },
    /// The caller gave something that cannot be sent.
    #[error("{what}: {rule}")]
    Invalid {
        /// What.
        what: &'static str,
        /// The rule that it breaks.
        rule: String,
    },
    /// The client has as much in flight as it may: wait for answers. Nothing was sent.
    #[error("too many requests are waiting in this client: {what}")]
    Busy {
        /// What is full.
        what: &'static str,
    },
}

impl Error {
    /// The code from the table of errors.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Server { error, .. } => error.error_code().unwrap_or(ErrorCode::Internal),
            Error::Refused(refusal) => refusal.code(),
            Error::Unreachable { .. } => ErrorCode::Unavailable,
            Error::NoAnswer {
                outcome: Outcome::Unknown,
                ..
            } => ErrorCode::QuorumTimeout,
            Error::NoAnswer { .. } => ErrorCode::Deadline,
            Error::WrongCluster { .. } => ErrorCode::WrongCluster,
            Error::SessionLost { .. } => ErrorCode::SessionExpired,
            Error::Invalid { .. } => ErrorCode::Invalid,
            Error::Busy { .. } => ErrorCode::Overloaded,
        }
    }

    /// What is known of the call's effect: the worst over its attempts.
    pub fn outcome(&self) -> Outcome {
        match self {
            Error::Server { outcome, .. }
            | Error::Unreachable { outcome, .. }
            | Error::NoAnswer { outcome, .. }
            | Error::SessionLost { outcome, .. } => *outcome,
            Error::Refused(_) => Outcome::Refused,
            Error::WrongCluster { .. } | Error::Invalid { .. } | Error::Busy { .. } => Outcome::NotApplied,
        }
    }

    /// The exit status of a command that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match (self.outcome(), self.code()) {
            (Outcome::Unknown, ErrorCode::Internal) => ErrorCode::Internal.exit(),
            (Outcome::Unknown, _) => ErrorCode::QuorumTimeout.exit(),
            (_, code) => code.exit(),
        }
    }

    /// What the server said, if it said something.
    pub fn server(&self) -> Option<&WireError> {
        match self {
            Error::Server { error, .. } => Some(error),
            _ => None,
        }
    }

    /// What the code carries, if it carries something.
    pub fn detail(&self) -> Option<&wire_error::Detail> {
        self.server().and_then(|error| error.detail.as_ref())
    }

    /// What stood in the way, if this is a verdict.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// When to come back, if the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.server()
            .and_then(|error| error.retry_after_us)
            .map(Duration::from_micros)
    }

    /// An error of the server, with the outcome that it says.
    pub(crate) fn from_wire(error: WireError) -> Error {
        let outcome = error.known_outcome();
        Error::Server {
            error: Box::new(error),
            outcome,
        }
    }

    /// The server answered with something else than was asked for.
    pub(crate) fn unexpected(asked: &'static str) -> Error {
        Error::from_wire(WireError::internal(format!("the answer to {asked} is of another kind")))
    }

    /// The same error as that of a call of which it only was the preparation: the call itself was not sent.
    pub(crate) fn before_sending(self) -> Error {
        match self.outcome() {
            // Its code would say the same as its outcome.
            Outcome::Unknown => Error::NoAnswer {
                why: format!("it was not sent: {self}"),
                outcome: Outcome::NotApplied,
            },
            _ => self,
        }
    }

    /// The same error over all attempts of its call.
    pub(crate) fn with_outcome(self, outcome: Outcome) -> Error {
        match self {
            Error::Server { error, .. } => Error::Server { error, outcome },
            Error::Unreachable { why, .. } if outcome == Outcome::Unknown => Error::NoAnswer { why, outcome },
            Error::Unreachable { why, .. } => Error::Unreachable { why, outcome },
            Error::NoAnswer { why, .. } => Error::NoAnswer { why, outcome },
            Error::SessionLost { reason, .. } => Error::SessionLost { reason, outcome },
            Error::WrongCluster { .. } | Error::Busy { .. } if outcome == Outcome::Unknown => Error::NoAnswer {
                why: self.to_string(),
                outcome,
            },
            other => other,
        }
    }
}
