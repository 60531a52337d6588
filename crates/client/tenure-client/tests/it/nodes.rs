//! Several nodes: which one is asked, what a client learns of the others, and where it goes when one cannot serve.

use std::time::Duration;

use tenure_api::v1::{self, WireError};
use tenure_client::{Client, SessionState};

use crate::fake::{Ask, Fate, HOME, Received};
use crate::world::{Door, World, ms, wait_virtually};

const EACH: [&str; 3] = ["node-1:1", "node-2:1", "node-3:1"];

/// A cluster of three whose nodes name each other, and the second leads.
fn three() -> World {
    let world = World::new(3);
    named(&world, &EACH);
    led_by(&world, 2, EACH[1], 1);
    world
}

/// The nodes name these addresses, each its own first.
fn named(world: &World, addresses: &[&str]) {
    let addresses = addresses.iter().map(|address| (*address).to_owned());
    world.cluster.state().addresses = addresses.collect();
}

fn led_by(world: &World, node_id: u64, address: &str, term: u64) {
    world.cluster.state().leader = Some(hint(node_id, address, term));
}

fn hint(node_id: u64, address: &str, term: u64) -> v1::LeaderHint {
    v1::LeaderHint {
        group: HOME,
        node_id,
        address: address.to_owned(),
        term,
    }
}

/// Which nodes were asked for a key, in order.
fn asked(world: &World) -> Vec<u64> {
    let reads = |received: &Received| matches!(received.body, Ask::Get(_) | Ask::Put(_)).then_some(received.node);
    world.cluster.received(reads)
}

async fn read(client: &Client) {
    client.cache("c").get("k").await.unwrap();
}

/// Reads once a second, so often, and returns how long the slowest took.
async fn read_often(world: &World, client: &Client, times: u32) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..times {
        let began = world.clock.elapsed();
        read(client).await;
        slowest = slowest.max(world.clock.elapsed() - began);
        wait_virtually(ms(1_000)).await;
    }
    slowest
}

#[tokio::test(start_paused = true)]
async fn a_client_of_one_endpoint_finds_the_leader_and_asks_it() {
    let world = three();
    let client = world.builder(&["node-1:1"]).build().unwrap();
    // Nothing waits for the second connection; the first node serves until that is open.
    assert!(read_often(&world, &client, 5).await < ms(5));
    let asked = asked(&world);
    assert_eq!(asked[2..], [2, 2, 2], "{asked:?}");
    assert_eq!(world.network.connections("node-3:1"), 0, "nobody needs it");
    // What a node knows of itself is asked of the node that was named.
    assert_eq!(client.status().await.unwrap().node_id, 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_to_know_its_endpoints_only_learns_no_other() {
    let world = three();
    let builder = world.builder(&["node-1:1"]).only_given_endpoints(true);
    let client = builder.build().unwrap();
    read_often(&world, &client, 5).await;
    assert_eq!(asked(&world), [1; 5]);
    assert_eq!(world.network.connections("node-2:1"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_nodes_call_each_other_may_lead_nowhere_and_costs_no_call_anything() {
    let world = World::new(1);
    named(&world, &["node-1:1", "inside-2:1", "nowhere-3:1"]);
    world.network.start("inside-2:1", 2, &world.cluster);
    world.network.door("inside-2:1", Door::Silent);
    led_by(&world, 2, "inside-2:1", 1);
    let client = world.builder(&["node-1:1"]).build().unwrap();
    let session = client.open_session(ms(3_000)).await.unwrap();
    assert!(world.clock.elapsed() < ms(5));
    assert!(read_often(&world, &client, 60).await < ms(5));
    assert_eq!(asked(&world), [1; 60]);
    assert_eq!(session.state(), SessionState::Live);
    // Two pools of connections, and one attempt in five seconds or more.
    let tried = world.network.connections("inside-2:1");
    assert!((1..=30).contains(&tried), "{tried} attempts");
    // A failure of the node that can be reached does not make the others better.
    let mut broken = false;
    world.cluster.fates(move |received| match received.body {
        Ask::Get(_) if !std::mem::replace(&mut broken, true) => Fate::AnswerBroken,
        _ => Fate::Served,
    });
    assert!(read_often(&world, &client, 10).await <= ms(1_250));
    assert!(asked(&world).iter().all(|node| *node == 1));
}

#[tokio::test(start_paused = true)]
async fn when_the_only_given_endpoint_is_gone_those_that_it_named_serve() {
    let world = three();
    led_by(&world, 1, EACH[0], 1);
    let client = world.builder(&["node-1:1"]).build().unwrap();
    let session = client.open_session(ms(3_000)).await.unwrap();
    client.cache("c").put("first", "v").await.unwrap().done().unwrap();
    // It has died: what is under way breaks, and nobody listens there any more.
    world.network.door("node-1:1", Door::Refuses);
    world.cluster.fates(|received| match received.node {
        1 => Fate::AnswerBroken,
        _ => Fate::Served,
    });
    led_by(&world, 3, EACH[2], 2);
    let began = world.clock.elapsed();
    let written = client.cache("c").put("k", "v").await.unwrap().done().unwrap();
    assert!(world.clock.elapsed() - began < ms(200));
    assert!(written.repeated, "the first attempt had run");
    assert_eq!(world.cluster.state().runs, 2, "each once");
    assert!(read_often(&world, &client, 20).await < ms(200));
    assert_eq!(asked(&world).last(), Some(&3), "the new leader");
    assert_eq!(session.state(), SessionState::Live);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_lead_says_where_to_go_and_no_caller_sees_it() {
    for endpoints in [&EACH[..], &EACH[..1]] {
        let world = World::new(3);
        named(&world, &EACH);
        world.cluster.fates(|received| match received.body {
            Ask::Put(_) if received.node != 3 => Fate::Error(WireError::not_leader(HOME, Some(hint(3, EACH[2], 1)))),
            _ => Fate::Served,
        });
        let client = world.builder(endpoints).build().unwrap();
        let began = world.clock.elapsed();
        client.cache("c").put("k", "v").await.unwrap().done().unwrap();
        assert!(world.clock.elapsed() - began < ms(100));
        client.cache("c").put("k", "w").await.unwrap().done().unwrap();
        assert_eq!(asked(&world), [1, 3, 3], "{endpoints:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_told_is_asked_from_then_on_unless_a_newer_one_is_known() {
    let world = three();
    let client = world.builder(&EACH).build().unwrap();
    read_often(&world, &client, 3).await;
    assert_eq!(asked(&world).last(), Some(&2));
    world.cluster.state().hints.push_back(hint(3, EACH[2], 5));
    read_often(&world, &client, 3).await;
    assert_eq!(asked(&world).last(), Some(&3));
    // Told by a node that has been cut off since.
    world.cluster.state().hints.push_back(hint(2, EACH[1], 4));
    read_often(&world, &client, 3).await;
    assert_eq!(asked(&world).last(), Some(&3));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_hint_is_followed_once_and_then_the_others_are_asked() {
    let world = World::new(3);
    // The first and the second name each other; only the third serves.
    world.cluster.fates(|received| match (&received.body, received.node) {
        (Ask::Put(_), 1) => Fate::Error(WireError::not_leader(HOME, Some(hint(2, EACH[1], 1)))),
        (Ask::Put(_), 2) => Fate::Error(WireError::not_leader(HOME, Some(hint(1, EACH[0], 1)))),
        _ => Fate::Served,
    });
    let client = world.builder(&EACH).build().unwrap();
    client.cache("c").put("k", "v").await.unwrap().done().unwrap();
    assert_eq!(asked(&world), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_behind_what_the_client_has_seen_is_left_for_another_one() {
    let world = World::new(3);
    world.cluster.fates(|received| match &received.body {
        Ask::Get(get) if received.node != 3 && get.min_revision > 90 => {
            Fate::Error(WireError::behind(90, get.min_revision))
        }
        _ => Fate::Served,
    });
    let client = world.builder(&EACH).build().unwrap();
    let version = client.cache("c").put("k", "v").await.unwrap().done().unwrap().version;
    let read = client.cache("c").get("k").stale().with_revision().await.unwrap();
    assert_eq!(read.value.unwrap().version, version);
    assert_eq!(asked(&world), [1, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn renewals_go_to_the_leader_that_is_known() {
    let world = three();
    let client = world.builder(&["node-1:1"]).build().unwrap();
    let session = client.open_session(ms(3_000)).await.unwrap();
    wait_virtually(ms(5_000)).await;
    let at = |received: &Received| matches!(received.body, Ask::KeepAlive(_)).then_some(received.node);
    let renewed = world.cluster.received(at);
    assert_eq!(renewed[2..], vec![2; renewed.len() - 2], "{renewed:?}");
    assert_eq!(session.state(), SessionState::Live);
}
