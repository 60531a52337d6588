//! More is asked of three nodes than they can do: the rest is refused at once and leaves nothing, and nothing else happens.
//!
//! Syncs of the log are slow here, so that the disks set the pace and not the processors, which the test shares with the
//! nodes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tenure_api::ErrorCode;
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, kept_alive, txn_operation, txn_reply};
use tenure_client::Session;
use tenure_testkit::eventually;
use tenure_testkit::observe::metric;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tonic::Streaming;

use crate::membership::{rows, run};
use crate::support::{CACHE, client_at};
use crate::trio::{HOME_GROUPS, Trio};
use crate::wire::Wire;

/// How long a sync of the log takes.
const SYNC_US: u32 = 150_000;
/// Each thread's syncs are as quick as they are until then: a node starts with some.
const QUICK_SYNCS: u32 = 40;
const TRACER: &str = "/usr/bin/strace";
const VALUE_BYTES: usize = 32 << 10;
/// Keys that are written, so that what is stored does not grow.
const KEYS: u64 = 200;
const COUNTER: &str = "done";
/// So many requests a second are sent, 31 MiB: some times what such disks can take.
const PER_SECOND: f64 = 1_000.0;
const FLOODED: Duration = Duration::from_secs(3);
/// The answers that are still to come then.
const PATIENCE: Duration = Duration::from_secs(20);
/// Those who hold something meanwhile, and renew.
const HOLDERS: u64 = 24;
const TTL: Duration = Duration::from_secs(5);
/// Sessions whose renewals are timed: so often, and none is too early for the node.
const LONG_TTL_MS: u64 = 60_000;
const RENEWERS: u64 = 4;
const RENEWED_EVERY: Duration = Duration::from_millis(300);
/// A renewal waits for the entries that are under way, and not for those who flood.
const RENEWED_WITHIN: Duration = Duration::from_secs(3);
/// Refused at once: half of the refused, and nearly all, on a machine that has other things to do.
const AT_ONCE: Duration = Duration::from_millis(50);
const NEARLY_AT_ONCE: Duration = Duration::from_millis(500);
/// Who leads which group, and stays it: the leader of the home group and the follower that are flooded.
const LEADERS: [u64; 1 + HOME_GROUPS as usize] = [1, 2, 3];
const LEADER: u64 = 2;
const FOLLOWER: u64 = 3;

/// What became of requests.
#[derive(Default)]
struct Outcomes {
    done: Vec<Duration>,
    refused: Vec<Duration>,
    others: Vec<String>,
}

/// A stream of frames, greeted.
struct Line {
    frames: mpsc::Sender<v1::ClientFrame>,
    answers: Streaming<v1::ServerFrame>,
}

impl Line {
    async fn open(endpoint: &str) -> Line {
        let (frames, mut answers) = Wire::connect(endpoint).await.stream().await;
        let greeted = answers.message().await.expect("an answer").expect("an answer");
        assert!(matches!(greeted.body, Some(Reply::Hello(_))), "{greeted:?}");
        Line { frames, answers }
    }
}

impl Outcomes {
    fn note(&mut self, took: Duration, answer: Option<Reply>) {
        match answer {
            Some(Reply::Txn(v1::TxnReply {
                verdict: Some(txn_reply::Verdict::Done(_)),
                ..
            })) => self.done.push(took),
            Some(Reply::Error(error)) if error.error_code() == Some(ErrorCode::Overloaded) => {
                assert!(error.retry_after_us.is_some_and(|micros| micros > 0), "{error:?}");
                self.refused.push(took);
            }
            other => self.others.push(format!("{other:?}")),
        }
    }

    /// Everything was done or refused at once, and renewals came through. Returns what is to be told.
    fn judge(&self, node: u64, renewed: &[Duration]) -> String {
        let (middle, slow) = (percentile(&self.refused, 50), percentile(&self.refused, 99));
        let slowest = percentile(renewed, 100);
        let report = format!(
            "at node {node}: {} done, 99 % within {:?}; {} refused, 50 % within {middle:?} and 99 % within {slow:?}; {} \
             renewals within {slowest:?}; ",
            self.done.len(),
            percentile(&self.done, 99),
            self.refused.len(),
            renewed.len(),
        );
        assert!(self.others.is_empty(), "{:?}; {report}", self.others.first());
        assert!(self.refused.len() > self.done.len(), "{report}");
        assert!(!self.done.is_empty(), "{report}");
        assert!(middle <= AT_ONCE && slow <= NEARLY_AT_ONCE, "{report}");
        assert!(slowest <= RENEWED_WITHIN, "{report}");
        report
    }
}

/// Writes a large value and counts that, both or neither.
fn counted_write(id: u64, value: &Bytes) -> v1::ClientFrame {
    let (cache, key) = (CACHE.to_owned(), Bytes::from(format!("k{}", id % KEYS)));
    let put = txn_operation::Put {
        cache: cache.clone(),
        key,
        value: value.clone(),
        ..Default::default()
    };
    let add = txn_operation::Add {
        cache,
        key: Bytes::from_static(COUNTER.as_bytes()),
        delta: 1,
        ..Default::default()
    };
    let kinds = [
        txn_operation::Kind::Put(Box::new(put)),
        txn_operation::Kind::Add(Box::new(add)),
    ];
    let then = kinds.map(|kind| v1::TxnOperation { kind: Some(kind) }).to_vec();
    v1::ClientFrame {
        id,
        timeout_ms: 0,
        body: Some(Ask::Txn(v1::TxnRequest {
            then,
            ..Default::default()
        })),
    }
}

/// Sends so many a second whatever is answered, and waits for the last answers.
async fn flood(endpoint: &str, value: &Bytes) -> Outcomes {
    let Line { frames, mut answers } = Line::open(endpoint).await;
    let sent: Arc<Mutex<BTreeMap<u64, Instant>>> = Arc::default();
    let collecting = tokio::spawn({
        let sent = Arc::clone(&sent);
        async move {
            let mut outcomes = Outcomes::default();
            while let Ok(Some(frame)) = answers.message().await {
                let began = sent.lock().expect("no panic").remove(&frame.id);
                outcomes.note(began.expect("it was sent").elapsed(), frame.body);
            }
            outcomes
        }
    });
    let began = Instant::now();
    let mut id = 2;
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    while began.elapsed() < FLOODED {
        ticks.tick().await;
        while f64::from(u32::try_from(id).expect("not so many")) < began.elapsed().as_secs_f64() * PER_SECOND {
            id += 1;
            sent.lock().expect("no panic").insert(id, Instant::now());
            frames.send(counted_write(id, value)).await.expect("the stream is open");
        }
    }
    eventually("everything is answered, one way or the other", PATIENCE, async || {
        sent.lock().expect("no panic").is_empty()
    })
    .await;
    // With it the stream ends.
    drop(frames);
    collecting.await.expect("no panic")
}

/// Renews a session at this node while that is flooded, and tells how long each renewal took.
async fn renew(endpoint: String, nonce: u64) -> Vec<Duration> {
    let wire = Wire::connect(&endpoint).await;
    let opened = wire.open_for(LONG_TTL_MS, u128::from(nonce)).await;
    let group = opened.header.expect("a header").group;
    let session = opened.session.expect("a session");
    let mut took = Vec::new();
    let mut ticks = tokio::time::interval(RENEWED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let began = Instant::now();
    while began.elapsed() < FLOODED {
        ticks.tick().await;
        let asked = Instant::now();
        let renewed = wire.renew(group, &session).await.expect("the node answers");
        took.push(asked.elapsed());
        assert!(matches!(renewed, Some(kept_alive::Result::Renewed(_))), "{renewed:?}");
    }
    took
}

fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(place).copied().unwrap_or_default()
}

/// The cluster with slow logs, and groups that are led as was chosen.
async fn start() -> Trio {
    assert!(
        Path::new(TRACER).exists(),
        "there is no {TRACER}: run `cargo xtask test`, which installs it"
    );
    let trio = Trio::start_under(&[], |_, _| {
        let delay = format!("inject=fdatasync:delay_enter={SYNC_US}:when={QUICK_SYNCS}+");
        let words = ["-D", "-f", "--seccomp-bpf", "-qq", "-e", "trace=fdatasync", "-e"];
        let wrapper = [TRACER].into_iter().chain(words).map(OsString::from);
        wrapper.chain([delay.into(), "-o".into(), "/dev/null".into()]).collect()
    })
    .await;
    for (group, leader) in LEADERS.iter().enumerate() {
        let words = ["transfer-leader", &group.to_string(), &leader.to_string()];
        let said = run(&trio.endpoints, &words);
        assert_eq!(said.status, Some(0), "{said:?}");
    }
    trio
}

/// Who leads which group, and in which term.
fn leaderships(trio: &Trio) -> Vec<(String, String)> {
    let said = run(&trio.endpoints, &["groups"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    rows(&said.output)
        .into_values()
        .map(|cells| (cells[0].clone(), cells[2].clone()))
        .collect()
}

/// Sessions that their clients renew, each with a key and its token.
async fn hold(trio: &Trio) -> Vec<(Session, String, u64)> {
    let mut beginning = JoinSet::new();
    for number in 0..HOLDERS {
        let endpoint = trio.endpoint(1 + number % 3).to_owned();
        beginning.spawn(async move {
            let client = client_at(&endpoint).await;
            let session = client.open_session(TTL).await.expect("the cluster answers");
            let key = format!("held-{number}");
            let put = client.cache(CACHE).put(&key, "mine").if_absent().owner(&session).await;
            let token = put.expect("the cluster answers").done().expect("nobody has it").token();
            (session, key, token)
        });
    }
    beginning.join_all().await
}

async fn assert_held(trio: &Trio, holders: &[(Session, String, u64)]) {
    for (session, key, token) in holders {
        assert!(session.is_valid(), "{key}: its session is lost: {:?}", session.state());
        let read = trio.client.cache(CACHE).get(key).await.expect("the cluster answers");
        assert_eq!(read.expect("it is held").token(), *token, "{key}");
    }
}

/// Every node writes and reads again, soon.
async fn assert_answers(trio: &Trio) {
    let mut asking = JoinSet::new();
    for node in 1..=3 {
        let endpoint = trio.endpoint(node).to_owned();
        asking.spawn(async move {
            let cache = client_at(&endpoint).await.cache(CACHE);
            let key = format!("after-{node}");
            let put = cache.put(&key, "v").await.expect("the node answers");
            let version = put.done().expect("nothing stands in its way").version;
            let read = cache.get(&key).await.expect("the node answers");
            assert_eq!(read.expect("it was written").version, version);
        });
    }
    asking.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_at_a_follower_or_the_leader_is_refused_at_once_and_costs_nobody_a_lease_or_a_leader() {
    let mut trio = start().await;
    let value = Bytes::from(vec![7; VALUE_BYTES]);
    let holders = hold(&trio).await;
    let before = leaderships(&trio);
    let (mut done, mut report) = (0, String::new());
    for node in [FOLLOWER, LEADER] {
        let mut renewing = JoinSet::new();
        for number in 0..RENEWERS {
            renewing.spawn(renew(trio.endpoint(node).to_owned(), node * RENEWERS + number));
        }
        let outcomes = flood(trio.endpoint(node), &value).await;
        done += outcomes.done.len();
        report.push_str(&outcomes.judge(node, &renewing.join_all().await.concat()));
        assert_held(&trio, &holders).await;
    }
    println!("{report}");
    assert_answers(&trio).await;
    assert_eq!(leaderships(&trio), before, "{report}");
    // What was refused has left nothing: as many were counted as were answered so.
    let read = trio
        .client
        .cache(CACHE)
        .get(COUNTER)
        .await
        .expect("the cluster answers");
    let counted = read.expect("it was counted").value;
    assert_eq!(String::from_utf8_lossy(&counted), done.to_string(), "{report}");
    for node in [FOLLOWER, LEADER] {
        let refused = metric(trio.cluster.node(node).address(), "tenure_overloaded_total").await;
        assert!(refused > 0.0, "node {node} counts what it refuses");
    }
    assert_held(&trio, &holders).await;
}
