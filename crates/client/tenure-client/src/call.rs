//! One call over all its attempts.
//!
//! Which attempt may follow which is the rule of [`tenure_recipes::outcome`]; here are the times and the places. An
//! attempt that has no answer after a quarter of the call's time gets another one beside it, at the next endpoint, if
//! the request may be sent twice. The error of a call is that of its worst attempt.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use tenure_api::v1::client_frame;
use tenure_api::{ErrorCode, Outcome};
use tenure_recipes::outcome::{Attempt, Call, Next, Repeat};

use crate::channel::{Answer, AttemptError};
use crate::error::Error;
use crate::pool::{Pool, backoff};
use crate::runtime::{ClientRuntime, random_u64};

/// An attempt that is unanswered for the call's time divided by this gets another one beside it.
const PATIENCE_DIVISOR: u32 = 4;
/// Attempts of one call that are under way at the same time.
const BESIDE_MAX: usize = 4;

/// What a call is about, apart from its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) repeat: Repeat,
    /// The group that will answer, if that is known.
    pub(crate) group: Option<u32>,
    /// The time for all attempts together.
    pub(crate) timeout: Duration,
}

/// A length of time that is being used up.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    started: Duration,
    whole: Duration,
}

impl Budget {
    pub(crate) fn new(runtime: &ClientRuntime, whole: Duration) -> Budget {
        Budget {
            started: runtime.clock.now().monotonic,
            whole,
        }
    }

    /// What is left of it.
    pub(crate) fn left(&self, runtime: &ClientRuntime) -> Duration {
        self.whole
            .saturating_sub(runtime.clock.now().monotonic.saturating_sub(self.started))
    }
}

/// Makes a call. `make` builds the request for each attempt.
///
/// # Errors
/// That of the worst attempt, with the outcome over all attempts.
pub(crate) async fn call(
    pool: &Pool,
    runtime: &ClientRuntime,
    plan: Plan,
    make: impl Fn() -> client_frame::Body,
) -> Result<Answer, Error> {
    let budget = Budget::new(runtime, plan.timeout);
    let patience = plan.timeout / PATIENCE_DIVISOR;
    let on_the_way = AtomicUsize::new(0);
    let mut state = Attempts::new(plan.repeat, pool.first(plan.group));
    let mut under_way = FuturesUnordered::new();
    let mut overall = pin!(tokio::time::sleep(plan.timeout));
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        tokio::select! {
            biased;
            Some((endpoint, result)) = under_way.next(), if !under_way.is_empty() => {
                let failed: AttemptError = match result {
                    Ok(answer) => return Ok(answer),
                    Err(failed) => failed,
                };
                let decision = state.failed(failed, random_u64(&*runtime.random));
                if let (Some(endpoint), Decision::Again(_)) = (endpoint, &decision) {
                    pool.avoid(endpoint);
                }
                match decision {
                    Decision::Over(error) => return Err(error),
                    // While another attempt is under way, its answer may still settle the call.
                    Decision::Closed if under_way.is_empty() => return Err(state.error(0)),
                    Decision::Again(wait) if under_way.is_empty() => {
                        state.next_due = true;
                        timer.set(tokio::time::sleep(wait));
                    }
                    Decision::Closed | Decision::Again(_) => {}
                }
            }
            () = &mut overall => return Err(state.error(on_the_way.load(Ordering::Relaxed))),
            () = &mut timer, if state.next_due => {
                let first = state.next_endpoint();
                if !under_way.is_empty() {
                    pool.retire_if_silent(first + pool.len() - 1, patience);
                }
                let left = budget.left(runtime);
                let body = make();
                let on_the_way = &on_the_way;
                under_way.push(async move {
                    match pool.stream(first, patience).await {
                        Ok(stream) => (Some(stream.endpoint), stream.request(body, left, on_the_way).await),
                        Err(error) => (None, Err(AttemptError::NotSent(error))),
                    }
                });
                state.next_due = state.call.may_send_beside() && !state.closed && under_way.len() < BESIDE_MAX;
                timer.set(tokio::time::sleep(patience));
            }
        }
    }
}

/// What has become of the attempts of a call.
struct Attempts {
    call: Call,
    endpoint: usize,
    failures: u32,
    worst: Option<(Outcome, Error)>,
    /// Whether the timer is the time of the next attempt.
    next_due: bool,
    /// No further attempt is made.
    closed: bool,
}

enum Decision {
    /// The call is over with this error.
    Over(Error),
    /// No further attempt; those under way may still settle it.
    Closed,
    /// Another attempt after this time.
    Again(Duration),
}

impl Attempts {
    fn new(repeat: Repeat, endpoint: usize) -> Attempts {
        Attempts {
            call: Call::new(repeat),
            endpoint,
            failures: 0,
            worst: None,
            next_due: true,
            closed: false,
        }
    }

    /// Where the next attempt begins.
    fn next_endpoint(&mut self) -> usize {
        let endpoint = self.endpoint;
        self.endpoint += 1;
        endpoint
    }

    /// Takes note of a failed attempt.
    fn failed(&mut self, failed: AttemptError, random: u64) -> Decision {
        let attempt = classify(&failed);
        let retry_after = match &failed {
            AttemptError::Server(error) => error.retry_after_us.map(Duration::from_micros),
            _ => None,
        };
        let error = failed.into_error();
        let next = self.call.record(attempt);
        let outcome = match next {
            Next::Over(outcome) | Next::Again(outcome) => outcome,
        };
        if attempt == Attempt::NeverRan && outcome == tenure_recipes::Outcome::NotApplied {
            return Decision::Over(error.with_outcome(Outcome::NotApplied));
        }
        let this = match attempt {
            Attempt::Unknown { .. } if outcome == tenure_recipes::Outcome::Unknown => Outcome::Unknown,
            _ => Outcome::NotApplied,
        };
        if self.worst.as_ref().is_none_or(|(worst, _)| this >= *worst) {
            self.worst = Some((this, error));
        }
        self.failures = self.failures.saturating_add(1);
        match next {
            Next::Again(_) if !self.closed => {
                Decision::Again(backoff(self.failures, random).max(retry_after.unwrap_or_default()))
            }
            Next::Again(_) | Next::Over(_) => {
                self.closed = true;
                self.next_due = false;
                Decision::Closed
            }
        }
    }

    /// The error of the call if it ends now, with so many attempts on the way.
    fn error(&mut self, on_the_way: usize) -> Error {
        let outcome = match self.call.given_up(on_the_way) {
            tenure_recipes::Outcome::Unknown => Outcome::Unknown,
            _ => Outcome::NotApplied,
        };
        match self.worst.take() {
            Some((worst, error)) if worst == outcome => error.with_outcome(outcome),
            _ if on_the_way > 0 => Error::NoAnswer {
                why: "the time given is over".to_owned(),
                outcome,
            },
            Some((_, error)) => error.with_outcome(outcome),
            None => Error::Unreachable {
                why: "the time given is over".to_owned(),
                outcome,
            },
        }
    }
}

/// What an attempt without an answer told.
fn classify(failed: &AttemptError) -> Attempt {
    match failed {
        AttemptError::NotSent(Error::Unreachable { .. } | Error::Busy { .. }) => Attempt::NotApplied { again: true },
        AttemptError::NotSent(error) => Attempt::NotApplied {
            again: error.code().retryable(),
        },
        AttemptError::Broken(_) => Attempt::Unknown { again: true },
        AttemptError::Server(error) => {
            let code = error.error_code();
            // A node's time for an attempt may end before the call's.
            let again = code.is_some_and(|code| code.retryable() || code == ErrorCode::Deadline);
            match error.known_outcome() {
                Outcome::NotApplied if code == Some(ErrorCode::SessionExpired) => Attempt::NeverRan,
                Outcome::NotApplied | Outcome::Refused => Attempt::NotApplied { again },
                Outcome::Unknown => Attempt::Unknown { again },
            }
        }
    }
}

#[cfg(test)]
mod tests;
