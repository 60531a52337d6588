//! Linearizable reads: what was acknowledged before is seen, and many reads share one read index.

use std::time::Duration;

use futures_util::future::join_all;

use tenure_core::ids::Revision;
use tenure_core::time::Span;
use tenure_replica::Unavailable;

use crate::world::{VirtualNode, get, put, put_for, real_options, start, version, wait_virtually};

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
    wait_virtually(Duration::from_millis(70)).await;
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

#[tokio::test(start_paused = true)]
async fn reads_that_wait_when_the_group_is_shut_down_are_answered() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let reads = join_all((0..100).map(|_| replica.read_index()));
    let later = async {
        tokio::task::yield_now().await;
        join_all((0..100).map(|_| replica.read_index())).await
    };
    let all = async { tokio::join!(reads, replica.shutdown(), later) };
    let (reads, (), later) = tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
    for read in reads.into_iter().chain(later) {
        assert!(matches!(read, Ok(_) | Err(Unavailable::Stopped { .. })), "{read:?}");
    }
    let query = tenure_core::query::Query::Caches(crate::world::namespace());
    assert!(matches!(replica.query(&query), Err(Unavailable::Stopped { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_revision_can_be_waited_for() {
    const LIMIT: Duration = Duration::from_secs(5);
    let node = VirtualNode::new();
    let replica = node.start().await;
    let applied = replica.status().revision;
    assert_eq!(replica.wait_for_revision(applied, Duration::ZERO).await, Ok(()));
    let next = Revision(applied.0 + 1);
    assert_eq!(replica.wait_for_revision(next, LIMIT).await, Err(applied));
    let (waited, put) = tokio::join!(
        replica.wait_for_revision(next, LIMIT),
        replica.propose(put("k", "v"), None)
    );
    assert_eq!((waited, put.unwrap().revision), (Ok(()), next));
    let beyond = Revision(next.0 + 1);
    let (waited, ()) = tokio::join!(
        replica.wait_for_revision(beyond, Duration::from_secs(3_600)),
        replica.shutdown()
    );
    assert_eq!(waited, Err(next), "a group that has stopped is not waited for");
}
