//! Three nodes that vote in every group, with a client of all of them and one cache.

use std::ffi::OsString;
use std::time::Duration;

use tempfile::TempDir;
use tenure_client::{Client, GroupInfo};
use tenure_testkit::{Cluster, eventually, eventually_some};

use crate::support::{CACHE, SOON, client, client_at};

pub(crate) const HOME_GROUPS: u32 = 2;
/// The home group of the namespace that the proofs use.
pub(crate) const HOME: u32 = 1;

/// A cluster of three voters, a client of all nodes, and one cache.
pub(crate) struct Trio {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) endpoints: String,
    pub(crate) folder: TempDir,
}

impl Trio {
    pub(crate) async fn start() -> Trio {
        Trio::start_under(&[], |_, _| Vec::new()).await
    }

    /// The same with options of `tenure start`, each node under a program that runs another one in its own place. That is told
    /// the folder of the whole and the number of the node.
    pub(crate) async fn start_under(
        options: &[&str],
        wrapper: impl Fn(&std::path::Path, usize) -> Vec<OsString>,
    ) -> Trio {
        let folder = TempDir::new().expect("a temporary folder");
        let wrapper = |node| wrapper(folder.path(), node);
        let cluster = Cluster::start_under(folder.path(), 3, HOME_GROUPS, options, wrapper);
        let endpoints = cluster.endpoints().join(",");
        let client = client(&endpoints).await;
        let trio = Trio {
            cluster,
            client,
            endpoints,
            folder,
        };
        trio.wait_until_whole().await;
        let created = trio.client.create_cache(CACHE).await.expect("the cluster answers");
        assert!(created.is_done());
        trio
    }

    /// Waits until three nodes vote in every group, as every node says.
    pub(crate) async fn wait_until_whole(&self) {
        for endpoint in self.endpoints.split(',') {
            let one = client_at(endpoint).await;
            eventually("three voters in every group", SOON, async || {
                let Ok(status) = one.status().await else { return false };
                status.groups.len() == 1 + HOME_GROUPS as usize
                    && status
                        .groups
                        .iter()
                        .all(|group| group.voters == [1, 2, 3] && group.leader.is_some())
            })
            .await;
        }
    }

    /// Who leads the group in which the cache is, as the leader says itself.
    pub(crate) async fn leader(&self) -> u64 {
        let all: Vec<&str> = self.endpoints.split(',').collect();
        eventually_some("a leader", SOON, async || {
            let status = self.client.status().await.ok()?;
            let said = leader_of(&status.groups)?;
            let endpoint = all.get(usize::try_from(said).ok()? - 1)?;
            let asking = async { client_at(endpoint).await.status().await.ok() };
            let own = tokio::time::timeout(Duration::from_secs(2), asking).await.ok()??;
            leader_of(&own.groups).filter(|leader| *leader == said && own.node_id == said)
        })
        .await
    }

    /// The others of three.
    pub(crate) fn others(node: u64) -> [u64; 2] {
        match node {
            1 => [2, 3],
            2 => [1, 3],
            _ => [1, 2],
        }
    }

    pub(crate) fn endpoint(&self, node: u64) -> &str {
        let index = usize::try_from(node).expect("a small number") - 1;
        self.endpoints.split(',').nth(index).expect("there is such a node")
    }
}

fn leader_of(groups: &[GroupInfo]) -> Option<u64> {
    groups.iter().find(|group| group.group == HOME)?.leader
}
