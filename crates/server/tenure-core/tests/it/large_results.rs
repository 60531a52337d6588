//! Large results: how many bytes of them are kept, and how many one entry brings back.

use bytes::Bytes;
use tenure_core::command::{Command, Operation, Request, Txn};
use tenure_core::ids::SessionRef;
use tenure_core::limits::{
    ENTRY_READ_BYTES_MAX, ONE_SHOT_BYTES_MAX, SESSION_RESULT_BYTES_MAX, TXN_READ_BYTES_MAX, VALUE_BYTES_MAX,
};
use tenure_core::machine::Applied;
use tenure_core::refusal::Failure;
use tenure_core::response::{Done, OperationResult, Response};
use tenure_core::time::{Span, Timestamp};

use crate::lab::{Lab, anonymous, cache, numbered, one_shot, put};

const TTL: Span = Span::from_secs(3_600);
/// Until when the one-shot requests are remembered.
const NOT_AFTER: Timestamp = Timestamp(60_000_000);
/// A result is the value that was read and a little more.
const RESULT_BYTES: usize = TXN_READ_BYTES_MAX;
/// So many results fit a session, the one that goes over the mark included.
const OF_A_SESSION: u64 = (SESSION_RESULT_BYTES_MAX / RESULT_BYTES) as u64;
/// So many results fit an entry: one less than values, since each is a little more than its value.
const OF_AN_ENTRY: usize = ENTRY_READ_BYTES_MAX / RESULT_BYTES - 1;
const SESSIONS: u128 = 4;
const ONE_SHOTS: u128 = 4;

/// Reads the largest value.
fn read() -> Command {
    Command::Txn(Txn {
        then: vec![Operation::Get {
            cache: cache("leases"),
            key: Bytes::from_static(b"large"),
        }],
        ..Txn::default()
    })
}

/// A group with a value of the largest size.
fn lab() -> Lab {
    let mut lab = Lab::home_with_cache();
    lab.ask(0, anonymous(put("large", &"v".repeat(VALUE_BYTES_MAX))));
    lab
}

/// Runs each of these in an entry of its own.
fn run_each(lab: &mut Lab, requests: &[Request]) {
    for request in requests {
        let applied = lab.run(0, vec![request.clone()]);
        assert_eq!(outcomes(&applied), [Outcome::Read]);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Read,
    Repeated,
    Overloaded,
}

fn outcomes(applied: &Applied) -> Vec<Outcome> {
    let outcome = |response: &Response, repeated| match response {
        Response::Done(Done::Txn { results, .. }) => {
            let [OperationResult::Got(Some(found))] = results.as_slice() else {
                panic!("one read has one result");
            };
            assert_eq!(found.value.len(), VALUE_BYTES_MAX);
            if repeated { Outcome::Repeated } else { Outcome::Read }
        }
        Response::Failed(Failure::Overloaded { what, .. }) => {
            assert_eq!(what, "reads of one entry");
            assert!(!repeated);
            Outcome::Overloaded
        }
        other => panic!("{other:?}"),
    };
    let answers = applied.answers.iter();
    answers
        .map(|answer| outcome(&answer.response, answer.repeated))
        .collect()
}

/// As many large results as sessions and one-shot requests keep: more than an entry brings back.
fn remembered(lab: &mut Lab) -> Vec<Request> {
    let sessions: Vec<SessionRef> = (1..=SESSIONS).map(|nonce| lab.open(0, nonce, Some(TTL))).collect();
    let of_sessions = sessions
        .into_iter()
        .flat_map(|session| (1..=OF_A_SESSION).map(move |seq| numbered(session, seq, read())));
    let requests: Vec<Request> = of_sessions
        .chain((0..ONE_SHOTS).map(|id| one_shot(id, NOT_AFTER, read())))
        .collect();
    run_each(lab, &requests);
    assert!(requests.len() > OF_AN_ENTRY + ONE_SHOTS as usize);
    requests
}

#[test]
fn repeats_of_one_entry_bring_back_no_more_than_an_entry_reads() {
    let mut lab = lab();
    let mut requests = remembered(&mut lab);
    for _ in ["sessions first", "one-shot requests first"] {
        let applied = lab.run(1, requests.clone());
        let mut expected = vec![Outcome::Repeated; OF_AN_ENTRY];
        expected.resize(requests.len(), Outcome::Overloaded);
        assert_eq!(outcomes(&applied), expected);
        requests.reverse();
    }
    // What was put off was not forgotten, and is not remembered as put off.
    for request in &requests {
        let applied = lab.run(2, vec![request.clone()]);
        assert_eq!(outcomes(&applied), [Outcome::Repeated]);
    }
}

#[test]
fn reads_and_repeats_of_one_entry_share_what_it_reads() {
    let mut lab = lab();
    let repeats = remembered(&mut lab);
    let reads = vec![anonymous(read()); 3];
    let small = anonymous(put("small", "v"));
    let mut requests = reads.clone();
    requests.extend(repeats.iter().take(OF_AN_ENTRY).cloned());
    requests.extend(reads);
    let before = lab.machine.revision();
    let applied = lab.run(1, requests);
    let mut expected = vec![Outcome::Read; 3];
    expected.extend(vec![Outcome::Repeated; OF_AN_ENTRY - 3]);
    expected.extend([Outcome::Overloaded; 6]);
    assert_eq!(outcomes(&applied), expected);
    assert_eq!(lab.machine.revision(), before, "nothing was written");
    // What reads nothing is not held up by what does.
    let mut requests = repeats;
    requests.push(small);
    let applied = lab.run(2, requests);
    assert!(matches!(
        applied.answers.last().map(|answer| &answer.response),
        Some(Response::Done(Done::Put { .. }))
    ));
}

#[test]
fn the_bytes_of_results_that_are_kept_have_bounds() {
    let mut lab = lab();
    let session = lab.open(0, 1, Some(TTL));
    let numbered_reads: Vec<Request> = (1..=OF_A_SESSION).map(|seq| numbered(session, seq, read())).collect();
    run_each(&mut lab, &numbered_reads);
    let one_more = numbered(session, OF_A_SESSION + 1, put("a", "v"));
    match lab.ask(0, one_more) {
        Response::Failed(Failure::WindowFull { seqs, bytes }) => {
            assert_eq!(seqs, OF_A_SESSION);
            assert!(bytes >= SESSION_RESULT_BYTES_MAX as u64, "{bytes}");
        }
        other => panic!("{other:?}"),
    }

    lab.checks_memory = false;
    let kept = (ONE_SHOT_BYTES_MAX / RESULT_BYTES) as u128;
    let one_shots: Vec<Request> = (0..kept).map(|id| one_shot(id, NOT_AFTER, read())).collect();
    run_each(&mut lab, &one_shots);
    lab.check_memory();
    match lab.ask(0, one_shot(kept, NOT_AFTER, put("a", "v"))) {
        Response::Failed(Failure::Overloaded { what, .. }) => {
            assert_eq!(what, "remembered requests without a session");
        }
        other => panic!("{other:?}"),
    }
    // When they are forgotten there is room again.
    let later = NOT_AFTER.0 / 1_000 + 1;
    let again = one_shot(kept, Timestamp(NOT_AFTER.0 + 60_000_000), put("a", "v"));
    assert!(matches!(lab.ask(later, again), Response::Done(Done::Put { .. })));
    lab.check_memory();
}
