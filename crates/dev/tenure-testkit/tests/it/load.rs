//! Clients that claim, change and free the same few keys as fast as they are answered, and watches beside them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_client::{Cache, Client, ErrorCode, Session, Verdict, WatchEnd, WatchItem, Written};
use tenure_testkit::check::Counts;
use tenure_testkit::{Event, EventKind, Failure, Guarded, History, Operation, check, eventually};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::{CACHE, Dice, SOON, client, state_of};

/// Keys for which everybody competes.
const SEATS: u64 = 12;
/// The first of them, which nothing ends but the clients.
const LASTING_SEATS: u64 = 4;
/// A node that is killed all the time is there for a small part of it only, so a call may take many attempts.
const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough for every outage that a proof makes.
const SESSION_TTL: Duration = Duration::from_secs(10);
/// Written last, so that a watch knows when it has seen everything.
const MARKER: &str = "marker";

/// Clients at work.
pub(crate) struct Load {
    pub(crate) history: Arc<History>,
    stopping: Arc<AtomicBool>,
    workers: JoinSet<u32>,
    client: Client,
}

/// What the keys of a load are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Some of the seats end by a TTL of their own, some with the session that owns them.
    Ending,
    /// None ends by itself.
    Lasting,
}

/// What came of a load that kept every rule.
pub(crate) struct Judged {
    pub(crate) counts: Counts,
    /// Changes that the watch told.
    pub(crate) changes: usize,
    pub(crate) sessions_lost: u32,
}

impl Load {
    /// Starts so many clients, each with connections of its own.
    pub(crate) async fn start(endpoint: &str, clients: u32, keys: Keys) -> Load {
        let history = Arc::new(History::default());
        let stopping = Arc::new(AtomicBool::new(false));
        let mut workers = JoinSet::new();
        for number in 0..clients {
            let client = client(endpoint).await.with_timeout(PATIENCE);
            let worker = Worker {
                number,
                keys,
                cache: client.cache(CACHE),
                history: Arc::clone(&history),
                dice: Dice::new(u64::from(number) + 1),
                writes: 0,
                session: None,
                lost: 0,
            };
            workers.spawn(worker.run(Arc::clone(&stopping)));
        }
        Load {
            history,
            stopping,
            workers,
            client: client(endpoint).await,
        }
    }

    /// Waits until so many more calls were acknowledged.
    pub(crate) async fn wait_for_more(&self, acknowledged: u64) {
        let goal = self.history.acknowledged() + usize::try_from(acknowledged).expect("a small number");
        eventually("clients get answers", SOON, async || {
            self.history.acknowledged() >= goal
        })
        .await;
    }

    /// Lets every client finish what it does. Returns how many sessions were lost.
    pub(crate) async fn stop(&mut self) -> u32 {
        self.stopping.store(true, Ordering::SeqCst);
        let mut lost = 0;
        while let Some(worker) = self.workers.join_next().await {
            lost += worker.expect("a client does not panic");
        }
        lost
    }

    /// The calls on keys that nothing else ends, reads among them, have an order that explains their answers.
    pub(crate) fn assert_linearizable(&self) {
        let mut calls = self.history.calls();
        calls.retain(|call| !is_ending(call.operation.key()));
        if let Err(violation) = check::linearizability::linearizable(&calls) {
            panic!("{violation}");
        }
    }

    /// Lets the clients finish, and judges all that they and a watch were told of the cache.
    pub(crate) async fn judge(&mut self, cache: &Cache, follower: Follower) -> Judged {
        let sessions_lost = self.stop().await;
        let (state, revision) = state_of(cache).await;
        self.mark().await;
        let events = follower.finish().await;
        match check::everything(&self.history.calls(), &events, &state, revision) {
            Ok(counts) => Judged {
                counts,
                changes: events.len(),
                sessions_lost,
            },
            Err(violation) => panic!("{violation}"),
        }
    }

    /// Asking again settled every call, but for those whose own session was lost while they were asked: their write
    /// may have been done and may have ended with the session.
    pub(crate) fn assert_settled(&self) {
        let calls = self.history.calls();
        let open = |failure: &Failure| failure.code != ErrorCode::SessionExpired;
        let open: Vec<_> = calls
            .iter()
            .filter(|call| call.failure.as_ref().is_some_and(open))
            .collect();
        assert!(
            open.is_empty(),
            "{} calls have no answer, the first {:?}",
            open.len(),
            open.first()
        );
    }

    /// Writes the marker, at which followers finish.
    pub(crate) async fn mark(&self) {
        let operation = Operation::Put {
            key: MARKER.to_owned(),
            value: "the end".to_owned(),
            guard: Guarded::Nothing,
        };
        let put = self.client.cache(CACHE).put(MARKER, "the end");
        let verdict = self.history.put(u32::MAX, put, operation).await;
        assert!(verdict.expect("the node answers").is_done());
    }
}

/// One client.
struct Worker {
    number: u32,
    keys: Keys,
    cache: Cache,
    history: Arc<History>,
    dice: Dice,
    writes: u64,
    session: Option<Session>,
    lost: u32,
}

impl Worker {
    async fn run(mut self, stopping: Arc<AtomicBool>) -> u32 {
        while !stopping.load(Ordering::SeqCst) {
            let seat = format!("seat-{}", self.dice.below(SEATS));
            match self.dice.below(10) {
                0..4 => self.claim(seat).await,
                4 | 5 => {
                    let own = format!("own-{}", self.number);
                    self.write(&own, Guarded::Nothing).await;
                }
                6 => {
                    let own = format!("own-{}", self.number);
                    if let Ok(Some(entry)) = self.history.get(self.number, &self.cache, &own).await {
                        self.write(&own, Guarded::Version(entry.version)).await;
                    }
                }
                7 => self.remove(&seat, Guarded::Nothing).await,
                _ => {
                    // What it finds is in the history.
                    let _ = self.history.get(self.number, &self.cache, &seat).await;
                }
            }
        }
        self.lost
    }

    /// Takes a free seat, uses it and leaves it; or takes a seat from who has it.
    async fn claim(&mut self, seat: String) {
        let written = match self.write(&seat, Guarded::Absent).await {
            Some(Verdict::Done(written)) => Some(written),
            Some(Verdict::Refused(refusal)) => {
                let version = refusal.key().map(|key| key.version);
                match version {
                    Some(version) => self.write(&seat, Guarded::Version(version)).await.and_then(done),
                    None => None,
                }
            }
            None => None,
        };
        let Some(written) = written else { return };
        if self.dice.below(2) == 0 {
            self.write(&seat, Guarded::Created(written.created)).await;
        }
        if self.dice.below(3) > 0 {
            self.remove(&seat, Guarded::Created(written.created)).await;
        }
    }

    async fn write(&mut self, key: &str, guard: Guarded) -> Option<Verdict<Written>> {
        self.writes += 1;
        let value = format!("{}-{}", self.number, self.writes);
        let mut put = self.cache.put(key, &value);
        if let Some(guard) = guard.to_guard() {
            put = put.guard(guard);
        }
        if self.keys == Keys::Ending && is_ending(key) {
            if self.dice.below(3) == 0 {
                put = put.ttl(Duration::from_millis(1 + self.dice.below(200)));
            }
            if self.dice.below(2) == 0 {
                put = put.owner(self.session().await?);
            }
        }
        let operation = Operation::Put {
            key: key.to_owned(),
            value,
            guard,
        };
        self.history.put(self.number, put, operation).await.ok()
    }

    async fn remove(&mut self, key: &str, guard: Guarded) {
        let mut delete = self.cache.delete(key);
        if let Some(guard) = guard.to_guard() {
            delete = delete.guard(guard);
        }
        let operation = Operation::Delete {
            key: key.to_owned(),
            guard,
        };
        // What came of it is in the history.
        let _ = self.history.delete(self.number, delete, operation).await;
    }

    /// The session of this client: now and then a new one, which ends the old one and what it owns.
    async fn session(&mut self) -> Option<Session> {
        let lost = self.session.as_ref().is_some_and(|session| !session.is_valid());
        self.lost += u32::from(lost);
        if lost || self.dice.below(40) == 0 {
            self.session = None;
        }
        if self.session.is_none() {
            self.session = self.cache.client().open_session(SESSION_TTL).await.ok();
        }
        self.session.clone()
    }
}

/// Whether a key may end by itself, where any does.
fn is_ending(key: &str) -> bool {
    key.strip_prefix("seat-")
        .and_then(|seat| seat.parse().ok())
        .is_some_and(|seat: u64| seat >= LASTING_SEATS)
}

fn done<T>(verdict: Verdict<T>) -> Option<T> {
    match verdict {
        Verdict::Done(done) => Some(done),
        Verdict::Refused(_) => None,
    }
}

/// A watch that writes down what it is told, until the marker or its own end.
pub(crate) struct Follower {
    events: Arc<Mutex<Vec<Event>>>,
    lagged: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Follows a cache from a revision on, over a connection of its own.
    pub(crate) async fn start(endpoint: &str, from: u64) -> Follower {
        let cache = client(endpoint).await.cache(CACHE);
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let lagged = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(follow(cache, from, Arc::clone(&events), Arc::clone(&lagged)));
        Follower { events, lagged, task }
    }

    /// Everything up to the marker, once that has come.
    pub(crate) async fn finish(self) -> Vec<Event> {
        let finished = tokio::time::timeout(SOON, self.task).await;
        finished
            .expect("the marker comes soon")
            .expect("a watch neither ends nor goes back");
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often it did not keep up and was told where to go on.
    pub(crate) fn lagged(&self) -> usize {
        self.lagged.load(Ordering::SeqCst)
    }
}

async fn follow(cache: Cache, mut from: u64, events: Arc<Mutex<Vec<Event>>>, lagged: Arc<AtomicUsize>) {
    loop {
        let mut watch = cache.watch().from(from).await.expect("the watch begins");
        // Everything up to here has come, whole.
        let mut reached = 0;
        loop {
            match watch.next().await.expect("a watch without end") {
                Ok(WatchItem::Changes { revision, changes }) => {
                    assert!(
                        revision > reached,
                        "changes of {revision} after everything up to {reached}"
                    );
                    reached = revision;
                    let told: Vec<Event> = changes.into_iter().map(Event::of).collect();
                    let over = told.iter().any(|event| event.key == MARKER);
                    let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
                    events.extend(told);
                    if over {
                        return;
                    }
                }
                Ok(WatchItem::Progress { revision }) => {
                    assert!(revision >= reached, "progress goes back from {reached} to {revision}");
                    reached = revision;
                }
                Ok(WatchItem::State { .. }) => panic!("nobody asked for the state"),
                Err(WatchEnd::Lagged { resume_from }) => {
                    lagged.fetch_add(1, Ordering::SeqCst);
                    from = resume_from;
                    break;
                }
                Err(end) => panic!("the watch ended: {end}"),
            }
        }
    }
}

/// How many tokens of keys that had been there before a list of changes has.
pub(crate) fn tokens_after_another(events: &[Event]) -> usize {
    let mut keys = std::collections::BTreeSet::new();
    let creations = events.iter().filter(|event| match &event.kind {
        EventKind::Put { version, created, .. } => version == created,
        EventKind::Removed { .. } => false,
    });
    creations.filter(|event| !keys.insert(event.key.clone())).count()
}
