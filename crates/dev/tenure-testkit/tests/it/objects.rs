//! Streams, counters, transactions and deletions by prefix of a node that is killed again and again.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure_client::{
    Appended, Cache, Client, Error, ErrorCode, Guard, Operation, OperationResult, Outcome, Refusal, TxnGuard,
    TxnOutcome, Verdict,
};
use tenure_testkit::nemesis::{Tally, wait_for};
use tenure_testkit::objects::{self, AddCall, AppendCall, AppendTold, Kept};
use tenure_testkit::{Direction, Proxy, eventually, eventually_some};
use tokio::task::JoinSet;

use crate::support::{CACHE, Dice, SOON, Site, client_at};

const KILLS: u32 = 50;
/// Workers of each kind.
const WORKERS: u32 = 3;
/// A node that is killed all the time is there for a small part of it only.
const PATIENCE: Duration = Duration::from_secs(60);
/// The stream that everybody appends to, and the one to which transactions append.
pub(crate) const EVENTS: &str = "events";
const TRANSFERS: &str = "transfers";
const ACCOUNTS: [&str; 2] = ["account/one", "account/other"];
/// How long a disk that is full is left alone.
const FULL_FOR: Duration = Duration::from_millis(20);
/// Keys of one prefix, more than one step removes of larger ones.
const PREFIX_KEYS: u64 = 12;

/// What all workers of a run wrote down.
#[derive(Default)]
pub(crate) struct Notes {
    appends: Mutex<Vec<AppendCall>>,
    adds: Mutex<Vec<AddCall>>,
    /// Transfers that were acknowledged, by the record that each appended, with its offset.
    transfers: Mutex<Vec<(String, u64)>>,
    unknown_transfers: Mutex<Vec<String>>,
    prefixes: Mutex<u64>,
}

pub(crate) struct Run {
    begun: Instant,
    notes: Notes,
    stopping: AtomicBool,
}

impl Run {
    pub(crate) fn new() -> Arc<Run> {
        Arc::new(Run {
            begun: Instant::now(),
            notes: Notes::default(),
            stopping: AtomicBool::new(false),
        })
    }

    pub(crate) fn goes_on(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }

    fn answered(&self) -> usize {
        let appends = locked(&self.notes.appends)
            .iter()
            .filter(|call| call.returned.is_some())
            .count();
        appends + locked(&self.notes.adds).len() + locked(&self.notes.transfers).len()
    }

    /// Makes an append and writes down what came of it.
    pub(crate) async fn append(&self, client: &Client, call: AppendCall) -> AppendTold {
        self.append_counted(client, call, &Tally::default()).await
    }

    /// The same, counted.
    pub(crate) async fn append_counted(&self, client: &Client, mut call: AppendCall, tally: &Tally) -> AppendTold {
        let mut append = client.stream(EVENTS).append(&call.records);
        if let Some(expected) = call.expected {
            append = append.if_offset(expected);
        }
        if let Some(token) = call.token {
            append = append.fence_token(token);
        }
        if let Some(id) = &call.message_id {
            append = append.message_id(id);
        }
        call.called = self.begun.elapsed();
        call.told = told(tally.count(append.into_future()).await);
        call.returned = (call.told != AppendTold::Unknown).then(|| self.begun.elapsed());
        let told = call.told;
        locked(&self.notes.appends).push(call);
        told
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn told(answer: Result<Verdict<Appended>, Error>) -> AppendTold {
    match answer {
        Ok(Verdict::Done(done)) => AppendTold::Appended {
            first: done.first,
            duplicate: done.duplicate,
        },
        Ok(Verdict::Refused(Refusal::WrongTail { tail })) => AppendTold::WrongTail { tail },
        Ok(Verdict::Refused(Refusal::StaleToken { current })) => AppendTold::StaleToken { current },
        Ok(Verdict::Refused(other)) => panic!("an append was refused otherwise: {other}"),
        Err(error) if error.outcome() == Outcome::Unknown => AppendTold::Unknown,
        Err(_) => AppendTold::NotApplied,
    }
}

pub(crate) fn call(records: Vec<String>) -> AppendCall {
    AppendCall {
        records,
        expected: None,
        token: None,
        message_id: None,
        called: Duration::ZERO,
        returned: None,
        told: AppendTold::Unknown,
    }
}

/// Appends batches: as they come, at an expected tail, with a message id twice, under a token.
async fn append_records(run: Arc<Run>, client: Client, number: u32) {
    let mut dice = Dice::new(u64::from(number) + 500);
    let (mut count, mut tail) = (0_u64, 0);
    while run.goes_on() {
        count += 1;
        let records = (0..1 + dice.below(4))
            .map(|part| format!("{number}-{count}-{part}"))
            .collect();
        let mut call = call(records);
        match dice.below(4) {
            0 => call.expected = Some(tail),
            1 => call.message_id = Some(format!("message {number}-{count}")),
            2 => call.token = Some(100 + count / 20),
            _ => {}
        }
        let twice = call.message_id.is_some();
        match run.append(&client, call.clone()).await {
            AppendTold::Appended { first, .. } => tail = first + call.records.len() as u64,
            AppendTold::WrongTail { tail: actual } => tail = actual,
            _ => {}
        }
        if twice {
            // Another call with a number of its own: only the message id tells that it is the same message.
            run.append(&client, call).await;
        }
    }
}

async fn add_ones(run: Arc<Run>, client: Client) {
    let cache = client.cache(CACHE);
    while run.goes_on() {
        let called = run.begun.elapsed();
        let told = match cache.add("count", 1).await {
            Ok(added) => Some((added.sum, added.version)),
            Err(error) if error.outcome() == Outcome::Unknown => None,
            Err(_) => continue,
        };
        let returned = told.map(|_| run.begun.elapsed());
        locked(&run.notes.adds).push(AddCall { called, returned, told });
    }
}

/// Moves something from one account to the other, with a record of it and a key that says so, all or nothing; and looks
/// at both accounts at one moment.
async fn transfer(run: Arc<Run>, client: Client, number: u32) {
    let mut dice = Dice::new(u64::from(number) + 900);
    let mut count = 0_u64;
    while run.goes_on() {
        count += 1;
        let amount = 1 + dice.below(9) as i64;
        let [from, to] = if dice.below(2) == 0 {
            ACCOUNTS
        } else {
            [ACCOUNTS[1], ACCOUNTS[0]]
        };
        let what = format!("{number}-{count}");
        let txn = client
            .txn()
            .when(TxnGuard::key(CACHE, format!("transfer/{what}"), Guard::Absent))
            .then(Operation::add(CACHE, from, -amount))
            .then(Operation::add(CACHE, to, amount))
            .then(Operation::put(CACHE, format!("transfer/{what}"), "done"))
            .then(Operation::append(TRANSFERS, [&what]));
        match done(txn.await) {
            Some(outcome) => {
                assert!(outcome.applied, "{what} is done once: {outcome:?}");
                let Some(OperationResult::Appended(appended)) = outcome.results.get(3) else {
                    panic!("{outcome:?}");
                };
                locked(&run.notes.transfers).push((what, appended.first));
            }
            None => locked(&run.notes.unknown_transfers).push(what),
        }
        let look = ACCOUNTS.map(|account| Operation::get(CACHE, account));
        if let Some(outcome) = done(look.into_iter().fold(client.txn(), |txn, get| txn.then(get)).await) {
            assert_eq!(sum_of(&outcome), 0, "what one account has the other lacks: {outcome:?}");
        }
    }
}

fn done(answer: Result<Verdict<TxnOutcome>, Error>) -> Option<TxnOutcome> {
    match answer {
        Ok(Verdict::Done(outcome)) => Some(outcome),
        Ok(Verdict::Refused(refusal)) => panic!("nothing in it can be refused: {refusal}"),
        Err(error) => {
            let is_full = error.code() == ErrorCode::StorageFull;
            assert!(is_full || error.outcome() == Outcome::Unknown, "{error}");
            None
        }
    }
}

/// What the counters that a transaction read hold together.
fn sum_of(outcome: &TxnOutcome) -> i64 {
    let numbers = outcome.results.iter().map(|result| match result {
        OperationResult::Got(Some(entry)) => String::from_utf8_lossy(&entry.value).parse().expect("a number"),
        OperationResult::Got(None) => 0,
        other => panic!("{other:?}"),
    });
    numbers.sum()
}

/// Fills a prefix that nobody else uses, and empties it.
async fn empty_prefixes(run: Arc<Run>, client: Client, number: u32) {
    let cache = client.cache(CACHE);
    let prefix = format!("prefix/{number}/");
    while run.goes_on() {
        for key in 0..PREFIX_KEYS {
            put_when_there_is_room(&cache, &format!("{prefix}{key}")).await;
        }
        let removed = cache.delete_prefix(&prefix).await.expect("a call of this client ends");
        assert_eq!(
            removed, PREFIX_KEYS,
            "every key is counted once, over steps and repeats"
        );
        let left = cache
            .list()
            .prefix(&prefix)
            .page()
            .await
            .expect("a call of this client ends");
        assert!(left.value.entries.is_empty(), "{:?}", left.value.entries);
        *locked(&run.notes.prefixes) += 1;
    }
}

async fn put_when_there_is_room(cache: &Cache, key: &str) {
    loop {
        match cache.put(key, "x").await {
            Ok(put) => return assert!(put.is_done()),
            Err(error) if error.code() == ErrorCode::StorageFull => wait_for(FULL_FOR).await,
            Err(error) => panic!("a call of this client ends: {error}"),
        }
    }
}

/// So many workers of each kind, in a namespace that has the streams.
pub(crate) fn workers(run: &Arc<Run>, clients: Vec<Client>) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    for (client, number) in clients.into_iter().zip(0..) {
        let client = client.with_timeout(PATIENCE);
        workers.spawn(append_records(Arc::clone(run), client.clone(), number));
        workers.spawn(add_ones(Arc::clone(run), client.clone()));
        workers.spawn(transfer(Arc::clone(run), client.clone(), number));
        workers.spawn(empty_prefixes(Arc::clone(run), client, number));
    }
    workers
}

/// A client for each worker.
async fn clients(endpoint: &str) -> Vec<Client> {
    let mut clients = Vec::new();
    while clients.len() < WORKERS as usize {
        clients.push(client_at(endpoint).await);
    }
    clients
}

/// The streams that the workers append to.
pub(crate) async fn create_streams(client: &Client) {
    for stream in [EVENTS, TRANSFERS] {
        let created = client.stream(stream).create().await.expect("the node answers");
        assert!(created.is_done());
    }
}

pub(crate) async fn settle(run: &Run, mut workers: JoinSet<()>) {
    run.stopping.store(true, Ordering::SeqCst);
    while let Some(worker) = workers.join_next().await {
        worker.expect("a worker does not panic");
    }
}

/// Every record of a stream.
pub(crate) async fn read_all(client: &Client, stream: &str) -> Vec<Kept> {
    let (mut kept, mut from) = (Vec::new(), 0);
    loop {
        let page = client
            .stream(stream)
            .read()
            .from_offset(from)
            .await
            .expect("the node answers");
        kept.extend(page.records.into_iter().map(|record| Kept {
            offset: record.offset,
            data: String::from_utf8_lossy(&record.data).into_owned(),
            token: record.fence_token,
        }));
        from = page.next;
        if page.next >= page.tail {
            return kept;
        }
    }
}

/// Compares what everybody was told with what is there.
pub(crate) async fn judge(run: &Run, client: &Client) {
    let events = read_all(client, EVENTS).await;
    let appends = locked(&run.notes.appends).clone();
    if let Err(violation) = objects::stream(&appends, &events) {
        panic!("{violation}");
    }
    let adds = locked(&run.notes.adds).clone();
    let count = client.cache(CACHE).counter("count").await.expect("the node answers");
    if let Err(violation) = objects::counter(&adds, count.unwrap_or(0)) {
        panic!("{violation}");
    }
    let records = read_all(client, TRANSFERS).await;
    objects::offsets_have_no_gaps(&records).unwrap_or_else(|violation| panic!("{violation}"));
    let (done, unknown) = (
        locked(&run.notes.transfers).clone(),
        locked(&run.notes.unknown_transfers).clone(),
    );
    for (what, offset) in &done {
        let record = records.get(usize::try_from(*offset).expect("a small number"));
        assert_eq!(
            record.map(|record| &record.data),
            Some(what),
            "a transfer has its record"
        );
    }
    assert!(records.len() >= done.len() && records.len() <= done.len() + unknown.len());
    let look = ACCOUNTS.map(|account| Operation::get(CACHE, account));
    let outcome = done_now(look.into_iter().fold(client.txn(), |txn, get| txn.then(get)).await);
    assert_eq!(sum_of(&outcome), 0);
    let refused =
        |call: &&AppendCall| matches!(call.told, AppendTold::WrongTail { .. } | AppendTold::StaleToken { .. });
    let again = |call: &&AppendCall| matches!(call.told, AppendTold::Appended { duplicate: true, .. });
    println!(
        "{} appends ({} refused, {} known messages), {} records, {} additions, {} transfers ({} unknown), {} prefixes emptied",
        appends.len(),
        appends.iter().filter(refused).count(),
        appends.iter().filter(again).count(),
        events.len(),
        adds.len(),
        done.len(),
        unknown.len(),
        locked(&run.notes.prefixes),
    );
    assert!(appends.iter().any(|call| refused(&call)) && appends.iter().any(|call| again(&call)));
    assert!(!done.is_empty() && *locked(&run.notes.prefixes) > 0);
}

fn done_now(answer: Result<Verdict<TxnOutcome>, Error>) -> TxnOutcome {
    done(answer).expect("the node answers")
}

async fn site() -> Site {
    let site = Site::start().await;
    create_streams(&site.client).await;
    site
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_kills_lose_no_record_no_addition_and_no_half_of_a_transaction() {
    let mut site = site().await;
    let run = Run::new();
    let workers = workers(&run, clients(&site.node.endpoint()).await);
    let mut dice = Dice::new(7);
    for _ in 0..KILLS {
        let goal = run.answered() + 20 + usize::try_from(dice.below(120)).expect("a small number");
        eventually("clients get answers", SOON, async || run.answered() >= goal).await;
        site.node.kill();
        site.node.restart();
    }
    settle(&run, workers).await;
    judge(&run, &site.client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lost_answers_are_asked_for_again_and_nothing_is_done_twice() {
    let site = site().await;
    let proxy = Proxy::start(site.node.address()).await;
    let run = Run::new();
    let workers = workers(&run, clients(&proxy.endpoint()).await);
    for _ in 0..30 {
        let goal = run.answered() + 40;
        eventually("clients get answers", SOON, async || run.answered() >= goal).await;
        let lost = proxy.swallowed_bytes(Direction::Replies);
        proxy.swallow(Direction::Replies);
        eventually("answers are lost", SOON, async || {
            proxy.swallowed_bytes(Direction::Replies) > lost + 100
        })
        .await;
        proxy.pass();
    }
    settle(&run, workers).await;
    judge(&run, &site.client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_message_sent_again_after_a_kill_gets_its_first_offset_while_its_window_lasts() {
    let mut site = site().await;
    let window = Duration::from_secs(4);
    let orders = site.client.stream("orders");
    let created = orders.create().dedup_window(window).await.expect("the node answers");
    assert!(created.is_done());
    let send = async || {
        let append = orders.append(["order"]).message_id("m1");
        append
            .await
            .expect("the node answers")
            .done()
            .expect("nothing is expected")
    };
    let sent = Instant::now();
    let first = send().await;
    assert!(!first.duplicate);
    for round in 0..3 {
        site.node.kill();
        site.node.restart();
        if sent.elapsed() < window {
            let again = send().await;
            assert_eq!((again.first, again.duplicate), (first.first, true), "round {round}");
        }
    }
    orders.trim(first.next()).await.expect("the node answers");
    assert!(
        sent.elapsed() < window / 2,
        "the machine is far too busy for this proof"
    );
    assert!(send().await.duplicate, "trimming frees no message id");
    // Asking does not lengthen the window: it counts from the first time that the message was accepted.
    let later = eventually_some("the message is new again", window * 3, async || {
        let answer = send().await;
        (!answer.duplicate).then_some(answer)
    })
    .await;
    assert!(sent.elapsed() >= window, "it was new before its window was over");
    assert_eq!(later.first, first.next());
    println!("new again after {:?}, with a window of {window:?}", sent.elapsed());
}
