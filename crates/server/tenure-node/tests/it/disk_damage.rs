//! Damage of the files at rest: one group stops and is named while the others run.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_api::ErrorCode;
use tenure_api::v1::catalog_client::CatalogClient;
use tenure_api::v1::cluster_client::ClusterClient;
use tenure_api::v1::keys_client::KeysClient;
use tenure_api::v1::wire_error::Detail;
use tenure_api::v1::{self, WireError, put_reply, watch_event, watch_request};
use tenure_node::config::CONNECTIONS_MAX;
use tenure_node::{Node, NodeConfig, StartError};
use tenure_replica::Runtime;
use tenure_storage::feed::FeedLimits;
use tenure_storage::state::{DiskEngine, DiskOptions, StateEngine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

const SOON: Duration = Duration::from_secs(20);
/// A watch that says nothing for so long has told what there was.
const QUIET: Duration = Duration::from_secs(1);
/// Where the engine keeps rows and feeds: the groups are made in order, and each makes its rows first. Number 1 says which
/// belong to whom.
const ROWS_OF_SYSTEM: &str = "state/keyspaces/2";
const ROWS_OF_FIRST_HOME: &str = "state/keyspaces/4";
const FEED_OF_FIRST_HOME: &str = "state/keyspaces/5";

/// Starts a node with two home groups that soon makes files of what it holds in memory.
async fn start(folder: &Path) -> Result<Node, StartError> {
    let options = DiskOptions {
        memtable_bytes: 64 << 10,
        journal_bytes: 64 << 20,
        cache_bytes: 1 << 20,
        worker_threads: 1,
        feed: FeedLimits::default(),
    };
    start_with(folder, 2, None, options, Runtime::system()).await
}

pub(crate) async fn start_with(
    folder: &Path,
    home_groups: u32,
    reserve_bytes: Option<u64>,
    options: DiskOptions,
    runtime: Runtime,
) -> Result<Node, StartError> {
    let config = NodeConfig {
        data_dir: folder.to_path_buf(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        advertise: None,
        join: Vec::new(),
        home_groups,
        connections_max: CONNECTIONS_MAX,
        reserve_bytes,
        log_entries_kept: None,
        log_segment_bytes: None,
        insecure: false,
    };
    let open = Box::new(move |folder: &Path| {
        let engine = DiskEngine::open(folder, options)?;
        Ok(Arc::new(engine) as Arc<dyn StateEngine>)
    });
    Node::start(config, runtime, open).await
}

async fn connect(node: &Node) -> Channel {
    Endpoint::from_shared(format!("http://{}", node.address()))
        .expect("a valid address")
        .connect()
        .await
        .expect("the node listens")
}

fn scope(namespace: &str) -> Option<v1::Scope> {
    Some(v1::Scope {
        tenant: "acme".to_owned(),
        namespace: namespace.to_owned(),
    })
}

fn put(namespace: &str, key: u8, value: Vec<u8>) -> v1::PutRequest {
    v1::PutRequest {
        scope: scope(namespace),
        cache: "c".to_owned(),
        key: Bytes::from(vec![key]),
        value: value.into(),
        ..Default::default()
    }
}

fn get(namespace: &str, key: u8) -> v1::GetRequest {
    v1::GetRequest {
        scope: scope(namespace),
        cache: "c".to_owned(),
        key: Bytes::from(vec![key]),
        ..Default::default()
    }
}

fn of(status: &tonic::Status) -> WireError {
    WireError::from_status(status)
        .expect("a well formed trailer")
        .expect("an error of ours")
}

/// A folder with one namespace in each of the two home groups, whose rows are in files, and a node that has stopped.
struct Made {
    folder: TempDir,
    /// The namespaces that live in group 1 and in group 2.
    namespaces: [String; 2],
}

async fn make() -> Made {
    let folder = TempDir::new().expect("a temporary folder");
    let node = start(folder.path()).await.expect("the node starts");
    let channel = connect(&node).await;
    let mut catalog = CatalogClient::new(channel.clone());
    let mut keys = KeysClient::new(channel);
    let mut namespaces = [None, None];
    for number in 0..64 {
        let namespace = format!("n{number}");
        let create = v1::CreateCacheRequest {
            scope: scope(&namespace),
            name: "c".to_owned(),
            ..Default::default()
        };
        let reply = catalog.create_cache(create).await.expect("it is created").into_inner();
        let group = reply.header.expect("a header").group;
        namespaces[group as usize - 1].get_or_insert(namespace);
        if namespaces.iter().all(Option::is_some) {
            break;
        }
    }
    let namespaces = namespaces.map(|namespace| namespace.expect("each group gets a namespace"));
    for namespace in &namespaces {
        for key in 0..40 {
            let value = (0..16_384_u32).map(|at| (at * 7 + u32::from(key)).to_le_bytes()[0]);
            let written = keys.put(put(namespace, key, value.collect())).await;
            written.expect("it is written");
        }
    }
    let tables = [ROWS_OF_FIRST_HOME, FEED_OF_FIRST_HOME].map(|keyspace| folder.path().join(keyspace).join("tables"));
    let flushed = async {
        while !tables
            .iter()
            .all(|tables| fs::read_dir(tables).is_ok_and(|mut left| left.next().is_some()))
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, flushed).await.expect("rows become files");
    node.stop().await;
    Made { folder, namespaces }
}

/// Turns a byte in the middle of each table around: in a block that is read only when somebody asks for its rows.
fn flip_in_tables(keyspace: &Path) {
    for entry in fs::read_dir(keyspace.join("tables")).expect("it has tables") {
        let path = entry.expect("an entry").path();
        let file = fs::File::options().read(true).write(true).open(&path).expect("a table");
        let middle = file.metadata().expect("a length").len() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, middle).expect("it is that long");
        file.write_all_at(&[!byte[0]], middle).expect("it can be written");
    }
}

/// What the node says of its readiness.
#[expect(clippy::disallowed_methods, reason = "the test is the outside world")]
async fn readyz(node: &Node) -> String {
    let mut stream = TcpStream::connect(node.address()).await.expect("the node listens");
    let request = b"GET /readyz HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the answer is read");
    answer
}

async fn status(channel: &Channel) -> v1::StatusReply {
    let mut cluster = ClusterClient::new(channel.clone());
    let said = cluster.status(v1::StatusRequest::default()).await;
    said.expect("the node says how it is").into_inner()
}

/// The reasons for which groups have stopped.
async fn stopped(channel: &Channel) -> Vec<(u32, String)> {
    let groups = status(channel).await.groups.into_iter();
    let stopped = groups.filter(|group| !group.stopped_reason.is_empty());
    stopped.map(|group| (group.group, group.stopped_reason)).collect()
}

async fn assert_serves(channel: &Channel, namespace: &str) {
    let mut keys = KeysClient::new(channel.clone());
    let found = keys.get(get(namespace, 3)).await.expect("it is read").into_inner();
    assert_eq!(found.key.expect("it was acknowledged").value.len(), 16_384);
    let reply = keys
        .put(put(namespace, 200, vec![1]))
        .await
        .expect("it is written")
        .into_inner();
    assert!(matches!(reply.verdict, Some(put_reply::Verdict::Done(_))));
}

fn assert_unavailable<T: std::fmt::Debug>(answer: Result<tonic::Response<T>, tonic::Status>, reason: &str) {
    let error = of(&answer.expect_err("the group has stopped"));
    assert_eq!(error.error_code(), Some(ErrorCode::Unavailable), "{error:?}");
    assert!(error.message.contains("group 1 has stopped"), "{error:?}");
    assert!(error.message.contains(reason), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_files_are_damaged_is_stopped_and_named_while_the_others_run() {
    let made = make().await;
    fs::remove_file(made.folder.path().join(ROWS_OF_FIRST_HOME).join("current")).expect("it is there");
    let reason = "its file current is missing";
    for _ in 0..2 {
        let node = start(made.folder.path()).await.expect("the node starts without it");
        let channel = connect(&node).await;
        let [first, second] = &made.namespaces;
        assert_serves(&channel, second).await;
        let mut keys = KeysClient::new(channel.clone());
        assert_unavailable(keys.get(get(first, 3)).await, reason);
        assert_unavailable(keys.put(put(first, 3, vec![1])).await, reason);
        let ready = readyz(&node).await;
        assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
        assert!(
            ready.contains("group 1 has stopped: ") && ready.contains(reason),
            "{ready}"
        );
        let said = status(&channel).await;
        assert!(said.serving, "{said:?}");
        assert_eq!(said.home_groups, 2);
        assert_eq!(
            said.groups.iter().map(|group| group.group).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        let stopped = stopped(&channel).await;
        assert_eq!(stopped.len(), 1, "{stopped:?}");
        assert!(stopped[0].0 == 1 && stopped[0].1.contains(reason), "{stopped:?}");
        assert!(
            stopped[0].1.contains(ROWS_OF_FIRST_HOME),
            "it names the files: {stopped:?}"
        );
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_block_stops_its_group_when_it_is_read_and_not_the_node() {
    let made = make().await;
    flip_in_tables(&made.folder.path().join(ROWS_OF_FIRST_HOME));
    let node = start(made.folder.path()).await.expect("the node starts");
    let channel = connect(&node).await;
    let [first, second] = &made.namespaces;
    let mut keys = KeysClient::new(channel.clone());
    for key in 0..40 {
        let _ = keys.get(get(first, key)).await;
    }
    assert_unavailable(keys.get(get(first, 3)).await, "checksum");
    let reasons = stopped(&channel).await;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    let (group, why) = &reasons[0];
    assert!(
        *group == 1 && why.contains("keyspaces/4") && why.contains("checksum"),
        "{reasons:?}"
    );
    assert!(!why.contains("written or synced"), "{reasons:?}");
    let ready = readyz(&node).await;
    assert!(
        ready.starts_with("HTTP/1.1 503") && ready.contains("group 1 has stopped: ") && ready.contains("checksum"),
        "{ready}"
    );
    assert_serves(&channel, second).await;
    node.stop().await;
    // From now on it is known which file it is.
    let node = start(made.folder.path()).await.expect("the node starts without it");
    let channel = connect(&node).await;
    let reasons = stopped(&channel).await;
    assert!(reasons.len() == 1 && reasons[0].1.contains("tables/"), "{reasons:?}");
    assert_serves(&channel, second).await;
    node.stop().await;
}

/// Watches until nothing more comes. Where to resume, if the feed does not reach back so far (any more).
async fn read_to_end(keys: &mut KeysClient<Channel>, watch: v1::WatchRequest) -> Option<u64> {
    let end = match keys.watch(watch).await {
        Err(status) => status,
        Ok(events) => {
            let mut events = events.into_inner();
            loop {
                match tokio::time::timeout(QUIET, events.message()).await {
                    Err(_) => return None,
                    Ok(Ok(event)) => assert!(event.is_some(), "it ends with a reason"),
                    Ok(Err(status)) => break status,
                }
            }
        }
    };
    let end = of(&end);
    assert_eq!(end.error_code(), Some(ErrorCode::Compacted), "{end:?}");
    match end.detail {
        Some(Detail::ResumeFrom(resume)) => Some(resume),
        other => panic!("it says where to resume: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_part_of_the_feed_costs_only_those_who_want_it() {
    let made = make().await;
    flip_in_tables(&made.folder.path().join(FEED_OF_FIRST_HOME));
    let node = start(made.folder.path()).await.expect("the node starts");
    let channel = connect(&node).await;
    let first = &made.namespaces[0];
    let watch = |from| v1::WatchRequest {
        scope: scope(first),
        cache: "c".to_owned(),
        target: Some(watch_request::Target::All(true)),
        from: Some(from),
        ..Default::default()
    };
    let mut keys = KeysClient::new(channel.clone());
    // Several files are damaged: each is met once, and then the feed begins behind it.
    let mut resume = 1;
    while let Some(compacted_to) = read_to_end(&mut keys, watch(resume)).await {
        assert!(compacted_to > resume, "it says where to resume");
        resume = compacted_to;
    }
    assert!(resume > 1, "a damaged part was read");
    assert_eq!(stopped(&channel).await, []);
    for namespace in &made.namespaces {
        assert_serves(&channel, namespace).await;
    }
    let mut events = keys.watch(watch(resume)).await.expect("it begins there").into_inner();
    let seen = async {
        loop {
            let event = events.message().await.expect("it goes on").expect("it goes on");
            if let Some(watch_event::Event::Changes(changes)) = event.event
                && changes.changes.iter().any(|change| change.key.as_ref() == [200])
            {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, seen).await.expect("what came since is told");
    assert_eq!(stopped(&channel).await, []);
    drop(events);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_system_group_is_damaged_says_so_and_starts_with_the_right_files_again() {
    let made = make().await;
    let current = made.folder.path().join(ROWS_OF_SYSTEM).join("current");
    let kept: PathBuf = made.folder.path().join("state/kept");
    fs::rename(&current, &kept).expect("it is there");
    let error = start(made.folder.path()).await.expect_err("it cannot serve");
    let said = error.to_string();
    assert!(matches!(error, StartError::SystemStopped { .. }), "{said}");
    assert!(said.contains("system group") && said.contains(ROWS_OF_SYSTEM), "{said}");
    assert!(said.contains("its file current is missing"), "{said}");
    // It was moved, whole, and says where to.
    let moved = made.folder.path().join("state/damaged/group-0-1");
    assert!(said.contains("damaged/group-0-1"), "{said}");
    fs::rename(&kept, moved.join("current")).expect("it was moved");
    fs::rename(&moved, made.folder.path().join(ROWS_OF_SYSTEM)).expect("it goes back");
    let node = start(made.folder.path()).await.expect("the node starts");
    let channel = connect(&node).await;
    for namespace in &made.namespaces {
        assert_serves(&channel, namespace).await;
    }
    node.stop().await;
}
