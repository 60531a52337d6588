//! A leader is killed, held or cut off, again and again: how long it takes until another one leads and writes are
//! acknowledged again, and what becomes of a holder meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tenure_client::{Cache, Client, Session, Verdict};
use tenure_testkit::{Guarded, Operation};
use turmoil::Sim;

use crate::clock;
use crate::cluster::{Machines, World};
use crate::plan::{CrashKind, Event, FaultKind, Pairs};
use crate::random::SeededRandom;
use crate::run::{compare, simulation};
use crate::setup::Setup;
use crate::workload::{CACHE, NAMESPACE, TENANT, observe, registers};

/// Seeds of one test run, and faults of each.
const SEEDS: u64 = 4;
const ROUNDS: usize = 8;
/// How more seeds are asked for.
const SEEDS_VARIABLE: &str = "TENURE_SIM_SEEDS";
/// Within this another node leads.
const REPLACED_WITHIN: Duration = Duration::from_secs(2);
/// What is not so by then will not be.
const IN_VAIN: Duration = Duration::from_secs(20);
/// The holder's TTL.
const TTL: Duration = Duration::from_secs(3);
/// A fault lasts for longer than that.
const FAULT: Duration = Duration::from_secs(5);
/// And between two there is peace for so long, in milliseconds.
const PEACE_MS: (u64, u64) = (2_000, 3_000);
/// A message takes so long.
const LATENCY: (Duration, Duration) = (Duration::from_millis(0), Duration::from_millis(3));
const HOLDER: &str = "holder";
const RIVAL: &str = "rival";
const WRITER: &str = "writer";
/// What the holder holds.
const HELD: &str = "held";
/// How often clients do what they do.
const EVERY: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_secs(10);

/// What befalls a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Its process is killed, or its machine loses power.
    Killed,
    /// Whatever it sends or is sent waits until the fault is over, and then arrives at once, as when a machine stands still.
    Held,
    /// Other nodes do not reach it, nor it them; clients do.
    CutOff,
}

/// What clients and the driver of a run tell each other.
#[derive(Default)]
struct Told {
    /// The group in which everything is.
    home: OnceLock<u32>,
    /// When the last write that was acknowledged was asked for, and when it was acknowledged.
    written: Mutex<(Duration, Duration)>,
    over: AtomicBool,
}

impl Told {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

/// How long it took until another node led, and until a write was acknowledged that was asked for after the fault.
struct Took {
    replaced: Duration,
    written: Duration,
}

#[test]
fn a_killed_leader_is_replaced_within_two_seconds_and_a_holder_keeps_its_lease() {
    is_replaced_in_time(Fault::Killed);
}

#[test]
fn a_leader_that_stands_still_is_replaced_within_two_seconds_and_a_holder_keeps_its_lease() {
    is_replaced_in_time(Fault::Held);
}

#[test]
fn a_leader_that_is_cut_off_is_replaced_within_two_seconds_and_a_holder_keeps_its_lease() {
    is_replaced_in_time(Fault::CutOff);
}

fn is_replaced_in_time(fault: Fault) {
    let seeds = std::env::var(SEEDS_VARIABLE).map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"));
    let (mut replaced, mut written) = (Vec::new(), Vec::new());
    for seed in 0..seeds {
        for took in fail_over(seed, fault) {
            replaced.push(took.replaced);
            written.push(took.written);
        }
    }
    println!("{fault:?}, another node leads: {}", distribution(&mut replaced));
    println!("{fault:?}, a write is acknowledged: {}", distribution(&mut written));
    let worst = replaced.last().expect("there was a fault");
    assert!(*worst <= REPLACED_WITHIN, "another node led after {worst:?} only");
}

/// Sorts them, and says what there is to say.
fn distribution(times: &mut [Duration]) -> String {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_millis();
    let (count, median, most, worst) = (times.len(), at(50), at(95), at(100));
    format!("{count} times, median {median} ms, of 100 the 95th {most} ms, worst {worst} ms")
}

/// One run.
fn fail_over(seed: u64, fault: Fault) -> Vec<Took> {
    let world = World::new(Setup::of(seed).nodes(3));
    let told = Arc::new(Told::default());
    let mut sim = simulation(&world, LATENCY.0, LATENCY.1);
    let machines = Machines::start(&world, &mut sim);
    for (name, work) in [(HOLDER, 0), (RIVAL, 1), (WRITER, 2)] {
        let (world, told) = (Arc::clone(&world), Arc::clone(&told));
        sim.client(name, async move {
            let (client, cache) = enter(&world, name).await?;
            match work {
                0 => hold(&world, &told, &client, &cache).await?,
                1 => contend(&world, &told, &cache).await,
                _ => write(&world, &told, &cache).await,
            }
            Ok(())
        });
    }
    let (observing, going) = (Arc::clone(&world), Arc::clone(&told));
    sim.client(observe::OBSERVER, async move {
        observe::observe(observing, || going.goes_on()).await
    });

    let random = SeededRandom::of(seed, &format!("failover by {fault:?}"));
    let mut took = Vec::new();
    let settled = |told: &Told| {
        let home = told.home.get();
        home.is_some_and(|home| world.leaders.all_vote(3, *home))
    };
    step_until(&mut sim, "three nodes vote", |_| settled(&told));
    let home = *told.home.get().expect("it is known by now");
    for _ in 0..ROUNDS {
        let peace = sim.elapsed() + Duration::from_millis(random.between(PEACE_MS.0, PEACE_MS.1));
        step_to(&mut sim, peace);
        took.push(round(&mut sim, &world, &machines, (&told, home), (fault, &random)));
    }
    let end = sim.elapsed() + TTL;
    step_to(&mut sim, end);
    told.over.store(true, Ordering::Relaxed);
    sim.run().expect("every client ends");
    compare(&world, &mut sim, &machines).expect("the nodes go on");
    let violations = [world.ledger.violations(), world.calls.settle().into_iter().collect()].concat();
    assert!(violations.is_empty(), "seed {seed}, {fault:?}: {violations:?}");
    took
}

/// One fault of whoever leads.
fn round(
    sim: &mut Sim<'_>,
    world: &World,
    machines: &Machines,
    (told, home): (&Told, u32),
    (fault, random): (Fault, &SeededRandom),
) -> Took {
    let (victim, term) = world.leaders.leader_of(home).expect("somebody leads");
    let (begin, end) = events(world, victim, fault, random);
    let began = sim.elapsed();
    machines.meet(sim, &begin);
    let (mut replaced, mut written) = (None, None);
    step_until(sim, "another node leads and writes are acknowledged", |now| {
        let leader = world.leaders.leader_of(home);
        if replaced.is_none() && leader.is_some_and(|(node, of)| node != victim && of > term) {
            replaced = Some(now - began);
        }
        let (asked, acknowledged) = *told.written.lock().expect("nobody panics while writing it");
        if written.is_none() && asked >= began {
            written = Some(acknowledged - began);
        }
        replaced.is_some() && written.is_some()
    });
    step_to(sim, began + FAULT);
    machines.meet(sim, &end);
    Took {
        replaced: replaced.expect("it was waited for"),
        written: written.expect("it was waited for"),
    }
}

/// How a fault of a node begins and ends.
fn events(world: &World, victim: usize, fault: Fault, random: &SeededRandom) -> (Event, Event) {
    let mut others = world.setup.node_names();
    let victim = others.remove(victim - 1);
    let clients = [HOLDER, RIVAL, WRITER, observe::OBSERVER].map(str::to_owned);
    let pairs = |others: &[String]| Pairs(others.iter().map(|other| (other.clone(), victim.clone())).collect());
    match fault {
        Fault::Killed => {
            let kind = CrashKind::any(random);
            (Event::Crash(victim.clone(), kind), Event::Restart(victim, kind))
        }
        Fault::Held => {
            let pairs = pairs(&[&others[..], &clients[..]].concat());
            let kind = FaultKind::Hold;
            (Event::Fault(pairs.clone(), kind), Event::Repair(pairs, kind))
        }
        Fault::CutOff => {
            let pairs = pairs(&others);
            let kind = FaultKind::Cut;
            (Event::Fault(pairs.clone(), kind), Event::Repair(pairs, kind))
        }
    }
}

/// Lets so much simulated time pass.
async fn wait_for(time: Duration) {
    tokio::time::sleep(time).await;
}

fn step_to(sim: &mut Sim<'_>, until: Duration) {
    while sim.elapsed() < until {
        sim.step().expect("nodes and clients go on");
    }
}

fn step_until(sim: &mut Sim<'_>, what: &str, mut is_so: impl FnMut(Duration) -> bool) {
    let until = sim.elapsed() + IN_VAIN;
    while !is_so(sim.elapsed()) {
        assert!(sim.elapsed() < until, "in vain: {what}");
        sim.step().expect("nodes and clients go on");
    }
}

/// A client that has found the cluster and its cache.
async fn enter(world: &World, name: &str) -> Result<(Client, Cache), tenure_client::Error> {
    let client = world.client(name, TIMEOUT)?.namespace(TENANT, NAMESPACE);
    while !matches!(client.create_cache(CACHE).await, Ok(Verdict::Done(_))) {}
    let cache = client.cache(CACHE);
    Ok((client, cache))
}

/// Holds a key and looks all the time that it may believe in it.
async fn hold(world: &World, told: &Told, client: &Client, cache: &Cache) -> turmoil::Result {
    let session: Session = client.open_session(TTL).await?;
    let Verdict::Done(held) = cache.put(HELD, HOLDER).if_absent().owner(&session).await? else {
        return Err("the key was somebody else's".into());
    };
    let home = client.hello().await?.home_group;
    told.home.set(home).expect("there is one holder");
    while told.goes_on() {
        if !session.is_valid() {
            world
                .ledger
                .violated(format!("the holder stopped believing: {:?}", session.state()));
            return Ok(());
        }
        wait_for(EVERY).await;
    }
    let found = cache.get(HELD).await?;
    if found.as_ref().map(|entry| entry.created) != Some(held.token()) {
        world
            .ledger
            .violated(format!("the holder had {held:?} and there is {found:?}"));
    }
    Ok(())
}

/// Tries to get the key that is held.
async fn contend(world: &World, told: &Told, cache: &Cache) {
    while told.home.get().is_none() {
        wait_for(EVERY).await;
    }
    while told.goes_on() {
        let claimed = cache.put(HELD, RIVAL).if_absent().await;
        if !matches!(claimed, Ok(Verdict::Refused(_)) | Err(_)) {
            world
                .ledger
                .violated(format!("the rival was granted what is held: {claimed:?}"));
        }
        wait_for(EVERY * 10).await;
    }
}

/// Writes a register, one value after the other.
async fn write(world: &World, told: &Told, cache: &Cache) {
    let now = || clock::now().unwrap_or_default();
    let key = registers::name(0);
    for number in 1_u64.. {
        if !told.goes_on() {
            return;
        }
        let (asked, value) = (now(), number.to_string());
        let operation = Operation::Put {
            key: key.clone(),
            value: value.clone(),
            guard: Guarded::Nothing,
        };
        let call = world.calls.called(0, operation, asked);
        let put = cache.put(&key, value).await;
        world.calls.returned(call, registers::told_of_put(&put), now());
        if let Ok(Verdict::Done(_)) = put {
            *told.written.lock().expect("nobody panics while reading it") = (asked, now());
        }
        wait_for(EVERY).await;
    }
}
