//! A node of its own for each proof, with a client and a cache.

use std::time::Duration;

use tempfile::TempDir;
use tenure_client::{Cache, Client};
use tenure_testkit::NodeProcess;
use tenure_testkit::check::{Held, State};

/// The cache that the proofs use.
pub(crate) const CACHE: &str = "leases";
/// Longer than any outage that a proof makes, so that a call is answered by a retry.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// A limit for what takes moments, also on a machine that is busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A node on a folder of its own, with one cache.
pub(crate) struct Site {
    pub(crate) node: NodeProcess,
    pub(crate) client: Client,
    pub(crate) cache: Cache,
    pub(crate) folder: TempDir,
}

impl Site {
    pub(crate) async fn start() -> Site {
        let folder = TempDir::new().expect("a temporary folder");
        let node = NodeProcess::start(&folder.path().join("node"));
        Site::on(folder, node).await
    }

    /// A node that was started otherwise.
    pub(crate) async fn on(folder: TempDir, node: NodeProcess) -> Site {
        let client = client(&node.endpoint()).await;
        let created = client.create_cache(CACHE).await.expect("the node answers");
        assert!(created.is_done());
        let cache = client.cache(CACHE);
        Site {
            node,
            client,
            cache,
            folder,
        }
    }
}

/// A client with connections of its own. Several endpoints are separated by commas.
pub(crate) async fn client(endpoints: &str) -> Client {
    let connecting = Client::builder()
        .endpoints(endpoints.split(','))
        .timeout(CALL_TIMEOUT)
        .label("testkit")
        .connect();
    connecting.await.expect("the node can be reached")
}

/// A client that goes to these endpoints and no others, whoever leads: to one node, or through what stands before it.
pub(crate) async fn client_at(endpoints: &str) -> Client {
    let connecting = Client::builder()
        .endpoints(endpoints.split(','))
        .only_given_endpoints(true)
        .timeout(CALL_TIMEOUT)
        .label("testkit")
        .connect();
    connecting.await.expect("the node can be reached")
}

/// What a cache of at most one page holds, in the words of the rules, and at which revision.
pub(crate) async fn state_of(cache: &Cache) -> (State, u64) {
    let page = cache.list().page().await.expect("the node answers");
    assert!(!page.value.more, "one page is of one revision");
    let state = page.value.entries.into_iter().map(|entry| {
        let held = Held {
            value: String::from_utf8_lossy(&entry.value).into_owned(),
            version: entry.version,
            created: entry.created,
        };
        (String::from_utf8_lossy(&entry.key).into_owned(), held)
    });
    (state.collect(), page.revision)
}

/// Numbers that look random and are the same in each run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below this.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}
