//! Linearizable reads: what was acknowledged before is seen, and many reads share one read index.

use std::time::Duration;

use futures_util::future::join_all;

use tenure_core::time::Span;

use crate::world::{VirtualNode, get, put, put_for, real_options, start, version};

#[tokio::test(start_paused = true)]
async fn a_read_sees_what_was_acknowledged_before_it() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    for number in 0..100 {
        let answer = replica.propose(put("k", &number.to_string()), None).await.unwrap();
        let points = join_all((0..20).map(|_| replica.read_index())).await;
        for point in points {
            let point = point.unwrap();
            assert!(point.revision >= answer.revision);
            assert!(point.time >= answer.time && point.time <= replica.stamp_now().unwrap());
        }
        assert_eq!(get(&replica, "k").unwrap().version, version(&answer));
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_does_not_see_what_is_due_at_the_applied_time() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    replica
        .propose(put_for("short", "v", Some(Span::from_millis(50))), None)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(70)).await;
    replica.read_index().await.unwrap();
    assert!(get(&replica, "short").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_and_writes_of_many_tasks_agree_on_the_real_world() {
    let folder = tempfile::tempdir().unwrap();
    let (options, _log) = real_options(folder.path());
    let replica = start(options).await;
    join_all((0..16).map(|worker| {
        let replica = replica.clone();
        async move {
            let key = format!("k{worker}");
            for number in 0..50 {
                let answer = replica.propose(put(&key, &number.to_string()), None).await.unwrap();
                let point = replica.read_index().await.unwrap();
                assert!(point.revision >= answer.revision);
                assert_eq!(get(&replica, &key).unwrap().version, version(&answer));
            }
        }
    }))
    .await;
    replica.shutdown().await;
}
