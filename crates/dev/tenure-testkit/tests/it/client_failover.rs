//! What clients see of a cluster whose nodes die, freeze, are cut off, or are made anew: one answer to each call, watches
//! without gaps, reads that say how old they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure_api::ErrorCode;
use tenure_api::v1::{self, server_frame};
use tenure_client::{Cache, Change, ChangeKind, SessionState, Watch, WatchItem};
use tenure_testkit::nemesis::{Means, Prey, Wiring};
use tenure_testkit::observe::metric;
use tenure_testkit::{check, eventually, eventually_some};
use tokio::task::JoinSet;

use crate::load::{Follower, Keys, Load};
use crate::membership::run;
use crate::support::{CACHE, SOON, client, client_at, state_of};
use crate::trio::{HOME, Trio};
use crate::wire::{Wire, put};

/// Leaders killed, clients, and calls of each that are under way at once.
const KILLS: u64 = 4;
const CLIENTS: u64 = 6;
const AT_ONCE: u64 = 16;
/// Longer than any outage that a proof makes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Entries of the log that are kept where a replica is to lack some, and calls that make many more.
const KEPT: &str = "64";
const CALLS_BEYOND: u64 = 6_000;
/// Asked of a node while it stands still, of each kind.
const ASKED_ASLEEP: usize = 20;

/// What the writers have done.
#[derive(Default)]
struct Written {
    stopping: AtomicBool,
    puts: AtomicU64,
    sums: AtomicU64,
    /// Answers that the group had remembered of an earlier attempt.
    repeated: AtomicU64,
}

/// Creates keys that nobody else creates and counts, one call after another. Each must be done, and only once.
async fn write(cache: Cache, name: String, written: Arc<Written>) {
    for number in 0.. {
        if written.stopping.load(Ordering::SeqCst) {
            return;
        }
        let key = format!("{name}-{number}");
        let put = cache.put(&key, &key).if_absent().await;
        // A second effect would be refused: the key would be there.
        let put = put.expect("it is settled").done().expect("nobody else creates it");
        written.repeated.fetch_add(u64::from(put.repeated), Ordering::SeqCst);
        written.puts.fetch_add(1, Ordering::SeqCst);
        cache.add("sum", 1).await.expect("it is settled");
        written.sums.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_in_flight_at_a_leader_that_is_killed_are_done_once_and_none_stays_unknown() {
    let mut trio = Trio::start().await;
    let written = Arc::new(Written::default());
    let mut writers = JoinSet::new();
    for number in 0..CLIENTS {
        // Each knows one node and finds the others, also if that one is killed.
        let endpoint = trio.endpoint(1 + number % 3).to_owned();
        let cache = client(&endpoint).await.with_timeout(PATIENCE).cache(CACHE);
        for call in 0..AT_ONCE {
            writers.spawn(write(cache.clone(), format!("{number}-{call}"), Arc::clone(&written)));
        }
    }
    let more = async |calls: u64| {
        let goal = written.puts.load(Ordering::SeqCst) + calls;
        eventually("calls are answered", PATIENCE, async || {
            written.puts.load(Ordering::SeqCst) >= goal
        })
        .await;
    };
    for _ in 0..KILLS {
        more(500).await;
        let leader = trio.leader().await;
        trio.cluster.node(leader).kill();
        more(500).await;
        trio.cluster.node(leader).restart();
        trio.wait_until_whole().await;
    }
    written.stopping.store(true, Ordering::SeqCst);
    writers.join_all().await;
    let cache = trio.client.cache(CACHE);
    let sum = cache.counter("sum").await.expect("the cluster answers");
    let (puts, sums) = (written.puts.load(Ordering::SeqCst), written.sums.load(Ordering::SeqCst));
    assert_eq!(sum.map(i64::unsigned_abs), Some(sums), "each addition counts once");
    let keys = cache.list().keys_only().await.expect("the cluster answers");
    assert_eq!(keys.len() as u64, puts + 1);
    let repeated = written.repeated.load(Ordering::SeqCst);
    println!(
        "{KILLS} leaders killed: {puts} creations and {sums} additions, {repeated} answered from what was remembered"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_of_one_node_outlives_it() {
    let mut trio = Trio::start().await;
    let leader = trio.leader().await;
    let only = client(trio.endpoint(leader)).await;
    let session = only
        .open_session(Duration::from_secs(6))
        .await
        .expect("the node answers");
    let cache = only.cache(CACHE);
    let put = cache.put("held", "mine").if_absent().owner(&session).await;
    let token = put.expect("the node answers").done().expect("it is free").created;
    let mut watch = cache.watch().await.expect("the node answers");
    let began = Instant::now();
    trio.cluster.node(leader).kill();
    let put = cache.put("after", "v").await.expect("another node answers");
    assert!(put.is_done());
    let took = began.elapsed();
    let changes = changes_until(&mut watch, "after").await;
    assert_eq!(changes.len(), 1, "{changes:?}");
    // Longer than the TTL: what was not renewed elsewhere has ended by then.
    eventually("the session outlives its TTL", SOON, async || {
        assert!(session.is_valid(), "the holder keeps its session");
        began.elapsed() > Duration::from_secs(9)
    })
    .await;
    assert_eq!(session.state(), SessionState::Live);
    let held = cache
        .get("held")
        .await
        .expect("the cluster answers")
        .expect("it is held");
    assert_eq!(held.created, token);
    println!("a write of a client of the killed leader alone took {took:?}");
}

/// What a watch tells up to the change of a key.
async fn changes_until(watch: &mut Watch, key: &str) -> Vec<Change> {
    let mut told = Vec::new();
    loop {
        let next = tokio::time::timeout(SOON, watch.next()).await;
        match next.expect("something is told").expect("a watch without end") {
            Ok(WatchItem::Changes { changes, .. }) => {
                told.extend(changes);
                if told.iter().any(|change| change.key == key) {
                    return told;
                }
            }
            Ok(WatchItem::Progress { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watches_go_on_elsewhere_when_their_node_is_frozen_made_anew_or_killed() {
    let mut trio = Trio::start_under(&["--log-entries-kept", KEPT], |_, _| Vec::new()).await;
    let third_first = [3, 1, 2].map(|node| trio.endpoint(node).to_owned()).join(",");
    let one = Follower::start(&trio.endpoints, 1).await;
    let at_third = Follower::start(&third_first, 1).await;
    let mut load = Load::start(&trio.endpoints, CLIENTS as u32, Keys::Ending).await;
    load.wait_for_more(100).await;
    trio.cluster.node(3).pause();
    load.wait_for_more(CALLS_BEYOND).await;
    trio.cluster.node(3).resume();
    let installed = format!("tenure_group_snapshots_installed_total{{group=\"{HOME}\"}}");
    let third = trio.cluster.node(3).address();
    eventually("the third node was made anew", PATIENCE, async || {
        metric(third, &installed).await >= 1.0
    })
    .await;
    trio.wait_until_whole().await;
    // It asks the node first that does not keep the beginning.
    let late = Follower::start(&third_first, 1).await;
    load.wait_for_more(200).await;
    let leader = trio.leader().await;
    trio.cluster.node(leader).kill();
    load.wait_for_more(200).await;
    trio.cluster.node(leader).restart();
    load.wait_for_more(200).await;
    load.stop().await;
    let (state, revision) = state_of(&trio.client.cache(CACHE)).await;
    load.mark().await;
    let lagged = one.lagged() + at_third.lagged() + late.lagged();
    let (one, at_third, late) = (one.finish().await, at_third.finish().await, late.finish().await);
    let told = check::everything(&load.history.calls(), &one, &state, revision)
        .and_then(|counts| check::watches_agree(&one, &at_third, 0, u64::MAX).map(|_| counts))
        .and_then(|counts| check::watches_agree(&one, &late, 0, u64::MAX).map(|_| counts));
    match told {
        Ok(counts) => println!("{counts:?}, {} changes told three times over alike", one.len()),
        Err(violation) => panic!("{violation}"),
    }
    assert_eq!(lagged, 0, "another node always had what one had dropped");
    load.assert_settled();
}

/// Who leads the keys' group, as these nodes say.
async fn leader_of(endpoints: &[String]) -> u64 {
    let client = client(&endpoints.join(",")).await;
    eventually_some("a leader", SOON, async || {
        let status = client.status().await.ok()?;
        status.groups.iter().find(|group| group.group == HOME)?.leader
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_is_cut_off_says_how_old_its_reads_are_and_shows_nobody_less_than_they_have_seen() {
    let folder = TempDir::new().expect("a temporary folder");
    let prey = Prey::start(folder.path(), Means::of(3)).await;
    let endpoints = prey.endpoints();
    let all = client(&endpoints.join(",")).await;
    assert!(all.create_cache(CACHE).await.expect("the cluster answers").is_done());
    let cache = all.cache(CACHE);
    let first = cache.put("k", "before").await.expect("the cluster answers");
    let first = first.done().expect("nothing stands in its way").version;
    let leader = leader_of(&endpoints).await;
    let far = 1 + leader % 3;
    let endpoint = &endpoints[usize::try_from(far).expect("a small number") - 1];
    let (at_far, wire) = (client_at(endpoint).await.cache(CACHE), Wire::connect(endpoint).await);
    let read = async || {
        let read = at_far.get("k").stale().with_revision().await.expect("the node answers");
        let version = read.value.as_ref().map(|entry| entry.version);
        (version, read.age)
    };
    let small = Duration::from_millis(700);
    let current = async |version: u64| {
        let (found, age) = read().await;
        found == Some(version) && age.is_some_and(|age| age < small)
    };
    eventually("it is current", SOON, async || current(first).await).await;
    prey.rewire(prey.between(&[far]));
    let cut = Instant::now();
    let second = cache.put("k", "after").await.expect("a majority answers");
    let second = second.done().expect("nothing stands in its way").version;
    let mut oldest = Duration::ZERO;
    eventually("its age grows", SOON, async || {
        let (found, age) = read().await;
        let age = age.expect("it heard from a leader");
        assert_eq!(found, Some(first), "it cannot have what was written");
        // What was on its way when it was cut off may still have come.
        assert!(
            age + Duration::from_millis(500) > cut.elapsed().saturating_sub(small) && age >= oldest,
            "{age:?}"
        );
        oldest = age;
        age > Duration::from_secs(4)
    })
    .await;
    let behind = wire.read("k", Some(second)).await.expect_err("it lacks that");
    assert_eq!(behind.error_code(), Some(ErrorCode::Behind), "{behind:?}");
    prey.rewire(Wiring::default());
    eventually("it is current again", SOON, async || current(second).await).await;
    println!("a node that was cut off said that it was {oldest:?} old");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_that_wakes_confirms_no_renewal_reads_nothing_old_and_ends_nothing() {
    let mut trio = Trio::start().await;
    let cache = trio.client.cache(CACHE);
    let leader = trio.leader().await;
    let wire = Wire::connect(trio.endpoint(leader)).await;
    let mut watch = cache.watch().await.expect("the cluster answers");
    let closed = wire.open(60_000, 1).await;
    let lives = wire.open(60_000, 2).await;
    let before = wire.put(put("read", "old")).await.expect("the node answers");
    assert!(matches!(before.verdict, Some(v1::put_reply::Verdict::Done(_))));
    let ttl = Duration::from_secs(12);
    let lease = cache
        .put("lease", "v")
        .if_absent()
        .ttl(ttl)
        .await
        .expect("the node answers");
    let token = lease.done().expect("it is free").created;
    let due = Instant::now() + ttl;
    trio.cluster.node(leader).pause();
    // The others go on without it: a session ends, a lease is renewed before it is over, a key changes.
    let ended = trio.client.force_close_session(closed.id).await;
    ended.expect("another node leads soon");
    let renewed = cache.touch("lease", Duration::from_secs(120)).await;
    assert!(
        renewed.expect("the others answer").is_done(),
        "{:?} are left",
        due - Instant::now()
    );
    let put = cache.put("read", "new").await.expect("the others answer");
    let version = put.done().expect("nothing stands in its way").version;
    // What is asked now lies before it when it wakes, and by what it knows the lease is over then.
    let (mut renewals, mut reads) = (JoinSet::new(), JoinSet::new());
    for _ in 0..ASKED_ASLEEP {
        let (one, session) = (wire.clone(), closed.clone());
        renewals.spawn(async move { one.renew(HOME, &session).await });
        let one = wire.clone();
        reads.spawn(async move { one.read("read", None).await });
    }
    wait_until(due + Duration::from_secs(1)).await;
    trio.cluster.node(leader).resume();
    for renewed in renewals.join_all().await {
        let confirmed = matches!(renewed, Ok(Some(v1::kept_alive::Result::Renewed(_))));
        assert!(!confirmed, "it renewed what had ended");
    }
    let mut answered = 0;
    for read in reads.join_all().await.into_iter().flatten() {
        let found = read.key.expect("it was written");
        assert!(found.version >= version, "it read what was old");
        answered += 1;
    }
    let marked = cache.put("marker", "v").await.expect("the cluster answers");
    assert!(marked.is_done());
    let told = changes_until(&mut watch, "marker").await;
    let removed = |change: &&Change| matches!(change.kind, ChangeKind::Removed { .. });
    assert_eq!(told.iter().filter(removed).count(), 0, "{told:?}");
    for node in 1..=3 {
        let cache = client_at(trio.endpoint(node)).await.cache(CACHE);
        let lease = cache
            .get("lease")
            .await
            .expect("the node answers")
            .expect("it was renewed");
        assert_eq!(lease.created, token);
    }
    // It serves what is right.
    let kept = wire.renew(HOME, &lives).await;
    assert!(matches!(kept, Ok(Some(v1::kept_alive::Result::Renewed(_)))), "{kept:?}");
    println!("of {ASKED_ASLEEP} reads that lay before the woken leader it answered {answered}, all new");
}

async fn wait_until(instant: Instant) {
    tokio::time::sleep_until(instant.into()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn open_streams_are_told_who_leads_from_now_on() {
    let trio = Trio::start().await;
    let leader = trio.leader().await;
    let (next, other) = (1 + leader % 3, 1 + (leader + 1) % 3);
    let wire = Wire::connect(trio.endpoint(other)).await;
    let (_frames, mut told) = wire.stream().await;
    let greeted = told.message().await.expect("no error").expect("the stream goes on");
    let Some(server_frame::Body::Hello(hello)) = greeted.body else {
        panic!("{greeted:?}")
    };
    let hint = hello.leaders.iter().find(|hint| hint.group == HOME);
    let hint = hint.expect("the node knows who leads");
    assert_eq!((hint.node_id, hint.address.as_str()), (leader, trio.endpoint(leader)));
    assert_eq!(hello.endpoints.first().map(String::as_str), Some(trio.endpoint(other)));
    assert_eq!(hello.endpoints.len(), 3);
    let said = run(
        &trio.endpoints,
        &["transfer-leader", &HOME.to_string(), &next.to_string()],
    );
    assert_eq!(said.status, Some(0), "{said:?}");
    let frame = tokio::time::timeout(SOON, told.message()).await.expect("it is told");
    let frame = frame.expect("no error").expect("the stream goes on");
    let Some(server_frame::Body::Leader(newer)) = frame.body else {
        panic!("{frame:?}")
    };
    assert_eq!((frame.id, newer.group, newer.node_id), (0, HOME, next));
    assert_eq!(newer.address, trio.endpoint(next));
    assert!(newer.term > hint.term, "{newer:?} after {hint:?}");
}
