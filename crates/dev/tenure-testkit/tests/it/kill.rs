//! Killing a node under load, again and again.

use std::path::Path;
use std::process::Command;

use tenure_testkit::{NodeProcess, check};

use crate::load::{Follower, Keys, Load, tokens_after_another};
use crate::support::{CACHE, Dice, Site, client, state_of};

const KILLS: u32 = 50;
const CLIENTS: u32 = 16;
const COPIES: u32 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_kills_under_load_lose_nothing_that_was_acknowledged() {
    let mut site = Site::start().await;
    let endpoint = site.node.endpoint();
    let (one, other) = (Follower::start(&endpoint, 1).await, Follower::start(&endpoint, 1).await);
    let mut load = Load::start(&endpoint, CLIENTS, Keys::Ending).await;
    let mut dice = Dice::new(1);
    for _ in 0..KILLS {
        load.wait_for_more(20 + dice.below(150)).await;
        site.node.kill();
        site.node.restart();
    }
    load.wait_for_more(100).await;
    let lost = load.stop().await;
    let (state, revision) = state_of(&site.cache).await;
    load.mark().await;
    let lagged = one.lagged() + other.lagged();
    let (one, other) = (one.finish().await, other.finish().await);
    let counts = match check::everything(&load.history.calls(), &one, &state, revision) {
        Ok(counts) => counts,
        Err(violation) => panic!("{violation}"),
    };
    if let Err(violation) = check::watches_agree(&one, &other, 0, u64::MAX) {
        panic!("{violation}");
    }
    load.assert_linearizable();
    println!(
        "{KILLS} kills, {CLIENTS} clients: {counts:?}, {} changes told twice over alike, {} tokens above another of \
         their key, {lagged} watches cut off, {lost} sessions lost",
        one.len(),
        tokens_after_another(&one),
    );
    assert!(tokens_after_another(&one) > 100, "keys were created anew");
    load.assert_settled();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_copy_of_the_folder_taken_at_any_moment_holds_what_was_acknowledged_by_then() {
    let site = Site::start().await;
    let endpoint = site.node.endpoint();
    let follower = Follower::start(&endpoint, 1).await;
    let mut load = Load::start(&endpoint, CLIENTS, Keys::Lasting).await;
    let mut dice = Dice::new(2);
    let mut copies = Vec::new();
    for number in 0..COPIES {
        load.wait_for_more(100 + dice.below(300)).await;
        let acknowledged = load.history.calls();
        site.node.pause();
        let copy = site.folder.path().join(format!("copy-{number}"));
        copy_folder(site.node.folder(), &copy);
        site.node.resume();
        copies.push((copy, acknowledged));
    }
    load.stop().await;
    load.mark().await;
    let events = follower.finish().await;
    for (copy, acknowledged) in copies {
        let node = NodeProcess::start(&copy);
        let client = client(&node.endpoint()).await;
        let (state, revision) = state_of(&client.cache(CACHE)).await;
        let until = events.partition_point(|event| event.revision <= revision);
        let checks = check::changes_add_up(&events, &state, revision)
            .and_then(|()| check::what_was_acknowledged_happened(&acknowledged, &events[..until]));
        if let Err(violation) = checks {
            panic!("{}: {violation}", copy.display());
        }
        println!("a copy at revision {revision}: {:?}", check::Counts::of(&acknowledged));
    }
}

fn copy_folder(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-r").arg(from).arg(to).status();
    assert!(status.expect("cp runs").success());
}
