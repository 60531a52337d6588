//! One call over all its attempts.
//!
//! Which attempt may follow which is the rule of [`tenure_recipes::outcome`]; here are the times and the places. An
//! attempt that has no answer after a quarter of the call's time gets another one beside it, at the next endpoint, if
//! the request may be sent twice. The error of a call is that of its worst attempt. Where nobody was ever met and every
//! endpoint refuses connections, a call that has sent nothing ends after half a second.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use tenure_api::v1::{
    WireError, append_reply, client_frame, create_cache_reply, create_stream_reply, delete_reply, kept_alive,
    put_reply, server_frame, touch_reply, txn_reply,
};
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
            started: runtime.clock.monotonic(),
            whole,
        }
    }

    /// What is left of it.
    pub(crate) fn left(&self, runtime: &ClientRuntime) -> Duration {
        self.whole
            .saturating_sub(runtime.clock.monotonic().saturating_sub(self.started))
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
    let mut state = Attempts::new(plan, runtime.clock.boot());
    let attempt = |first: usize, left: Duration| {
        let (body, on_the_way) = (make(), &on_the_way);
        async move {
            match pool.stream(first, patience).await {
                Ok(stream) => (Some(stream.endpoint), stream.request(body, left, on_the_way).await),
                Err(error) => (None, Err(AttemptError::NotSent(error))),
            }
        }
    };
    let mut under_way = FuturesUnordered::new();
    // The first attempt waits for no timer: the shortest takes a millisecond, many times what an answer takes.
    under_way.push(attempt(state.next_endpoint(pool), plan.timeout));
    state.attempted(under_way.len());
    // One timer for the next attempt and the end of the call, whichever is first.
    let end = tokio::time::sleep(plan.timeout).deadline();
    let next_at = |state: &Attempts, wait: Duration| match state.next_due {
        true => tokio::time::sleep(wait).deadline().min(end),
        false => end,
    };
    let mut timer = pin!(tokio::time::sleep_until(next_at(&state, patience)));
    loop {
        tokio::select! {
            biased;
            Some((endpoint, result)) = under_way.next(), if !under_way.is_empty() => {
                let unanswered = on_the_way.load(Ordering::Relaxed);
                let decision = state.decide(pool, runtime, result, unanswered, under_way.is_empty());
                if let (Some(endpoint), Decision::Again(_)) = (endpoint, &decision) {
                    pool.avoid(endpoint);
                    state.tried.insert(endpoint);
                }
                match decision {
                    Decision::Answered(answer) => return Ok(*answer),
                    Decision::Over(error) => return Err(error),
                    // While another attempt is under way, its answer may still settle the call.
                    Decision::Closed if under_way.is_empty() => return state.end(0),
                    Decision::Again(wait) if under_way.is_empty() => {
                        state.next_due = true;
                        timer.as_mut().reset(next_at(&state, wait));
                    }
                    Decision::Closed => timer.as_mut().reset(end),
                    Decision::Again(_) => {}
                }
            }
            () = timer.as_mut() => {
                if timer.deadline() >= end {
                    return state.end(on_the_way.load(Ordering::Relaxed));
                }
                if let (Some(last), false) = (state.endpoint, under_way.is_empty()) {
                    pool.retire_if_silent(last, patience);
                }
                let first = state.next_endpoint(pool);
                under_way.push(attempt(first, budget.left(runtime)));
                state.attempted(under_way.len());
                timer.as_mut().reset(next_at(&state, patience));
            }
        }
    }
}

/// What has become of the attempts of a call.
struct Attempts {
    /// When the call began, on the boot-time clock.
    began: Duration,
    call: Call,
    group: Option<u32>,
    /// Where the last attempt began; `None`: there was none.
    endpoint: Option<usize>,
    /// What was tried since all endpoints were.
    tried: BTreeSet<usize>,
    failures: u32,
    worst: Option<(Outcome, Error)>,
    /// A refusal that stands if no other attempt turns out to be more.
    refused: Option<Answer>,
    /// Whether the timer is the time of the next attempt.
    next_due: bool,
    /// No further attempt is made.
    closed: bool,
    /// An attempt may have left.
    sent: bool,
}

enum Decision {
    /// The call is over with this answer.
    Answered(Box<Answer>),
    /// The call is over with this error.
    Over(Error),
    /// No further attempt; those under way may still settle it.
    Closed,
    /// Another attempt after this time.
    Again(Duration),
}

impl Attempts {
    fn new(plan: Plan, began: Duration) -> Attempts {
        Attempts {
            began,
            call: Call::new(plan.repeat),
            group: plan.group,
            endpoint: None,
            tried: BTreeSet::new(),
            failures: 0,
            worst: None,
            refused: None,
            next_due: true,
            closed: false,
            sent: false,
        }
    }

    /// Where the next attempt begins. A node that answered that another one leads has said where to go.
    fn next_endpoint(&mut self, pool: &Pool) -> usize {
        let endpoint = match self.endpoint {
            None => pool.first(self.group),
            Some(last) => pool.another(last, self.group, &mut self.tried),
        };
        self.endpoint = Some(endpoint);
        endpoint
    }

    /// Takes note of an attempt that was begun, so many of which are under way now.
    fn attempted(&mut self, under_way: usize) {
        self.next_due = self.call.may_send_beside() && !self.closed && under_way < BESIDE_MAX;
    }

    /// Takes note of how an attempt has ended, with so many others unanswered. `alone`: no other is under way.
    fn decide(
        &mut self,
        pool: &Pool,
        runtime: &ClientRuntime,
        result: Result<Answer, AttemptError>,
        unanswered: usize,
        alone: bool,
    ) -> Decision {
        let failed = match result.and_then(verdict) {
            Ok((attempt, answer)) => return self.answered(attempt, answer, unanswered),
            Err(failed) => failed,
        };
        let random = random_u64(&*runtime.random);
        let unreachable = failed.unreachable().cloned();
        match (self.failed(failed, unanswered, random), unreachable) {
            (Decision::Again(_), Some(error)) => {
                let pause = pool.pause(&error, self.failures, random);
                if alone && !self.sent && pool.in_vain(self.began, pause) {
                    Decision::Over(self.error(0))
                } else {
                    Decision::Again(pause)
                }
            }
            (decision, _) => decision,
        }
    }

    /// Takes note of an answer that is done or refused, with so many other attempts on the way.
    fn answered(&mut self, attempt: Attempt, answer: Answer, on_the_way: usize) -> Decision {
        match self.call.record(attempt, on_the_way) {
            Next::Over(tenure_recipes::Outcome::Done | tenure_recipes::Outcome::Refused) => {
                Decision::Answered(Box::new(answer))
            }
            Next::Over(_) | Next::Again(_) => {
                self.refused = Some(answer);
                self.close()
            }
        }
    }

    /// Makes no further attempt.
    fn close(&mut self) -> Decision {
        self.closed = true;
        self.next_due = false;
        Decision::Closed
    }

    /// Takes note of a failed attempt, with so many others on the way.
    fn failed(&mut self, failed: AttemptError, on_the_way: usize, random: u64) -> Decision {
        let attempt = classify(&failed);
        self.sent |= !matches!(failed, AttemptError::NotSent(_));
        let retry_after = match &failed {
            AttemptError::Server(error) => error.retry_after_us.map(Duration::from_micros),
            _ => None,
        };
        let error = failed.into_error();
        let next = self.call.record(attempt, on_the_way);
        let outcome = match next {
            Next::Over(outcome) | Next::Again(outcome) => outcome,
        };
        if attempt == Attempt::NeverRan && outcome == tenure_recipes::Outcome::NotApplied {
            return Decision::Over(error.with_outcome(Outcome::NotApplied));
        }
        let this = match attempt {
            Attempt::Unknown { .. } if self.call.given_up(0) == tenure_recipes::Outcome::Unknown => Outcome::Unknown,
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
            Next::Again(_) | Next::Over(_) => self.close(),
        }
    }

    /// What the call comes to if it ends now, with so many attempts on the way.
    fn end(&mut self, on_the_way: usize) -> Result<Answer, Error> {
        match self.refused.take() {
            Some(answer) if self.call.given_up(on_the_way) == tenure_recipes::Outcome::Refused => Ok(answer),
            _ => Err(self.error(on_the_way)),
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

/// What an answer told: done or refused.
///
/// # Errors
/// What it carries is an error after all.
fn verdict(answer: Answer) -> Result<(Attempt, Answer), AttemptError> {
    let refused = match &answer.body {
        server_frame::Body::Put(reply) => matches!(reply.verdict, Some(put_reply::Verdict::Refused(_))),
        server_frame::Body::Delete(reply) => matches!(reply.verdict, Some(delete_reply::Verdict::Refused(_))),
        server_frame::Body::Touch(reply) => matches!(reply.verdict, Some(touch_reply::Verdict::Refused(_))),
        server_frame::Body::CreateCache(reply) => {
            matches!(reply.verdict, Some(create_cache_reply::Verdict::Refused(_)))
        }
        server_frame::Body::CreateStream(reply) => {
            matches!(reply.verdict, Some(create_stream_reply::Verdict::Refused(_)))
        }
        server_frame::Body::Append(reply) => matches!(reply.verdict, Some(append_reply::Verdict::Refused(_))),
        server_frame::Body::Txn(reply) => matches!(reply.verdict, Some(txn_reply::Verdict::Refused(_))),
        // A call renews one session. Those that the keep-alive renews many at a time do not come by here.
        server_frame::Body::KeepAlive(reply) => {
            let [kept] = reply.sessions.as_slice() else {
                return Ok((Attempt::Done, answer));
            };
            let error = match &kept.result {
                Some(kept_alive::Result::Ended(end)) => {
                    WireError::session_expired(kept.session, end.reason(), end.revision)
                }
                Some(kept_alive::Result::Unknown(_)) => WireError::session_unknown(kept.session),
                Some(kept_alive::Result::Failed(error)) => error.clone(),
                Some(kept_alive::Result::Renewed(_)) | None => return Ok((Attempt::Done, answer)),
            };
            return Err(AttemptError::Server(Box::new(error)));
        }
        _ => false,
    };
    let attempt = if refused { Attempt::Refused } else { Attempt::Done };
    Ok((attempt, answer))
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
