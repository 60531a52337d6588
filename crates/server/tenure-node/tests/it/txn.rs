//! Transactions: one branch, whole or not at all.

use bytes::Bytes;
use tenure_api::ErrorCode;
use tenure_api::v1::refusal::Detail;
use tenure_api::v1::txn_guard::{CounterGuard, KeyGuard, Kind as GuardKind, StreamTailGuard};
use tenure_api::v1::txn_operation::{self, Kind as OperationKind};
use tenure_api::v1::{self, txn_reply, txn_result};

use crate::streams_door::{Door, STREAM, numbered, records, refused, says};
use crate::support::{CACHE, TestNode};

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn operation(kind: OperationKind) -> v1::TxnOperation {
    v1::TxnOperation { kind: Some(kind) }
}

fn put_of(key: &str, value: Bytes) -> v1::TxnOperation {
    operation(OperationKind::Put(Box::new(txn_operation::Put {
        cache: CACHE.to_owned(),
        key: bytes(key),
        value,
        ..Default::default()
    })))
}

fn put(key: &str, value: &str) -> v1::TxnOperation {
    put_of(key, bytes(value))
}

fn get(key: &str) -> v1::TxnOperation {
    operation(OperationKind::Get(Box::new(txn_operation::Get {
        cache: CACHE.to_owned(),
        key: bytes(key),
    })))
}

fn delete(key: &str) -> v1::TxnOperation {
    operation(OperationKind::Delete(Box::new(txn_operation::Delete {
        cache: CACHE.to_owned(),
        key: bytes(key),
    })))
}

fn add(key: &str, delta: i64) -> v1::TxnOperation {
    operation(OperationKind::Add(Box::new(txn_operation::Add {
        cache: CACHE.to_owned(),
        key: bytes(key),
        delta,
        ttl_ms: None,
    })))
}

fn append_to(append: v1::Append) -> v1::TxnOperation {
    operation(OperationKind::Append(Box::new(txn_operation::AppendTo {
        stream: STREAM.to_owned(),
        append: Some(append),
    })))
}

fn guard(kind: GuardKind) -> v1::TxnGuard {
    v1::TxnGuard { kind: Some(kind) }
}

fn key_is(key: &str, condition: v1::guard::Condition) -> v1::TxnGuard {
    guard(GuardKind::Key(Box::new(KeyGuard {
        cache: CACHE.to_owned(),
        key: bytes(key),
        guard: Some(v1::Guard {
            condition: Some(condition),
        }),
    })))
}

fn counter_is(key: &str, min: Option<i64>, max: Option<i64>) -> v1::TxnGuard {
    guard(GuardKind::Counter(Box::new(CounterGuard {
        cache: CACHE.to_owned(),
        key: bytes(key),
        min,
        max,
    })))
}

fn tail_is(tail: u64) -> v1::TxnGuard {
    guard(GuardKind::StreamTail(Box::new(StreamTailGuard {
        stream: STREAM.to_owned(),
        tail,
    })))
}

fn txn(guards: Vec<v1::TxnGuard>, then: Vec<v1::TxnOperation>, otherwise: Vec<v1::TxnOperation>) -> v1::TxnRequest {
    v1::TxnRequest {
        guards,
        then,
        otherwise,
        ..Default::default()
    }
}

/// A node with the cache and the stream.
async fn started() -> (TestNode, Door) {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    door.create(v1::StreamSettings::default()).await;
    (node, door)
}

async fn run(door: &mut Door, request: v1::TxnRequest) -> v1::TxnDone {
    let reply = door.txns.execute(request).await.expect("answered").into_inner();
    match reply.verdict {
        Some(txn_reply::Verdict::Done(done)) => done,
        other => panic!("not done: {other:?}"),
    }
}

fn kinds(done: v1::TxnDone) -> Vec<txn_result::Kind> {
    let kind = |result: v1::TxnResult| result.kind.expect("a result");
    done.results.into_iter().map(kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_in_a_branch_happens_in_order_at_one_revision() {
    let (node, mut door) = started().await;
    let old = door.put("old", bytes("x")).await;
    let then = vec![
        put("new", "1"),
        get("new"),
        add("count", 5),
        get("count"),
        delete("old"),
        get("old"),
        append_to(records(["a", "b"])),
        get("never"),
        delete("never"),
    ];
    let done = run(&mut door, txn(Vec::new(), then, Vec::new())).await;
    assert_eq!((done.applied, done.failed_guard), (true, None));
    let revision = done.revision.expect("something changed");
    let written = v1::KeyValue {
        key: bytes("new"),
        value: bytes("1"),
        version: revision,
        created: revision,
        owner_session: None,
        remaining_us: None,
    };
    let count = v1::KeyValue {
        key: bytes("count"),
        value: bytes("5"),
        ..written.clone()
    };
    let got = |key| txn_result::Kind::Got(txn_result::GetDone { key });
    let removal = v1::delete_done::Removal { revision, version: old };
    let expected = [
        txn_result::Kind::Put(v1::PutDone {
            version: revision,
            created: revision,
        }),
        got(Some(written)),
        txn_result::Kind::Added(v1::AddDone {
            sum: 5,
            version: revision,
            created: revision,
        }),
        got(Some(count)),
        txn_result::Kind::Deleted(v1::DeleteDone { removed: Some(removal) }),
        got(None),
        txn_result::Kind::Appended(v1::AppendDone {
            first: 0,
            count: 2,
            duplicate: false,
        }),
        got(None),
        txn_result::Kind::Deleted(v1::DeleteDone { removed: None }),
    ];
    assert_eq!(kinds(done), expected);
    assert_eq!((door.value("old").await, door.stream().await.tail), (None, 2));
    // Reading changes nothing, so it has no revision.
    let done = run(&mut door, txn(Vec::new(), vec![get("new")], Vec::new())).await;
    assert_eq!((done.applied, done.revision), (true, None));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_guard_chooses_the_branch_and_the_first_that_fails_is_named() {
    use v1::guard::Condition;
    let (node, mut door) = started().await;
    let version = door.put("k", bytes("v")).await;
    door.put("n", bytes("-7")).await;
    door.append(records(["a"])).await;
    let session = door.open(1, Some(60_000)).await;
    let alive = |id| guard(GuardKind::SessionAlive(id));
    let holds = [
        key_is("k", Condition::Version(version)),
        key_is("k", Condition::Value(bytes("v"))),
        key_is("k", Condition::Present(true)),
        key_is("k", Condition::Created(version)),
        key_is("none", Condition::Absent(true)),
        counter_is("n", Some(-7), Some(-7)),
        counter_is("n", None, None),
        counter_is("none", Some(0), Some(0)),
        tail_is(1),
        alive(session.id),
    ];
    let fails = [
        key_is("k", Condition::Version(version + 1)),
        key_is("k", Condition::Absent(true)),
        counter_is("n", Some(-6), None),
        counter_is("n", None, Some(-8)),
        tail_is(0),
        alive(session.id + 1),
    ];
    let request = txn(holds.to_vec(), vec![add("then", 1)], vec![add("otherwise", 1)]);
    assert!(run(&mut door, request).await.applied);
    for fails in fails {
        let guards = [&holds[..2], &[fails]].concat();
        let done = run(&mut door, txn(guards, vec![add("then", 1)], vec![add("otherwise", 1)])).await;
        assert_eq!((done.applied, done.failed_guard), (false, Some(2)));
        assert!(done.revision.is_some());
    }
    assert_eq!(door.value("then").await, Some(bytes("1")));
    assert_eq!(door.value("otherwise").await, Some(bytes("6")));
    let not_a_counter = txn(vec![counter_is("k", None, None)], Vec::new(), Vec::new());
    assert_eq!(
        refused(door.txns.execute(not_a_counter).await),
        says(ErrorCode::WrongType, "value")
    );
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_guarded_by_a_session_is_not_done_once_the_session_has_ended() {
    let (node, mut door) = started().await;
    let session = door.open(1, Some(60_000)).await;
    let publish = || {
        let alive = guard(GuardKind::SessionAlive(session.id));
        txn(vec![alive], vec![append_to(records(["result"]))], Vec::new())
    };
    assert!(run(&mut door, publish()).await.applied);
    door.close(session.clone()).await;
    let done = run(&mut door, publish()).await;
    assert_eq!((done.applied, done.failed_guard, done.revision), (false, Some(0), None));
    assert_eq!(door.stream().await.tail, 1);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_append_refuses_the_whole_and_nothing_is_done() {
    let (node, mut door) = started().await;
    let sealed = v1::Append {
        fence_token: Some(5),
        ..records(["a"])
    };
    door.append(sealed).await;
    let stale = v1::Append {
        fence_token: Some(4),
        ..records(["b"])
    };
    let misplaced = v1::Append {
        expected_offset: Some(7),
        ..records(["b"])
    };
    for (append, detail) in [(stale, Detail::StaleToken(5)), (misplaced, Detail::WrongTail(1))] {
        let request = txn(Vec::new(), vec![put("k", "v"), append_to(append)], Vec::new());
        let reply = door.txns.execute(request).await.expect("answered").into_inner();
        let Some(txn_reply::Verdict::Refused(refusal)) = reply.verdict else {
            panic!("not refused")
        };
        assert_eq!(refusal.detail, Some(detail));
    }
    // Nor is anything done if an operation fails.
    door.put("text", bytes("x")).await;
    let request = txn(Vec::new(), vec![put("k", "v"), add("text", 1)], Vec::new());
    assert_eq!(
        refused(door.txns.execute(request).await),
        says(ErrorCode::WrongType, "value")
    );
    assert_eq!((door.value("k").await, door.stream().await.tail), (None, 1));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_over_a_bound_is_refused_and_one_at_the_bound_is_done() {
    let (node, mut door) = started().await;
    let many = |count: usize| (0..count).map(|key| put(&format!("k{key}"), "v")).collect::<Vec<_>>();
    let guards = vec![key_is("none", v1::guard::Condition::Absent(true)); 28];
    let reads = vec![get("x"); 40];
    let items = says(ErrorCode::Limit, "guards and operations of a transaction 128");
    let request = txn(guards.clone(), many(61), reads.clone());
    assert_eq!(refused(door.txns.execute(request).await), items);
    assert_eq!(door.value("k0").await, None);
    assert!(run(&mut door, txn(guards, many(60), reads)).await.applied);
    // The key is counted with the value, and both branches count.
    let half = |key: &str, bytes| put_of(key, Bytes::from(vec![0; bytes]));
    let bound = says(ErrorCode::Limit, "bytes of a transaction 2097152");
    let request = txn(Vec::new(), vec![half("a", 1 << 20)], vec![half("b", (1 << 20) - 1)]);
    assert_eq!(refused(door.txns.execute(request).await), bound);
    assert_eq!(door.value("a").await, None);
    let request = txn(Vec::new(), vec![half("a", 1 << 20)], vec![half("b", (1 << 20) - 2)]);
    assert!(run(&mut door, request).await.applied);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_over_a_mebibyte_are_refused_before_anything_is_written() {
    let (node, mut door) = started().await;
    door.put("a", Bytes::from(vec![0; 600_000])).await;
    door.put("b", Bytes::from(vec![0; 600_000])).await;
    let request = txn(Vec::new(), vec![put("k", "v"), get("a"), get("b")], Vec::new());
    let (code, _) = refused(door.txns.execute(request).await);
    assert_eq!(code, ErrorCode::Limit);
    assert_eq!(door.value("k").await, None);
    // What is read as it was just written counts as it is then.
    let request = txn(Vec::new(), vec![put("b", "short"), get("a"), get("b")], Vec::new());
    assert!(run(&mut door, request).await.applied);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_in_a_transaction_is_named_with_its_place() {
    let (node, mut door) = started().await;
    let of_key = |key_guard| txn(vec![guard(GuardKind::Key(Box::new(key_guard)))], Vec::new(), Vec::new());
    let unguarded = KeyGuard {
        cache: CACHE.to_owned(),
        key: bytes("k"),
        guard: None,
    };
    let unset = KeyGuard {
        guard: Some(v1::Guard { condition: None }),
        ..unguarded.clone()
    };
    let then = |operations| txn(Vec::new(), operations, Vec::new());
    let long = operation(OperationKind::Get(Box::new(txn_operation::Get {
        cache: CACHE.to_owned(),
        key: Bytes::from(vec![1; 4_097]),
    })));
    let tokenless = v1::Append {
        fence_token: Some(0),
        ..records(["a"])
    };
    let no_append = operation(OperationKind::Append(Box::new(txn_operation::AppendTo {
        stream: STREAM.to_owned(),
        append: None,
    })));
    let no_ttl = operation(OperationKind::Add(Box::new(txn_operation::Add {
        cache: CACHE.to_owned(),
        key: bytes("k"),
        delta: 1,
        ttl_ms: Some(0),
    })));
    let twice = then(vec![append_to(records(["a"])), append_to(records(["b"]))]);
    let cases = [
        (
            txn(vec![v1::TxnGuard { kind: None }], Vec::new(), Vec::new()),
            "guards[0].kind",
        ),
        (of_key(unguarded), "guards[0].key.guard"),
        (of_key(unset), "guards[0].key.guard"),
        (then(vec![get("k"), v1::TxnOperation { kind: None }]), "then[1].kind"),
        (then(vec![put("", "v")]), "then[0].put.key"),
        (then(vec![append_to(tokenless)]), "then[0].append.fence_token"),
        (then(vec![no_append]), "then[0].append.append"),
        (then(vec![no_ttl]), "then[0].add.ttl_ms"),
        (then(vec![put("k", "v"), get("k"), add("k", 1)]), "then[2]"),
        (
            txn(Vec::new(), Vec::new(), vec![delete("k"), delete("k")]),
            "otherwise[1]",
        ),
        (twice, "then[1]"),
    ];
    for (request, field) in cases {
        assert_eq!(
            refused(door.txns.execute(request).await),
            says(ErrorCode::Invalid, field)
        );
    }
    assert_eq!(
        refused(door.txns.execute(then(vec![long])).await),
        says(ErrorCode::Limit, "key bytes 4096")
    );
    assert_eq!((door.value("k").await, door.stream().await.tail), (None, 0));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_finds_nothing_in_what_does_not_exist() {
    let (node, mut door) = started().await;
    let in_cache = operation(OperationKind::Get(Box::new(txn_operation::Get {
        cache: "nosuch".to_owned(),
        key: bytes("k"),
    })));
    let in_stream = guard(GuardKind::StreamTail(Box::new(StreamTailGuard {
        stream: "nosuch".to_owned(),
        tail: 0,
    })));
    let elsewhere = v1::TxnRequest {
        scope: Some(v1::Scope {
            tenant: "acme".to_owned(),
            namespace: "nowhere".to_owned(),
        }),
        ..txn(Vec::new(), vec![get("k")], Vec::new())
    };
    let cases = [
        (txn(Vec::new(), vec![put("k", "v"), in_cache], Vec::new()), "cache"),
        (txn(vec![in_stream], vec![put("k", "v")], Vec::new()), "stream"),
        (elsewhere, "namespace"),
    ];
    for (request, kind) in cases {
        assert_eq!(
            refused(door.txns.execute(request).await),
            says(ErrorCode::NotFound, kind)
        );
    }
    assert_eq!(door.value("k").await, None);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_transaction_returns_the_first_answer_whatever_its_guards_would_say_now() {
    let (node, mut door) = started().await;
    let session = door.open(1, None).await;
    for (request, key) in [(numbered(&session, 1), "a"), (door.one_shot(3).await, "b")] {
        let claim = v1::TxnRequest {
            request,
            ..txn(
                vec![key_is(key, v1::guard::Condition::Absent(true))],
                vec![put(key, "mine"), append_to(records(["claimed"]))],
                vec![get(key)],
            )
        };
        let first = door.txns.execute(claim.clone()).await.expect("answered").into_inner();
        door.put(key, bytes("theirs")).await;
        let again = door.txns.execute(claim.clone()).await.expect("answered").into_inner();
        assert_eq!((first.repeated, again.repeated), (false, true));
        assert_eq!(first.verdict, again.verdict);
        let other = v1::TxnRequest {
            otherwise: Vec::new(),
            ..claim
        };
        assert_eq!(refused(door.txns.execute(other).await).0, ErrorCode::RequestReused);
    }
    assert_eq!(door.stream().await.tail, 2);
    assert_eq!(door.value("a").await, Some(bytes("theirs")));
    node.node.stop().await;
}
