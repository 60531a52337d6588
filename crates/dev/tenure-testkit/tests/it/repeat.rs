//! The answer to a write is lost together with the node; asking again finds it.

use std::sync::Arc;
use std::time::Duration;

use tenure_api::ErrorCode;
use tenure_api::v1::{self, delete_reply, guard, put_reply};
use tenure_client::{Cache, Guard, Verdict, Written};
use tenure_testkit::{Direction, Proxy, eventually, eventually_some, wait_unchanged};

use crate::support::{CACHE, SOON, Site, client_at};
use crate::wire::{Wire, delete, guard, numbered, put};

const ROUNDS: usize = 200;
const LANES: usize = 4;
/// Nothing more is on its way if nothing has come for so long.
const QUIET: Duration = Duration::from_millis(60);
/// A session that outlives a round.
const LONG_TTL_MS: u64 = 60_000;
/// The shortest session there is: it ends within a round.
const SHORT_TTL_MS: u64 = 500;

/// What is asked for in a round, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Claim,
    Change,
    Remove,
    /// A claim whose asker's session ends before it is asked again.
    ClaimOfEnded,
}

/// A mutation that can be sent several times.
#[derive(Clone, Debug)]
enum Mutation {
    Put(v1::PutRequest),
    Delete(v1::DeleteRequest),
}

/// What came of a mutation, whether it was remembered or not.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Written(v1::PutDone),
    Deleted(v1::DeleteDone),
    Refused,
}

#[test]
fn two_hundred_writes_whose_node_was_killed_before_it_answered_are_found_again() {
    // A restart mostly waits, so some nodes are played with at the same time.
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| std::thread::spawn(move || play_lane(lane)))
        .collect();
    let played: usize = lanes.into_iter().map(|lane| lane.join().expect("no panic")).sum();
    println!("{played} writes committed, their node killed before the answer, and answered as the first time");
    assert_eq!(played, ROUNDS);
}

/// Every `LANES`th round, on a node of its own; returns how many those were.
fn play_lane(lane: usize) -> usize {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("threads can be started").block_on(async {
        let mut site = Site::start().await;
        let proxy = Proxy::start(site.node.address()).await;
        let kinds = [Round::Claim, Round::Change, Round::Remove, Round::ClaimOfEnded];
        let rounds = (lane..ROUNDS).step_by(LANES);
        let mut played = 0;
        for (number, round) in rounds.zip(kinds.into_iter().cycle()) {
            play(&mut site, &proxy, number as u64, round).await;
            played += 1;
        }
        played
    })
}

async fn play(site: &mut Site, proxy: &Proxy, number: u64, round: Round) {
    let direct = Wire::connect(&site.node.endpoint()).await;
    let key = format!("key-{number}");
    let ttl_ms = if round == Round::ClaimOfEnded {
        SHORT_TTL_MS
    } else {
        LONG_TTL_MS
    };
    let asker = direct.open(ttl_ms, 2 * u128::from(number)).await;
    let another = direct.open(LONG_TTL_MS, 2 * u128::from(number) + 1).await;
    let before = match round {
        Round::Claim | Round::ClaimOfEnded => None,
        Round::Change | Round::Remove => Some(written(direct.put(put(&key, "before")).await)),
    };
    let mutation = mutation(round, &key, before.as_ref());

    let lossy = Wire::connect(&proxy.endpoint()).await;
    proxy.swallow(Direction::Replies);
    let first = tokio::spawn({
        let request = mutation.clone().with(numbered(&asker, 1));
        async move { send(&lossy, request).await }
    });
    let seen = eventually_some("the write takes effect", SOON, async || {
        let now = direct.get(&key).await.map(|key| (key.version, key.created));
        (now != before.map(|done| (done.version, done.created))).then_some(now)
    })
    .await;
    assert!(!first.is_finished(), "the answer was lost");
    site.node.kill();
    assert!(first.await.expect("no panic").is_err(), "the answer was lost for good");
    proxy.pass();
    site.node.restart();

    let direct = Wire::connect(&site.node.endpoint()).await;
    if round == Round::ClaimOfEnded {
        eventually("the session ends", SOON, async || {
            direct.session(asker.id).await.ended.is_some()
        })
        .await;
    }
    let (repeated, answer) = send(&direct, mutation.clone().with(numbered(&asker, 1)))
        .await
        .unwrap_or_else(|error| panic!("round {number}, {round:?}: {error:?}"));
    assert!(repeated, "round {number}, {round:?}: it was remembered");
    match (&answer, seen) {
        (Answer::Written(done), Some(now)) => assert_eq!((done.version, done.created), now),
        (Answer::Deleted(done), None) => {
            assert_eq!(
                done.removed.map(|removal| removal.version),
                before.map(|done| done.version)
            );
        }
        _ => panic!("round {number}, {round:?}: {answer:?}, and {seen:?} was seen"),
    }
    // Once more, to see that the first repeat changed nothing.
    let again = send(&direct, mutation.clone().with(numbered(&asker, 1))).await;
    assert_eq!(again.expect("it is remembered still"), (true, answer));
    if round == Round::ClaimOfEnded {
        let fresh = send(&direct, mutation.clone().with(numbered(&asker, 2))).await;
        let error = fresh.expect_err("a session that has ended asks for nothing new");
        assert_eq!(error.error_code(), Some(ErrorCode::SessionExpired));
    }
    let of_another = send(&direct, mutation.with(numbered(&another, 1))).await;
    assert_eq!(
        of_another.expect("it is judged"),
        (false, Answer::Refused),
        "round {number}, {round:?}: another's request is new work, and its guard does not hold any more"
    );
}

fn mutation(round: Round, key: &str, before: Option<&v1::PutDone>) -> Mutation {
    let version = before.map(|done| done.version).unwrap_or_default();
    match round {
        Round::Claim | Round::ClaimOfEnded => Mutation::Put(v1::PutRequest {
            guard: guard(guard::Condition::Absent(true)),
            ..put(key, "claimed")
        }),
        Round::Change => Mutation::Put(v1::PutRequest {
            guard: guard(guard::Condition::Version(version)),
            ..put(key, "changed")
        }),
        Round::Remove => Mutation::Delete(v1::DeleteRequest {
            guard: guard(guard::Condition::Version(version)),
            ..delete(key)
        }),
    }
}

impl Mutation {
    fn with(self, request: Option<v1::RequestId>) -> Mutation {
        match self {
            Mutation::Put(put) => Mutation::Put(v1::PutRequest { request, ..put }),
            Mutation::Delete(delete) => Mutation::Delete(v1::DeleteRequest { request, ..delete }),
        }
    }
}

async fn send(wire: &Wire, mutation: Mutation) -> Result<(bool, Answer), v1::WireError> {
    match mutation {
        Mutation::Put(request) => {
            let reply = wire.put(request).await?;
            let answer = match reply.verdict {
                Some(put_reply::Verdict::Done(done)) => Answer::Written(done),
                _ => Answer::Refused,
            };
            Ok((reply.repeated, answer))
        }
        Mutation::Delete(request) => {
            let reply = wire.delete(request).await?;
            let answer = match reply.verdict {
                Some(delete_reply::Verdict::Done(done)) => Answer::Deleted(done),
                _ => Answer::Refused,
            };
            Ok((reply.repeated, answer))
        }
    }
}

fn written(reply: Result<v1::PutReply, v1::WireError>) -> v1::PutDone {
    match reply.expect("the node answers").verdict {
        Some(put_reply::Verdict::Done(done)) => done,
        other => panic!("it was not written: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_client_library_gives_the_first_answer_to_a_conditional_write_whose_reply_was_lost() {
    let mut site = Site::start().await;
    let proxy = Arc::new(Proxy::start(site.node.address()).await);
    let behind = client_at(&proxy.endpoint()).await.cache(CACHE);
    // The client has opened what it needs for writing before the first reply is lost.
    assert!(behind.put("first", "first").await.expect("the node answers").is_done());
    let rounds = 60;
    for number in 0..rounds {
        let key = format!("key-{number}");
        let guard = match number % 3 {
            0 => Guard::Absent,
            1 => {
                let before = site.cache.put(&key, "before").await.expect("the node answers");
                Guard::Version(before.done().expect("it has no guard").version)
            }
            _ => {
                let before = site.cache.put(&key, "before").await.expect("the node answers");
                Guard::Created(before.done().expect("it has no guard").created)
            }
        };
        let lost_before = proxy.swallowed_bytes(Direction::Replies);
        proxy.swallow(Direction::Replies);
        let call = tokio::spawn(put_once(behind.clone(), key.clone(), guard));
        let seen = eventually_some("the write takes effect", SOON, async || {
            let entry = site.cache.get(&key).await.expect("the node answers")?;
            (entry.value == "after").then_some(entry)
        })
        .await;
        // It may take effect a moment before its reply is on the way.
        let lost = async || proxy.swallowed_bytes(Direction::Replies);
        assert!(wait_unchanged("lost replies", QUIET, SOON, lost).await > lost_before);
        if number % 4 == 0 {
            site.node.kill();
            site.node.restart();
        }
        assert!(!call.is_finished(), "the reply was lost");
        proxy.pass();
        let written = call.await.expect("no panic");
        assert_eq!((written.version, written.created), (seen.version, seen.created));
        assert!(written.repeated, "the server remembered it");
    }
    println!("{rounds} conditional writes whose reply was lost, a quarter of them with their node");
}

async fn put_once(cache: Cache, key: String, guard: Guard) -> Written {
    match cache.put(&key, "after").guard(guard).await {
        Ok(Verdict::Done(written)) => written,
        other => panic!("{key}: the write took effect, and the client was told {other:?}"),
    }
}
