//! A leader is killed when a write is committed and applied there, and before its reply leaves: the client asks again under the
//! same identity, and another node gives the first answer.
//!
//! `TENURE_LOST_REPLIES` is how many retries are to be answered from memory; as many leaders are killed, and those whose clients
//! had their answer from a node that had handed the request on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_client::{Cache, Client, Error, Session, Stream, Verdict};
use tenure_core::response::{Answer, Done, Response};
use tenure_replica::planted;
use turmoil::Sim;

use crate::cluster::{Machines, World};
use crate::plan::{CrashKind, Event};
use crate::random::SeededRandom;
use crate::run::{compare, simulation};
use crate::setup::Setup;
use crate::workload::{CACHE, NAMESPACE, TENANT};

/// Answers from memory that one test run waits for, one leader killed for each, and how another number is asked for.
const ROUNDS: u64 = 1_000;
const ROUNDS_VARIABLE: &str = "TENURE_LOST_REPLIES";
/// Rounds of one seed: each takes about two seconds, and a simulation may last for two minutes.
const ROUNDS_PER_SEED: u64 = 25;
/// What has not come about by then will not.
const IN_VAIN: Duration = Duration::from_secs(20);
/// How long the others go on without the killed node when its client has been answered, and how long there is peace when it
/// is back, in milliseconds.
const DOWN_MS: (u64, u64) = (0, 300);
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
    /// What the killed leader would have said.
    first: Mutex<Option<Vec<Answer>>>,
    /// Rounds in which the client was told by the group's memory. In the others a node that did not lead had handed the request
    /// on, and told the client what it saw itself apply.
    remembered: AtomicU64,
}

/// A first answer, as a client is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Written { version: u64, token: u64 },
    Added { sum: i64, version: u64, token: u64 },
    Appended { first: u64, count: u64 },
}

impl Told {
    fn by(response: &Response) -> Option<Told> {
        match response {
            Response::Done(Done::Put { version, created }) => Some(Told::Written {
                version: *version,
                token: *created,
            }),
            Response::Done(Done::Added { sum, version, created }) => Some(Told::Added {
                sum: *sum,
                version: *version,
                token: *created,
            }),
            Response::Done(Done::Appended(appended)) => Some(Told::Appended {
                first: appended.first,
                count: appended.count,
            }),
            _ => None,
        }
    }
}

#[test]
fn leaders_killed_between_the_commit_and_the_reply_are_asked_again_and_another_node_gives_the_first_answer() {
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds.parse().expect("a number of retries"));
    let (mut killed, mut remembered) = (0, 0);
    for seed in 0.. {
        if remembered >= rounds {
            break;
        }
        let more = (rounds - remembered).min(ROUNDS_PER_SEED);
        remembered += kill_before_replies(seed, more);
        killed += more;
        assert!(
            remembered >= killed / 2,
            "of {killed} answers only {remembered} were remembered ones"
        );
    }
    println!(
        "{killed} leaders killed between a commit and its reply, every first answer given by another node, {remembered} times \
         to a retry, from memory"
    );
}

/// So many rounds. Returns how many answers were remembered ones.
fn kill_before_replies(seed: u64, rounds: u64) -> u64 {
    let world = World::new(Setup::of(seed).nodes(3));
    let turns = Arc::new(Turns::default());
    let mut sim = simulation(&world, LATENCY.0, LATENCY.1);
    let machines = Machines::start(&world, &mut sim);
    let (asking, taking) = (Arc::clone(&world), Arc::clone(&turns));
    sim.client(ASKER, async move { ask(&asking, &taking, rounds).await });
    let random = SeededRandom::of(seed, "kills before replies");
    for round in 0..rounds {
        turns.begun.store(round + 1, Ordering::Relaxed);
        step_until(&mut sim, "a leader has a reply to give", || {
            planted::withheld().is_some()
        });
        let withheld = planted::withheld().expect("it was waited for");
        let name = machines.named(withheld.node.0).to_owned();
        let kind = CrashKind::any(&random);
        machines.meet(&mut sim, &Event::Crash(name.clone(), kind));
        planted::give_replies();
        *turns.first.lock().expect("nobody panics while holding it") = Some(withheld.answers);
        // Nobody but another node can answer: this one stays down until that has happened.
        let is_over = || turns.over.load(Ordering::Relaxed) > round;
        step_until(&mut sim, "the retry is answered", is_over);
        let back = sim.elapsed() + Duration::from_millis(random.between(DOWN_MS.0, DOWN_MS.1));
        step_to(&mut sim, back);
        machines.meet(&mut sim, &Event::Restart(name, kind));
        let peace = sim.elapsed() + Duration::from_millis(random.between(PEACE_MS.0, PEACE_MS.1));
        step_to(&mut sim, peace);
    }
    turns.begun.store(u64::MAX, Ordering::Relaxed);
    sim.run().expect("the client ends");
    compare(&world, &mut sim, &machines).expect("the nodes go on");
    let violations = world.ledger.violations();
    assert!(violations.is_empty(), "seed {seed}: {violations:?}");
    turns.remembered.load(Ordering::Relaxed)
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
async fn ask(world: &World, turns: &Turns, rounds: u64) -> turmoil::Result {
    let client = world.client(ASKER, TIMEOUT)?.namespace(TENANT, NAMESPACE);
    while !matches!(client.create_cache(CACHE).await, Ok(Verdict::Done(_))) {}
    let mut asker = Asker::enter(&client).await?;
    while !three_vote(&client).await {
        wait_for(Duration::from_millis(20)).await;
    }
    for round in 0..rounds {
        while turns.begun.load(Ordering::Relaxed) <= round {
            wait_for(Duration::from_millis(1)).await;
        }
        // So that the client knows who leads: whoever does not would hand its request on.
        while !matches!(asker.cache.put("warm", "").await, Ok(Verdict::Done(_))) {}
        planted::withhold_reply(|response| Told::by(response).is_some());
        let (told, repeated) = match round % 4 {
            0 => asker.claim(round).await?,
            1 => asker.add().await?,
            2 => asker.append().await?,
            _ => asker.compare_and_set(round).await?,
        };
        let first = turns.first_answer().await;
        assert_eq!(
            first, told,
            "round {round}: what the leader would have said, and what was told"
        );
        turns.remembered.fetch_add(u64::from(repeated), Ordering::Relaxed);
        turns.over.store(round + 1, Ordering::Relaxed);
    }
    Ok(asker.settle(rounds).await?)
}

/// Whether three nodes vote in every group, as some node knows.
async fn three_vote(client: &Client) -> bool {
    let status = client.status().await;
    status.is_ok_and(|status| !status.groups.is_empty() && status.groups.iter().all(|group| group.voters.len() == 3))
}

impl Turns {
    /// Waits until a leader was killed, and takes what it would have said.
    async fn first_answer(&self) -> Told {
        loop {
            let first = self.first.lock().expect("nobody panics while holding it").take();
            if let Some(answers) = first {
                let mut told = answers.iter().filter_map(|answer| Told::by(&answer.response));
                return told.next().expect("that is what was withheld");
            }
            wait_for(Duration::from_millis(1)).await;
        }
    }
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
    async fn claim(&mut self, round: u64) -> Result<(Told, bool), Error> {
        let key = format!("claims/{round}");
        let put = self.cache.put(&key, ASKER).if_absent().owner(&self.session).await?;
        let Verdict::Done(claimed) = put else {
            panic!("{key}: what was done was refused when it was asked for again: {put:?}");
        };
        assert!(claimed.token() > self.token, "{key}: {claimed:?} after {}", self.token);
        self.token = claimed.token();
        let found = self.cache.get(&key).await?.expect("it was claimed");
        let told = (claimed.version, claimed.token());
        assert_eq!((found.version, found.created), told, "{key}");
        let (version, token) = told;
        Ok((Told::Written { version, token }, claimed.repeated))
    }

    /// Adds one: a second effect would show in every later sum.
    async fn add(&mut self) -> Result<(Told, bool), Error> {
        let added = self.cache.add(COUNTER, 1).await?;
        self.added += 1;
        assert_eq!(added.sum, self.added, "{added:?}");
        let told = Told::Added {
            sum: added.sum,
            version: added.version,
            token: added.created,
        };
        Ok((told, added.repeated))
    }

    /// Appends a record: a second one would move every later offset.
    async fn append(&mut self) -> Result<(Told, bool), Error> {
        let appended = self.stream.append([self.appended.to_string()]).await?;
        let Verdict::Done(appended) = appended else {
            panic!("an append was refused: {appended:?}");
        };
        assert_eq!(appended.first, self.appended, "{appended:?}");
        self.appended += 1;
        let (first, count) = (appended.first, appended.count);
        Ok((Told::Appended { first, count }, appended.repeated))
    }

    /// Writes over the version that it knows: a second try would be refused.
    async fn compare_and_set(&mut self, round: u64) -> Result<(Told, bool), Error> {
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
        let (version, token) = (written.version, written.created);
        Ok((Told::Written { version, token }, written.repeated))
    }

    /// Everything that was done is there once.
    async fn settle(&self, rounds: u64) -> Result<(), Error> {
        let page = self.stream.read().from_offset(0).await?;
        let offsets: Vec<u64> = page.records.iter().map(|record| record.offset).collect();
        assert_eq!(offsets, (0..self.appended).collect::<Vec<_>>());
        assert_eq!(page.tail, self.appended);
        let claims = self.cache.list().prefix("claims/").await?;
        assert_eq!(claims.len() as u64, rounds.div_ceil(4), "all of them are still held");
        assert!(self.session.is_valid());
        Ok(())
    }
}
