//! Every kind of failure, its status, its line and its object.

use bytes::Bytes;

use tenure_api::v1::WireError;
use tenure_api::{ErrorCode, Outcome};
use tenure_client::{Error, KeyFacts, Refusal};

use super::{ErrorObject, Failure, refusal};
use crate::output::json;

fn of_server(error: WireError) -> Failure {
    let outcome = error.known_outcome();
    Failure::from(Error::Server {
        error: Box::new(error),
        outcome,
    })
}

fn object(failure: &Failure) -> String {
    String::from_utf8(json(&ErrorObject::new(failure)).unwrap()).unwrap()
}

fn facts() -> KeyFacts {
    KeyFacts {
        version: 17,
        created: 16,
        holder: Some(9),
        remaining: Some(std::time::Duration::from_micros(812_999)),
        value: Some(Bytes::from_static(b"worker-7")),
        value_len: 8,
    }
}

#[test]
fn every_code_has_the_status_of_the_table() {
    for code in ErrorCode::ALL {
        if code.outcome() == Outcome::Refused {
            continue;
        }
        let failure = of_server(WireError::new(code, "what happened"));
        assert_eq!(failure.status(), code.exit(), "{code}");
        assert_eq!(failure.code(), code.name());
        assert_eq!(failure.outcome(), code.outcome());
    }
}

#[test]
fn an_unknown_outcome_is_never_shown_as_not_applied() {
    // The last attempt was refused before it ran, and nothing is known of the one before it.
    let error = WireError::overloaded("memory", 1_000);
    let failure = Failure::from(Error::Server {
        error: Box::new(error),
        outcome: Outcome::Unknown,
    });
    assert_eq!(failure.status(), 6);
    assert!(object(&failure).contains(r#""outcome":"unknown","exit":6"#));
}

#[test]
fn what_does_not_exist_is_named_with_a_way_to_it() {
    let failure = of_server(WireError::not_found("cache", "acme/prod/leases"));
    assert_eq!(
        failure.to_string(),
        "cache acme/prod/leases does not exist: create it with `tenure cache create leases`, or correct the name"
    );
    assert_eq!(
        object(&failure),
        "{\"error\":\"cache acme/prod/leases does not exist: create it with `tenure cache create leases`, or correct the name\",\
         \"code\":\"not_found\",\"outcome\":\"not_applied\",\"exit\":5}"
    );
}

#[test]
fn a_watch_that_cannot_go_on_names_the_revision_to_resume_from() {
    for error in [WireError::compacted(41), WireError::lagged(41)] {
        let failure = of_server(error);
        assert_eq!(failure.status(), 4);
        assert!(failure.to_string().contains("41"));
        assert!(object(&failure).ends_with(r#""outcome":"not_applied","exit":4,"resume_from":"41"}"#));
    }
}

#[test]
fn a_refusal_names_what_stood_in_the_way() {
    let line = |refused: &Refusal| Failure::from(refused.clone()).to_string();
    let held = Refusal::ConditionFailed { key: Some(facts()) };
    assert_eq!(
        line(&held),
        "refused: version 17, token 16, held by s-9, 812 ms left, value worker-7"
    );
    let absent = Refusal::ConditionFailed { key: None };
    assert_eq!(line(&absent), "refused: the key does not exist");
    assert_eq!(Failure::from(absent).status(), 4);
}

#[test]
fn a_refusal_is_an_object_that_says_not_applied() {
    let object = |refused: &Refusal| String::from_utf8(json(&refusal::object(refused)).unwrap()).unwrap();
    let held = Refusal::ConditionFailed { key: Some(facts()) };
    assert_eq!(
        object(&held),
        r#"{"applied":false,"code":"condition_failed","refused":"version 17, token 16, held by s-9, 812 ms left, value worker-7","exists":true,"version":"17","created":"16","holder":"9","ttl_ms":812,"value":"worker-7"}"#
    );
    let long = KeyFacts {
        value: None,
        value_len: 5_000,
        holder: None,
        remaining: None,
        ..facts()
    };
    assert_eq!(
        object(&Refusal::ConditionFailed { key: Some(long) }),
        r#"{"applied":false,"code":"condition_failed","refused":"version 17, token 16, value of 5000 bytes","exists":true,"version":"17","created":"16","holder":null,"ttl_ms":null,"value_len":5000}"#
    );
    assert_eq!(
        object(&Refusal::ConditionFailed { key: None }),
        r#"{"applied":false,"code":"condition_failed","refused":"the key does not exist","exists":false,"version":null,"created":null,"holder":null,"ttl_ms":null}"#
    );
}

#[test]
fn a_lost_answer_says_what_may_have_happened_and_what_to_do() {
    let lost = |outcome| {
        Failure::from(Error::NoAnswer {
            why: "the time given is over".to_owned(),
            outcome,
        })
    };
    let unknown = lost(Outcome::Unknown);
    assert_eq!(unknown.status(), 6);
    let text = unknown.to_string();
    assert!(
        text.starts_with("no answer came in time, and it may or may not have been done ("),
        "{text}"
    );
    assert!(text.contains("look at the data before you ask again"), "{text}");
    let not_applied = lost(Outcome::NotApplied);
    assert_eq!(not_applied.status(), 3);
    assert!(
        not_applied.to_string().contains("and nothing was done"),
        "{not_applied}"
    );
}

#[test]
fn a_setting_of_a_later_version_is_to_be_left_out() {
    let failure = of_server(WireError::invalid("shards", "not in this version"));
    assert_eq!(failure.to_string(), "shards: not in this version: leave it out");
    let failure = of_server(WireError::invalid("name", "1 to 128 characters"));
    assert_eq!(failure.to_string(), "name: 1 to 128 characters: correct it");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let failure = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
    assert_eq!(failure.status(), 0);
    let failure = Failure::from(std::io::Error::from(std::io::ErrorKind::StorageFull));
    assert_eq!(failure.status(), 1);
}
