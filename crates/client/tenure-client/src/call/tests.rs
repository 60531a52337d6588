//! Which error a call ends with.

use std::time::Duration;

use tenure_api::v1::WireError;
use tenure_api::{ErrorCode, Outcome};
use tenure_recipes::outcome::{Attempt, Repeat};

use super::{Attempts, Decision, Plan, classify};
use crate::channel::AttemptError;
use crate::error::Error;

fn server(error: WireError) -> AttemptError {
    AttemptError::Server(Box::new(error))
}

fn broken() -> AttemptError {
    AttemptError::Broken("a test".to_owned())
}

/// The error after these attempts have failed, with so many more on the way.
fn error_after(repeat: Repeat, failures: Vec<AttemptError>, on_the_way: usize) -> Error {
    let plan = Plan {
        repeat,
        group: None,
        timeout: Duration::from_secs(1),
    };
    let mut attempts = Attempts::new(plan, Duration::ZERO);
    for failure in failures {
        if let Decision::Over(error) = attempts.failed(failure, 0, 0) {
            return error;
        }
    }
    attempts.error(on_the_way)
}

#[test]
fn every_code_has_its_place_in_the_retry_rule() {
    for code in ErrorCode::ALL {
        let again = code.retryable() || code == ErrorCode::Deadline;
        let expected = match code.outcome() {
            _ if code == ErrorCode::SessionExpired => Attempt::NeverRan,
            Outcome::Refused | Outcome::NotApplied => Attempt::NotApplied { again },
            Outcome::Unknown => Attempt::Unknown { again },
        };
        assert_eq!(classify(&server(WireError::new(code, ""))), expected, "{code}");
    }
}

#[test]
fn an_error_whose_code_is_newer_than_this_program_is_taken_by_its_outcome() {
    let mut error = WireError::internal("");
    error.code = "from_the_future".to_owned();
    error.outcome = tenure_api::v1::Outcome::NotApplied.into();
    assert_eq!(classify(&server(error.clone())), Attempt::NotApplied { again: false });
    error.outcome = 99;
    assert_eq!(classify(&server(error)), Attempt::Unknown { again: false });
}

#[test]
fn the_error_is_that_of_the_worst_attempt() {
    let busy = || server(WireError::overloaded("proposals", 1));
    let error = error_after(Repeat::Remembered, vec![busy(), broken(), busy()], 0);
    assert_eq!(
        (error.outcome(), error.code()),
        (Outcome::Unknown, ErrorCode::QuorumTimeout)
    );
    let error = error_after(
        Repeat::Remembered,
        vec![busy(), server(WireError::unavailable("no leader"))],
        0,
    );
    assert_eq!(
        (error.outcome(), error.code()),
        (Outcome::NotApplied, ErrorCode::Unavailable),
        "the later of two"
    );
    let error = error_after(
        Repeat::Remembered,
        vec![server(WireError::leadership_lost()), busy()],
        0,
    );
    assert_eq!(
        (error.outcome(), error.code()),
        (Outcome::Unknown, ErrorCode::LeadershipLost)
    );
}

#[test]
fn an_attempt_on_the_way_makes_the_outcome_unknown_unless_the_call_changes_nothing() {
    let busy = || server(WireError::overloaded("proposals", 1));
    let error = error_after(Repeat::Remembered, vec![busy()], 1);
    assert_eq!((error.outcome(), error.exit_code()), (Outcome::Unknown, 6));
    let error = error_after(Repeat::Read, vec![broken()], 1);
    assert_eq!((error.outcome(), error.exit_code()), (Outcome::NotApplied, 3));
    let error = error_after(Repeat::Never, vec![], 0);
    assert_eq!((error.outcome(), error.exit_code()), (Outcome::NotApplied, 3));
}

#[test]
fn an_ended_session_settles_a_remembered_request_after_an_unknown_attempt() {
    let ended = WireError::session_expired(9, tenure_api::v1::EndReason::Expired, 17);
    let error = error_after(Repeat::Remembered, vec![broken(), server(ended)], 1);
    assert_eq!(
        (error.outcome(), error.code()),
        (Outcome::NotApplied, ErrorCode::SessionExpired)
    );
}
