//! The retry rule as a table.

use super::{Attempt, Call, Next, Outcome, Repeat};

const LOST: Attempt = Attempt::Unknown { again: true };
const UNSURE_FOR_GOOD: Attempt = Attempt::Unknown { again: false };
const BUSY: Attempt = Attempt::NotApplied { again: true };
const WRONG: Attempt = Attempt::NotApplied { again: false };

/// What the last of these attempts leads to. Every attempt before it must have allowed another.
fn after(repeat: Repeat, attempts: &[Attempt]) -> Next {
    let mut call = Call::new(repeat);
    let mut next = Next::Again(Outcome::NotApplied);
    for attempt in attempts {
        assert!(
            matches!(next, Next::Again(_)),
            "{repeat:?} {attempts:?} was over before its last attempt"
        );
        next = call.record(*attempt, 0);
    }
    next
}

#[test]
fn the_table_of_retries_holds() {
    use Next::{Again, Over};
    use Outcome::{Done, NotApplied, Refused, Unknown};
    use Repeat::{Harmless, Never, Read, Remembered};
    let table: [(Repeat, &[Attempt], Next); 31] = [
        // One answer is the answer.
        (Remembered, &[Attempt::Done], Over(Done)),
        (Never, &[Attempt::Refused], Over(Refused)),
        // What was not applied may be tried again, however it is identified.
        (Remembered, &[BUSY], Again(NotApplied)),
        (Never, &[BUSY], Again(NotApplied)),
        (Never, &[BUSY, BUSY, Attempt::Done], Over(Done)),
        (Read, &[BUSY], Again(NotApplied)),
        (Harmless, &[WRONG], Over(NotApplied)),
        // A remembered request is asked again after an unknown attempt, and its result settles all of them.
        (Remembered, &[LOST], Again(Unknown)),
        (Remembered, &[LOST, Attempt::Done], Over(Done)),
        (Remembered, &[LOST, LOST, Attempt::Refused], Over(Refused)),
        (Remembered, &[LOST, Attempt::NeverRan], Over(NotApplied)),
        (Remembered, &[Attempt::NeverRan], Over(NotApplied)),
        // Nothing else settles it.
        (Remembered, &[LOST, BUSY], Again(Unknown)),
        (Remembered, &[LOST, WRONG], Over(Unknown)),
        (Remembered, &[BUSY, LOST, BUSY, WRONG], Over(Unknown)),
        (Remembered, &[UNSURE_FOR_GOOD], Over(Unknown)),
        (Remembered, &[BUSY, UNSURE_FOR_GOOD], Over(Unknown)),
        // Without an identity an unknown attempt is the last.
        (Never, &[LOST], Over(Unknown)),
        (Never, &[UNSURE_FOR_GOOD], Over(Unknown)),
        (Never, &[Attempt::NeverRan], Over(NotApplied)),
        // A read has no effect to be unsure of.
        (Read, &[LOST], Again(NotApplied)),
        (Read, &[UNSURE_FOR_GOOD], Over(NotApplied)),
        (Read, &[LOST, WRONG], Over(NotApplied)),
        (Read, &[LOST, Attempt::Done], Over(Done)),
        // What does no harm twice is simply done again.
        (Harmless, &[LOST], Again(Unknown)),
        (Harmless, &[LOST, Attempt::Done], Over(Done)),
        (Harmless, &[LOST, WRONG], Over(Unknown)),
        // That it is refused then does not take back that it may have been done before.
        (Harmless, &[Attempt::Refused], Over(Refused)),
        (Harmless, &[BUSY, Attempt::Refused], Over(Refused)),
        (Harmless, &[LOST, Attempt::Refused], Over(Unknown)),
        (Harmless, &[LOST, Attempt::NeverRan], Over(Unknown)),
    ];
    for (repeat, attempts, expected) in table {
        assert_eq!(after(repeat, attempts), expected, "{repeat:?} {attempts:?}");
    }
}

#[test]
fn a_call_given_up_while_an_attempt_is_unanswered_is_unknown() {
    assert_eq!(Call::new(Repeat::Remembered).given_up(1), Outcome::Unknown);
    assert_eq!(Call::new(Repeat::Never).given_up(1), Outcome::Unknown);
    assert_eq!(Call::new(Repeat::Remembered).given_up(0), Outcome::NotApplied);
    assert_eq!(Call::new(Repeat::Read).given_up(3), Outcome::NotApplied);
}

#[test]
fn a_call_given_up_after_an_unknown_attempt_is_unknown_though_nothing_is_under_way() {
    let mut call = Call::new(Repeat::Remembered);
    call.record(LOST, 0);
    call.record(BUSY, 0);
    assert_eq!(call.given_up(0), Outcome::Unknown);
}

#[test]
fn a_refusal_beside_an_unanswered_attempt_settles_only_what_is_remembered() {
    let beside = |repeat, attempt| Call::new(repeat).record(attempt, 1);
    assert_eq!(beside(Repeat::Harmless, Attempt::Refused), Next::Over(Outcome::Unknown));
    assert_eq!(
        beside(Repeat::Harmless, Attempt::NeverRan),
        Next::Over(Outcome::Unknown)
    );
    assert_eq!(beside(Repeat::Harmless, Attempt::Done), Next::Over(Outcome::Done));
    assert_eq!(beside(Repeat::Harmless, WRONG), Next::Over(Outcome::Unknown));
    assert_eq!(
        beside(Repeat::Remembered, Attempt::Refused),
        Next::Over(Outcome::Refused)
    );
    assert_eq!(
        beside(Repeat::Remembered, Attempt::NeverRan),
        Next::Over(Outcome::NotApplied)
    );
    assert_eq!(beside(Repeat::Read, WRONG), Next::Over(Outcome::NotApplied));
}

#[test]
fn a_call_is_refused_once_every_attempt_is_answered_and_none_may_have_been_applied() {
    let mut call = Call::new(Repeat::Harmless);
    assert_eq!(call.record(Attempt::Refused, 1), Next::Over(Outcome::Unknown));
    assert_eq!(call.given_up(1), Outcome::Unknown);
    assert_eq!(call.record(WRONG, 0), Next::Over(Outcome::Refused));
    assert_eq!(call.given_up(0), Outcome::Refused);
    call.record(LOST, 0);
    assert_eq!(call.given_up(0), Outcome::Unknown);
}

#[test]
fn only_a_request_that_may_be_repeated_is_sent_beside_itself() {
    assert!(Call::new(Repeat::Remembered).may_send_beside());
    assert!(Call::new(Repeat::Read).may_send_beside());
    assert!(!Call::new(Repeat::Never).may_send_beside());
}

#[test]
fn worse_outcomes_compare_greater() {
    assert!(Outcome::Done < Outcome::Refused);
    assert!(Outcome::Refused < Outcome::NotApplied);
    assert!(Outcome::NotApplied < Outcome::Unknown);
}
