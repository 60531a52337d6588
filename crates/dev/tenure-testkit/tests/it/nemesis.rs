//! Three and five nodes, and one fault after another, while clients claim, renew, compare and set, transact, publish and
//! watch.
//!
//! `TENURE_NEMESIS_SECONDS` makes the runs longer, `TENURE_NEMESIS_SEED` gives them other faults. A run says its seed, and
//! the same seed does the same again. A run goes on until it has seen what it is for, within bounds.

mod work;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure_client::{Client, GroupInfo};
use tenure_testkit::check::{self, Held, State};
use tenure_testkit::nemesis::{Means, Prey, Report, Schedule, Step, wait_for};
use tenure_testkit::{eventually, eventually_some};

use crate::load::Follower;
use crate::support::{CACHE, SOON, client, client_at};
use work::{Work, whole_state};

const HOME_GROUPS: u32 = 2;
/// The home group of the keys.
const HOME: u32 = 1;
/// A log that is kept so short that a node which was away, or is new, needs a snapshot.
const KEPT: u64 = 1_000;
/// How long a run strikes if nobody says otherwise.
const THREE_NODES_FOR: Duration = Duration::from_secs(60);
const FIVE_NODES_FOR: Duration = Duration::from_secs(24);
/// How much longer it may take until a run has seen what it is for.
const LONGER_MAX: Duration = Duration::from_secs(45);
/// In every run so many requests end unknown, or its clients did not do much.
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

/// Needs the right to mount, which root has: its nodes have disks of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_nodes_under_faults_keep_every_promise() {
    let means = Means {
        nodes: 3,
        home_groups: HOME_GROUPS,
        entries_kept: Some(KEPT),
        with_disks: true,
    };
    run(means, Wish::or(1, THREE_NODES_FOR)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_nodes_under_faults_keep_every_promise() {
    let means = Means {
        nodes: 5,
        home_groups: HOME_GROUPS,
        entries_kept: None,
        with_disks: false,
    };
    run(means, Wish::or(2, FIVE_NODES_FOR)).await;
}

/// The cluster, and a client of each of its nodes.
struct Field {
    prey: Prey,
    each: BTreeMap<u64, Client>,
    all: Vec<String>,
    _folder: TempDir,
}

impl Field {
    async fn start(means: Means) -> Field {
        let folder = TempDir::new().expect("a temporary folder");
        let prey = Prey::start(folder.path(), means).await;
        let mut field = Field {
            each: BTreeMap::new(),
            all: prey.endpoints(),
            prey,
            _folder: folder,
        };
        field.wait_for_members().await;
        field
    }

    /// Where clients reach the nodes, beginning with this one.
    fn endpoints(&self, first: usize) -> String {
        let mut endpoints = self.all.clone();
        endpoints.rotate_left(first);
        endpoints.join(",")
    }

    /// Waits until those who are there now are the cluster.
    async fn wait_for_members(&mut self) {
        self.each.clear();
        for (id, endpoint) in self.prey.members() {
            self.each.insert(id, client_at(&endpoint).await);
        }
        self.wait_until_whole().await;
        self.prey.all_have_joined().await;
    }

    /// Waits until as many nodes vote in every group as should, and each group has a leader, as every node says.
    async fn wait_until_whole(&self) {
        let of_system = if self.each.len() < 5 { 3 } else { 5 };
        for (id, node) in &self.each {
            eventually("every group has its voters and a leader", SOON, async || {
                let Ok(status) = node.status().await else { return false };
                assert_eq!(status.node_id, *id, "nodes are numbered as they come");
                let is_whole = |group: &GroupInfo| {
                    let voters = if group.group == 0 { of_system } else { 3 };
                    group.voters.len() == voters
                        && group.voters.iter().all(|voter| self.each.contains_key(voter))
                        && group.leader.is_some()
                };
                status.nodes.len() == self.each.len()
                    && status.groups.len() == 1 + HOME_GROUPS as usize
                    && status.groups.iter().all(is_whole)
            })
            .await;
        }
    }

    /// Who leads the group of the keys, as it says itself.
    async fn leader(&self) -> u64 {
        eventually_some("a leader", SOON, async || {
            for (id, node) in &self.each {
                let Ok(Ok(status)) = tokio::time::timeout(ASKED_WITHIN, node.status()).await else {
                    continue;
                };
                let leads = |group: &GroupInfo| group.group == HOME && group.leader == Some(*id);
                if status.groups.iter().any(leads) {
                    return Some(*id);
                }
            }
            None
        })
        .await
    }
}

async fn run(means: Means, wish: Wish) {
    println!("seed {}: {means:?} for {:?}", wish.seed, wish.time);
    let (is_short, with_disks) = (means.entries_kept.is_some(), means.with_disks);
    let schedule = Schedule::new(wish.seed, means.nodes, with_disks);
    let round = schedule.round();
    let mut field = Field::start(means).await;
    Work::prepare(&field.endpoints(0)).await;
    let mut followers = vec![Follower::start(&field.endpoints(0), 1).await];
    let work = Work::start(|number| field.endpoints(number % field.all.len())).await;
    for first in 0..field.each.len() {
        followers.push(Follower::start(&field.endpoints(first), 1).await);
    }
    let (begun, mut report) = (Instant::now(), Report::default());
    for step in schedule {
        strike(&mut field, &work, &step, begun, &mut report).await;
        let has_seen_all = report.strikes() >= round && work.tally.unknown() >= UNKNOWN_MIN;
        let has_seen_all = has_seen_all && (!is_short || field.prey.snapshots_installed().await.1 > 0.0);
        let is_over = begun.elapsed() >= wish.time && has_seen_all;
        if is_over || begun.elapsed() >= wish.time + LONGER_MAX {
            break;
        }
    }
    field.wait_until_whole().await;
    let verdict = work.stop().await;
    report.settle(&verdict.tally);
    let (state, revision) = whole_state(&client(&field.endpoints(0)).await.cache(CACHE)).await;
    verdict.mark(&field.endpoints(0)).await;
    let mut told = Vec::new();
    for follower in followers {
        told.push(follower.finish().await);
    }
    judge(&verdict, &told, &state, revision);
    let tally = std::sync::Arc::clone(&verdict.tally);
    verdict.judge_objects(&field.endpoints(0)).await;
    let (unknown, strikes) = (tally.unknown(), report.strikes());
    let (to_join, to_catch_up) = field.prey.snapshots_installed().await;
    println!(
        "{report}\n{strikes} faults in {:?}; {} requests had a verdict, {} found no room, {} were not applied, {unknown} are \
         unknown; {to_join} snapshots installed by nodes that had just joined, {to_catch_up} by others; {} nodes ended on a full \
         disk",
        begun.elapsed(),
        tally.done(),
        tally.no_room(),
        tally.not_applied(),
        field.prey.ended_full(),
    );
    assert!(field.prey.all_run(), "no node ends by itself");
    assert!(
        unknown >= UNKNOWN_MIN,
        "only {unknown} requests ended unknown: the faults struck nothing"
    );
    assert!(strikes >= round, "only {strikes} faults of the {round} kinds");
    assert!(!is_short || to_catch_up > 0.0, "nobody who was away needed a snapshot");
    assert!(!with_disks || field.prey.ended_full() > 0, "no disk ran full");
}

async fn strike(field: &mut Field, work: &Work, step: &Step, begun: Instant, report: &mut Report) {
    wait_for(step.calm).await;
    let leader = field.leader().await;
    let tally = &work.tally;
    report.strike(step.fault, tally);
    let (under_way, unknown, done, no_room) = (tally.under_way(), tally.unknown(), tally.done(), tally.no_room());
    let struck = begun.elapsed();
    let victims = field.prey.strike(step, leader).await;
    work.next_epoch();
    wait_for(step.lasts).await;
    if field.prey.worsen() {
        wait_for(step.lasts).await;
    }
    field.prey.wait_until_left_behind().await;
    if field.prey.heal().await {
        field.wait_for_members().await;
    }
    println!(
        "{:5.1} s, {:.1} s: {step}: {victims:?} where {leader} led; {under_way} under way, {} ended unknown, {} found no room, {} \
         done meanwhile",
        struck.as_secs_f64(),
        (begun.elapsed() - struck).as_secs_f64(),
        tally.unknown() - unknown,
        tally.no_room() - no_room,
        tally.done() - done,
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
