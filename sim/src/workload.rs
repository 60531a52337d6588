//! What the clients do. Each writes down every answer, and tells the ledger what it was promised.
//!
//! - workers claim keys under sessions, hold them, and give them back in every way there is, or do not;
//! - a recorder writes keys that stay;
//! - a counter adds one by compare-and-set;
//! - a renewer keeps a key with a TTL alive, and then lets it end;
//! - a publisher appends records, a messenger sends the same few messages again and again, a banker moves amounts in
//!   transactions over keys, counters and a stream;
//! - of several nodes, three clients read and write the same two registers, a bystander sees how claims end, and an
//!   observer asks every node who leads and reads the registers there;
//! - a watcher follows every lasting key, through crashes;
//! - an auditor waits for all of them and compares what is there with what was promised.

mod audit;
mod claims;
mod objects;
pub(crate) mod observe;
pub(crate) mod registers;
mod writes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tenure_client::{Cache, Client, Error, Verdict};
use turmoil::Sim;

use crate::clock;
use crate::cluster::World;
use crate::plan::WORK_UNTIL;
use crate::random::SeededRandom;

/// Where everything is.
pub(crate) const TENANT: &str = "acme";
pub(crate) const NAMESPACE: &str = "prod";
/// The one cache.
pub(crate) const CACHE: &str = "leases";
/// Keys that stay begin with this.
const FACTS: &str = "facts/";
/// Keys that are claimed begin with this.
const CLAIMS: &str = "claims/";
/// The key of the counter.
const COUNTER: &str = "counter";
/// The lasting key that is written last.
const LAST_FACT: &str = "facts/last";
/// Who follows the lasting keys, and who compares in the end.
const WATCHER: &str = "watcher";
const AUDITOR: &str = "auditor";
/// Workers that claim keys.
const WORKERS: usize = 4;
/// A call over all its attempts: longer than the node is ever down.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Clients that share registers.
const SHARERS: u32 = 3;
/// Attempts at something that must come about before the work can begin.
const ATTEMPTS_MAX: usize = 20;

/// One client at work.
pub(crate) struct Actor {
    world: Arc<World>,
    name: String,
    random: SeededRandom,
    client: Client,
    cache: Cache,
}

/// How many clients have done their work.
#[derive(Clone, Default)]
struct Finished(Arc<AtomicUsize>);

/// What a client does.
type Work = fn(Actor) -> BoxFuture<'static, Result<(), Stopped>>;

/// The clients that the auditor waits for, and what they do.
fn workers(nodes: usize) -> Vec<(String, Work)> {
    let mut workers: Vec<(String, Work)> = Vec::new();
    for number in 1..=WORKERS {
        workers.push((format!("worker-{number}"), |actor| Box::pin(claims::work(actor))));
    }
    workers.push(("recorder".to_owned(), |actor| Box::pin(writes::record(actor))));
    workers.push(("counter".to_owned(), |actor| Box::pin(writes::count(actor))));
    workers.push(("renewer".to_owned(), |actor| Box::pin(writes::renew(actor))));
    workers.push(("publisher".to_owned(), |actor| Box::pin(objects::publish(actor))));
    workers.push(("messenger".to_owned(), |actor| Box::pin(objects::send(actor))));
    workers.push(("banker".to_owned(), |actor| Box::pin(objects::transfer(actor))));
    if nodes > 1 {
        for number in 1..=SHARERS {
            workers.push((format!("sharer-{number}"), |actor| Box::pin(registers::share(actor))));
        }
        workers.push(("bystander".to_owned(), |actor| Box::pin(audit::see_ends(actor))));
    }
    workers
}

/// The names of all clients but the one that only looks.
pub(crate) fn names(nodes: usize) -> Vec<String> {
    let workers = workers(nodes).into_iter().map(|(name, _)| name);
    workers.chain([WATCHER.to_owned(), AUDITOR.to_owned()]).collect()
}

/// Adds all clients to a simulation.
pub(crate) fn start(world: &Arc<World>, sim: &mut Sim<'_>) {
    let finished = Finished::default();
    let workers = workers(world.setup.nodes);
    let count = workers.len();
    for (name, work) in workers {
        let (world, finished) = (Arc::clone(world), finished.clone());
        sim.client(name.clone(), async move {
            Actor::begin(world, name).await?.run(work).await?;
            finished.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
    }
    if world.setup.nodes > 1 {
        let observing = Arc::clone(world);
        sim.client(observe::OBSERVER, async move {
            let while_at_work = || clock::now().is_some_and(|now| now < WORK_UNTIL);
            observe::observe(observing, while_at_work).await
        });
    }
    let watching = Arc::clone(world);
    sim.client(WATCHER, async move {
        let actor = Actor::begin(watching, WATCHER.to_owned()).await?;
        actor.run(|actor| Box::pin(audit::watch(actor))).await
    });
    let auditing = Arc::clone(world);
    sim.client(AUDITOR, async move {
        let actor = Actor::begin(auditing, AUDITOR.to_owned()).await?;
        while finished.0.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        actor.run(|actor| Box::pin(audit::settle(actor))).await
    });
}

/// A client could not go on, although nothing that happens in a simulation is a reason to.
#[derive(Debug, thiserror::Error)]
#[error("{who} could not go on: {why}")]
pub(crate) struct Stopped {
    who: String,
    why: String,
}

impl Actor {
    /// A client that has found the cluster and its cache.
    async fn begin(world: Arc<World>, name: String) -> Result<Actor, Stopped> {
        let stopped = |why: String| Stopped { who: name.clone(), why };
        let client = world
            .client(&name, TIMEOUT)
            .map_err(|error| stopped(error.to_string()))?;
        let client = client.namespace(TENANT, NAMESPACE);
        let random = SeededRandom::of(world.setup.seed, &format!("{name}, work"));
        for attempt in 1.. {
            let created = client.create_cache(CACHE).await;
            world
                .journal
                .note(&name, format_args!("create_cache: {}", Answer(&created)));
            match created {
                Ok(Verdict::Done(_)) => break,
                Ok(Verdict::Refused(refusal)) => return Err(stopped(refusal.to_string())),
                Err(error) if attempt == ATTEMPTS_MAX => return Err(stopped(error.to_string())),
                Err(_) => {}
            }
        }
        let cache = client.cache(CACHE);
        Ok(Actor {
            world,
            name,
            random,
            client,
            cache,
        })
    }

    async fn run(self, work: Work) -> turmoil::Result {
        let (world, name) = (Arc::clone(&self.world), self.name.clone());
        work(self).await?;
        world.journal.note(&name, "has finished");
        Ok(())
    }

    fn note(&self, what: impl fmt::Display) {
        self.world.journal.note(&self.name, what);
    }

    /// Lets a time pass that chance chooses.
    async fn pause(&self, from_ms: u64, to_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.random.between(from_ms, to_ms))).await;
    }

    /// Whether there is still time for another round.
    fn at_work(&self) -> bool {
        clock::now().is_some_and(|now| now < WORK_UNTIL)
    }

    fn stopped(&self, why: impl fmt::Display) -> Stopped {
        Stopped {
            who: self.name.clone(),
            why: why.to_string(),
        }
    }
}

/// An answer as the journal shows it.
struct Answer<'a, T>(&'a Result<T, Error>);

impl<T: fmt::Debug> fmt::Display for Answer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(answer) => write!(f, "{answer:?}"),
            Err(error) => write!(f, "error {} ({}): {error}", error.code(), error.outcome()),
        }
    }
}

/// A key as text.
fn text(key: &Bytes) -> String {
    String::from_utf8_lossy(key).into_owned()
}
