//! Streams between two nodes of one process: who is let in, what is told apart, what is too long.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;

use super::*;
use crate::runtime::TaskHandle;
use peer::peer_request::Body;

const CLUSTER: u128 = 7;
const LIMIT: Duration = Duration::from_secs(10);

fn identity(node: u64) -> PeerIdentity {
    PeerIdentity {
        cluster: CLUSTER,
        node: NodeId(node),
        folder: u128::from(node),
    }
}

/// A node that answers others, its address, and what ends it.
async fn serving(identity: PeerIdentity) -> (Peers, String, TaskHandle) {
    let runtime = Runtime::system();
    let peers = Peers::new(identity, runtime.clone()).unwrap();
    let listener = runtime.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (service, tasks) = (peers.service(), runtime.tasks.clone());
    let serve = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            tasks.spawn("test connection", connection.map(drop).boxed());
        }
    };
    let task = runtime.tasks.spawn("test server", serve.boxed());
    (peers, address, task)
}

/// What a call of a node to another one, which is said to be there, ends in.
async fn called(from: PeerIdentity, to: u64, record: PeerRecord) -> CallError {
    let peers = Peers::new(from, Runtime::system()).unwrap();
    peers.set(NodeId(to), record);
    let body = Body::ReadIndex(peer::ReadIndex {});
    peers.link(NodeId(to)).call(GroupId(1), body, LIMIT).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_does_not_fit_is_refused_by_name_before_anything_is_sent() {
    let (served, address, task) = serving(identity(2)).await;
    served.set(
        NodeId(5),
        PeerRecord {
            address: "127.0.0.1:1".to_owned(),
            folder: Some(99),
        },
    );
    let record = |folder| PeerRecord {
        address: address.clone(),
        folder,
    };
    let other_cluster = PeerIdentity {
        cluster: 8,
        ..identity(1)
    };
    let refusals = [
        (called(other_cluster, 2, record(None)).await, "cluster: "),
        (
            called(identity(1), 3, record(None)).await,
            "node: this is node 2 and not 3",
        ),
        (
            called(identity(5), 2, record(None)).await,
            "folder: node 5 has another one",
        ),
        (
            called(identity(1), 2, record(Some(77))).await,
            "folder: node 2 has another one",
        ),
    ];
    for (refusal, named) in refusals {
        match refusal {
            CallError::NotSent(why) => assert!(why.contains(named), "{why} names not {named}"),
            other => panic!("{other:?}"),
        }
    }
    let fits = called(identity(1), 2, record(Some(2))).await;
    assert_eq!(
        fits,
        CallError::Unavailable("the group is not open on this node".into())
    );
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_be_reached_is_told_apart_from_one_that_does_not_reply() {
    let peers = Peers::new(identity(1), Runtime::system()).unwrap();
    let ask = || Body::ReadIndex(peer::ReadIndex {});
    let link = peers.link(NodeId(2));
    let unknown = link.call(GroupId(1), ask(), LIMIT).await.unwrap_err();
    assert!(
        matches!(&unknown, CallError::NotSent(why) if why.contains("no known address")),
        "{unknown}"
    );
    let record = |address: &str| PeerRecord {
        address: address.to_owned(),
        folder: None,
    };
    peers.set(NodeId(2), record("127.0.0.1:1"));
    let refused = link.call(GroupId(1), ask(), LIMIT).await.unwrap_err();
    assert!(matches!(refused, CallError::NotSent(_)), "{refused}");
    // Names are looked up, and the same way leads to the node as soon as it is there.
    let (_served, address, task) = serving(identity(2)).await;
    peers.set(NodeId(2), record(&address.replace("127.0.0.1", "localhost")));
    let eventually = async {
        while let Err(CallError::NotSent(_)) = link.call(GroupId(1), ask(), LIMIT).await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, eventually).await.unwrap();
    assert!(peers.is_connected(NodeId(2)));
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_long_is_not_sent_and_breaks_nothing() {
    let (_served, address, task) = serving(identity(2)).await;
    let peers = Peers::new(identity(1), Runtime::system()).unwrap();
    peers.set(NodeId(2), PeerRecord { address, folder: None });
    let link = peers.link(NodeId(2));
    let long = |bytes: usize| {
        Body::Propose(peer::Propose {
            entry: vec![0; bytes].into(),
            remaining_us: Vec::new(),
        })
    };
    let too_long = link.call(GroupId(1), long(MESSAGE_BYTES_MAX), LIMIT).await.unwrap_err();
    assert!(
        matches!(&too_long, CallError::NotSent(why) if why.contains("too long")),
        "{too_long}"
    );
    let fits = link.call(GroupId(1), long(MESSAGE_BYTES_MAX - 64), LIMIT).await;
    assert!(matches!(fits, Err(CallError::Unavailable(_))), "{fits:?}");
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_removed_is_told_so_and_nothing_else_is_taken_for_that() {
    let (served, address, task) = serving(identity(2)).await;
    let at = |address: &str| PeerRecord {
        address: address.to_owned(),
        folder: None,
    };
    let all = |nodes: &[u64]| nodes.iter().map(|node| (NodeId(*node), at(&address))).collect();
    let told_removed = |peers: &Peers| *peers.inner.world.removed.borrow();
    let ask = || Body::ReadIndex(peer::ReadIndex {});
    let peers = |node: u64, cluster: u128| {
        let peers = Peers::new(
            PeerIdentity {
                cluster,
                ..identity(node)
            },
            Runtime::system(),
        )
        .unwrap();
        peers.set(NodeId(2), at(&address));
        peers
    };
    served.set_all(all(&[1, 2]), 5);
    // One that is known, one that this node has not heard of yet, and one of another cluster.
    for (node, cluster) in [(1, CLUSTER), (5, CLUSTER), (3, CLUSTER + 1)] {
        let there = peers(node, cluster);
        let answered = there.link(NodeId(2)).call(GroupId(1), ask(), LIMIT).await.unwrap_err();
        assert!(
            !answered.to_string().contains("removed") && !told_removed(&there),
            "{node}: {answered}"
        );
    }
    let removed = peers(3, CLUSTER);
    let refused = removed
        .link(NodeId(2))
        .call(GroupId(1), ask(), LIMIT)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("node 3 was removed from the cluster"),
        "{refused}"
    );
    tokio::time::timeout(LIMIT, removed.removed()).await.unwrap();
    // Who is connected when that happens hears it too, and one that reads of it itself.
    let connected = peers(1, CLUSTER);
    let known = connected
        .link(NodeId(2))
        .call(GroupId(1), ask(), LIMIT)
        .await
        .unwrap_err();
    assert!(matches!(known, CallError::Unavailable(_)), "{known}");
    served.set_all(all(&[2]), 5);
    tokio::time::timeout(LIMIT, connected.removed()).await.unwrap();
    let reads = peers(4, CLUSTER);
    reads.set_all(all(&[2, 4]), 5);
    assert!(!told_removed(&reads));
    reads.set_all(all(&[2]), 5);
    assert!(told_removed(&reads));
    task.abort();
}

/// Lets everybody in as node 3.
struct LetsIn;

impl Doorkeeper for LetsIn {
    fn let_in(&self, asked: JoinAsked) -> BoxFuture<'_, Result<Joined, String>> {
        let record = PeerRecord {
            address: asked.address,
            folder: Some(asked.folder),
        };
        let joined = Joined {
            cluster: CLUSTER,
            node: NodeId(3),
            home_groups: 8,
            nodes: BTreeMap::from([(NodeId(3), record)]),
        };
        Box::pin(async { Ok(joined) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_wants_to_be_let_in_is_answered_by_the_doorkeeper() {
    let (served, address, task) = serving(identity(2)).await;
    let asked = JoinAsked {
        folder: 1 << 100,
        address: "node-3:7070".to_owned(),
    };
    let runtime = Runtime::system();
    let nobody = join(&runtime, &address, &asked).await.unwrap_err();
    assert!(nobody.contains("lets nobody in"), "{nobody}");
    served.set_doorkeeper(Some(Arc::new(LetsIn)));
    let joined = join(&runtime, &address, &asked).await.unwrap();
    assert_eq!(joined, LetsIn.let_in(asked).await.unwrap());
    let nameless = JoinAsked {
        folder: 1,
        address: String::new(),
    };
    let refused = join(&runtime, &address, &nameless).await.unwrap_err();
    assert!(refused.contains("address: "), "{refused}");
    task.abort();
}
