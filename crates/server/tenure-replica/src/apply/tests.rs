//! A panic stops the group by name, a snapshot brings its time with it, and what takes long is applied elsewhere.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use openraft::RaftSnapshotBuilder;
use openraft::storage::RaftStateMachine;

use tenure_core::command::{CacheSettings, Command, Entry, Origin, Request};
use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, Namespace, Nonce, ObjectName, Revision, Secret};
use tenure_core::limits::ENDED_PER_ENTRY_USUAL;
use tenure_core::query::Query;
use tenure_core::response::{Done, Response};
use tenure_core::time::{Span, Timestamp};
use tenure_storage::disk::RecordingDisk;
use tenure_storage::feed::FeedLimits;
use tenure_storage::log::WriterMode;
use tenure_storage::mem::MemEngine;

use crate::effects::EffectSink;
use crate::error::{Outcome, Unavailable};
use crate::machine_adapter::QUICK;
use crate::raft_types::{EntryData, LogEntry, log_id};
use crate::replica::{Parts, Replica, ReplicaOptions, assemble};
use crate::snapshot_adapter::SnapshotData;
use crate::suite;

#[derive(Default)]
struct Heard {
    stopped: Mutex<Vec<String>>,
    resets: Mutex<Vec<Revision>>,
}

impl EffectSink for Heard {
    fn applied(&self, _group: GroupId, _effects: &[Effect], _revision: Revision, _time: Timestamp) {}

    fn reset(&self, _group: GroupId, revision: Revision) {
        self.resets.lock().unwrap().push(revision);
    }

    fn stopped(&self, _group: GroupId, why: &str) {
        self.stopped.lock().unwrap().push(why.to_owned());
    }
}

fn options(heard: &Arc<Heard>) -> ReplicaOptions {
    let engine = MemEngine::new(FeedLimits::default());
    let disk = Arc::new(RecordingDisk::new());
    let mut options = suite::options(disk, Path::new("/log"), WriterMode::Inline, &engine);
    options.sink = heard.clone();
    options
}

fn request(command: Command) -> Request {
    Request {
        origin: Origin::Anonymous,
        command,
    }
}

fn open(number: u128, ttl: Option<Span>) -> Request {
    request(Command::OpenSession {
        nonce: Nonce(number),
        secret: Secret(number),
        ttl,
        label: "poison".into(),
        namespace: namespace(),
    })
}

fn namespace() -> Namespace {
    Namespace {
        tenant: "acme".into(),
        name: "prod".into(),
    }
}

fn cache() -> ObjectName {
    ObjectName {
        namespace: namespace(),
        name: "things".into(),
    }
}

#[tokio::test]
async fn a_panic_in_apply_stops_the_group_and_names_the_entry() {
    let heard = Arc::new(Heard::default());
    let replica = Replica::open(options(&heard)).await.unwrap();
    replica.look_before_apply(|entry| {
        let poisoned = entry
            .requests
            .iter()
            .any(|request| matches!(request.command, Command::OpenSession { .. }));
        assert!(!poisoned, "poison");
    });
    replica.found().await.unwrap();
    replica.wait_until_ready(Duration::from_secs(10)).await.unwrap();
    let taken = replica
        .propose(request(Command::TakeBlock { first: 1 }), None)
        .await
        .unwrap();
    assert_eq!(taken.response, Response::Done(Done::BlockTaken { taken: true }));
    let index = replica.status().last_index.unwrap() + 1;

    let in_flight = replica.propose(open(1, None), None).await.unwrap_err();
    assert_eq!(in_flight.outcome(), Outcome::Unknown, "{in_flight}");
    let later = replica
        .propose(request(Command::TakeBlock { first: 1 << 30 }), None)
        .await
        .unwrap_err();
    assert!(matches!(later, Unavailable::Stopped { proposed: false, .. }));
    assert!(replica.read_index().await.is_err());
    let query = Query::Caches(namespace());
    assert!(matches!(replica.query(&query), Err(Unavailable::Stopped { .. })));
    let stopped = heard.stopped.lock().unwrap().clone();
    assert_eq!(
        stopped,
        [format!("entry {index} (1 open-session) cannot be applied: poison")]
    );
    assert_eq!(replica.status().stopped.as_deref(), Some(stopped[0].as_str()));
}

#[tokio::test]
async fn what_a_panic_says_of_values_is_told_nobody() {
    let heard = Arc::new(Heard::default());
    let replica = Replica::open(options(&heard)).await.unwrap();
    replica.look_before_apply(|entry| {
        if entry.requests.len() == 1
            && let Command::OpenSession { secret, .. } = &entry.requests[0].command
        {
            panic!("the secret is {}", secret.0);
        }
    });
    replica.found().await.unwrap();
    replica.wait_until_ready(Duration::from_secs(10)).await.unwrap();
    let index = replica.status().last_index.unwrap() + 1;
    replica.propose(open(4711, None), None).await.unwrap_err();
    let stopped = heard.stopped.lock().unwrap().clone();
    let said = format!("entry {index} (1 open-session) cannot be applied: a panic, whose message is on standard error");
    assert_eq!(stopped, [said]);
}

#[tokio::test]
async fn an_entry_that_cannot_be_applied_again_costs_an_opening_of_its_group_only() {
    let heard = Arc::new(Heard::default());
    let first = options(&heard);
    let second = || {
        let parts = (first.log.clone(), first.state.clone());
        ReplicaOptions::new(
            first.group,
            first.kind,
            first.node,
            parts,
            first.runtime.clone(),
            heard.clone(),
        )
    };
    let replica = Replica::open(second()).await.unwrap();
    replica.found().await.unwrap();
    replica.wait_until_ready(Duration::from_secs(10)).await.unwrap();
    let status = replica.status();
    replica.shutdown().await;
    drop(replica);
    let id = log_id(status.term, status.last_index.unwrap() + 1);
    let data = EntryData {
        stamp: Timestamp(u64::MAX >> 1),
        bytes: bytes::Bytes::from_static(b"\xffnonsense"),
    };
    let unreadable = LogEntry {
        log_id: id,
        payload: openraft::EntryPayload::Normal(data),
    };
    let bytes = crate::raft_types::encode_entry(&unreadable);
    first
        .log
        .append(vec![(id.index, bytes)], Box::new(|done| done.unwrap()));
    first
        .log
        .save_committed(crate::raft_types::encode_log_id(Some(id)))
        .unwrap();

    let error = Replica::open(second()).await.expect_err("it cannot be applied");
    assert!(error.is_of_the_group(), "{error}");
    let named = format!("entry {} cannot be read", id.index);
    assert!(error.to_string().contains(&named), "{error}");
}

#[tokio::test]
async fn behind_an_entry_that_stopped_its_group_nothing_is_applied() {
    let heard = Arc::new(Heard::default());
    let parts = assemble(&options(&heard)).unwrap();
    let _ = parts.applier.before_apply.set(Box::new(|_| panic!("poison")));
    let poisoned = entry(
        3,
        9,
        vec![request(Command::TakeBlock { first: 1 }), open(1, None), open(2, None)],
    );
    let why = parts.applier.apply_all(vec![(poisoned, None)]).unwrap_err();
    assert_eq!(why, "entry 3 (2 open-session, 1 take-block) cannot be applied: poison");
    let next = entry(4, 10, vec![]);
    assert_eq!(parts.applier.apply_all(vec![(next, None)]).unwrap_err(), why);
    assert_eq!(parts.applier.applied().last, None);
}

#[tokio::test]
async fn a_row_that_does_not_decode_stops_its_group_when_it_is_read() {
    let heard = Arc::new(Heard::default());
    let parts = assemble(&options(&heard)).unwrap();
    let create = Command::CreateCache {
        name: cache(),
        settings: CacheSettings { replication: 1 },
    };
    let requests = vec![request(Command::TakeBlock { first: 1 }), request(create)];
    parts.applier.apply_all(vec![(entry(3, 9, requests), None)]).unwrap();
    let spoiled = parts
        .applier
        .state
        .read(|table| {
            let mut writes = tenure_core::table::Writes::new();
            table.scan(&[], &[0xff; 8], &mut |key, _| {
                writes.insert(key.to_vec(), Some(bytes::Bytes::from_static(b"\xffspoiled")));
                tenure_core::table::Visit::Continue(())
            });
            writes
        })
        .unwrap();
    let mut mark = parts.applier.state.applied().unwrap();
    mark.index += 1;
    parts
        .applier
        .state
        .commit(spoiled, Vec::new(), Timestamp(9), mark)
        .unwrap();
    assert!(parts.applier.query(&Query::Caches(namespace())).is_none());
    let stopped = heard.stopped.lock().unwrap().clone();
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert!(stopped[0].starts_with("the state cannot be read: "), "{stopped:?}");
    assert!(!stopped[0].contains("spoiled"), "{stopped:?}");
}

fn entry(index: u64, stamp: u64, requests: Vec<Request>) -> LogEntry {
    let stamp = Timestamp(stamp);
    let bytes = tenure_core::codec::encode_entry(&Entry {
        stamp,
        keep_alives: Vec::new(),
        requests,
    });
    LogEntry {
        log_id: log_id(1, index),
        payload: openraft::EntryPayload::Normal(EntryData { stamp, bytes }),
    }
}

#[tokio::test]
async fn a_replica_that_installs_a_snapshot_is_on_its_line_and_says_so() {
    let giver = assemble(&options(&Arc::new(Heard::default()))).unwrap();
    let stamp = 77_000_000;
    let requests = vec![
        request(Command::TakeBlock { first: 1 }),
        open(5, Some(Span::from_secs(1_000))),
    ];
    giver
        .applier
        .apply_all(vec![(entry(4, stamp, requests), None)])
        .unwrap();
    let mut machine = giver.machine;
    let built = machine
        .try_create_snapshot_builder(true)
        .await
        .unwrap()
        .build_snapshot()
        .await
        .unwrap();
    let bytes = SnapshotData::Bytes(built.snapshot.into_bytes().unwrap());

    let heard = Arc::new(Heard::default());
    let Parts {
        shared,
        applier,
        mut machine,
        ..
    } = assemble(&options(&heard)).unwrap();
    assert!(shared.time.now() < Timestamp(stamp));
    machine.install_snapshot(&built.meta, bytes).await.unwrap();
    let now = shared.time.now();
    assert!(now >= Timestamp(stamp) && now < Timestamp(stamp) + Span::from_secs(10));
    assert_eq!(applier.applied().last, Some(log_id(1, 4)));
    assert_eq!(*heard.resets.lock().unwrap(), [giver.shared.progress.borrow().revision]);
    // It goes on from there as the giver does.
    let next = |applier: &super::Applier| {
        applier
            .apply_all(vec![(entry(5, stamp + 1, vec![open(6, None)]), None)])
            .unwrap();
        applier.shared.progress.borrow().revision
    };
    assert_eq!(next(&applier), next(&giver.applier));
}

#[tokio::test]
async fn a_broken_snapshot_changes_nothing() {
    let giver = assemble(&options(&Arc::new(Heard::default()))).unwrap();
    giver
        .applier
        .apply_all(vec![(
            entry(4, 9, vec![request(Command::TakeBlock { first: 1 })]),
            None,
        )])
        .unwrap();
    let mut machine = giver.machine;
    let built = machine
        .try_create_snapshot_builder(true)
        .await
        .unwrap()
        .build_snapshot()
        .await
        .unwrap();
    let mut bytes = built.snapshot.into_bytes().unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;

    let Parts {
        shared,
        applier,
        mut machine,
        ..
    } = assemble(&options(&Arc::new(Heard::default()))).unwrap();
    assert!(
        machine
            .install_snapshot(&built.meta, SnapshotData::Bytes(bytes))
            .await
            .is_err()
    );
    assert_eq!(applier.applied().last, None);
    assert_eq!(shared.stopped(), None);
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_stops_the_group() {
    let heard = Arc::new(Heard::default());
    let parts = assemble(&options(&heard)).unwrap();
    let data = EntryData {
        stamp: Timestamp(1),
        bytes: bytes::Bytes::from_static(b"\xffnonsense"),
    };
    let unreadable = LogEntry {
        log_id: log_id(1, 8),
        payload: openraft::EntryPayload::Normal(data),
    };
    assert!(parts.applier.apply_all(vec![(unreadable, None)]).is_err());
    assert!(heard.stopped.lock().unwrap()[0].starts_with("entry 8 cannot be read"));
}

#[tokio::test]
async fn an_entry_with_two_stamps_stops_the_group() {
    let heard = Arc::new(Heard::default());
    let parts = assemble(&options(&heard)).unwrap();
    let mut torn = entry(8, 5, vec![]);
    if let openraft::EntryPayload::Normal(data) = &mut torn.payload {
        data.stamp = Timestamp(6);
    }
    assert!(parts.applier.apply_all(vec![(torn, None)]).is_err());
    assert_eq!(
        *heard.stopped.lock().unwrap(),
        ["entry 8 is stamped 6 in the log and 5 in itself"]
    );
    assert_eq!(parts.applier.applied().last, None);
}

/// A group whose only cache was deleted, and most of whose keys are still to be swept.
fn half_swept(options: &ReplicaOptions) -> Parts {
    let parts = assemble(options).unwrap();
    let create = Command::CreateCache {
        name: cache(),
        settings: CacheSettings { replication: 1 },
    };
    let keys = (0..2 * ENDED_PER_ENTRY_USUAL).map(|number| {
        request(Command::Put {
            cache: cache(),
            key: number.to_string().into(),
            value: "v".into(),
            ttl: None,
            guard: None,
            owner: None,
        })
    });
    let delete = request(Command::DeleteCache { name: cache() });
    let requests = [request(Command::TakeBlock { first: 1 }), request(create)];
    let entries = [requests.into_iter().chain(keys).collect(), vec![delete]];
    for (index, requests) in (1..).zip(entries) {
        parts
            .applier
            .apply_all(vec![(entry(index, 9, requests), None)])
            .unwrap();
    }
    assert!(parts.shared.progress.borrow().more_due);
    parts
}

#[tokio::test]
async fn due_work_that_is_left_is_known_after_an_opening_and_after_an_install() {
    let swept = options(&Arc::new(Heard::default()));
    let mut giver = half_swept(&swept);
    let again = assemble(&swept).unwrap();
    assert!(again.shared.progress.borrow().more_due, "after an opening");

    let builder = giver.machine.try_create_snapshot_builder(true).await.unwrap();
    let built = { builder }.build_snapshot().await.unwrap();
    let bytes = SnapshotData::Bytes(built.snapshot.into_bytes().unwrap());
    let mut taker = assemble(&options(&Arc::new(Heard::default()))).unwrap();
    taker.machine.install_snapshot(&built.meta, bytes).await.unwrap();
    assert!(taker.shared.progress.borrow().more_due, "after an install");
    // Ticks sweep what is left.
    for index in 3..9 {
        taker.applier.apply_all(vec![(entry(index, 9, vec![]), None)]).unwrap();
    }
    assert!(!taker.shared.progress.borrow().more_due);
}

/// What the next applies are to take, and on which threads they were done.
#[derive(Default)]
struct Threads {
    slow: AtomicBool,
    seen: Mutex<Vec<String>>,
}

impl Threads {
    fn look(&self) {
        let name = thread::current().name().unwrap_or_default().to_owned();
        self.seen.lock().unwrap().push(name);
        if self.slow.load(Ordering::Relaxed) {
            wait_longer_than_quick();
        }
    }

    /// The thread on which a request was applied that is made now.
    async fn of_one(&self, replica: &Replica, first: u64) -> String {
        replica
            .propose(request(Command::TakeBlock { first }), None)
            .await
            .unwrap();
        self.seen.lock().unwrap().pop().expect("it was applied")
    }
}

#[expect(clippy::disallowed_methods, reason = "this apply takes long on purpose")]
fn wait_longer_than_quick() {
    thread::sleep(2 * QUICK);
}

#[tokio::test]
async fn behind_an_apply_that_took_long_the_next_is_done_on_a_thread_of_its_own() {
    let replica = Replica::open(options(&Arc::default())).await.unwrap();
    let threads = Arc::new(Threads::default());
    let looking = threads.clone();
    replica.look_before_apply(move |_| looking.look());
    replica.found().await.unwrap();
    replica.wait_until_ready(Duration::from_secs(10)).await.unwrap();

    threads.slow.store(true, Ordering::Relaxed);
    threads.of_one(&replica, 1).await;
    threads.slow.store(false, Ordering::Relaxed);
    assert_eq!(threads.of_one(&replica, 2).await, "apply-3");

    // On a busy machine anything may take long, but not for ever.
    let here = thread::current().name().unwrap_or_default().to_owned();
    let eventually_here = async { while threads.of_one(&replica, 3).await != here {} };
    tokio::time::timeout(Duration::from_secs(20), eventually_here)
        .await
        .expect("what is quick is applied in place again");
    replica.shutdown().await;
}
