//! Commands, rows and results of counters, prefixes, streams and transactions.

use bytes::Bytes;
use tenure_core::command::{
    Acknowledged, Append, Command, Entry, FenceMode, Guard, Operation, Origin, Request, StreamSettings, Txn, TxnGuard,
};
use tenure_core::ids::{Fingerprint, Incarnation, SessionId, SessionRef};
use tenure_core::keyspace::{HeadRow, MessageIdRow, RecordRow, ResultRow};
use tenure_core::refusal::Refusal;
use tenure_core::response::{Appended, Done, KeyFound, OperationResult, Removed, Response, StreamRecord};
use tenure_core::table::TableRead;
use tenure_core::time::{Span, Timestamp};

use super::{SECOND, is_row, numbered, of, put_in, session};
use crate::lab::{Lab, anonymous, cache, create, secret_of};

#[test]
fn rows_of_a_stream_hold_what_their_page_says() {
    let table = group().table;
    let record = StreamRecord {
        name: cache("events"),
        settings: settings(),
        incarnation: Incarnation(2),
    };
    is_row(&table, b"Aacme\0prod\0events\0", &record);
    let head = HeadRow {
        settings: settings(),
        first: 1,
        tail: 3,
        swept: 0,
        bytes_written: 12,
        bytes_gone: 5,
        first_bytes: 5,
        first_time: Timestamp(2_000_000),
        token: Some(7),
        ids: 2,
        ids_until: Some(Timestamp(62_000_000)),
    };
    is_row(&table, &numbered(b'H', 2), &head);
    let row = RecordRow {
        data: Bytes::from_static(b"first"),
        time: Timestamp(2_000_000),
        token: Some(6),
        revision: 6,
        bytes_before: 0,
    };
    let first = [&numbered(b'E', 2)[..], &0u64.to_be_bytes()].concat();
    is_row(&table, &first, &row);
    let id = MessageIdRow {
        first: 0,
        count: 2,
        until: Timestamp(62_000_000),
    };
    is_row(&table, &[&numbered(b'G', 2)[..], b"m1"].concat(), &id);
    let end = [&numbered(b'U', 2)[..], &62_000_000u64.to_be_bytes(), b"m1"].concat();
    assert_eq!(table.get(&end), Some(Bytes::new()));
    assert_eq!(table.get(&numbered(b'W', 3)), Some(Bytes::new()));
}

#[test]
fn remembered_results_of_a_transaction_hold_what_was_answered() {
    let table = group().table;
    let result = ResultRow {
        fingerprint: Fingerprint(103),
        response: Response::Done(Done::Txn {
            applied: true,
            failed_guard: None,
            revision: Some(9),
            results: vec![
                OperationResult::Put { version: 9, created: 9 },
                OperationResult::Deleted {
                    removed: Some(Removed {
                        revision: 9,
                        version: 5,
                    }),
                },
                OperationResult::Added {
                    sum: -4,
                    version: 9,
                    created: 8,
                },
                OperationResult::Appended(Appended {
                    first: 2,
                    count: 1,
                    duplicate: false,
                }),
                OperationResult::Got(Some(KeyFound {
                    value: Bytes::from_static(b"v"),
                    version: 9,
                    created: 9,
                    owner: Some(SessionId(4)),
                })),
                OperationResult::Got(None),
            ],
        }),
    };
    is_row(&table, &[&numbered(b'Q', 4)[..], &3u64.to_be_bytes()].concat(), &result);
    let refused = ResultRow {
        fingerprint: Fingerprint(105),
        response: Response::Refused(Refusal::StaleToken { current: 7 }),
    };
    is_row(
        &table,
        &[&numbered(b'Q', 4)[..], &5u64.to_be_bytes()].concat(),
        &refused,
    );
}

/// One entry for each command, called after it.
pub(super) fn entries() -> Vec<(&'static str, Entry)> {
    vec![
        ("add", of(additions())),
        ("delete_prefix", of(prefixes())),
        ("txn", of(transactions())),
        ("create_stream", of(creations())),
        (
            "delete_stream",
            of(vec![Command::DeleteStream { name: cache("events") }]),
        ),
        ("append", of(appends())),
        (
            "trim_stream",
            of(vec![Command::TrimStream {
                stream: cache("events"),
                before: 300,
            }]),
        ),
    ]
}

fn additions() -> Vec<Command> {
    [(i64::MIN, None), (5, Some(SECOND))]
        .map(|(delta, ttl)| add("jobs/42", delta, ttl))
        .into()
}

fn prefixes() -> Vec<Command> {
    [&b""[..], b"jobs/"].map(delete_prefix).into()
}

fn transactions() -> Vec<Command> {
    let whole = Txn {
        guards: vec![
            TxnGuard::Key {
                cache: cache("leases"),
                key: Bytes::from_static(b"jobs/42"),
                guard: Guard::Created(299),
            },
            TxnGuard::Counter {
                cache: cache("leases"),
                key: Bytes::from_static(b"n"),
                min: Some(-1),
                max: None,
            },
            TxnGuard::StreamTail {
                stream: cache("events"),
                tail: 300,
            },
            TxnGuard::SessionAlive { session: session().id },
        ],
        then: operations(session()),
        otherwise: vec![get("jobs/42")],
    };
    vec![Command::Txn(Txn::default()), Command::Txn(whole)]
}

fn creations() -> Vec<Command> {
    let plain = StreamSettings {
        retention: None,
        retention_bytes: None,
        fence: FenceMode::Optional,
        dedup_window: Span(0),
        replication: 3,
    };
    [plain, settings()]
        .map(|settings| create_stream("events", settings))
        .into()
}

fn appends() -> Vec<Command> {
    let full = Append {
        records: vec![Bytes::from_static(b"\0\xffdata"), Bytes::new()],
        expected: Some(300),
        token: Some(7),
        message_id: Some(Bytes::from_static(b"m1")),
    };
    let seal = Append {
        token: Some(8),
        ..Append::default()
    };
    [full, seal].map(|it| append("events", it)).into()
}

/// A home group with rows of streams of every kind, and results of every kind that came with them.
pub(super) fn group() -> Lab {
    let mut lab = Lab::home_with_cache();
    let of_gone = StreamSettings {
        fence: FenceMode::Optional,
        ..settings()
    };
    lab.run(
        1_000,
        vec![
            anonymous(create_stream("events", settings())),
            anonymous(create_stream("gone", of_gone)),
            anonymous(crate::lab::open(7, Some(Span::from_secs(100)))),
            anonymous(put_in("leases", "old", "v", None, None)),
        ],
    );
    let owner = SessionRef {
        id: SessionId(4),
        secret: secret_of(7),
    };
    let first = Append {
        records: vec![Bytes::from_static(b"first"), Bytes::from_static(b"later")],
        token: Some(6),
        message_id: Some(Bytes::from_static(b"m1")),
        ..Append::default()
    };
    lab.run(
        2_000,
        vec![
            anonymous(append("events", first.clone())),
            anonymous(append("gone", first.clone())),
        ],
    );
    let requests = remembered(owner, first)
        .into_iter()
        .enumerate()
        .map(|(at, command)| Request {
            origin: Origin::Session {
                session: owner,
                seq: at as u64 + 1,
                acknowledged: Acknowledged::default(),
                fingerprint: Fingerprint(at as u128 + 101),
            },
            command,
        });
    lab.run(3_000, requests.collect());
    lab
}

/// Commands whose results are of every kind.
fn remembered(owner: SessionRef, first: Append) -> Vec<Command> {
    let txn = Command::Txn(Txn {
        then: operations(owner),
        ..Txn::default()
    });
    let stale = Append {
        token: Some(1),
        ..Append::default()
    };
    let other_tail = Append {
        token: Some(9),
        expected: Some(99),
        ..Append::default()
    };
    vec![
        create_stream("events", settings()),
        add("n", -9, None),
        txn,
        append("events", first),
        append("events", stale),
        append("events", other_tail),
        create_stream("gone", settings()),
        delete_prefix(b"nothing"),
        add("jobs/42", 1, None),
        create("events", 1),
        Command::TrimStream {
            stream: cache("events"),
            before: 1,
        },
        Command::DeleteStream { name: cache("gone") },
    ]
}

/// What one transaction can do: it writes, deletes, adds, appends, and reads what is there and what is not.
fn operations(owner: SessionRef) -> Vec<Operation> {
    vec![
        Operation::Put {
            cache: cache("leases"),
            key: Bytes::from_static(b"jobs/42"),
            value: Bytes::from_static(b"v"),
            ttl: Some(SECOND),
            owner: Some(owner),
        },
        Operation::Delete {
            cache: cache("leases"),
            key: Bytes::from_static(b"old"),
        },
        Operation::Add {
            cache: cache("leases"),
            key: Bytes::from_static(b"n"),
            delta: 5,
            ttl: None,
        },
        Operation::Append {
            stream: cache("events"),
            append: Append {
                records: vec![Bytes::from_static(b"in")],
                expected: None,
                token: Some(7),
                message_id: Some(Bytes::from_static(b"m2")),
            },
        },
        get("jobs/42"),
        get("old"),
    ]
}

fn settings() -> StreamSettings {
    StreamSettings {
        retention: Some(Span::from_secs(3_600)),
        retention_bytes: Some(1 << 30),
        fence: FenceMode::Mandatory,
        dedup_window: Span::from_secs(60),
        replication: 1,
    }
}

fn create_stream(name: &str, settings: StreamSettings) -> Command {
    Command::CreateStream {
        name: cache(name),
        settings,
    }
}

fn append(name: &str, append: Append) -> Command {
    Command::Append {
        stream: cache(name),
        append,
    }
}

fn add(key: &str, delta: i64, ttl: Option<Span>) -> Command {
    Command::Add {
        cache: cache("leases"),
        key: Bytes::copy_from_slice(key.as_bytes()),
        delta,
        ttl,
    }
}

fn delete_prefix(prefix: &[u8]) -> Command {
    Command::DeletePrefix {
        cache: cache("leases"),
        prefix: Bytes::copy_from_slice(prefix),
    }
}

fn get(key: &str) -> Operation {
    Operation::Get {
        cache: cache("leases"),
        key: Bytes::copy_from_slice(key.as_bytes()),
    }
}
