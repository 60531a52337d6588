//! Three and five nodes, and one fault after another, while clients claim, renew, compare and set, transact, publish and
//! watch.
//!
//! `TENURE_NEMESIS_SECONDS` makes the runs longer, `TENURE_NEMESIS_SEED` gives them other faults. A run says its seed, and
//! the same seed does the same again.

mod work;

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure_client::{Client, GroupInfo};
use tenure_testkit::check::{self, Held, State};
use tenure_testkit::nemesis::{Prey, Schedule, Step, wait_for};
use tenure_testkit::{eventually, eventually_some};

use crate::load::Follower;
use crate::support::{CACHE, SOON, client, client_at};
use work::{Work, whole_state};

const HOME_GROUPS: u32 = 2;
/// The home group of the keys.
const HOME: u32 = 1;
/// How long a run strikes if nobody says otherwise.
const THREE_NODES_FOR: Duration = Duration::from_secs(60);
const FIVE_NODES_FOR: Duration = Duration::from_secs(24);
/// A run of at least this length has so many requests that end unknown, or its clients did not do much.
const LONG: Duration = Duration::from_secs(60);
const UNKNOWN_MIN: usize = 50;
/// How long somebody may be asked who leads.
const ASKED_WITHIN: Duration = Duration::from_millis(500);

/// What a run is told from outside.
struct Wish {
    seed: u64,
    time: Duration,
}

impl Wish {
    fn or(seed: u64, time: Duration) -> Wish {
        let number = |name: &str| {
            let value = std::env::var(name).ok()?;
            Some(
                value
                    .parse()
                    .unwrap_or_else(|_| panic!("{name} is {value}: not a number")),
            )
        };
        Wish {
            seed: number("TENURE_NEMESIS_SEED").unwrap_or(seed),
            time: number("TENURE_NEMESIS_SECONDS").map_or(time, Duration::from_secs),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_nodes_under_faults_keep_every_promise() {
    run(3, Wish::or(1, THREE_NODES_FOR)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_nodes_under_faults_keep_every_promise() {
    run(5, Wish::or(2, FIVE_NODES_FOR)).await;
}

/// The cluster, and a client of each of its nodes.
struct Field {
    prey: Prey,
    each: Vec<Client>,
    all: String,
    _folder: TempDir,
}

impl Field {
    async fn start(nodes: usize) -> Field {
        let folder = TempDir::new().expect("a temporary folder");
        let prey = Prey::start(folder.path(), nodes, HOME_GROUPS).await;
        let mut each = Vec::new();
        for endpoint in prey.endpoints() {
            each.push(client_at(&endpoint).await);
        }
        let all = prey.endpoints().join(",");
        let field = Field {
            prey,
            each,
            all,
            _folder: folder,
        };
        field.wait_until_whole().await;
        field
    }

    /// Waits until as many nodes vote in every group as should, and each group has a leader, as every node says.
    async fn wait_until_whole(&self) {
        let of_system = if self.prey.count() < 5 { 3 } else { 5 };
        for node in &self.each {
            eventually("every group has its voters and a leader", SOON, async || {
                let Ok(status) = node.status().await else { return false };
                let is_whole = |group: &GroupInfo| {
                    let voters = if group.group == 0 { of_system } else { 3 };
                    group.voters.len() == voters && group.leader.is_some()
                };
                status.groups.len() == 1 + HOME_GROUPS as usize && status.groups.iter().all(is_whole)
            })
            .await;
        }
    }

    /// Who leads the group of the keys, as it says itself.
    async fn leader(&self) -> u64 {
        eventually_some("a leader", SOON, async || {
            for (node, id) in self.each.iter().zip(1..) {
                let Ok(Ok(status)) = tokio::time::timeout(ASKED_WITHIN, node.status()).await else {
                    continue;
                };
                let leads = |group: &GroupInfo| group.group == HOME && group.leader == Some(id);
                if status.groups.iter().any(leads) {
                    return Some(id);
                }
            }
            None
        })
        .await
    }
}

async fn run(nodes: usize, wish: Wish) {
    println!("seed {}: {nodes} nodes for {:?}", wish.seed, wish.time);
    let mut field = Field::start(nodes).await;
    Work::prepare(&field.all).await;
    let mut followers = vec![Follower::start(&field.all, 1).await];
    let work = Work::start(&field.all).await;
    for endpoint in field.prey.endpoints() {
        followers.push(Follower::start(&endpoint, 1).await);
    }
    let begun = Instant::now();
    for step in Schedule::new(wish.seed, nodes) {
        strike(&mut field, &work, &step, begun).await;
        if begun.elapsed() >= wish.time {
            break;
        }
    }
    field.wait_until_whole().await;
    let verdict = work.stop().await;
    let (state, revision) = whole_state(&client(&field.all).await.cache(CACHE)).await;
    verdict.mark(&field.all).await;
    let mut told = Vec::new();
    for follower in followers {
        told.push(follower.finish().await);
    }
    judge(&verdict, &told, &state, revision);
    let tally = std::sync::Arc::clone(&verdict.tally);
    verdict.judge_objects(&field.all).await;
    let unknown = tally.unknown();
    println!(
        "{} requests had a verdict, {} were not applied, {unknown} are unknown",
        tally.done(),
        tally.not_applied(),
    );
    assert!(field.prey.all_run(), "no node ends by itself");
    assert!(
        wish.time < LONG || unknown >= UNKNOWN_MIN,
        "only {unknown} requests ended unknown: the faults struck nothing"
    );
}

async fn strike(field: &mut Field, work: &Work, step: &Step, begun: Instant) {
    wait_for(step.calm).await;
    let leader = field.leader().await;
    let (under_way, unknown, done) = (work.tally.under_way(), work.tally.unknown(), work.tally.done());
    let victims = field.prey.strike(step, leader);
    work.next_epoch();
    wait_for(step.lasts).await;
    field.prey.heal();
    println!(
        "{:5.1} s: {step}: {victims:?} where {leader} led; {under_way} under way, {} ended unknown, {} done meanwhile",
        begun.elapsed().as_secs_f64(),
        work.tally.unknown() - unknown,
        work.tally.done() - done,
    );
}

/// Compares what the clients of the keys were told with what the watches told.
fn judge(verdict: &work::Verdict, told: &[Vec<tenure_testkit::Event>], state: &State, revision: u64) {
    let calls = verdict.calls();
    let counts = match check::everything(&calls, &told[0], state, revision) {
        Ok(counts) => counts,
        Err(violation) => panic!("{violation}"),
    };
    for (other, node) in told.iter().zip(0..).skip(1) {
        if let Err(violation) = check::watches_agree(&told[0], other, 0, u64::MAX) {
            panic!("a watch of all nodes and one of node {node}: {violation}");
        }
    }
    let free: Vec<_> = calls
        .into_iter()
        .filter(|call| !work::ends_by_itself(call.operation.key()))
        .collect();
    if let Err(violation) = check::linearizability::linearizable(&free) {
        panic!("{violation}");
    }
    println!(
        "keys: {counts:?}, {} changes told {} times over alike, {} in the order of one register each; {} sessions lost",
        told[0].len(),
        told.len(),
        free.len(),
        verdict.sessions_lost,
    );
    verdict.judge_holds();
}

/// A key as the rules see it.
fn held(entry: tenure_client::Entry) -> (String, Held) {
    let held = Held {
        value: String::from_utf8_lossy(&entry.value).into_owned(),
        version: entry.version,
        created: entry.created,
    };
    (String::from_utf8_lossy(&entry.key).into_owned(), held)
}
