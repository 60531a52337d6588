//! A program in the shape of those that were written against the Rust client of Felix. One line says where that client
//! comes from now; everything behind it is as such programs have it. It runs against a fake node and against a real one.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_client::felix as felix_client;

use felix_client::{
    AckMode, CacheChange, CacheCondition, CacheConditionResult, CacheWatchFilter, CacheWatchItem, ClientConfig,
    ClusterCacheWatch, ClusterClient, CommitOp, ConditionalWrite, ShardMoved, StateValue, VersionedValue,
};

/// How long a change may take.
const LIMIT: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Connects as such programs do.
pub(crate) async fn connect(seeds: &[SocketAddr]) -> Result<Arc<ClusterClient>> {
    let mut config = ClientConfig::default();
    config.auth_tenant_id = Some("acme".to_string());
    config.auth_token = Some("a token".to_string());
    Ok(Arc::new(ClusterClient::connect(seeds, "localhost", config).await?))
}

/// Uses everything once.
pub(crate) async fn everything(client: Arc<ClusterClient>) -> Result<()> {
    lease(&client).await?;
    values_and_counters(&client).await?;
    watch(&client).await?;
    streams(&client).await?;
    commits(&client).await
}

/// Takes a lease, renews it, and gives it back.
async fn lease(client: &ClusterClient) -> Result<()> {
    let me = Bytes::from_static(b"worker-7");
    let taken = client
        .cache_put_if(
            "acme",
            "prod",
            "leases",
            "endpoint-7",
            me.clone(),
            Some(30_000),
            CacheCondition::Absent,
        )
        .await?;
    assert!(taken.applied);
    let mut version = taken.version.expect("an applied put has a version");

    let rival = Bytes::from_static(b"worker-8");
    let refused = client
        .cache_put_if(
            "acme",
            "prod",
            "leases",
            "endpoint-7",
            rival,
            Some(30_000),
            CacheCondition::Absent,
        )
        .await?;
    assert_eq!(
        refused,
        CacheConditionResult {
            applied: false,
            version: Some(version)
        }
    );

    let renewed = client
        .cache_put_if(
            "acme",
            "prod",
            "leases",
            "endpoint-7",
            me,
            Some(30_000),
            CacheCondition::Version(version),
        )
        .await?;
    if renewed.applied {
        let newer = renewed.version.expect("an applied put has a version");
        assert!(newer > version);
        version = newer;
    }

    let stale = client
        .cache_delete_if("acme", "prod", "leases", "endpoint-7", version - 1)
        .await?;
    assert_eq!(
        stale,
        CacheConditionResult {
            applied: false,
            version: Some(version)
        }
    );
    let released = client
        .cache_delete_if("acme", "prod", "leases", "endpoint-7", version)
        .await?;
    assert_eq!(
        released,
        CacheConditionResult {
            applied: true,
            version: None
        }
    );
    let again = client
        .cache_delete_if("acme", "prod", "leases", "endpoint-7", version)
        .await?;
    assert_eq!(
        again,
        CacheConditionResult {
            applied: false,
            version: None
        }
    );
    Ok(())
}

async fn values_and_counters(client: &ClusterClient) -> Result<()> {
    assert_eq!(client.cache_get("acme", "prod", "data", "key").await?, None);
    client
        .cache_put("acme", "prod", "data", "key", Bytes::from_static(b"value-1"), None)
        .await?;
    assert_eq!(
        client.cache_get("acme", "prod", "data", "key").await?,
        Some(Bytes::from_static(b"value-1"))
    );
    let versioned: Option<VersionedValue> = client.cache_get_versioned("acme", "prod", "data", "key").await?;
    let VersionedValue { value, version } = versioned.expect("it was written");
    assert_eq!(value, Bytes::from_static(b"value-1"));
    let changed = client
        .cache_put_if(
            "acme",
            "prod",
            "data",
            "key",
            "value-2".into(),
            None,
            CacheCondition::Version(version),
        )
        .await?;
    assert!(changed.applied);
    assert_eq!(
        client.cache_delete("acme", "prod", "data", "key").await?,
        Some(Bytes::from_static(b"value-2"))
    );
    assert_eq!(client.cache_delete("acme", "prod", "data", "key").await?, None);

    assert_eq!(client.counter_get("acme", "prod", "limits", "user:42").await?, None);
    assert_eq!(client.counter_add("acme", "prod", "limits", "user:42", 3).await?, 3);
    assert_eq!(client.counter_add("acme", "prod", "limits", "user:42", -1).await?, 2);
    assert_eq!(client.counter_get("acme", "prod", "limits", "user:42").await?, Some(2));
    Ok(())
}

async fn watch(client: &Arc<ClusterClient>) -> Result<()> {
    let filter = CacheWatchFilter::Prefix("user:".into());
    let mut watch: ClusterCacheWatch = client.watch_cache("acme", "prod", "presence", filter, None).await?;
    client
        .cache_put(
            "acme",
            "prod",
            "presence",
            "user:1",
            Bytes::from_static(b"here"),
            Some(60_000),
        )
        .await?;
    client
        .cache_put("acme", "prod", "presence", "room:1", Bytes::from_static(b"other"), None)
        .await?;
    client.cache_delete("acme", "prod", "presence", "user:1").await?;

    let mut seen = Vec::new();
    while seen.len() < 2 {
        match tokio::time::timeout(LIMIT, watch.recv())
            .await?
            .expect("the watch goes on")
        {
            CacheWatchItem::Change(change) => seen.push(change),
            CacheWatchItem::Lagged { resume_from } => panic!("lagged, resume from {resume_from}"),
            CacheWatchItem::ShardMoved(ShardMoved { resume_from, .. }) => panic!("moved, {resume_from:?}"),
        }
    }
    let CacheChange {
        key,
        value,
        offset,
        expires_at_millis,
    } = &seen[0];
    assert_eq!((key.as_str(), value.as_deref()), ("user:1", Some(&b"here"[..])));
    assert!(*expires_at_millis > 0);
    assert_eq!(seen[1].value, None);
    assert!(seen[1].offset > *offset);

    // From a checkpoint: the change after it comes again, and none is missed.
    let filter = CacheWatchFilter::Key("user:1".into());
    let mut again = client
        .watch_cache("acme", "prod", "presence", filter, Some(offset + 1))
        .await?;
    match tokio::time::timeout(LIMIT, again.recv()).await? {
        Some(CacheWatchItem::Change(change)) => assert_eq!(change, seen[1]),
        other => panic!("{other:?}"),
    }
    Ok(())
}

async fn streams(client: &ClusterClient) -> Result<()> {
    let first = client
        .publish("acme", "prod", "events", b"a".to_vec(), AckMode::PerMessage)
        .await?;
    assert_eq!(first, Some(0));
    assert_eq!(
        client
            .publish("acme", "prod", "events", b"b".to_vec(), AckMode::None)
            .await?,
        None
    );
    let batch = vec![b"c".to_vec(), b"d".to_vec()];
    assert_eq!(
        client
            .publish_batch("acme", "prod", "events", batch, AckMode::PerBatch)
            .await?,
        Some(2)
    );

    let record = vec![b"e".to_vec()];
    let answer = client
        .publish_if("acme", "prod", "events", Some(b"key"), record.clone(), 4)
        .await?;
    assert_eq!(answer, ConditionalWrite::Written { offset: 4 });
    match client.publish_if("acme", "prod", "events", None, record, 4).await? {
        ConditionalWrite::Refused { tail } => assert_eq!(tail, 5),
        ConditionalWrite::Written { offset } => panic!("written at {offset}"),
    }
    Ok(())
}

async fn commits(client: &ClusterClient) -> Result<()> {
    let ops = || {
        vec![
            CommitOp::publish("match-events", r#"{"tick":120}"#),
            CommitOp::put("match-events", "score", r#"{"red":3,"blue":1}"#),
            CommitOp::delete("match-events", "draft"),
        ]
    };
    let nothing = client
        .state_get("acme", "games", "match-events", b"match-7", "score")
        .await?;
    assert_eq!(
        nothing,
        StateValue {
            value: None,
            version: None,
            as_of: None
        }
    );
    let answer = client.commit_if("acme", "games", b"match-7", ops(), 0).await?;
    assert_eq!(answer, ConditionalWrite::Written { offset: 0 });
    let answer = client.commit_if("acme", "games", b"match-7", ops(), 0).await?;
    assert_eq!(answer, ConditionalWrite::Refused { tail: 1 });

    let state = client
        .state_get("acme", "games", "match-events", b"match-7", "score")
        .await?;
    assert_eq!(state.value.as_deref(), Some(&br#"{"red":3,"blue":1}"#[..]));
    assert_eq!((state.version, state.as_of), (Some(0), Some(1)));
    let other = client
        .state_get("acme", "games", "match-events", b"match-8", "score")
        .await?;
    assert_eq!((other.value, other.as_of), (None, Some(1)));

    let err = client
        .commit_if("acme", "games", b"match-7", vec![], 1)
        .await
        .unwrap_err();
    let typed = err.downcast_ref::<tenure_client::Error>().expect("errors are typed");
    assert_eq!(typed.outcome(), tenure_client::Outcome::NotApplied);
    Ok(())
}
