//! Answers on their way to the node that asked: nodes of two releases may be at the two ends.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tenure_core::codec::{CodecError, decode_answer, decode_kept_alive, encode_answer, encode_kept_alive};
use tenure_core::ids::{Revision, Secret, SessionId};
use tenure_core::refusal::{EndReason, Failure, KeyFacts, Missing, Refusal};
use tenure_core::response::{Answer, Appended, Done, KeptAlive, KeyFound, OperationResult, Removed, Response};
use tenure_core::time::{Span, Timestamp};

use super::{damage, damaged, vector};
use crate::lab::cache;

#[test]
fn answers_keep_their_bytes() {
    for (name, answer) in answers() {
        let bytes = vector(&format!("answer_{name}"), &encode_answer(&answer));
        assert_eq!(decode_answer(&bytes), Ok(answer.clone()), "{name}");
        assert_eq!(encode_answer(&answer), bytes, "{name}");
    }
}

#[test]
fn answers_to_keep_alives_keep_their_bytes() {
    let time = Timestamp(5_000_000);
    for (name, kept) in kept_alive() {
        let bytes = vector(&format!("kept_alive_{name}"), &encode_kept_alive(kept, time));
        assert_eq!(decode_kept_alive(&bytes), Ok((kept, time)), "{name}");
        assert_eq!(encode_kept_alive(kept, time), bytes, "{name}");
    }
}

#[test]
fn answers_of_another_form_are_refused_by_name() {
    let mut bytes = encode_answer(&answers()[0].1).to_vec();
    bytes[0] = 9;
    assert_eq!(decode_answer(&bytes), Err(CodecError::UnknownForm(9)));
    assert_eq!(decode_kept_alive(&bytes), Err(CodecError::UnknownForm(9)));
    assert!(matches!(decode_answer(&[]), Err(CodecError::Malformed(_))));
    assert!(matches!(decode_kept_alive(&[1]), Err(CodecError::Malformed(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_to_an_answer_makes_the_decoder_panic(which in any::<Index>(), damages in vec(damage(), 1..6)) {
        let answers = answers();
        let bytes = damaged(encode_answer(&which.get(&answers).1).to_vec(), &damages);
        if let Ok(answer) = decode_answer(&bytes) {
            prop_assert_eq!(decode_answer(&encode_answer(&answer)), Ok(answer));
        }
        if let Ok((kept, time)) = decode_kept_alive(&bytes) {
            prop_assert_eq!(decode_kept_alive(&encode_kept_alive(kept, time)), Ok((kept, time)));
        }
    }
}

fn answers() -> Vec<(&'static str, Answer)> {
    let answer = |response| Answer {
        response,
        repeated: false,
        remaining: None,
        revision: Revision(300),
        time: Timestamp(5_000_000),
    };
    let removed = Removed {
        revision: 301,
        version: 299,
    };
    let appended = Appended {
        first: 7,
        count: 2,
        duplicate: true,
    };
    let facts = KeyFacts {
        version: 300,
        created: 299,
        holder: Some(SessionId(4)),
        remaining: Some(Span(9)),
        value: Some(Bytes::from_static(b"\0\xff")),
        value_len: 2,
    };
    let found = KeyFound {
        value: Bytes::from_static(b"v"),
        version: 300,
        created: 299,
        owner: None,
    };
    let put = Done::Put {
        version: 300,
        created: 299,
    };
    let opened = Done::SessionOpened {
        id: SessionId(4),
        secret: Secret(u128::MAX - 1),
        ttl: Some(Span::from_secs(10)),
    };
    let results = vec![
        OperationResult::Put {
            version: 300,
            created: 299,
        },
        OperationResult::Deleted { removed: Some(removed) },
        OperationResult::Added {
            sum: -3,
            version: 300,
            created: 300,
        },
        OperationResult::Appended(appended),
        OperationResult::Got(Some(found)),
        OperationResult::Got(None),
    ];
    let txn = Done::Txn {
        applied: false,
        failed_guard: Some(1),
        revision: Some(300),
        results,
    };
    let expired = Failure::SessionExpired {
        session: SessionId(4),
        reason: EndReason::Expired,
        revision: 290,
    };
    let missing = Failure::NotFound {
        what: Missing::Cache(cache("leases")),
    };
    let repeated = Answer {
        repeated: true,
        remaining: Some(Span(4_000_000)),
        ..answer(Response::Done(put.clone()))
    };
    vec![
        ("put", answer(Response::Done(put))),
        ("repeated", repeated),
        ("session_opened", answer(Response::Done(opened))),
        ("txn", answer(Response::Done(txn))),
        (
            "refused",
            answer(Response::Refused(Refusal::ConditionFailed(Some(facts)))),
        ),
        ("session_expired", answer(Response::Failed(expired))),
        ("not_found", answer(Response::Failed(missing))),
    ]
}

fn kept_alive() -> Vec<(&'static str, KeptAlive)> {
    let session = SessionId(4);
    let remaining = Some(Span::from_secs(10));
    let ended = KeptAlive::Ended {
        session,
        reason: EndReason::Expired,
        revision: 290,
    };
    vec![
        ("renewed", KeptAlive::Renewed { session, remaining }),
        ("ended", ended),
        ("unknown", KeptAlive::Unknown { session }),
    ]
}
