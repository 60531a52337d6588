//! What the clients do, and what they write down.
//!
//! Two kinds of clients: some ask under numbers of a session and try again until they know, some ask once, without any
//! identity, and are left with what is unknown. The keys of one time between two faults are used in that time only, so that
//! what is unknown of one of them stays little.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure_client::{
    Cache, Client, Operation, OperationResult, Put, RequestMode, Session, TxnOutcome, WatchItem, Written,
};
use tenure_testkit::check::State;
use tenure_testkit::nemesis::{Tally, wait_for};
use tenure_testkit::objects::AppendTold;
use tenure_testkit::{Guarded, History, Operation as Asked};
use tokio::task::JoinSet;

use super::held;
use crate::objects::{self, EVENTS, Run};
use crate::support::{CACHE, Dice, SOON, client};

/// Clients that ask once, of the keys.
const ONCE: u32 = 40;
/// Clients that ask until they know.
const UNTIL_KNOWN: u32 = 4;
/// Clients that hold something for a while.
const HOLDERS: u32 = 4;
/// Clients that publish and transact once.
const PUBLISHERS: u32 = 4;
/// How long a client that asks once waits: longer than an election, shorter than most faults.
const ONCE_WITHIN: Duration = Duration::from_millis(1_200);
/// How long one that asks until it knows goes on.
const PATIENCE: Duration = Duration::from_secs(60);
/// Keys of one epoch that everybody wants.
const SEATS: u64 = 24;
/// Keys that are held.
const HOLDS: u64 = 2;
/// A session outlives every fault, if it is renewed as soon as can be.
const SESSION_TTL: Duration = Duration::from_secs(8);
/// Where streams, counters and transactions are: in another namespace, so in another group.
const ELSEWHERE: (&str, &str) = ("default", "elsewhere");
const MARKER: &str = "marker";
/// Between two requests of one client.
const PAUSE_MS: u64 = 12;

/// What all clients share.
struct Shared {
    history: History,
    tally: Arc<Tally>,
    run: Arc<Run>,
    epoch: AtomicU64,
    stopping: AtomicBool,
    begun: Instant,
    holds: Mutex<Vec<Hold>>,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }
}

/// A time in which a client rightly believed that it held a key, as far as it can prove it.
#[derive(Clone, Debug)]
struct Hold {
    key: String,
    token: u64,
    from: Duration,
    until: Duration,
}

/// Whether a key may end without a call of a client.
pub(super) fn ends_by_itself(key: &str) -> bool {
    key.starts_with("hold-")
}

/// Clients at work.
pub(super) struct Work {
    pub(super) tally: Arc<Tally>,
    shared: Arc<Shared>,
    workers: JoinSet<u32>,
    objects: JoinSet<()>,
    reader: tokio::task::JoinHandle<Vec<(u64, String)>>,
}

/// What they wrote down.
pub(super) struct Verdict {
    pub(super) tally: Arc<Tally>,
    pub(super) sessions_lost: u32,
    shared: Arc<Shared>,
    followed: tokio::task::JoinHandle<Vec<(u64, String)>>,
}

impl Work {
    /// Creates what the clients use.
    pub(super) async fn prepare(endpoints: &str) {
        let client = client(endpoints).await;
        let elsewhere = client.namespace(ELSEWHERE.0, ELSEWHERE.1);
        for client in [&client, &elsewhere] {
            let created = client.create_cache(CACHE).await.expect("the cluster answers");
            assert!(created.is_done());
        }
        objects::create_streams(&elsewhere).await;
    }

    /// Starts the clients, each with connections of its own.
    pub(super) async fn start(endpoints: impl Fn(usize) -> String) -> Work {
        let elsewhere = client(&endpoints(0)).await.namespace(ELSEWHERE.0, ELSEWHERE.1);
        let tally = Arc::new(Tally::default());
        let shared = Arc::new(Shared {
            history: History::default(),
            tally: Arc::clone(&tally),
            run: Run::new(),
            epoch: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            begun: Instant::now(),
            holds: Mutex::default(),
        });
        let mut workers = JoinSet::new();
        for number in 0..ONCE + UNTIL_KNOWN + HOLDERS + PUBLISHERS {
            // Each begins at another node.
            let endpoints = endpoints(number as usize);
            let client = match number {
                0..ONCE => once(&endpoints).await,
                _ if number < ONCE + UNTIL_KNOWN + HOLDERS => self::client(&endpoints).await.with_timeout(PATIENCE),
                _ => once(&endpoints).await.namespace(ELSEWHERE.0, ELSEWHERE.1),
            };
            let worker = Worker {
                number,
                cache: client.cache(CACHE),
                client,
                shared: Arc::clone(&shared),
                dice: Dice::new(u64::from(number) + 1),
                writes: 0,
            };
            if number < ONCE + UNTIL_KNOWN {
                workers.spawn(worker.compete());
            } else if number < ONCE + UNTIL_KNOWN + HOLDERS {
                workers.spawn(worker.hold());
            } else {
                workers.spawn(worker.publish());
            }
        }
        let objects = objects::workers(
            &shared.run,
            vec![self::client(&endpoints(1)).await.namespace(ELSEWHERE.0, ELSEWHERE.1)],
        );
        let reader = tokio::spawn(read_along(elsewhere));
        Work {
            tally,
            shared,
            workers,
            objects,
            reader,
        }
    }

    /// From now on other keys are used.
    pub(super) fn next_epoch(&self) {
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets every client finish what it does.
    pub(super) async fn stop(mut self) -> Verdict {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let mut sessions_lost = 0;
        while let Some(worker) = self.workers.join_next().await {
            sessions_lost += worker.expect("a client does not panic");
        }
        objects::settle(&self.shared.run, self.objects).await;
        Verdict {
            tally: self.tally,
            sessions_lost,
            shared: self.shared,
            followed: self.reader,
        }
    }
}

/// A client that asks once.
async fn once(endpoints: &str) -> Client {
    let connecting = Client::builder()
        .endpoints(endpoints.split(','))
        .timeout(ONCE_WITHIN)
        .label("once")
        .request_mode(RequestMode::Anonymous)
        .connect();
    connecting.await.expect("the cluster can be reached")
}

/// One client.
struct Worker {
    number: u32,
    client: Client,
    cache: Cache,
    shared: Arc<Shared>,
    dice: Dice,
    writes: u64,
}

impl Worker {
    async fn pause(&mut self) {
        wait_for(Duration::from_millis(self.dice.below(PAUSE_MS))).await;
    }

    /// Claims, changes, reads and frees keys for which the others compete.
    async fn compete(mut self) -> u32 {
        while self.shared.goes_on() {
            let epoch = self.shared.epoch.load(Ordering::SeqCst);
            let seat = format!("seat-{epoch}-{}", self.dice.below(SEATS));
            match self.dice.below(8) {
                0..3 => {
                    self.write(&seat, Guarded::Absent).await;
                }
                3 | 4 => {
                    let read = self.shared.history.get(self.number, &self.cache, &seat);
                    if let Ok(Some(entry)) = self.shared.tally.count(read).await {
                        let guard = match self.dice.below(2) {
                            0 => Guarded::Version(entry.version),
                            _ => Guarded::Created(entry.created),
                        };
                        self.write(&seat, guard).await;
                    }
                }
                5 => {
                    self.write(&seat, Guarded::Nothing).await;
                }
                6 => self.remove(&seat, Guarded::Nothing).await,
                _ => {
                    let read = self.shared.history.get(self.number, &self.cache, &seat);
                    // What it finds is in the history.
                    let _ = self.shared.tally.count(read).await;
                }
            }
            self.pause().await;
        }
        0
    }

    /// Takes a key with a session that is renewed in the background, holds it, and leaves it. Returns how many sessions were
    /// lost.
    async fn hold(mut self) -> u32 {
        let (mut session, mut lost): (Option<Session>, u32) = (None, 0);
        while self.shared.goes_on() {
            if session.as_ref().is_some_and(|session| !session.is_valid()) {
                lost += 1;
                session = None;
            }
            let Some(session) = self.session(&mut session).await else {
                self.pause().await;
                continue;
            };
            let key = format!("hold-{}", self.dice.below(HOLDS));
            let put = self.put(&key, Guarded::Absent);
            let Some(written) = self.ask(put.0.owner(&session), put.1).await else {
                self.pause().await;
                continue;
            };
            self.believe(&key, &session, written.created).await;
            self.remove(&key, Guarded::Created(written.created)).await;
        }
        lost
    }

    async fn session(&mut self, session: &mut Option<Session>) -> Option<Session> {
        if session.is_none() {
            *session = self.client.open_session(SESSION_TTL).await.ok();
        }
        session.clone()
    }

    /// Holds a key for a moment, and writes down for how long it could prove that it did.
    async fn believe(&mut self, key: &str, session: &Session, token: u64) {
        let from = self.shared.begun.elapsed();
        let mut until = from;
        for _ in 0..self.dice.below(20) {
            let now = self.shared.begun.elapsed();
            if !session.is_valid() {
                break;
            }
            until = now;
            wait_for(Duration::from_millis(10)).await;
        }
        let hold = Hold {
            key: key.to_owned(),
            token,
            from,
            until,
        };
        let mut holds = self.shared.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.push(hold);
    }

    /// Publishes where it expects the tail, and writes two keys at a time, and reads both.
    async fn publish(mut self) -> u32 {
        let (mut count, mut tail) = (0_u64, 0);
        while self.shared.goes_on() {
            count += 1;
            let mut call = objects::call(vec![format!("once-{}-{count}", self.number)]);
            call.expected = (self.dice.below(4) > 0).then_some(tail);
            let appended = self
                .shared
                .run
                .append_counted(&self.client, call, &self.shared.tally)
                .await;
            match appended {
                AppendTold::Appended { first, .. } => tail = first + 1,
                AppendTold::WrongTail { tail: actual } => tail = actual,
                _ => {}
            }
            self.write_pair(count).await;
            self.pause().await;
        }
        0
    }

    async fn write_pair(&mut self, count: u64) {
        let value = format!("{}-{count}", self.number);
        let keys = ["pair/one", "pair/other"];
        let writes = keys.iter().map(|key| Operation::put(CACHE, *key, &value));
        let writing = writes.fold(self.client.txn(), |txn, put| txn.then(put));
        // Whatever came of it, the two are alike.
        let _ = self.shared.tally.count(writing.into_future()).await;
        let reads = keys.iter().map(|key| Operation::get(CACHE, *key));
        let reading = reads.fold(self.client.txn(), |txn, get| txn.then(get));
        if let Ok(tenure_client::Verdict::Done(outcome)) = self.shared.tally.count(reading.into_future()).await {
            let [one, other] = pair(&outcome);
            assert_eq!(one, other, "two keys that are only written together");
        }
    }

    fn put(&mut self, key: &str, guard: Guarded) -> (Put, Asked) {
        self.writes += 1;
        let value = format!("{}-{}", self.number, self.writes);
        let mut put = self.cache.put(key, &value);
        if let Some(guard) = guard.to_guard() {
            put = put.guard(guard);
        }
        let asked = Asked::Put {
            key: key.to_owned(),
            value,
            guard,
        };
        (put, asked)
    }

    async fn ask(&self, put: Put, asked: Asked) -> Option<Written> {
        let putting = self.shared.history.put(self.number, put, asked);
        self.shared.tally.count(putting).await.ok()?.done().ok()
    }

    async fn write(&mut self, key: &str, guard: Guarded) -> Option<Written> {
        let (put, asked) = self.put(key, guard);
        self.ask(put, asked).await
    }

    async fn remove(&mut self, key: &str, guard: Guarded) {
        let mut delete = self.cache.delete(key);
        if let Some(guard) = guard.to_guard() {
            delete = delete.guard(guard);
        }
        let asked = Asked::Delete {
            key: key.to_owned(),
            guard,
        };
        // What came of it is in the history.
        let _ = self
            .shared
            .tally
            .count(self.shared.history.delete(self.number, delete, asked))
            .await;
    }
}

/// What the two reads of a transaction found.
fn pair(outcome: &TxnOutcome) -> [Option<Vec<u8>>; 2] {
    let found = |place: usize| match outcome.results.get(place) {
        Some(OperationResult::Got(entry)) => entry.as_ref().map(|entry| entry.value.to_vec()),
        other => panic!("a read was answered with {other:?}"),
    };
    [found(0), found(1)]
}

/// Follows the stream until its last record, which says so.
async fn read_along(client: Client) -> Vec<(u64, String)> {
    let mut follow = client
        .stream(EVENTS)
        .follow()
        .from_earliest()
        .await
        .expect("the following begins");
    let mut records = Vec::new();
    loop {
        let record = follow
            .next()
            .await
            .expect("a following without end")
            .expect("nothing is trimmed");
        let data = String::from_utf8_lossy(&record.data).into_owned();
        if data == MARKER {
            return records;
        }
        records.push((record.offset, data));
    }
}

impl Verdict {
    /// The calls of the keys.
    pub(super) fn calls(&self) -> Vec<tenure_testkit::Call> {
        self.shared.history.calls()
    }

    /// Writes what followers wait for.
    pub(super) async fn mark(&self, endpoints: &str) {
        let client = client(endpoints).await;
        let asked = Asked::Put {
            key: MARKER.to_owned(),
            value: "the end".to_owned(),
            guard: Guarded::Nothing,
        };
        let put = client.cache(CACHE).put(MARKER, "the end");
        let verdict = self.shared.history.put(u32::MAX, put, asked).await;
        assert!(verdict.expect("the cluster answers").is_done());
    }

    /// No two clients could prove at one time that they held a key, and later ones have higher tokens.
    pub(super) fn judge_holds(&self) {
        let holds = self.shared.holds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut by_key: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
        for hold in &holds {
            by_key.entry(&hold.key).or_default().push(hold);
        }
        for of_key in by_key.values_mut() {
            of_key.sort_by_key(|hold| hold.from);
            for pair in of_key.windows(2) {
                assert!(
                    pair[0].until <= pair[1].from && pair[0].token < pair[1].token,
                    "two holders, or a token that does not rise: {pair:?}"
                );
            }
        }
        println!("{} times somebody held a key, never two at once", holds.len());
        assert!(!holds.is_empty());
    }

    /// Compares what was told of streams, counters and transactions with what is there, and with what a follower saw.
    pub(super) async fn judge_objects(self, endpoints: &str) {
        let elsewhere = client(endpoints).await.namespace(ELSEWHERE.0, ELSEWHERE.1);
        objects::judge(&self.shared.run, &elsewhere).await;
        let kept = objects::read_all(&elsewhere, EVENTS).await;
        let marked = elsewhere
            .stream(EVENTS)
            .append([MARKER])
            .await
            .expect("the cluster answers");
        assert!(marked.is_done());
        let followed = tokio::time::timeout(SOON, self.followed)
            .await
            .expect("the marker comes soon");
        let followed = followed.expect("a following neither ends nor goes back");
        let kept: Vec<_> = kept.into_iter().map(|record| (record.offset, record.data)).collect();
        assert!(
            followed == kept,
            "a follower saw {} records of {}",
            followed.len(),
            kept.len()
        );
    }
}

/// What a cache of any size holds, at one revision.
pub(super) async fn whole_state(cache: &Cache) -> (State, u64) {
    let mut watch = cache.watch().with_state().await.expect("the watch begins");
    let mut state = State::new();
    loop {
        match watch.next().await.expect("the state comes").expect("the state comes") {
            WatchItem::State {
                entries,
                revision,
                first,
                last,
            } => {
                if first {
                    state.clear();
                }
                state.extend(entries.into_iter().map(held));
                if last {
                    return (state, revision);
                }
            }
            other => panic!("the state comes first: {other:?}"),
        }
    }
}
