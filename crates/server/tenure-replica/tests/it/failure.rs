//! A disk that fails: who stops, who is told, and what is said of the requests.

use std::time::Duration;

use futures_util::future::join_all;

use tenure_replica::{Outcome, Unavailable};

use crate::world::{GROUP, Told, VirtualNode, get, put, wait_virtually};

fn told_to_stop(node: &VirtualNode) -> (usize, usize) {
    let told = node.sink.all();
    let groups = told.iter().filter(|(_, told)| matches!(told, Told::Stopped(_))).count();
    (
        groups,
        told.iter()
            .filter(|(_, told)| matches!(told, Told::NodeMustStop(_)))
            .count(),
    )
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_sync_of_the_log_nothing_is_acknowledged_and_the_node_must_stop() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    replica.propose(put("before", "v"), None).await.unwrap();
    node.disk.fail_sync_after(0);
    let answers = join_all((0..20).map(|number| replica.propose(put(&format!("k{number}"), "v"), None))).await;
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    }
    let later = replica.propose(put("later", "v"), None).await.unwrap_err();
    assert!(matches!(later, Unavailable::Stopped { proposed: false, .. }), "{later}");
    assert!(replica.read_index().await.is_err());
    assert_eq!(told_to_stop(&node), (1, 1));
    drop(replica);
    let node = node.after_power_loss();
    assert!(get(&node.start().await, "before").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_state_that_cannot_be_written_stops_the_node_and_loses_nothing() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    node.engine.fail_writes(true);
    replica.propose(put("acknowledged", "v"), None).await.unwrap();
    wait_virtually(Duration::from_secs(1)).await;
    assert_eq!(told_to_stop(&node), (1, 1));
    assert!(replica.propose(put("later", "v"), None).await.is_err());
    drop(replica);
    let node = node.after_power_loss();
    assert!(get(&node.start().await, "acknowledged").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_stops_its_group_and_is_never_taken_for_a_missing_one() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    replica.propose(put("k", "v"), None).await.unwrap();
    wait_virtually(Duration::from_secs(1)).await;
    node.engine.fail_reads(GROUP, true);
    let query = tenure_core::query::Query::Caches(crate::world::namespace());
    assert!(matches!(replica.query(&query), Err(Unavailable::Stopped { .. })));
    assert_eq!(told_to_stop(&node), (1, 0), "the node goes on");
    assert!(replica.propose(put("k", "w"), None).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn on_a_full_disk_the_node_must_stop_and_with_room_again_everything_acknowledged_is_there() {
    let node = VirtualNode::new();
    let replica = node.start().await;
    node.disk.set_capacity(Some(node.disk.used()));
    let value = "v".repeat(10_000);
    let mut acknowledged = 0;
    let error = loop {
        match replica.propose(put(&format!("k{acknowledged}"), &value), None).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 10_000, "the disk does not fill up");
    };
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    let (groups, nodes) = told_to_stop(&node);
    assert_eq!((groups, nodes), (1, 1));
    let said = node.sink.all().into_iter().find_map(|(_, told)| match told {
        Told::NodeMustStop(why) => Some(why),
        _ => None,
    });
    assert!(said.unwrap().contains("the disk is full: free some room"));
    assert!(acknowledged > 1);
    drop(replica);
    node.disk.set_capacity(None);
    let node = node.after_power_loss();
    let replica = node.start().await;
    for key in 0..acknowledged {
        assert!(get(&replica, &format!("k{key}")).is_some(), "k{key} of {acknowledged}");
    }
    replica.propose(put("after", "v"), None).await.unwrap();
}
