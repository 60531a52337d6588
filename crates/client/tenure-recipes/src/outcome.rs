//! What is known after a call that may have been tried several times, and the one rule for trying again.
//!
//! An error is not a "no". Once an attempt may have been applied, no later attempt that merely was *not* applied, or
//! was refused, takes that back: only what the server remembers of this very request does. [`Call`] is that rule, and
//! nothing else decides whether something is sent again.

use std::fmt;

/// What is known of a call's effect. The order is that of badness: the outcome of a call is the worst over its
/// attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// It was done.
    Done,
    /// A verdict: nothing changed.
    Refused,
    /// It was not applied, and never will be.
    NotApplied,
    /// It may or may not have been applied.
    Unknown,
}

impl Outcome {
    /// The name, as it stands in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Refused => "refused",
            Outcome::NotApplied => "not_applied",
            Outcome::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What makes it safe to send a request a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// It changes nothing. An attempt without an answer has no effect to be unsure of.
    Read,
    /// The server remembers its result under the request's identity and gives it to every repeat.
    Remembered,
    /// Applying it twice leaves what applying it once leaves, so that one attempt is done stands for all of them. A
    /// refusal stands only for its own attempt: another one may have been applied before somebody changed what is there.
    Harmless,
    /// Nothing does: once it may have been applied it is never sent again.
    Never,
}

/// What one attempt told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// An answer of the server to this request: done.
    Done,
    /// An answer of the server to this request: refused.
    Refused,
    /// The server says that no attempt of this request ever ran or will run.
    NeverRan,
    /// This attempt was not applied; whether another one may be made is `again`.
    NotApplied {
        /// Whether the same request may get another answer a moment later or elsewhere.
        again: bool,
    },
    /// This attempt may have been applied; whether another one may be made is `again`.
    Unknown {
        /// Whether the same request may get an answer a moment later or elsewhere.
        again: bool,
    },
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// The call is over, with this outcome.
    Over(Outcome),
    /// The same request may be sent again; should the time run out first, this is the outcome.
    Again(Outcome),
}

/// A call over all its attempts, some of which may be under way at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    repeat: Repeat,
    /// The worst of the attempts without a verdict.
    worst: Option<Outcome>,
    /// An attempt was refused.
    refused: bool,
}

impl Call {
    /// A call of which nothing has been sent.
    pub const fn new(repeat: Repeat) -> Call {
        Call {
            repeat,
            worst: None,
            refused: false,
        }
    }

    /// Whether the request may be sent while an earlier attempt is still under way.
    pub const fn may_send_beside(&self) -> bool {
        !matches!(self.repeat, Repeat::Never)
    }

    /// Notes what an attempt told while so many others are without an answer, and says what to do. If the call is over
    /// with an unknown outcome, the answers of those others may still settle it.
    pub fn record(&mut self, attempt: Attempt, unanswered: usize) -> Next {
        let outcome = match attempt {
            Attempt::Done => return Next::Over(Outcome::Done),
            // What the server remembers of this request settles every attempt of it.
            Attempt::Refused if matches!(self.repeat, Repeat::Remembered | Repeat::Read) => {
                return Next::Over(Outcome::Refused);
            }
            Attempt::Refused => {
                self.refused = true;
                return Next::Over(self.given_up(unanswered));
            }
            Attempt::NeverRan if matches!(self.repeat, Repeat::Remembered) => return Next::Over(Outcome::NotApplied),
            Attempt::NeverRan | Attempt::NotApplied { .. } => Outcome::NotApplied,
            Attempt::Unknown { .. } if matches!(self.repeat, Repeat::Read) => Outcome::NotApplied,
            Attempt::Unknown { .. } => Outcome::Unknown,
        };
        let worst = self.worst.map_or(outcome, |worst| worst.max(outcome));
        self.worst = Some(worst);
        let again = match attempt {
            Attempt::NotApplied { again } | Attempt::Unknown { again } => again,
            Attempt::Done | Attempt::Refused | Attempt::NeverRan => false,
        };
        if again && !(worst == Outcome::Unknown && matches!(self.repeat, Repeat::Never)) {
            Next::Again(worst)
        } else {
            Next::Over(self.given_up(unanswered))
        }
    }

    /// The outcome if the call ends now, while so many attempts are without an answer. It is refused only if an attempt
    /// was refused and none may have been applied.
    pub fn given_up(&self, unanswered: usize) -> Outcome {
        let open = unanswered > 0 && !matches!(self.repeat, Repeat::Read);
        if open || self.worst == Some(Outcome::Unknown) {
            Outcome::Unknown
        } else if self.refused {
            Outcome::Refused
        } else {
            Outcome::NotApplied
        }
    }
}

#[cfg(test)]
mod tests;
