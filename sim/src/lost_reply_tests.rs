//! A leader is killed after an entry is committed and applied, and before it answers: the client asks again under the same
//! identity, and is told what was done the first time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_client::{Cache, Client, Error, Session, Stream, Verdict};
use tenure_replica::planted;
use turmoil::Sim;

use crate::cluster::{Machines, World};
use crate::plan::{CrashKind, Event};
use crate::random::SeededRandom;
use crate::run::{compare, simulation};
use crate::setup::Setup;
use crate::workload::{CACHE, NAMESPACE, TENANT};

/// Rounds of each of the two tests: so many of each seed.
const ROUNDS: u64 = 500;
const ROUNDS_PER_SEED: u64 = 50;
/// Of these so many are answered from what the group remembers. The others were handed on by a node that did not lead, and
/// that node answers them from its own apply.
const REPEATED_MIN: u64 = ROUNDS * 9 / 10;
/// What has not come about by then will not.
const IN_VAIN: Duration = Duration::from_secs(20);
/// How long a killed node is down, and how long there is peace when it is back, in milliseconds.
const DOWN_MS: (u64, u64) = (20, 300);
const PEACE_MS: (u64, u64) = (100, 300);
/// A message takes so long.
const LATENCY: (Duration, Duration) = (Duration::from_millis(0), Duration::from_millis(3));
const ASKER: &str = "asker";
const STREAM: &str = "records";
const COUNTER: &str = "counter";
const REGISTER: &str = "register";
const TTL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Whose turn it is: rounds that may begin, and rounds that are over.
#[derive(Default)]
struct Turns {
    begun: AtomicU64,
    over: AtomicU64,
    /// Answers that the group remembered from an earlier attempt.
    repeated: AtomicU64,
}

#[test]
fn a_leader_killed_before_it_replies_five_hundred_times_and_each_retry_gets_the_first_answer() {
    kills_before_replies(CrashKind::Kill);
}

#[test]
fn a_leader_that_loses_power_before_it_replies_five_hundred_times_and_each_retry_gets_the_first_answer() {
    kills_before_replies(CrashKind::PowerLoss);
}

fn kills_before_replies(kind: CrashKind) {
    let repeated: u64 = (0..ROUNDS / ROUNDS_PER_SEED)
        .map(|seed| kill_before_replies(seed, kind))
        .sum();
    println!("{ROUNDS} leaders were killed before they replied; {repeated} answers were remembered ones");
    assert!(
        repeated >= REPEATED_MIN,
        "only {repeated} of {ROUNDS} were answered from memory"
    );
}

/// One run. Returns how many answers were remembered ones.
fn kill_before_replies(seed: u64, kind: CrashKind) -> u64 {
    let world = World::new(Setup::of(seed).nodes(3));
    let turns = Arc::new(Turns::default());
    let mut sim = simulation(&world, LATENCY.0, LATENCY.1);
    let machines = Machines::start(&world, &mut sim);
    let (asking, taking) = (Arc::clone(&world), Arc::clone(&turns));
    sim.client(ASKER, async move { ask(&asking, &taking).await });
    let random = SeededRandom::of(seed, "kills before replies");
    for round in 0..ROUNDS_PER_SEED {
        turns.begun.store(round + 1, Ordering::Relaxed);
        step_until(&mut sim, "a leader has a reply to give", || planted::silent().is_some());
        let node = planted::silent().expect("it was waited for").0;
        let name = machines.named(node).to_owned();
        machines.meet(&mut sim, &Event::Crash(name.clone(), kind));
        planted::give_replies();
        let back = sim.elapsed() + Duration::from_millis(random.between(DOWN_MS.0, DOWN_MS.1));
        step_to(&mut sim, back);
        machines.meet(&mut sim, &Event::Restart(name, kind));
        let is_over = || turns.over.load(Ordering::Relaxed) > round;
        step_until(&mut sim, "the retry is answered", is_over);
        let peace = sim.elapsed() + Duration::from_millis(random.between(PEACE_MS.0, PEACE_MS.1));
        step_to(&mut sim, peace);
    }
    turns.begun.store(u64::MAX, Ordering::Relaxed);
    sim.run().expect("the client ends");
    compare(&world, &mut sim, &machines).expect("the nodes go on");
    let violations = world.ledger.violations();
    assert!(violations.is_empty(), "seed {seed}: {violations:?}");
    turns.repeated.load(Ordering::Relaxed)
}

/// Lets so much simulated time pass.
async fn wait_for(time: Duration) {
    tokio::time::sleep(time).await;
}

fn step_to(sim: &mut Sim<'_>, until: Duration) {
    while sim.elapsed() < until {
        sim.step().expect("nodes and the client go on");
    }
}

fn step_until(sim: &mut Sim<'_>, what: &str, is_so: impl Fn() -> bool) {
    let until = sim.elapsed() + IN_VAIN;
    while !is_so() {
        assert!(sim.elapsed() < until, "in vain: {what}");
        sim.step().expect("nodes and the client go on");
    }
}

/// What the client has been told so far.
struct Asker {
    cache: Cache,
    stream: Stream,
    session: Session,
    /// Additions and appends that were made.
    added: i64,
    appended: u64,
    /// The register's version.
    version: Option<u64>,
    /// Its highest token.
    token: u64,
}

/// Asks for one thing in each round, and looks that it was done once and was told as it was done.
async fn ask(world: &World, turns: &Turns) -> turmoil::Result {
    let client = world.client(ASKER, TIMEOUT)?.namespace(TENANT, NAMESPACE);
    while !matches!(client.create_cache(CACHE).await, Ok(Verdict::Done(_))) {}
    let mut asker = Asker::enter(&client).await?;
    while !three_vote(&client).await {
        wait_for(Duration::from_millis(20)).await;
    }
    for round in 0..ROUNDS_PER_SEED {
        while turns.begun.load(Ordering::Relaxed) <= round {
            wait_for(Duration::from_millis(1)).await;
        }
        planted::withhold_next_reply();
        let repeated = match round % 4 {
            0 => asker.claim(round).await?,
            1 => asker.add().await?,
            2 => asker.append().await?,
            _ => asker.compare_and_set(round).await?,
        };
        turns.repeated.fetch_add(u64::from(repeated), Ordering::Relaxed);
        turns.over.store(round + 1, Ordering::Relaxed);
    }
    Ok(asker.settle().await?)
}

/// Whether three nodes vote in every group, as some node knows.
async fn three_vote(client: &Client) -> bool {
    let status = client.status().await;
    status.is_ok_and(|status| !status.groups.is_empty() && status.groups.iter().all(|group| group.voters.len() == 3))
}

impl Asker {
    async fn enter(client: &Client) -> Result<Asker, Error> {
        let (cache, stream) = (client.cache(CACHE), client.stream(STREAM));
        while !matches!(stream.create().await, Ok(Verdict::Done(_))) {}
        Ok(Asker {
            session: client.open_session(TTL).await?,
            cache,
            stream,
            added: 0,
            appended: 0,
            version: None,
            token: 0,
        })
    }

    /// Claims a name that nobody has: a second try would be refused.
    async fn claim(&mut self, round: u64) -> Result<bool, Error> {
        let key = format!("claims/{round}");
        let put = self.cache.put(&key, ASKER).if_absent().owner(&self.session).await?;
        let Verdict::Done(claimed) = put else {
            panic!("{key}: what was done was refused when it was asked for again: {put:?}");
        };
        assert!(claimed.token() > self.token, "{key}: {claimed:?} after {}", self.token);
        self.token = claimed.token();
        let found = self.cache.get(&key).await?.expect("it was claimed");
        assert_eq!(
            (found.created, found.version),
            (claimed.created, claimed.version),
            "{key}"
        );
        Ok(claimed.repeated)
    }

    /// Adds one: a second effect would show in every later sum.
    async fn add(&mut self) -> Result<bool, Error> {
        let added = self.cache.add(COUNTER, 1).await?;
        self.added += 1;
        assert_eq!(added.sum, self.added, "{added:?}");
        Ok(added.repeated)
    }

    /// Appends a record: a second one would move every later offset.
    async fn append(&mut self) -> Result<bool, Error> {
        let appended = self.stream.append([self.appended.to_string()]).await?;
        let Verdict::Done(appended) = appended else {
            panic!("an append was refused: {appended:?}");
        };
        assert_eq!(appended.first, self.appended, "{appended:?}");
        self.appended += 1;
        Ok(appended.repeated)
    }

    /// Writes over the version that it knows: a second try would be refused.
    async fn compare_and_set(&mut self, round: u64) -> Result<bool, Error> {
        let put = self.cache.put(REGISTER, round.to_string());
        let put = match self.version {
            None => put.if_absent(),
            Some(version) => put.if_version(version),
        };
        let put = put.await?;
        let Verdict::Done(written) = put else {
            panic!("what was done was refused when it was asked for again: {put:?}");
        };
        let found = self.cache.get(REGISTER).await?.expect("it was written");
        assert_eq!(found.version, written.version, "{written:?}");
        assert_eq!(&found.value[..], round.to_string().as_bytes());
        self.version = Some(written.version);
        Ok(written.repeated)
    }

    /// Everything that was done is there once.
    async fn settle(&self) -> Result<(), Error> {
        let page = self.stream.read().from_offset(0).await?;
        let offsets: Vec<u64> = page.records.iter().map(|record| record.offset).collect();
        assert_eq!(offsets, (0..self.appended).collect::<Vec<_>>());
        assert_eq!(page.tail, self.appended);
        let claims = self.cache.list().prefix("claims/").await?;
        assert_eq!(
            claims.len() as u64,
            ROUNDS_PER_SEED.div_ceil(4),
            "all of them are still held"
        );
        assert!(self.session.is_valid());
        Ok(())
    }
}
