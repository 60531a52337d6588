//! Nodes that come, go, move and are restarted, while clients work: as real processes, by the commands of an operator.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tenure_client::Client;
use tenure_testkit::observe::{metric, ready};
use tenure_testkit::{ChildProcess, Cluster, History, StartFailure, binary, eventually, wait_unchanged};

use crate::load::{Follower, Keys, Load};
use crate::support::{CACHE, SOON, client, client_at};

pub(crate) const HOME_GROUPS: u32 = 2;
/// The home group of the namespace that the proofs use.
const HOME: u32 = 1;
pub(crate) const CLIENTS: u32 = 8;
/// How long a call may take at most while a node is restarted as planned. It takes moments where nothing else runs.
pub(crate) const CALL_MAX: Duration = Duration::from_secs(5);
/// Entries of the log that are kept where a replica is to lack some, and calls that make more of them than that times five.
const KEPT: &str = "64";
const CALLS_BEYOND: u64 = 6_000;

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: Option<i32>,
    pub(crate) output: Vec<String>,
    errors: String,
}

/// A cluster, a client of all nodes, and one cache.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) endpoints: String,
    pub(crate) folder: TempDir,
}

impl Site {
    pub(crate) async fn start(nodes: usize, options: &[&str]) -> Site {
        let folder = TempDir::new().expect("a temporary folder");
        let cluster = Cluster::start_with(folder.path(), nodes, HOME_GROUPS, options);
        let endpoints = cluster.endpoints().join(",");
        let client = client(&endpoints).await;
        let site = Site {
            cluster,
            client,
            endpoints,
            folder,
        };
        let created = site.client.create_cache(CACHE).await.expect("the cluster answers");
        assert!(created.is_done());
        site
    }

    /// Runs a command of `tenure cluster` on an operator's machine, which knows all nodes.
    fn run(&self, words: &[&str]) -> Said {
        run(&self.cluster.endpoints().join(","), words)
    }

    /// Runs one that must succeed, and returns its lines.
    pub(crate) fn done(&self, words: &[&str]) -> Vec<String> {
        let said = self.run(words);
        assert_eq!(said.status, Some(0), "{words:?}: {said:?}");
        said.output
    }

    /// Runs one that must be refused, and returns why.
    fn refused(&self, words: &[&str]) -> String {
        let said = self.run(words);
        assert_eq!(
            (said.status, &said.output[..]),
            (Some(4), &[][..]),
            "{words:?}: {said:?}"
        );
        let why = said.errors.lines().find_map(|line| line.strip_prefix("refused: "));
        why.unwrap_or_else(|| panic!("{said:?}")).to_owned()
    }

    /// The rows of `cluster nodes` by id, but for the id.
    fn nodes(&self) -> BTreeMap<u64, Vec<String>> {
        rows(&self.done(&["nodes"]))
    }

    /// Waits until these nodes vote in every group, nobody else has a replica, all follow, and every one of them says so.
    pub(crate) async fn wait_for_voters(&mut self, voters: &[u64]) {
        for node in voters {
            let endpoint = self.cluster.node(*node).endpoint();
            let one = client_at(&endpoint).await;
            eventually(&format!("{voters:?} vote in every group"), SOON, async || {
                let Ok(status) = one.status().await else { return false };
                let whole = status
                    .groups
                    .iter()
                    .all(|group| group.voters == voters && group.learners.is_empty() && group.leader.is_some());
                whole && status.groups.len() == 1 + HOME_GROUPS as usize
            })
            .await;
        }
        eventually("every replica follows", SOON, async || {
            let nodes = self.nodes();
            let follows = |cells: &Vec<String>| {
                cells[1].starts_with("connected") && cells[4].parse::<u64>().is_ok_and(|behind| behind < 256)
            };
            nodes.len() == voters.len() && nodes.values().all(follows)
        })
        .await;
    }

    async fn metric_of(&mut self, node: u64, name: &str) -> f64 {
        metric(
            self.cluster.node(node).address(),
            &format!("{name}{{group=\"{HOME}\"}}"),
        )
        .await
    }
}

/// Runs a command of `tenure cluster`.
pub(crate) fn run(endpoints: &str, words: &[&str]) -> Said {
    let options = ["--timeout", "10s", "--endpoints", endpoints];
    let all = ["cluster"].iter().chain(words).chain(&options);
    let mut child = ChildProcess::start("the command", &binary(), all);
    let output = std::iter::from_fn(|| child.next_line(2 * SOON)).collect();
    let status = child.wait(SOON).and_then(|status| status.code());
    Said {
        status,
        output,
        errors: child.stderr(),
    }
}

/// The rows of a table by the number that they begin with. Columns are two blanks apart.
pub(crate) fn rows(lines: &[String]) -> BTreeMap<u64, Vec<String>> {
    let cells = lines.iter().skip(1).map(|line| {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect::<Vec<_>>()
    });
    cells
        .map(|mut cells| (cells.remove(0).parse().expect("a number"), cells))
        .collect()
}

/// Lets the clients finish, and looks at all that they and a watch were told.
pub(crate) async fn finish(site: &Site, mut load: Load, follower: Follower) -> String {
    let judged = load.judge(&site.client.cache(CACHE), follower).await;
    load.assert_settled();
    assert_eq!(judged.sessions_lost, 0, "no session is lost");
    format!("{:?}, {} changes", judged.counts, judged.changes)
}

/// Not one call has failed or has taken too long. Returns how long the longest took.
pub(crate) fn assert_none_failed(history: &History) -> Duration {
    let calls = history.calls();
    let failed: Vec<_> = calls.iter().filter(|call| call.failure.is_some()).collect();
    assert!(
        failed.is_empty(),
        "{} calls failed, the first {:?}",
        failed.len(),
        failed.first()
    );
    let took = calls.iter().filter_map(|call| Some(call.returned? - call.called));
    let longest = took.max().expect("there were calls");
    assert!(longest < CALL_MAX, "a call took {longest:?}");
    longest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_are_restarted_in_turn_under_load_and_not_one_call_fails() {
    let mut site = Site::start(3, &[]).await;
    site.wait_for_voters(&[1, 2, 3]).await;
    let follower = Follower::start(&site.endpoints, 1).await;
    let load = Load::start(&site.endpoints, CLIENTS, Keys::Ending).await;
    let mut handed_over = 0;
    for node in [1, 2, 3] {
        load.wait_for_more(200).await;
        let node_process = site.cluster.node(node);
        node_process.ask_to_end();
        let status = node_process.wait(SOON);
        let log = node_process.stderr();
        assert!(status.success(), "{status:?}: {log}");
        assert!(!log.contains("was not handed over"), "{log}");
        handed_over += log.matches("the leadership was handed over").count();
        load.wait_for_more(200).await;
        site.cluster.node(node).restart();
        site.wait_for_voters(&[1, 2, 3]).await;
    }
    // Each group is led by somebody, who is stopped sooner or later.
    assert!(
        handed_over > HOME_GROUPS as usize,
        "{handed_over} leaderships were handed over"
    );
    load.wait_for_more(200).await;
    let history = load.history.clone();
    let told = finish(&site, load, follower).await;
    let longest = assert_none_failed(&history);
    println!("three planned restarts: {told}, the longest call took {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lost_node_is_replaced_under_load_and_never_comes_back() {
    let mut site = Site::start(3, &[]).await;
    site.wait_for_voters(&[1, 2, 3]).await;
    let follower = Follower::start(&site.endpoints, 1).await;
    let load = Load::start(&site.endpoints, CLIENTS, Keys::Ending).await;
    load.wait_for_more(200).await;
    site.cluster.node(3).kill();
    // The groups that it led have other leaders by then, and all leaders know that it is gone.
    eventually("it is known to be gone", SOON, async || {
        rows(&site.done(&["groups"]))
            .values()
            .all(|cells| cells[6].contains("3:gone"))
    })
    .await;
    assert_eq!(site.nodes()[&3][1], "not connected");
    let before = site.nodes().len();
    let why = site.refused(&["remove", "2", "--yes"]);
    assert!(why.contains("without node 2 only 1 of the 3 voters"), "{why}");
    assert_eq!(site.nodes().len(), before, "nothing was changed");
    site.cluster.add(site.folder.path(), HOME_GROUPS);
    assert_eq!(site.done(&["remove", "3", "--yes"]), ["removed 3"]);
    assert_eq!(site.done(&["remove", "3", "--yes"]), ["removed 3"], "again is as once");
    load.wait_for_more(200).await;
    site.wait_for_voters(&[1, 2, 4]).await;
    let StartFailure { status, stderr } = site.cluster.node(3).restart_refused();
    assert_eq!(status.and_then(|status| status.code()), Some(1), "{stderr}");
    assert!(
        stderr.contains("tenure: node 3 was removed from the cluster"),
        "{stderr}"
    );
    site.cluster.add(site.folder.path(), HOME_GROUPS);
    assert!(site.nodes().contains_key(&5), "an id is not used again");
    site.wait_for_no_harm().await;
    load.wait_for_more(200).await;
    println!("a node replaced: {}", finish(&site, load, follower).await);
}

impl Site {
    /// Three of the four nodes vote in each home group, and all nodes are there.
    async fn wait_for_no_harm(&self) {
        eventually("four nodes, and three voters in each group", SOON, async || {
            let Ok(status) = self.client.status().await else {
                return false;
            };
            let ids: Vec<u64> = status.nodes.iter().map(|node| node.id).collect();
            ids == [1, 2, 4, 5] && status.groups.iter().all(|group| group.voters.len() == 3)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_that_was_away_for_long_gets_a_snapshot_while_the_others_serve() {
    let mut site = Site::start(3, &["--log-entries-kept", KEPT]).await;
    site.wait_for_voters(&[1, 2, 3]).await;
    let follower = Follower::start(&site.endpoints, 1).await;
    let load = Load::start(&site.endpoints, CLIENTS, Keys::Ending).await;
    load.wait_for_more(100).await;
    site.cluster.node(3).kill();
    load.wait_for_more(CALLS_BEYOND).await;
    let sent_before = site.metric_of(1, "tenure_group_snapshots_sent_total").await
        + site.metric_of(2, "tenure_group_snapshots_sent_total").await;
    site.cluster.node(3).restart();
    site.wait_for_voters(&[1, 2, 3]).await;
    let installed = site.metric_of(3, "tenure_group_snapshots_installed_total").await;
    assert!(installed >= 1.0, "it caught up without a snapshot");
    let sent = site.metric_of(1, "tenure_group_snapshots_sent_total").await
        + site.metric_of(2, "tenure_group_snapshots_sent_total").await;
    assert!(sent > sent_before, "{sent} snapshots were sent");
    // In a cache of its own, of which the rules know nothing.
    let created = site.client.create_cache("aside").await.expect("the cluster answers");
    assert!(created.is_done());
    let put = site.client.cache("aside").put("after", "v").await;
    let put = put.expect("the cluster answers");
    let version = put.done().expect("nothing stands in its way").version;
    let endpoint = site.cluster.node(3).endpoint();
    let read = client_at(&endpoint).await.cache("aside").get("after").await;
    let read = read.expect("the node answers").expect("it was written");
    assert_eq!(read.version, version);
    load.wait_for_more(200).await;
    println!(
        "{installed} snapshots installed: {}",
        finish(&site, load, follower).await
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_comes_back_at_another_address_is_found_again() {
    let mut site = Site::start(3, &[]).await;
    site.wait_for_voters(&[1, 2, 3]).await;
    for node in [3, 1] {
        site.cluster.node(node).kill();
        let watching = site.cluster.node(2).address();
        let connected = format!("tenure_peer_connected{{node=\"{node}\"}}");
        eventually("it is seen to be gone", SOON, async || {
            let said = ready(watching).await;
            metric(watching, &connected).await == 0.0 && said.contains(": not connected, ")
        })
        .await;
        // Another one leads all groups then: the node does not know who, and that one does not know where it is.
        let leader = if node == 3 { "1" } else { "2" };
        for other in [leader, "2"] {
            for group in ["0", "1", "2"] {
                site.done(&["transfer-leader", group, other]);
            }
        }
        let terms = rows(&site.done(&["groups"]));
        assert!(terms.values().all(|cells| cells[0] == "2"), "{terms:?}");
        site.cluster.node(node).restart_elsewhere();
        site.wait_for_voters(&[1, 2, 3]).await;
        eventually("it is seen to be there", SOON, async || {
            let said = ready(watching).await;
            metric(watching, &connected).await == 1.0 && !said.contains("not connected")
        })
        .await;
        let said = ready(watching).await;
        let endpoint = site.cluster.node(node).endpoint();
        assert!(
            said.contains(&format!("node {node} at {endpoint}: connected, ")),
            "{said}"
        );
        let endpoint = site.cluster.node(node).endpoint();
        eventually("everybody knows the new address", SOON, async || {
            site.nodes()[&node][0] == endpoint
        })
        .await;
        let cache = client_at(&endpoint).await.cache(CACHE);
        let put = cache.put("k", format!("by {node}")).await.expect("the node answers");
        assert!(put.is_done());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_drained_node_leads_nothing_and_votes_nowhere_also_after_a_restart_of_all() {
    let mut site = Site::start(4, &[]).await;
    eventually("three voters in each group", SOON, async || {
        let Ok(status) = site.client.status().await else {
            return false;
        };
        status.groups.iter().all(|group| group.voters.len() == 3)
    })
    .await;
    let said = site.run(&["drain", "1"]);
    assert_eq!(
        (said.status, &said.output[..]),
        (Some(0), &["drained 1".to_owned()][..]),
        "{said:?}"
    );
    assert!(said.errors.contains("node 1 leads 0 groups and votes in 0"), "{said:?}");
    site.wait_for_others_to_vote(&[2, 3, 4]).await;
    let why = site.refused(&["transfer-leader", "1", "1"]);
    assert_eq!(why, "node 1 is drained");
    site.cluster.kill();
    site.cluster.restart();
    site.wait_for_others_to_vote(&[2, 3, 4]).await;
    let row = site.nodes().remove(&1).expect("it is still there");
    assert_eq!(row[1..4], ["connected, drained", "0", "0"], "{row:?}");
    assert_eq!(site.done(&["transfer-leader", "1", "3"]), ["group 1 leader 3"]);
    // Longer than the placement takes to hand a group to where it would have it.
    let leader = wait_unchanged("the chosen leader stays", Duration::from_secs(4), SOON, async || {
        rows(&site.done(&["groups"]))
            .remove(&1)
            .map(|cells| cells[..2].to_vec())
    });
    assert_eq!(leader.await, Some(vec!["3".to_owned(), "3".to_owned()]));
    assert_eq!(site.done(&["drain", "1", "--undo"]), ["not drained 1"]);
    eventually("it votes again", SOON, async || {
        let row = site.nodes().remove(&1).expect("it is there");
        row[1] == "connected" && row[3] != "0"
    })
    .await;
}

impl Site {
    async fn wait_for_others_to_vote(&self, voters: &[u64]) {
        eventually("only the others vote and lead", SOON, async || {
            let Ok(status) = self.client.status().await else {
                return false;
            };
            let whole = |group: &tenure_client::GroupInfo| {
                group.voters == voters && group.leader.is_some_and(|leader| voters.contains(&leader))
            };
            status.groups.len() == 1 + HOME_GROUPS as usize && status.groups.iter().all(whole)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_of_one_moves_to_another_machine() {
    let mut site = Site::start(1, &[]).await;
    let put = site
        .client
        .cache(CACHE)
        .put("kept", "v")
        .await
        .expect("the node answers");
    let version = put.done().expect("nothing stands in its way").version;
    assert_eq!(
        site.refused(&["remove", "1", "--yes"]),
        "node 1 is the last one of the cluster"
    );
    site.cluster.add(site.folder.path(), HOME_GROUPS);
    let why = site.refused(&["remove", "1", "--yes"]);
    assert!(why.contains("only node 1 votes in group 0: drain it first"), "{why}");
    assert_eq!(site.done(&["drain", "1"]), ["drained 1"]);
    assert_eq!(site.done(&["remove", "1", "--yes"]), ["removed 1"]);
    let removed = site.cluster.node(1);
    let status = removed.wait(SOON);
    assert_eq!(status.code(), Some(1), "{}", removed.stderr());
    assert!(
        removed.stderr().contains("node 1 was removed from the cluster"),
        "{}",
        removed.stderr()
    );
    site.wait_for_voters_of_two().await;
    let endpoint = site.cluster.node(2).endpoint();
    let read = client_at(&endpoint).await.cache(CACHE).get("kept").await;
    assert_eq!(read.expect("the node answers").expect("it is kept").version, version);
    let failure = site.cluster.node(1).restart_refused();
    assert!(
        failure.stderr.contains("node 1 was removed from the cluster"),
        "{}",
        failure.stderr
    );
    assert!(
        Path::new(site.cluster.node(1).folder()).join("IDENTITY").exists(),
        "its folder is as it was"
    );
}

impl Site {
    async fn wait_for_voters_of_two(&mut self) {
        let endpoint = self.cluster.node(2).endpoint();
        let one = client_at(&endpoint).await;
        eventually("the second one votes alone", SOON, async || {
            let Ok(status) = one.status().await else { return false };
            status.nodes.len() == 1
                && status
                    .groups
                    .iter()
                    .all(|group| group.voters == [2] && group.learners.is_empty())
        })
        .await;
    }
}
