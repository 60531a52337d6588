//! Renewals do not share the program's workers.

use std::sync::Arc;
use std::time::Duration;

use tenure_client::runtime::{ClientRuntime, KeepAliveOn};

use crate::fake::Cluster;
use crate::world::{TestClock, TestNetwork};

#[test]
fn a_program_that_blocks_all_its_workers_does_not_lose_its_session() {
    let ttl = Duration::from_millis(1_000);
    // The node lives on threads of its own, like one on another machine.
    let elsewhere = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let network = TestNetwork::default();
    let cluster = {
        let _guard = elsewhere.enter();
        let cluster = Cluster::new(TestClock::new());
        network.start("node-1:1", 1, &cluster);
        cluster
    };
    let program = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    program.block_on(async {
        let runtime = ClientRuntime {
            network: Arc::new(network.clone()),
            ..ClientRuntime::system()
        };
        assert_eq!(runtime.keep_alive, KeepAliveOn::Thread);
        let client = tenure_client::Client::builder()
            .endpoints(["node-1:1"])
            .runtime(runtime)
            .build()
            .unwrap();
        let session = client.open_session(ttl).await.unwrap();
        let clock = Arc::clone(&client.runtime().clock);
        let end = clock.now().monotonic + 3 * ttl;
        while clock.now().monotonic < end {
            std::hint::spin_loop();
        }
        assert!(session.is_valid(), "at the first look after the busy time");
        assert!(cluster.keep_alives().len() >= 10);
    });
}
