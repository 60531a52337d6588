//! More is asked than the node can do: it goes on at its pace, refuses the rest at once, and keeps sessions alive.
//!
//! The log of these nodes is slow, so that the disk sets the pace and not the processor, which the test shares with the
//! node. How fast the node is when it is asked for as much as it can do is measured first, on the same machine under
//! the same noise.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tenure_api::ErrorCode;
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, kept_alive};

use crate::overload_wire::{Answers, Asking, create_cache, metric, now, open, scope, slow_world, spawn, start};
use crate::support::{CACHE, TestNode};

const SYNC: Duration = Duration::from_millis(100);
const VALUE_BYTES: usize = 32 << 10;
/// Keys that are written, so that what is stored does not grow.
const KEYS: u64 = 500;
const MEASURED: Duration = Duration::from_secs(4);
const SESSIONS: u8 = 200;
const SESSION_TTL_MS: u64 = 1_000;

fn put(id: u64, value: &Bytes, namespace: Option<&str>) -> Ask {
    Ask::Put(v1::PutRequest {
        cache: CACHE.to_owned(),
        key: Bytes::from(format!("k{}", id % KEYS)),
        value: value.clone(),
        scope: namespace.map(scope),
        ..Default::default()
    })
}

/// What became of requests that were sent at their own pace.
#[derive(Default)]
struct Outcomes {
    done: AtomicU64,
    refused: Mutex<Vec<Duration>>,
    answered: Mutex<Vec<Duration>>,
    others: Mutex<Vec<String>>,
}

impl Outcomes {
    /// Takes the answers to requests as they come.
    async fn collect(&self, answers: &mut Answers, sent: &Mutex<BTreeMap<u64, Instant>>) {
        while let Some(frame) = answers.next().await {
            let began = sent.lock().expect("no panic").remove(&frame.id);
            let took = began.map_or(Duration::ZERO, |began| now() - began);
            match frame.body {
                Some(Reply::Put(_)) => {
                    self.done.fetch_add(1, Ordering::Relaxed);
                    self.answered.lock().expect("no panic").push(took);
                }
                Some(Reply::Error(error)) if error.error_code() == Some(ErrorCode::Overloaded) => {
                    assert!(error.retry_after_us.is_some_and(|micros| micros > 0));
                    self.refused.lock().expect("no panic").push(took);
                }
                other => self.others.lock().expect("no panic").push(format!("{other:?}")),
            }
        }
    }
}

fn percentile(times: &Mutex<Vec<Duration>>, percent: usize) -> Duration {
    let mut times = times.lock().expect("no panic").clone();
    times.sort_unstable();
    times
        .get((times.len() * percent / 100).min(times.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// How many writes a second are done when so many are always under way.
async fn peak(node: &TestNode, value: &Bytes, under_way: u64) -> f64 {
    let (asking, mut answers) = open(node.channel().await).await;
    for id in 1..=under_way {
        assert!(asking.send(id, put(id, value, None)).await);
    }
    let (mut next, mut done, began) = (under_way, 0_u32, now());
    while now() - began < MEASURED {
        let frame = answers.next().await.expect("the stream goes on");
        if matches!(frame.body, Some(Reply::Put(_))) {
            done += 1;
        }
        next += 1;
        assert!(asking.send(next, put(next, value, None)).await);
    }
    f64::from(done) / (now() - began).as_secs_f64()
}

/// Sends so many a second for this long whatever is answered, and waits for the last answers.
async fn offer(node: &TestNode, value: &Bytes, per_second: f64, namespace: Option<&'static str>) -> Arc<Outcomes> {
    let (asking, mut answers) = open(node.channel().await).await;
    let (outcomes, sent) = (Arc::new(Outcomes::default()), Arc::new(Mutex::new(BTreeMap::new())));
    let collector = spawn({
        let (outcomes, sent) = (outcomes.clone(), sent.clone());
        async move { outcomes.collect(&mut answers, &sent).await }
    });
    let began = now();
    let mut id = 0;
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    while now() - began < MEASURED {
        ticks.tick().await;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of requests"
        )]
        let due = ((now() - began).as_secs_f64() * per_second) as u64;
        while id < due {
            id += 1;
            sent.lock().expect("no panic").insert(id, now());
            assert!(asking.send(id, put(id, value, namespace)).await);
        }
    }
    drop::<Asking>(asking);
    collector.await.expect("the answers are collected");
    outcomes
}

/// Sessions that are kept alive until told otherwise; returns how many renewals failed and how many were done.
struct Kept {
    stop: Arc<AtomicBool>,
    renewed: Arc<AtomicU64>,
    lost: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

async fn keep_sessions_alive(node: &TestNode) -> Kept {
    let (asking, mut answers) = open(node.channel().await).await;
    let mut sessions = Vec::new();
    for nonce in 0..SESSIONS {
        let request = v1::OpenSessionRequest {
            nonce: Bytes::from(vec![nonce; 16]),
            ttl_ms: Some(SESSION_TTL_MS),
            ..Default::default()
        };
        assert!(asking.send(u64::from(nonce) + 1, Ask::OpenSession(request)).await);
    }
    for _ in 0..SESSIONS {
        let Some(Reply::OpenSession(reply)) = answers.next().await.expect("an answer").body else {
            panic!("not opened")
        };
        sessions.push(v1::SessionInGroup {
            group: reply.header.expect("a header").group,
            session: reply.session,
        });
    }
    let (stop, renewed, lost) = (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default());
    let task = {
        let (stop, renewed, lost) = (
            stop.clone(),
            Arc::<AtomicU64>::clone(&renewed),
            Arc::<Mutex<Vec<String>>>::clone(&lost),
        );
        spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(SESSION_TTL_MS / 6));
            let mut attempt = 0;
            while !stop.load(Ordering::Relaxed) {
                ticks.tick().await;
                attempt += 1;
                let request = v1::KeepAliveRequest {
                    sessions: sessions.clone(),
                    attempt,
                };
                assert!(asking.send(1_000 + attempt, Ask::KeepAlive(request)).await);
                let Some(Reply::KeepAlive(reply)) = answers.next().await.and_then(|frame| frame.body) else {
                    lost.lock().expect("no panic").push("no answer".to_owned());
                    return;
                };
                for kept in reply.sessions {
                    match kept.result {
                        Some(kept_alive::Result::Renewed(_)) => {
                            renewed.fetch_add(1, Ordering::Relaxed);
                        }
                        other => lost.lock().expect("no panic").push(format!("{other:?}")),
                    }
                }
            }
        })
    };
    Kept {
        stop,
        renewed,
        lost,
        task,
    }
}

/// Bytes of memory that the process has.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the system tells");
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .expect("the resident pages")
        .parse()
        .expect("a number");
    pages * 4_096
}

#[tokio::test(flavor = "multi_thread")]
async fn process_asked_for_three_times_what_it_can_do_the_node_goes_on_at_its_pace_and_refuses_the_rest_at_once() {
    let (world, slowness) = slow_world();
    let node = start(100, world).await;
    slowness.set(SYNC);
    let value = Bytes::from(vec![7; VALUE_BYTES]);
    let kept = keep_sessions_alive(&node).await;
    let peak = peak(&node, &value, 400).await;
    let before = resident_bytes();
    let outcomes = offer(&node, &value, 3.0 * peak, None).await;
    let grown = resident_bytes().saturating_sub(before);
    kept.stop.store(true, Ordering::Relaxed);
    kept.task.await.expect("the sessions were kept alive");

    let done = outcomes.done.load(Ordering::Relaxed);
    #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
    let per_second = done as f64 / MEASURED.as_secs_f64();
    let refused = outcomes.refused.lock().expect("no panic").len();
    let (middle, slow) = (percentile(&outcomes.refused, 50), percentile(&outcomes.refused, 99));
    let report = format!(
        "peak {peak:.0}/s; at three times that {per_second:.0}/s done within {:?} (99 %), {refused} refused within \
         {middle:?} (50 %) and {slow:?} (99 %); memory grew by {} KiB; {} renewals",
        percentile(&outcomes.answered, 99),
        grown >> 10,
        kept.renewed.load(Ordering::Relaxed),
    );
    println!("{report}");
    let others = outcomes.others.lock().expect("no panic").clone();
    assert!(others.is_empty(), "{:?}; {report}", others.first());
    assert!(per_second >= 0.8 * peak, "{report}");
    assert!(refused as u64 > done / 2, "{report}");
    // The machine is shared with whatever else is tested: the bound is 50 ms for nearly all of them.
    assert!(middle <= Duration::from_millis(50), "{report}");
    assert!(slow <= Duration::from_millis(250), "{report}");
    // What waits in the node and in the client, and the state that is not on the disk yet; 190 MiB were offered.
    assert!(grown < 160 << 20, "{report}");
    let lost = kept.lost.lock().expect("no panic").clone();
    assert!(lost.is_empty(), "{:?}; {report}", lost.first());
    assert!(metric(&node, "tenure_overloaded_total").await > 0.0);
    slowness.set(Duration::ZERO);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn process_a_namespace_that_floods_does_not_use_up_the_share_of_another_one() {
    let (world, slowness) = slow_world();
    let node = start(100, world).await;
    create_cache(&node, Some("quiet")).await;
    slowness.set(SYNC);
    let value = Bytes::from(vec![7; VALUE_BYTES]);
    let stop = Arc::new(AtomicBool::new(false));
    let quiet = {
        let ((asking, mut answers), stop) = (open(node.channel().await).await, stop.clone());
        let slowest = Arc::new(Mutex::new(Vec::new()));
        let times = slowest.clone();
        let task = spawn(async move {
            let mut id = 0;
            while !stop.load(Ordering::Relaxed) {
                id += 1;
                let began = now();
                assert!(asking.send(id, put(id, &Bytes::from_static(b"v"), Some("quiet"))).await);
                let answer = answers.next().await.expect("an answer");
                assert!(matches!(answer.body, Some(Reply::Put(_))), "{answer:?}");
                times.lock().expect("no panic").push(now() - began);
            }
        });
        (slowest, task)
    };
    // Far more than the disk takes: what is refused depends on what it takes.
    let flood = offer(&node, &value, 3_000.0, None).await;
    stop.store(true, Ordering::Relaxed);
    quiet.1.await.expect("the other namespace was served");
    let refused = flood.refused.lock().expect("no panic").len();
    let (slow, count) = (percentile(&quiet.0, 99), quiet.0.lock().expect("no panic").len());
    let report = format!("{refused} of the flood refused; {count} of the other done, 99 % within {slow:?}");
    println!("{report}");
    assert!(refused > 1_000, "{report}");
    // It waits for the entries that are under way, never behind the flood, which waits half a second.
    assert!(count >= 8 && slow < Duration::from_secs(1), "{report}");
    slowness.set(Duration::ZERO);
    node.node.stop().await;
}
