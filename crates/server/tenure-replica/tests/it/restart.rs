//! Whatever was acknowledged is there after a kill and after a power loss, however far the state had been
//! written.

use std::time::Duration;

use futures_util::future::join_all;

use crate::world::{VirtualNode, get, put, real_options, start, version, wait_virtually};

#[tokio::test(start_paused = true)]
async fn acknowledged_answers_survive_a_kill_whatever_the_state_had_written() {
    for state_batches_kept in 0..6 {
        let node = VirtualNode::new();
        let replica = node.start().await;
        let mut versions = Vec::new();
        for number in 0..60 {
            let answer = replica
                .propose(put(&format!("k{number}"), &number.to_string()), None)
                .await
                .unwrap();
            versions.push(version(&answer));
            wait_virtually(Duration::from_millis(13)).await;
        }
        let revision = replica.status().revision;
        drop(replica);
        let node = node.after_kill(state_batches_kept);
        let replica = node.start().await;
        assert_eq!(replica.status().revision, revision);
        for (number, version) in versions.iter().enumerate() {
            let found = get(&replica, &format!("k{number}")).unwrap();
            assert_eq!((found.value, found.version), (number.to_string().into(), *version));
        }
        let next = replica.propose(put("next", "v"), None).await.unwrap();
        assert_eq!(version(&next), revision.0 + 1, "revisions go on where they were");
    }
}

#[tokio::test(start_paused = true)]
async fn acknowledged_answers_survive_a_power_loss_and_another_one() {
    let mut node = VirtualNode::new();
    for round in 0..4 {
        let replica = node.start().await;
        for earlier in 0..round * 100 {
            assert!(get(&replica, &format!("k{earlier}")).is_some());
        }
        let puts =
            (round * 100..(round + 1) * 100).map(|number| replica.propose(put(&format!("k{number}"), "v"), None));
        assert!(join_all(puts).await.iter().all(Result::is_ok));
        drop(replica);
        node = node.after_power_loss();
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_everything_is_durable_in_the_state() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    replica.propose(put("k", "v"), None).await.unwrap();
    let applied = replica.status().applied_index;
    replica.shutdown().await;
    assert_eq!(replica.status().durable_index, applied);
    drop(replica);
    let node = node.after_power_loss();
    assert!(get(&node.start().await, "k").is_some());
}

#[test]
fn acknowledged_answers_survive_on_real_files_when_the_runtime_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let run = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    };
    for round in 0..3 {
        let runtime = run();
        runtime.block_on(async {
            let (options, _log) = real_options(folder.path());
            let replica = start(options).await;
            for earlier in 0..round * 50 {
                assert!(
                    get(&replica, &format!("k{earlier}")).is_some(),
                    "round {round} lost k{earlier}"
                );
            }
            let puts = (round * 50..(round + 1) * 50).map(|number| {
                let replica = replica.clone();
                async move { replica.propose(put(&format!("k{number}"), "v"), None).await }
            });
            assert!(join_all(puts).await.iter().all(Result::is_ok));
        });
        // Every task is dropped where it is, as a kill would; the folder is free once the last handle is gone.
        runtime.shutdown_timeout(Duration::from_secs(10));
    }
}
