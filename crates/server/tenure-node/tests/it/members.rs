//! Members of a cluster as they are asked for and changed over the wire, at a node that has no other beside it.

use std::time::Duration;

use tenure_api::v1;
use tenure_api::v1::membership_client::MembershipClient;
use tenure_api::v1::{WireError, wire_error};
use tenure_core::limits::NODES_MAX;
use tenure_replica::{JoinAsked, Runtime, join};
use tonic::Status;

use crate::overload_wire::{http_get, now};
use crate::support::TestNode;

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn asked(number: u128) -> JoinAsked {
    JoinAsked {
        folder: number,
        // Nobody is there: a node that is let in may never come.
        address: "127.0.0.1:1".to_owned(),
    }
}

fn error_of(status: &Status) -> WireError {
    let error = WireError::from_status(status).expect("the trailer can be read");
    error.expect("there is one")
}

/// What the node says of others, once it names the one and not the other: it looks now and then at what it has applied.
async fn wait_for_ready(node: &TestNode, with: &str, without: &str) -> String {
    let began = now();
    loop {
        let ready = http_get(node, "/readyz").await;
        if ready.contains(with) && !ready.contains(without) {
            return ready;
        }
        assert!(now() - began < PATIENCE, "{ready}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_more_than_a_cluster_may_have_is_not_let_in_until_another_is_removed() {
    let node = TestNode::start().await;
    let (runtime, address) = (Runtime::system(), node.node.address().to_string());
    for number in 2..=NODES_MAX as u128 {
        let joined = join(&runtime, &address, &asked(number)).await.expect("there is room");
        assert_eq!(u128::from(joined.node.0), number);
        assert_eq!(joined.nodes.len() as u128, number);
    }
    let refused = join(&runtime, &address, &asked(1_000)).await.unwrap_err();
    assert!(refused.contains("limit nodes: at most 64"), "{refused}");
    let again = join(&runtime, &address, &asked(7)).await.expect("it was let in before");
    assert_eq!(again.node.0, 7);
    let mut members = MembershipClient::new(node.channel().await);
    let request = v1::RemoveNodeRequest {
        node: 7,
        ..Default::default()
    };
    for _ in 0..2 {
        let reply = members
            .remove_node(request)
            .await
            .expect("the node answers")
            .into_inner();
        assert_eq!(reply.refused, "");
    }
    let refused = join(&runtime, &address, &asked(7)).await.unwrap_err();
    assert!(refused.contains("node 7, which was removed"), "{refused}");
    let joined = join(&runtime, &address, &asked(1_000))
        .await
        .expect("there is room again");
    assert_eq!(joined.node.0, NODES_MAX as u64 + 1, "an id is not used again");
    let listed = members.list_nodes(v1::ListNodesRequest::default()).await;
    let nodes = listed.expect("the node answers").into_inner().nodes;
    assert_eq!(nodes.len(), NODES_MAX);
    let others = nodes.iter().filter(|other| other.id != 1);
    for other in others {
        assert!(!other.connected && other.leads == 0 && other.votes == 0, "{other:?}");
    }
    let ready = wait_for_ready(&node, "node 65 at", "node 7 at").await;
    assert!(
        ready.contains("ready\nnode 2 at 127.0.0.1:1: not connected, "),
        "{ready}"
    );
    assert!(ready.contains("group 1 is led by node 1\n"), "{ready}");
    let metrics = http_get(&node, "/metrics").await;
    let told = metrics
        .lines()
        .filter(|line| line.starts_with("tenure_peer_connected{"));
    assert_eq!(told.count(), NODES_MAX - 1);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_is_not_found_and_what_may_not_be_is_a_verdict() {
    let node = TestNode::start().await;
    let mut members = MembershipClient::new(node.channel().await);
    let drain = v1::DrainNodeRequest {
        node: 9,
        ..Default::default()
    };
    let remove = v1::RemoveNodeRequest {
        node: 9,
        ..Default::default()
    };
    let transfer = |group, node| v1::TransferLeaderRequest {
        group,
        node,
        ..Default::default()
    };
    let missing = [
        (members.drain_node(drain).await.map(drop), "node"),
        (members.remove_node(remove).await.map(drop), "node"),
        (members.transfer_leader(transfer(9, 1)).await.map(drop), "group"),
    ];
    for (answered, kind) in missing {
        let error = error_of(&answered.expect_err("there is no such thing"));
        let Some(wire_error::Detail::NotFound(missing)) = error.detail else {
            panic!("{error:?}")
        };
        assert_eq!((missing.kind.as_str(), &missing.name[..]), (kind, &b"9"[..]));
    }
    let remove = v1::RemoveNodeRequest { node: 1, ..remove };
    let refused = members
        .remove_node(remove)
        .await
        .expect("a verdict is an answer")
        .into_inner();
    assert_eq!(refused.refused, "node 1 is the last one of the cluster");
    let refused = members
        .transfer_leader(transfer(1, 9))
        .await
        .expect("a verdict is an answer");
    assert_eq!(refused.into_inner().refused, "node 9 is not a voter of the group");
    let groups = members.list_groups(v1::ListGroupsRequest::default()).await;
    let groups = groups.expect("the node answers").into_inner().groups;
    assert!(
        groups
            .iter()
            .all(|group| group.leader == Some(1) && group.chosen_leader.is_none())
    );
    let chosen = members.transfer_leader(transfer(1, 1)).await.expect("the node answers");
    assert_eq!(chosen.into_inner().refused, "", "it leads already, and is chosen");
    let groups = members.list_groups(v1::ListGroupsRequest::default()).await;
    let groups = groups.expect("the node answers").into_inner().groups;
    assert_eq!(groups[1].chosen_leader, Some(1));
    node.node.stop().await;
}
