//! A node on a temporary folder, and plain gRPC clients of it.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure_api::v1;
use tenure_api::v1::catalog_client::CatalogClient;
use tenure_node::config::{CONNECTIONS_MAX, HOME_GROUPS_DEV};
use tenure_node::{Node, NodeConfig, StartError};
use tenure_replica::Runtime;
use tenure_storage::state::{DiskEngine, DiskOptions, StateEngine};
use tonic::transport::{Channel, Endpoint};

/// The cache that most tests use.
pub(crate) const CACHE: &str = "leases";

/// A node and its folder.
pub(crate) struct TestNode {
    pub(crate) node: Node,
    pub(crate) folder: TempDir,
}

impl TestNode {
    /// A node on a fresh folder, with one cache.
    pub(crate) async fn start() -> TestNode {
        let folder = TempDir::new().expect("a temporary folder");
        let node = start_on(&folder).await;
        let started = TestNode { node, folder };
        let request = v1::CreateCacheRequest {
            name: CACHE.to_owned(),
            ..Default::default()
        };
        CatalogClient::new(started.channel().await)
            .create_cache(request)
            .await
            .expect("the cache is created");
        started
    }

    /// Stops the node and starts another on its folder.
    pub(crate) async fn restart(self) -> TestNode {
        let TestNode { node, folder } = self;
        node.stop().await;
        let node = start_on(&folder).await;
        TestNode { node, folder }
    }

    pub(crate) async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.node.address()))
            .expect("a valid address")
            .connect_timeout(Duration::from_secs(5))
            // The library closes a connection of which many small frames wait to be read; how many, depends on this.
            .initial_connection_window_size(8 << 20)
            .connect()
            .await
            .expect("the node listens")
    }
}

async fn start_on(folder: &TempDir) -> Node {
    try_start_on(folder).await.expect("the node starts")
}

/// Starts a node on a folder, if it can be started.
pub(crate) async fn try_start_on(folder: &TempDir) -> Result<Node, StartError> {
    let config = NodeConfig {
        data_dir: folder.path().to_path_buf(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        advertise: None,
        join: Vec::new(),
        home_groups: HOME_GROUPS_DEV,
        connections_max: CONNECTIONS_MAX,
        reserve_bytes: None,
        log_entries_kept: None,
        log_segment_bytes: None,
        insecure: false,
    };
    let open = Box::new(|folder: &std::path::Path| {
        let engine = DiskEngine::open(folder, DiskOptions::default())?;
        Ok(Arc::new(engine) as Arc<dyn StateEngine>)
    });
    Node::start(config, Runtime::system(), open).await
}
