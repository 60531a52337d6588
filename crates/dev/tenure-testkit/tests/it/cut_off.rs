//! A leader that is cut off from the others, at any moment, with clients of its own.

use std::time::Duration;

use tempfile::TempDir;
use tenure_client::{Client, GroupInfo};
use tenure_testkit::nemesis::{Means, Prey, Wiring, wait_for};
use tenure_testkit::{eventually, eventually_some};

use crate::support::{CACHE, Dice, SOON, client, client_at};
use crate::trio::HOME;

const ROUNDS: u64 = 10;
/// The cut comes so long after a claim at most: some are committed by then, some are not.
const OFFSET_MAX_US: u64 = 6_000;
/// How long a client of the leader waits.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// How long a message is on its way at most.
const ON_ITS_WAY: Duration = Duration::from_millis(300);
const STREAM: &str = "orders";

/// Three nodes that reach each other through gates.
struct Site {
    prey: Prey,
    all: Client,
    _folder: TempDir,
}

impl Site {
    async fn start() -> Site {
        let folder = TempDir::new().expect("a temporary folder");
        let prey = Prey::start(folder.path(), Means::of(3)).await;
        let all = client(&prey.endpoints().join(",")).await;
        eventually("three voters in every group", SOON, async || {
            let Ok(status) = all.status().await else { return false };
            let whole = |group: &GroupInfo| group.voters.len() == 3 && group.leader.is_some();
            status.groups.len() == 3 && status.groups.iter().all(whole)
        })
        .await;
        let created = all.create_cache(CACHE).await.expect("the cluster answers");
        assert!(created.is_done());
        Site {
            prey,
            all,
            _folder: folder,
        }
    }

    /// Who leads, a client of it alone, and one of the others.
    async fn sides(&self) -> (u64, Client, Client) {
        let leader = eventually_some("a leader", SOON, async || {
            for (id, endpoint) in self.prey.members() {
                let status = client_at(&endpoint).await.status().await.ok()?;
                let leads = |group: &GroupInfo| group.group == HOME && group.leader == Some(id);
                if status.groups.iter().any(leads) {
                    return Some(id);
                }
            }
            None
        })
        .await;
        let mut members = self.prey.members();
        let own = members.remove(&leader).expect("it is there");
        let others: Vec<String> = members.into_values().collect();
        let own = client_at(&own).await.with_timeout(PATIENCE);
        (leader, own, client_at(&others.join(",")).await)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_that_is_cut_off_while_it_grants_gives_nothing_that_the_others_give() {
    let site = Site::start().await;
    let mut dice = Dice::new(11);
    let (mut last, mut told, mut unknown) = (0, 0, 0);
    for round in 0..ROUNDS {
        let key = format!("held-{round}");
        let (leader, own, others) = site.sides().await;
        // Both have opened what they need.
        for client in [&own, &others] {
            let warm = client.cache(CACHE).put("warm", "v").await;
            assert!(warm.expect("the cluster answers").is_done());
        }
        let claiming = tokio::spawn({
            let (cache, key) = (own.cache(CACHE), key.clone());
            async move { cache.put(&key, "at the leader").if_absent().await }
        });
        wait_for(Duration::from_micros(dice.below(OFFSET_MAX_US))).await;
        site.prey.rewire(site.prey.between(&[leader]));
        let other = others.cache(CACHE).put(&key, "at the others").if_absent().await;
        let other = other.expect("the others have a leader soon").done().ok();
        let first = claiming.await.expect("no panic");
        site.prey.rewire(Wiring::default());
        let found = site.all.cache(CACHE).get(&key).await.expect("the cluster answers");
        let entry = found.expect("somebody has it");
        assert!(entry.created > last, "round {round}: tokens rise");
        last = entry.created;
        match first {
            Ok(first) => {
                let first = first.done().ok();
                assert!(first.is_some() != other.is_some(), "round {round}: one of two has it");
                let granted = first.or(other).expect("one of them").created;
                assert_eq!(granted, entry.created, "round {round}");
                told += 1;
            }
            Err(_) => {
                let by = if other.is_some() {
                    "at the others"
                } else {
                    "at the leader"
                };
                assert_eq!(entry.value, by, "round {round}");
                unknown += 1;
            }
        }
    }
    println!("{ROUNDS} claims at a leader that was cut off: {told} with a verdict, {unknown} unknown, each given once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_message_that_a_dying_leader_did_not_pass_on_is_stored_once_when_it_is_sent_again() {
    let mut site = Site::start().await;
    let created = site.all.stream(STREAM).create().await.expect("the cluster answers");
    assert!(created.is_done());
    let (leader, own, others) = site.sides().await;
    let send = async |client: &Client, id: &str| {
        let sent = client.stream(STREAM).append([id]).message_id(id).await;
        sent.expect("the cluster answers").done().expect("nothing is expected")
    };
    let first = send(&others, "m0").await;
    assert!(!first.duplicate);
    site.prey.rewire(site.prey.between(&[leader]));
    let sending = tokio::spawn(async move { own.stream(STREAM).append(["m1"]).message_id("m1").await });
    // The leader has it by then, and nobody else ever will.
    wait_for(ON_ITS_WAY).await;
    assert!(!sending.is_finished(), "it is not stored");
    site.prey.node(leader).kill();
    assert!(sending.await.expect("no panic").is_err(), "nobody answers");
    site.prey.rewire(Wiring::default());
    let again = send(&others, "m1").await;
    assert!(!again.duplicate, "what was not stored is no duplicate");
    assert_eq!(again.first, first.next());
    let once_more = send(&others, "m1").await;
    assert!(once_more.duplicate && once_more.first == again.first, "{once_more:?}");
    // The one that died may have it in its log still, where the others have something else.
    tokio::task::block_in_place(|| site.prey.node(leader).restart());
    let own = client_at(&site.prey.members()[&leader]).await;
    for (id, told) in [("m0", &first), ("m1", &again)] {
        let known = send(&own, id).await;
        assert!(known.duplicate && known.first == told.first, "{id}: {known:?}");
    }
    let read = own
        .stream(STREAM)
        .read()
        .from_earliest()
        .await
        .expect("the node answers");
    let records: Vec<_> = read.records.iter().map(|record| record.data.as_ref()).collect();
    assert_eq!(records, [b"m0".as_slice(), b"m1"]);
}
