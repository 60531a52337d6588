//! How many requests and entries a second one group takes on real files, with real syncs.
//!
//! `cargo run --release -p tenure-replica --example propose_floor [proposers] [seconds]`

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use tenure_core::command::{CacheSettings, Command, Origin, Request};
use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, Namespace, NodeId, ObjectName, Revision};
use tenure_core::machine::GroupKind;
use tenure_core::time::Timestamp;
use tenure_replica::{EffectSink, Replica, ReplicaOptions, Runtime};
use tenure_storage::log::{Log, LogOptions};
use tenure_storage::state::{DiskEngine, DiskOptions, StateEngine};

struct Deaf;

impl EffectSink for Deaf {
    fn applied(&self, _group: GroupId, _effects: &[Effect], _revision: Revision, _time: Timestamp) {}

    fn reset(&self, _group: GroupId, _revision: Revision) {}

    fn stopped(&self, _group: GroupId, why: &str) {
        eprintln!("the group has stopped: {why}");
    }
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse::<u64>().expect("a number"));
    let proposers = arguments.next().unwrap_or(64);
    let seconds = arguments.next().unwrap_or(5);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("tokio starts");
    runtime.block_on(measure(proposers, Duration::from_secs(seconds)));
}

async fn measure(proposers: u64, time: Duration) {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = Runtime::system();
    let options = LogOptions {
        clock: log_clock(&runtime),
        ..LogOptions::default()
    };
    let log = Log::open(
        runtime.disk.clone(),
        &folder.path().join("log"),
        options,
        runtime.log_writer(),
    )
    .expect("a log");
    let (replica, cache) = open(folder.path(), &runtime, &log).await;

    let before = (log.stats(), replica.status().entries_proposed);
    let began = runtime.clock.now();
    let waits = propose_until(began + time, proposers, &replica, &cache, &runtime).await;
    let passed = (runtime.clock.now() - began).as_millis().max(1);

    let after = log.stats();
    let per_second = |count: u64| u128::from(count) * 1_000 / passed;
    let wait_at = |per_mille: usize| waits.get(waits.len() * per_mille / 1_000).copied().unwrap_or_default();
    let syncs = after.syncs - before.0.syncs;
    println!("{proposers} proposers, values of 100 bytes, {passed} ms, synced");
    println!("requests/s {}", per_second(waits.len() as u64));
    println!(
        "entries/s  {}",
        per_second(replica.status().entries_proposed - before.1)
    );
    println!("syncs/s    {}", per_second(syncs));
    println!(
        "sync       {} us on average",
        (after.sync_sum_us - before.0.sync_sum_us) / syncs.max(1)
    );
    println!(
        "wait       p50 {} us, p99 {} us, p99.9 {} us",
        wait_at(500),
        wait_at(990),
        wait_at(999)
    );
    replica.shutdown().await;
}

/// A group with one cache in it.
async fn open(folder: &Path, runtime: &Runtime, log: &Log) -> (Replica, ObjectName) {
    let engine = DiskEngine::open(&folder.join("state"), DiskOptions::default()).expect("a state");
    let group = GroupId(1);
    let parts = (log.group(group), engine.group(group).expect("a group"));
    let options = ReplicaOptions::new(
        group,
        GroupKind::Home,
        NodeId(1),
        parts,
        runtime.clone(),
        Arc::new(Deaf),
    );
    let replica = Replica::open(options).await.expect("a replica");
    replica.found().await.expect("it is founded");
    replica
        .wait_until_ready(Duration::from_secs(10))
        .await
        .expect("it leads");
    let cache = ObjectName {
        namespace: Namespace {
            tenant: "a".into(),
            name: "b".into(),
        },
        name: "c".into(),
    };
    propose(&replica, Command::TakeBlock { first: 1 }).await;
    propose(
        &replica,
        Command::CreateCache {
            name: cache.clone(),
            settings: CacheSettings { replication: 1 },
        },
    )
    .await;
    (replica, cache)
}

/// Puts until that instant, each proposer one after another. Returns how long each waited in microseconds, sorted.
async fn propose_until(
    end: Duration,
    proposers: u64,
    replica: &Replica,
    cache: &ObjectName,
    runtime: &Runtime,
) -> Vec<u128> {
    let waits = Arc::new(Mutex::new(Vec::new()));
    let (sender, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    for worker in 0..proposers {
        let (replica, waits, cache, clock) = (replica.clone(), waits.clone(), cache.clone(), runtime.clock.clone());
        let sender = sender.clone();
        let work = async move {
            let _held = sender;
            let key = Bytes::from(format!("key-{worker}"));
            let value = Bytes::from(vec![7; 100]);
            let mut own_waits = Vec::new();
            while clock.now() < end {
                let asked = clock.now();
                let (cache, key, value) = (cache.clone(), key.clone(), value.clone());
                propose(
                    &replica,
                    Command::Put {
                        cache,
                        key,
                        value,
                        ttl: None,
                        guard: None,
                        owner: None,
                    },
                )
                .await;
                own_waits.push((clock.now() - asked).as_micros());
            }
            waits.lock().expect("no proposer panics").append(&mut own_waits);
        };
        runtime.tasks.spawn("proposer", Box::pin(work));
    }
    drop(sender);
    let _ = ended.recv().await;
    let mut waits = std::mem::take(&mut *waits.lock().expect("no proposer panics"));
    waits.sort_unstable();
    waits
}

async fn propose(replica: &Replica, command: Command) {
    replica
        .propose(
            Request {
                origin: Origin::Anonymous,
                command,
            },
            None,
        )
        .await
        .expect("it is applied");
}

fn log_clock(runtime: &Runtime) -> Arc<dyn Fn() -> Duration + Send + Sync> {
    let clock = runtime.clock.clone();
    Arc::new(move || clock.now())
}
