//! Each rule finds what breaks it, and nothing else.

use tenure_client::EndReason;

use super::*;

fn put(client: u32, at: u64, key: &str, value: &str, guard: Guarded, told: Told) -> Call {
    Call {
        client,
        operation: Operation::Put {
            key: key.to_owned(),
            value: value.to_owned(),
            guard,
        },
        called: Duration::from_millis(at),
        returned: (told != Told::Unknown).then(|| Duration::from_millis(at + 5)),
        told,
        failure: None,
    }
}

fn written(version: u64, created: u64) -> Told {
    Told::Written { version, created }
}

fn told(revision: u64, key: &str, value: &str, created: u64, previous_version: Option<u64>) -> Event {
    Event {
        revision,
        key: key.to_owned(),
        kind: EventKind::Put {
            value: value.to_owned(),
            version: revision,
            created,
        },
        previous_version,
    }
}

fn removed(revision: u64, key: &str, previous_version: u64) -> Event {
    Event {
        revision,
        key: key.to_owned(),
        kind: EventKind::Removed {
            reason: EndReason::Delete,
        },
        previous_version: Some(previous_version),
    }
}

/// A history in which everything is right: a claim, a refusal, a write of unknown outcome, a removal, a new claim.
fn right() -> (Vec<Call>, Vec<Event>) {
    let calls = vec![
        put(1, 0, "k", "a", Guarded::Absent, written(3, 3)),
        put(2, 10, "k", "b", Guarded::Absent, Told::Refused { version: Some(3) }),
        put(2, 20, "k", "c", Guarded::Version(3), Told::Unknown),
        Call {
            client: 1,
            operation: Operation::Delete {
                key: "k".to_owned(),
                guard: Guarded::Version(5),
            },
            called: Duration::from_millis(30),
            returned: Some(Duration::from_millis(35)),
            told: Told::Deleted { removed: Some((7, 5)) },
            failure: None,
        },
        put(2, 40, "k", "d", Guarded::Absent, written(8, 8)),
    ];
    let events = vec![
        told(3, "k", "a", 3, None),
        told(5, "k", "c", 3, Some(3)),
        removed(7, "k", 5),
        told(8, "k", "d", 8, None),
    ];
    (calls, events)
}

fn rule_broken(calls: &[Call], events: &[Event]) -> &'static str {
    let state = replay(&State::new(), events);
    match everything(calls, events, &state, 9) {
        Ok(_) => "none",
        Err(violation) => violation.rule,
    }
}

#[test]
fn a_right_history_breaks_no_rule_and_is_counted() {
    let (calls, events) = right();
    let state = replay(&State::new(), &events);
    let counts = Counts {
        acknowledged: 3,
        read: 0,
        refused: 1,
        not_applied: 0,
        unknown: 1,
    };
    assert_eq!(everything(&calls, &events, &state, 8), Ok(counts));
    assert_eq!(watches_agree(&events, &events[2..], 7, 8), Ok(()));
}

#[test]
fn an_acknowledged_write_that_is_missing_is_found() {
    let (calls, mut events) = right();
    events.pop();
    assert_eq!(rule_broken(&calls, &events), "what was acknowledged happened");
}

#[test]
fn a_write_that_happened_though_it_was_refused_is_found() {
    let (calls, mut events) = right();
    events.push(told(9, "k", "b", 8, Some(8)));
    assert_eq!(rule_broken(&calls, &events), "what happened was asked for");
}

#[test]
fn a_write_that_happened_twice_is_found() {
    let (calls, mut events) = right();
    events.push(told(9, "k", "c", 8, Some(8)));
    assert_eq!(rule_broken(&calls, &events), "no write happens twice");
}

#[test]
fn a_version_that_was_given_twice_is_found() {
    let (mut calls, events) = right();
    calls.push(put(3, 50, "j", "e", Guarded::Nothing, written(8, 8)));
    assert_eq!(rule_broken(&calls, &events), "no revision twice");
}

#[test]
fn a_version_below_one_that_was_known_before_is_found() {
    let (mut calls, mut events) = right();
    calls.push(put(3, 50, "j", "e", Guarded::Nothing, written(4, 4)));
    events.insert(1, told(4, "j", "e", 4, None));
    assert_eq!(rule_broken(&calls, &events), "revisions agree with real time");
}

#[test]
fn changes_out_of_order_and_changes_that_come_twice_are_found() {
    let (calls, mut events) = right();
    events.swap(0, 1);
    assert_eq!(rule_broken(&calls, &events), "changes are ordered");
    let (calls, mut events) = right();
    events.insert(1, events[0].clone());
    assert_eq!(rule_broken(&calls, &events), "changes are unique");
}

#[test]
fn a_gap_in_a_watch_is_found() {
    let (calls, mut events) = right();
    events.remove(1);
    assert_eq!(rule_broken(&calls, &events), "the version before is right");
    let (_, whole) = right();
    let error = watches_agree(&whole, &events, 0, 8).expect_err("one change is missing");
    assert_eq!(error.rule, "watches agree");
}

#[test]
fn a_token_that_does_not_rise_is_found() {
    let (calls, mut events) = right();
    events[3] = told(8, "k", "d", 3, None);
    assert_eq!(rule_broken(&calls, &events), "tokens rise and stay");
}

#[test]
fn two_winners_of_one_version_are_found() {
    let (mut calls, mut events) = right();
    calls.push(put(3, 50, "k", "e", Guarded::Version(3), written(9, 8)));
    events.push(told(9, "k", "e", 8, Some(8)));
    assert_eq!(rule_broken(&calls, &events), "the guard of a write held");
}

#[test]
fn a_refusal_that_names_a_version_that_never_was_is_found() {
    let (mut calls, events) = right();
    calls[1].told = Told::Refused { version: Some(4) };
    assert_eq!(rule_broken(&calls, &events), "a refusal names what was there");
}

#[test]
fn a_state_that_the_changes_do_not_give_is_found() {
    let (calls, events) = right();
    let error = everything(&calls, &events, &State::new(), 8).expect_err("the state is not empty");
    assert_eq!(error.rule, "the changes add up to the state");
}
