//! Who may use a folder, and how a node leaves it.

use std::time::Duration;

use tempfile::TempDir;
use tenure_testkit::{NodeProcess, check};

use crate::load::{Follower, Keys, Load};
use crate::support::{SOON, Site, state_of};

const STOPS: u32 = 8;
const CLIENTS: u32 = 16;
/// How long a node may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_second_node_on_a_folder_in_use_is_refused_and_the_first_works_on() {
    let mut site = Site::start().await;
    let before = site.cache.put("key", "before").await.expect("the node answers");
    let before = before.done().expect("it has no guard").version;
    let failure = NodeProcess::start_refused(site.node.folder());
    assert!(
        failure.status.is_some_and(|status| !status.success()),
        "{:?}",
        failure.status
    );
    let folder = site.node.folder().display().to_string();
    assert!(
        failure.stderr.contains(&folder),
        "it names the folder:\n{}",
        failure.stderr
    );
    println!("{}", failure.stderr.trim_end());
    assert!(site.node.runs());
    let after = site.cache.put("key", "after").if_version(before).await;
    assert!(after.expect("the node answers").is_done(), "the first works on");
    // What the second one left alone can be opened again.
    site.node.kill();
    site.node.restart();
    let entry = site
        .cache
        .get("key")
        .await
        .expect("the node answers")
        .expect("it was acknowledged");
    assert_eq!(entry.value, "after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_folder_of_a_newer_format_is_refused_by_name_and_left_alone() {
    let folder = TempDir::new().expect("a temporary folder");
    let root = folder.path().join("node");
    let mut node = NodeProcess::start(&root);
    node.ask_to_end();
    assert!(node.wait(END_LIMIT).success());
    let format = root.join("FORMAT");
    let known = std::fs::read_to_string(&format).expect("a format");
    let newer = known.replace(|c: char| c.is_ascii_digit(), "").trim_end().to_owned() + "977\n";
    std::fs::write(&format, &newer).expect("the format can be written");
    let failure = NodeProcess::start_refused(&root);
    println!("{}", failure.stderr.trim_end());
    assert!(
        failure.status.is_some_and(|status| !status.success()),
        "{:?}",
        failure.status
    );
    assert!(
        failure.stderr.contains("977"),
        "it names the format:\n{}",
        failure.stderr
    );
    assert_eq!(std::fs::read_to_string(&format).expect("a format"), newer);
    std::fs::write(&format, &known).expect("the format can be written");
    drop(NodeProcess::start(&root));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_is_asked_to_end_under_load_loses_nothing_and_leaves_no_call_without_an_answer() {
    let mut site = Site::start().await;
    let endpoint = site.node.endpoint();
    let follower = Follower::start(&endpoint, 1).await;
    let mut load = Load::start(&endpoint, CLIENTS, Keys::Ending).await;
    let mut slowest = Duration::ZERO;
    for _ in 0..STOPS {
        load.wait_for_more(150).await;
        let asked = std::time::Instant::now();
        site.node.ask_to_end();
        let status = site.node.wait(END_LIMIT);
        slowest = slowest.max(asked.elapsed());
        assert!(status.success(), "{status}:\n{}", site.node.stderr());
        site.node.restart();
    }
    load.wait_for_more(50).await;
    let lost = load.stop().await;
    let (state, revision) = state_of(&site.cache).await;
    load.mark().await;
    let events = tokio::time::timeout(SOON, follower.finish())
        .await
        .expect("the marker comes soon");
    match check::everything(&load.history.calls(), &events, &state, revision) {
        Ok(counts) => {
            println!("{STOPS} stops, the slowest in {slowest:?}: {counts:?}, {lost} sessions lost");
            assert_eq!(lost, 0);
            load.assert_settled();
        }
        Err(violation) => panic!("{violation}"),
    }
}
