//! Replicas compared with each other: what the folders of ended nodes hold, each as of its last applied entry.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use tenure_testkit::observe::metrics;
use tenure_testkit::{ChildProcess, Cluster, binary, eventually};

use crate::support::SOON;

/// Something may be applied, a tick of the time at least, between the last look at the nodes and their end.
const ATTEMPTS_MAX: u32 = 5;

/// A replica of a group as it lies on a disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OnDisk {
    /// The last entry that its rows have.
    applied: String,
    rows: String,
    /// The digest of its rows.
    digest: String,
}

/// Waits until these nodes have applied the same, kills them, and compares the rows of every group. The nodes stay ended.
/// Nobody asks for anything meanwhile. Returns what all of them hold, by group.
pub(crate) async fn assert_equal(cluster: &mut Cluster, nodes: &[u64], groups: u32) -> BTreeMap<u32, OnDisk> {
    for _ in 0..ATTEMPTS_MAX {
        let addresses: Vec<SocketAddr> = nodes.iter().map(|node| cluster.node(*node).address()).collect();
        wait_until_at_rest(&addresses, groups).await;
        nodes.iter().for_each(|node| cluster.node(*node).kill());
        let found: Vec<_> = nodes.iter().map(|node| on_disk(cluster.node(*node).folder())).collect();
        let applied = |found: &BTreeMap<u32, OnDisk>| -> Vec<String> {
            found.values().map(|replica| replica.applied.clone()).collect()
        };
        if found.iter().map(applied).collect::<BTreeSet<_>>().len() == 1 {
            for (node, replicas) in nodes.iter().zip(&found) {
                assert_eq!(replicas, &found[0], "node {node} beside node {}", nodes[0]);
            }
            assert_eq!(found[0].len(), 1 + groups as usize, "{found:?}");
            return found[0].clone();
        }
        cluster.restart_these(nodes);
    }
    panic!("{nodes:?} never ended at the same entries");
}

/// Every replica of every group has applied the same entry, and all of it is on the disk.
async fn wait_until_at_rest(addresses: &[SocketAddr], groups: u32) {
    eventually("all have applied and written the same", SOON, async || {
        let mut reached = BTreeSet::new();
        for address in addresses {
            let told = metrics(*address).await;
            let of = |name: &str, group| told.get(&format!("tenure_group_{name}{{group=\"{group}\"}}"));
            if (0..=groups).any(|group| of("state_pending_bytes", group) != Some(&0.0)) {
                return false;
            }
            let applied = (0..=groups).map(|group| of("applied_index", group).map(|index| index.to_bits()));
            reached.insert(applied.collect::<Vec<_>>());
        }
        reached.len() == 1
    })
    .await;
}

/// What the folder of a node that does not run holds, by group, as an inspection says.
fn on_disk(folder: &Path) -> BTreeMap<u32, OnDisk> {
    let (status, lines) = inspected(folder);
    assert_eq!(status, Some(0), "{}: {lines:?}", folder.display());
    let cells = |line: &String| -> Vec<String> {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect()
    };
    let mut lines = lines.iter().skip_while(|line| !line.starts_with("GROUP"));
    let titles = lines.next().map(cells).expect("a table of the groups");
    let place = |title: &str| titles.iter().position(|found| found == title).expect("such a column");
    let (applied, rows, digest) = (place("APPLIED"), place("ROWS"), place("DIGEST"));
    let of_groups = lines.map(cells).map_while(|cells| {
        let group = cells.first()?.parse().ok()?;
        let cell = |place: usize| cells[place].clone();
        let (applied, rows, digest) = (cell(applied), cell(rows), cell(digest));
        Some((group, OnDisk { applied, rows, digest }))
    });
    of_groups.collect()
}

/// The exit status and the lines of `tenure inspect`.
pub(crate) fn inspected(folder: &Path) -> (Option<i32>, Vec<String>) {
    let words = ["inspect".as_ref(), folder.as_os_str()];
    let mut child = ChildProcess::start("the inspection", &binary(), words);
    let lines = std::iter::from_fn(|| child.next_line(2 * SOON)).collect();
    (child.wait(SOON).and_then(|status| status.code()), lines)
}
