//! One disk of three gives back other bytes than were written to it, while clients work.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tenure_testkit::observe::ready;
use tenure_testkit::{StartFailure, eventually};

use crate::load::{Follower, Keys, Load};
use crate::membership::{CLIENTS, HOME_GROUPS, Site, assert_none_failed, finish};
use crate::replicas::{assert_equal, inspected};
use crate::support::{Dice, SOON};

/// Where rows are that become files, apart from what the load writes.
const LARGE: &str = "large";
const VALUE_BYTES: usize = 256 << 10;
/// A group's rows become a file at 16 MiB.
const VALUES_OF_FILES: u64 = 96;
const VALUES_OF_LOG: u64 = 16;
/// The node whose disk is bad.
const DAMAGED: u64 = 3;

/// A value that no compression makes smaller, the same for a number in each run.
fn value(number: u64) -> Vec<u8> {
    let mut dice = Dice::new(number + 1);
    let words = std::iter::repeat_with(|| dice.below(1 << 32).to_le_bytes()[..4].to_vec());
    words.flatten().take(VALUE_BYTES).collect()
}

/// Three nodes, of which the one whose disk will be bad leads the home group, and so many large values.
async fn start(values: u64) -> Site {
    let mut site = Site::start(3, &[]).await;
    site.wait_for_voters(&[1, 2, 3]).await;
    let created = site.client.create_cache(LARGE).await.expect("the cluster answers");
    assert!(created.is_done());
    for number in 0..values {
        let put = site.client.cache(LARGE).put(format!("k{number}"), value(number)).await;
        assert!(put.expect("the cluster answers").is_done());
    }
    site.done(&["transfer-leader", "1", &DAMAGED.to_string()]);
    site
}

/// Every large value is what was written, whoever answers.
async fn assert_whole(site: &Site, values: u64) {
    for number in 0..values {
        let read = site.client.cache(LARGE).get(format!("k{number}")).await;
        let found = read.expect("another node answers").expect("it was acknowledged");
        assert!(
            found.value.as_ref() == value(number),
            "k{number} is not what was written"
        );
    }
}

/// The files of rows and changes in a folder of a node.
fn tables(folder: &Path) -> Vec<PathBuf> {
    let list = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let keyspaces = list(folder.join("state/keyspaces"));
    let tables = keyspaces.into_iter().map(|keyspace| keyspace.join("tables"));
    tables.flat_map(list).collect()
}

/// Turns one byte around, every so many bytes from this one on.
fn flip(path: &Path, from: u64, every: u64) {
    let file = File::options().read(true).write(true).open(path).expect("it is there");
    let length = file.metadata().expect("a length").len();
    let every = usize::try_from(every).expect("a small number");
    for offset in (from..length).step_by(every) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).expect("it is that long");
        file.write_all_at(&[!byte[0]], offset).expect("it can be written");
    }
}

/// Says that the damaged node is lost, as an operator does, and takes another one in its place.
async fn replace(site: &mut Site) {
    site.cluster.add(site.folder.path(), HOME_GROUPS);
    let removed = format!("removed {DAMAGED}");
    assert_eq!(site.done(&["remove", &DAMAGED.to_string(), "--yes"]), [removed]);
    site.wait_for_voters(&[1, 2, 4]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_whose_files_are_damaged_is_named_and_replaced_and_no_call_fails_or_reads_them() {
    let mut site = start(VALUES_OF_FILES).await;
    let folder = site.cluster.node(DAMAGED).folder().to_owned();
    eventually("rows become files", SOON, async || tables(&folder).len() >= 2).await;
    let follower = Follower::start(&site.endpoints, 1).await;
    let load = Load::start(&site.endpoints, CLIENTS, Keys::Ending).await;
    load.wait_for_more(200).await;
    // In each block of each file, under a node that has them open.
    let damaged = tables(&folder);
    damaged
        .iter()
        .for_each(|table| flip(table, VALUE_BYTES as u64 / 2, VALUE_BYTES as u64 / 4));
    assert_whole(&site, VALUES_OF_FILES).await;
    let address = site.cluster.node(DAMAGED).address();
    let said = ready(address).await;
    assert!(
        said.contains("group 1 has stopped: ") && said.contains("checksum"),
        "{said}"
    );
    assert!(
        !said.contains("group 0 has stopped") && !said.contains("group 2 has stopped"),
        "{said}"
    );
    load.wait_for_more(200).await;
    let leaders = site.client.status().await.expect("the cluster answers").groups;
    let leader = leaders
        .iter()
        .find(|group| group.group == 1)
        .and_then(|group| group.leader);
    assert!(leader.is_some_and(|leader| leader != DAMAGED), "{leaders:?}");

    // The next start says which file it is, and it does not come back by itself.
    site.cluster.node(DAMAGED).ask_to_end();
    site.cluster.node(DAMAGED).wait(SOON);
    site.cluster.node(DAMAGED).restart();
    let said = ready(address).await;
    assert!(
        said.contains("group 1 has stopped: ") && said.contains("its file tables/"),
        "{said}"
    );
    load.wait_for_more(200).await;

    site.cluster.node(DAMAGED).kill();
    replace(&mut site).await;
    load.wait_for_more(200).await;
    let history = load.history.clone();
    let told = finish(&site, load, follower).await;
    let longest = assert_none_failed(&history);
    assert_whole(&site, VALUES_OF_FILES).await;
    let equal = assert_equal(&mut site.cluster, &[1, 2, 4], HOME_GROUPS).await;
    println!(
        "{} files damaged: {told}, the longest call took {longest:?}; {equal:?}",
        damaged.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_whose_log_is_damaged_says_where_and_is_replaced_and_no_call_fails() {
    let mut site = start(VALUES_OF_LOG).await;
    let follower = Follower::start(&site.endpoints, 1).await;
    let load = Load::start(&site.endpoints, CLIENTS, Keys::Ending).await;
    load.wait_for_more(200).await;
    site.cluster.node(DAMAGED).kill();
    let folder = site.cluster.node(DAMAGED).folder().to_owned();
    let segment = folder.join("log/0000000001.seg");
    // In the middle of what was written before the clients began, and nowhere else.
    flip(&segment, VALUES_OF_LOG * VALUE_BYTES as u64 / 2, u64::from(u32::MAX));
    let StartFailure { status, stderr } = site.cluster.node(DAMAGED).restart_refused();
    assert_eq!(status.and_then(|status| status.code()), Some(1), "{stderr}");
    let place = "is damaged in segment 1 at offset ";
    assert!(
        stderr.contains("the Raft log in ") && stderr.contains(place) && stderr.contains("group 1"),
        "{stderr}"
    );
    let (status, lines) = inspected(&folder);
    assert_eq!(status, Some(1), "{lines:?}");
    let named = |line: &String| line.starts_with("damage  log/0000000001.seg at offset ");
    assert!(lines.iter().any(named), "{lines:?}");
    load.wait_for_more(200).await;

    // Set aside, as it says.
    fs::rename(&folder, site.folder.path().join("damaged")).expect("nobody is in it");
    replace(&mut site).await;
    load.wait_for_more(200).await;
    let history = load.history.clone();
    let told = finish(&site, load, follower).await;
    let longest = assert_none_failed(&history);
    assert_whole(&site, VALUES_OF_LOG).await;
    let equal = assert_equal(&mut site.cluster, &[1, 2, 4], HOME_GROUPS).await;
    println!("a damaged log: {told}, the longest call took {longest:?}; {equal:?}");
}
