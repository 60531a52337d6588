//! A disk that runs out of room: what is refused, by which words, and what goes on.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_api::ErrorCode;
use tenure_api::v1::catalog_client::CatalogClient;
use tenure_api::v1::keys_client::KeysClient;
use tenure_api::v1::sessions_client::SessionsClient;
use tenure_api::v1::wire_error::Detail;
use tenure_api::v1::{self, WireError, put_reply};
use tenure_node::Node;
use tenure_replica::Runtime;
use tenure_storage::disk::{Disk, DiskFile, DiskLock, Files, OpenMode};
use tenure_storage::state::DiskOptions;
use tonic::transport::{Channel, Endpoint};

use crate::disk_damage::start_with;

/// What the nodes of these tests keep in reserve.
const RESERVE: u64 = 1 << 30;
/// More than anything here owes the disk.
const OWED_MAX: u64 = 256 << 20;
/// A limit for what takes moments.
const SOON: Duration = Duration::from_secs(20);

/// The disk of the machine, which says that so much is free as it is told to.
struct Told {
    files: Files,
    free: Arc<AtomicU64>,
}

impl Disk for Told {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.files.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.files.create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        self.files.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.files.exists(path)
    }

    fn free_space(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.free.load(Ordering::Relaxed))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.files.lock(path)
    }
}

/// A node on a disk that says how much is free.
struct Site {
    node: Node,
    free: Arc<AtomicU64>,
    channel: Channel,
    _folder: TempDir,
}

async fn start() -> Site {
    let folder = TempDir::new().expect("a temporary folder");
    let free = Arc::new(AtomicU64::new(RESERVE + OWED_MAX));
    let runtime = Runtime {
        disk: Arc::new(Told {
            files: Files,
            free: free.clone(),
        }),
        ..Runtime::system()
    };
    let options = DiskOptions::default();
    let node = start_with(folder.path(), 1, Some(RESERVE), options, runtime)
        .await
        .expect("the node starts");
    let channel = Endpoint::from_shared(format!("http://{}", node.address()))
        .expect("a valid address")
        .connect()
        .await
        .expect("the node listens");
    Site {
        node,
        free,
        channel,
        _folder: folder,
    }
}

fn key(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn put(name: &str) -> v1::PutRequest {
    v1::PutRequest {
        cache: "c".to_owned(),
        key: key(name),
        ..Default::default()
    }
}

fn delete(name: &str) -> v1::DeleteRequest {
    v1::DeleteRequest {
        cache: "c".to_owned(),
        key: key(name),
        ..Default::default()
    }
}

fn open(nonce: u8, ttl_ms: Option<u64>) -> v1::OpenSessionRequest {
    v1::OpenSessionRequest {
        nonce: Bytes::from(vec![nonce; 16]),
        ttl_ms,
        ..Default::default()
    }
}

fn create(name: &str) -> v1::CreateCacheRequest {
    v1::CreateCacheRequest {
        name: name.to_owned(),
        ..Default::default()
    }
}

fn of(status: &tonic::Status) -> WireError {
    WireError::from_status(status)
        .expect("a well formed trailer")
        .expect("an error of ours")
}

/// Asserts that an answer is `storage_full`, with both numbers: what is free less what is owed, which changes all the
/// time and is little here, and the reserve.
fn assert_full<T: std::fmt::Debug>(answer: Result<tonic::Response<T>, tonic::Status>, free: u64) {
    let error = of(&answer.expect_err("there is no room for it"));
    assert_eq!(error.error_code(), Some(ErrorCode::StorageFull), "{error:?}");
    match error.detail {
        Some(Detail::StorageFull(detail)) => {
            assert_eq!(detail.reserve_bytes, RESERVE);
            let owed = free.checked_sub(detail.free_bytes);
            assert!(owed.is_some_and(|owed| owed < OWED_MAX), "{detail:?}");
        }
        other => panic!("it carries {other:?}"),
    }
}

impl Site {
    fn keys(&self) -> KeysClient<Channel> {
        KeysClient::new(self.channel.clone())
    }

    /// Says that so much is free, and waits until the node has seen it.
    async fn set_free(&self, free: u64) {
        self.free.store(free, Ordering::Relaxed);
        let seen = async {
            loop {
                // A key that nobody looks at tells whether the node has noticed.
                let is_refused = self.keys().put(put("probe")).await.is_err();
                if is_refused == (free < RESERVE) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, seen).await.expect("the node looks soon");
    }

    async fn session(&self, nonce: u8, ttl_ms: Option<u64>) -> (u32, v1::SessionRef) {
        let reply = SessionsClient::new(self.channel.clone())
            .open(open(nonce, ttl_ms))
            .await
            .expect("the session is opened")
            .into_inner();
        (reply.header.expect("a header").group, reply.session.expect("a session"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn below_the_reserve_what_grows_is_refused_and_what_renews_or_frees_goes_on() {
    let site = start().await;
    let mut keys = site.keys();
    let mut sessions = SessionsClient::new(site.channel.clone());
    let mut catalog = CatalogClient::new(site.channel.clone());
    for cache in ["c", "other"] {
        catalog.create_cache(create(cache)).await.expect("there is room");
    }
    let (group, session) = site.session(1, Some(60_000)).await;
    let owned = v1::PutRequest {
        owner: Some(session.clone()),
        ..put("owned")
    };
    keys.put(owned).await.expect("there is room");
    for name in ["a", "b", "prefix/1", "prefix/2"] {
        keys.put(put(name)).await.expect("there is room");
    }
    let ending = v1::PutRequest {
        ttl_ms: Some(1_500),
        ..put("ending")
    };
    keys.put(ending).await.expect("there is room");

    let free = RESERVE - 1;
    site.set_free(free).await;
    assert_full(keys.put(put("a")).await, free);
    assert_full(catalog.create_cache(create("more")).await, free);
    assert_full(sessions.open(open(2, Some(60_000))).await, free);
    let elsewhere = v1::CreateCacheRequest {
        scope: Some(v1::Scope {
            tenant: "new".to_owned(),
            namespace: "new".to_owned(),
        }),
        ..create("c")
    };
    assert_full(catalog.create_cache(elsewhere).await, free);

    let touch = v1::TouchRequest {
        cache: "c".to_owned(),
        key: key("a"),
        ttl_ms: 60_000,
        ..Default::default()
    };
    keys.touch(touch).await.expect("a renewal goes on");
    let kept = v1::KeepAliveRequest {
        sessions: vec![v1::SessionInGroup {
            group,
            session: Some(session.clone()),
        }],
        attempt: 1,
    };
    let kept = sessions.keep_alive(kept).await.expect("a keep-alive goes on");
    assert_eq!(kept.into_inner().sessions.len(), 1);
    // The name under which a program deletes owns nothing.
    site.session(3, None).await;
    keys.delete(delete("b")).await.expect("a delete goes on");
    let prefix = v1::DeletePrefixRequest {
        cache: "c".to_owned(),
        prefix: key("prefix/"),
        ..Default::default()
    };
    keys.delete_prefix(prefix).await.expect("a delete by prefix goes on");
    let close = v1::CloseSessionRequest {
        session: Some(session),
        ..Default::default()
    };
    sessions.close(close).await.expect("a close goes on");
    let gone = v1::DeleteCacheRequest {
        name: "other".to_owned(),
        ..Default::default()
    };
    catalog.delete_cache(gone).await.expect("a cache can be deleted");
    let left = async {
        loop {
            let list = v1::ListRequest {
                cache: "c".to_owned(),
                ..Default::default()
            };
            let page = keys.list(list).await.expect("reads go on").into_inner();
            let names: Vec<Bytes> = page.keys.into_iter().map(|found| found.key).collect();
            // What has ended is gone, and of what was refused there is nothing.
            if names == [key("a"), key("probe")] || names == [key("a")] {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, left).await.expect("expiry goes on");

    site.set_free(RESERVE + OWED_MAX).await;
    let reply = site
        .keys()
        .put(put("a"))
        .await
        .expect("there is room again")
        .into_inner();
    assert!(matches!(reply.verdict, Some(put_reply::Verdict::Done(_))));
    site.node.stop().await;
}
