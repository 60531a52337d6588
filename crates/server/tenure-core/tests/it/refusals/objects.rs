//! The rules of counters, prefixes, streams and transactions.

use bytes::Bytes;
use tenure_core::command::{Append, Command, FenceMode, Operation, StreamSettings, Txn, TxnGuard};
use tenure_core::ids::{Incarnation, ObjectName, SessionRef};
use tenure_core::keyspace::HeadRow;
use tenure_core::limits::{
    APPEND_BYTES_MAX, APPEND_RECORDS_MAX, DEDUP_WINDOW_MAX, MESSAGE_ID_BYTES_MAX, OBJECTS_PER_NAMESPACE_MAX,
    RECORD_BYTES_MAX, SESSION_OWNED_MAX, STREAM_MESSAGE_IDS_MAX, TXN_BYTES_MAX, TXN_ITEMS_MAX, TXN_READ_BYTES_MAX,
    VALUE_BYTES_MAX,
};
use tenure_core::refusal::{EndReason, Failure, Missing, Refusal};
use tenure_core::response::StreamRecord;
use tenure_core::table::Table as _;
use tenure_core::time::{Span, Timestamp};

use super::{HOUR, Row, Rules, Scene, bytes_of_row, no_cache, no_session, nobody, row, scene};
use crate::lab::{Lab, anonymous, cache, create, put, with_wrong_secret};

/// One of every command of these.
pub(super) fn commands() -> Vec<Command> {
    vec![
        add("leases", "counter", 1),
        delete_prefix("leases"),
        Command::Txn(Txn::default()),
        create_stream("log", settings()),
        Command::DeleteStream { name: cache("log") },
        append("log", Append::default()),
        trim("log"),
    ]
}

pub(super) fn add_rules() -> Rules {
    let mut lab = Lab::home_with_cache();
    lab.ask(0, anonymous(put("text", "v")));
    lab.ask(0, anonymous(put("most", &i64::MAX.to_string())));
    lab.ask(0, anonymous(put("least", &i64::MIN.to_string())));
    let invalid = || Failure::Invalid {
        field: "delta".to_owned(),
        rule: "the sum must fit 64 bits with a sign".to_owned(),
    };
    Rules {
        of: "adding to a counter",
        rows: vec![
            row(
                "the cache does not exist",
                anonymous(add("nowhere", "text", i64::MAX)),
                no_cache("nowhere"),
            ),
            row(
                "the key is no counter",
                anonymous(add("leases", "text", i64::MAX)),
                wrong_type(),
            ),
            row("the sum is too high", anonymous(add("leases", "most", 1)), invalid()),
            row("the sum is too low", anonymous(add("leases", "least", -1)), invalid()),
        ],
        ..Rules::at(lab)
    }
}

pub(super) fn delete_prefix_rules() -> Rules {
    Rules {
        of: "deleting by prefix",
        rows: vec![row(
            "the cache does not exist",
            anonymous(delete_prefix("nowhere")),
            no_cache("nowhere"),
        )],
        ..Rules::at(Lab::home_with_cache())
    }
}

pub(super) fn create_stream_rules() -> Rules {
    let mut lab = Lab::home_with_cache();
    lab.ask(0, anonymous(create_stream("log", settings())));
    let more = (2..OBJECTS_PER_NAMESPACE_MAX).map(|number| anonymous(create(&format!("c{number}"), 1)));
    lab.run_many(Timestamp(0), more.collect());
    let broken = StreamSettings {
        retention: Some(Span(0)),
        retention_bytes: Some(0),
        dedup_window: Span(DEDUP_WINDOW_MAX.0 + 1),
        ..settings()
    };
    let with_retention = StreamSettings {
        retention: None,
        ..broken
    };
    let with_bytes = StreamSettings {
        retention_bytes: None,
        ..with_retention
    };
    Rules {
        of: "creating a stream",
        rows: vec![
            row(
                "it exists with other settings",
                anonymous(create_stream("log", broken)),
                Refusal::StreamExistsOtherwise(StreamRecord {
                    name: cache("log"),
                    settings: settings(),
                    incarnation: Incarnation(2),
                }),
            ),
            row(
                "records are to be kept for no time",
                anonymous(create_stream("new", broken)),
                invalid("retention_ms", "from 1 to 315360000000 milliseconds"),
            ),
            row(
                "no bytes are to be kept",
                anonymous(create_stream("new", with_retention)),
                invalid("retention_bytes", "at least 1"),
            ),
            row(
                "message ids are to be known too long",
                anonymous(create_stream("new", with_bytes)),
                invalid("dedup_window_ms", "from 0 to 86400000 milliseconds"),
            ),
            row(
                "its namespace has as many caches and streams as it may have",
                anonymous(create_stream("new", settings())),
                limit("caches and streams of a namespace", OBJECTS_PER_NAMESPACE_MAX),
            ),
        ],
        ..Rules::at(lab)
    }
}

pub(super) fn stream_rules() -> Rules {
    Rules {
        of: "deleting or trimming a stream",
        rows: vec![
            row(
                "it does not exist, though a cache of its name does",
                anonymous(Command::DeleteStream { name: cache("leases") }),
                no_stream("leases"),
            ),
            row(
                "it does not exist, though a cache of its name does",
                anonymous(trim("leases")),
                no_stream("leases"),
            ),
        ],
        ..Rules::at(Lab::home_with_cache())
    }
}

pub(super) fn append_rules() -> Rules {
    let mut lab = Lab::home_with_cache();
    lab.checks_memory = false;
    for (name, dedup_window) in [("log", HOUR), ("forgetful", Span(0))] {
        let settings = StreamSettings {
            fence: FenceMode::Mandatory,
            dedup_window,
            ..settings()
        };
        lab.ask(0, anonymous(create_stream(name, settings)));
        lab.ask(0, anonymous(append(name, fit())));
        // As if it knew as many message ids as it may.
        let incarnation = lab.machine.revision().0 - 1;
        let key = [&b"H"[..], &incarnation.to_be_bytes()].concat();
        let head = HeadRow {
            settings,
            first: 0,
            tail: 1,
            swept: 0,
            bytes_written: 1,
            bytes_gone: 0,
            first_bytes: 1,
            first_time: Timestamp(0),
            token: Some(5),
            ids: STREAM_MESSAGE_IDS_MAX,
            ids_until: Some(Timestamp(HOUR.0)),
        };
        lab.table.put(key, bytes_of_row(&head));
    }
    Rules {
        of: "appending to a stream",
        rows: [append_form_rows(), append_size_rows(), append_state_rows()]
            .into_iter()
            .flatten()
            .collect(),
        ..Rules::at(lab)
    }
}

fn append_form_rows() -> Vec<Row> {
    // What breaks every rule of form, and those of the stream below; each row mends what the row before was about.
    let worst = Append {
        records: vec![Bytes::from(vec![0; RECORD_BYTES_MAX + 1]); APPEND_RECORDS_MAX + 1],
        token: Some(0),
        expected: Some(9),
        message_id: Some(Bytes::from(vec![0; MESSAGE_ID_BYTES_MAX + 1])),
    };
    let row_of =
        |when, append: &Append, failure: Failure| row(when, anonymous(self::append("log", append.clone())), failure);
    let id = Append {
        message_id: Some(Bytes::from_static(b"new")),
        ..worst.clone()
    };
    let empty = Append {
        records: Vec::new(),
        token: None,
        ..id.clone()
    };
    let token_rule = "from 1 to 9223372036854775807";
    vec![
        row(
            "it does not exist",
            anonymous(append("leases", worst.clone())),
            no_stream("leases"),
        ),
        row_of(
            "the message id is too long",
            &worst,
            limit("message id bytes", MESSAGE_ID_BYTES_MAX),
        ),
        row_of(
            "the message id is empty",
            &Append {
                message_id: Some(Bytes::new()),
                ..worst.clone()
            },
            invalid("message_id", "at least 1 byte"),
        ),
        row_of("a token is at least 1", &id, invalid("fence_token", token_rule)),
        row_of(
            "a token fits a signed number",
            &Append {
                token: Some(i64::MAX as u64 + 1),
                ..id.clone()
            },
            invalid("fence_token", token_rule),
        ),
        row_of(
            "there is nothing to append and no token",
            &empty,
            invalid("records", "at least one, or a fencing token to seal with"),
        ),
    ]
}

/// The same for its size.
fn append_size_rows() -> Vec<Row> {
    let row_of = |when, append: Append, failure: Failure| row(when, anonymous(self::append("log", append)), failure);
    let records = |len, count| Append {
        records: vec![Bytes::from(vec![0; len]); count],
        token: Some(4),
        expected: Some(9),
        message_id: Some(Bytes::from_static(b"new")),
    };
    vec![
        row_of(
            "there are too many records",
            records(RECORD_BYTES_MAX + 1, APPEND_RECORDS_MAX + 1),
            limit("records of an append", APPEND_RECORDS_MAX),
        ),
        row_of(
            "a record is too long",
            records(RECORD_BYTES_MAX + 1, 3),
            limit("bytes of a record", RECORD_BYTES_MAX),
        ),
        row_of(
            "all together are too long",
            records(RECORD_BYTES_MAX, 3),
            limit("bytes of an append", APPEND_BYTES_MAX),
        ),
    ]
}

fn append_state_rows() -> Vec<Row> {
    let stale = Append {
        token: Some(4),
        expected: Some(9),
        message_id: Some(Bytes::from_static(b"new")),
        ..fit()
    };
    let without = Append {
        token: None,
        ..stale.clone()
    };
    let elsewhere = Append {
        token: Some(5),
        ..stale.clone()
    };
    let last = Append {
        expected: None,
        ..elsewhere.clone()
    };
    vec![
        row(
            "the stream knows no message ids",
            anonymous(append("forgetful", stale.clone())),
            invalid("message_id", "this stream knows no message ids"),
        ),
        row(
            "a higher token was accepted",
            anonymous(append("log", stale)),
            Refusal::StaleToken { current: 5 },
        ),
        row(
            "the stream demands a token",
            anonymous(append("log", without)),
            invalid("fence_token", "this stream takes no append without one"),
        ),
        row(
            "the tail is another",
            anonymous(append("log", elsewhere)),
            Refusal::WrongTail { tail: 1 },
        ),
        row(
            "it knows as many message ids as it may",
            anonymous(append("log", last)),
            Failure::Overloaded {
                what: "message ids of the stream".to_owned(),
                retry_after: Span::from_secs(1),
            },
        ),
    ]
}

pub(super) fn txn_form_rules() -> Rules {
    let lab = Lab::home_with_cache();
    let nowhere = TxnGuard::StreamTail {
        stream: cache("nowhere"),
        tail: 0,
    };
    let big = Operation::Put {
        cache: cache("nowhere"),
        key: Bytes::from_static(b"k"),
        value: Bytes::from(vec![0; VALUE_BYTES_MAX]),
        ttl: None,
        owner: None,
    };
    let many = Txn {
        guards: vec![nowhere.clone(); TXN_ITEMS_MAX],
        then: vec![big.clone(), big.clone()],
        otherwise: vec![big.clone(), big],
    };
    let large = Txn {
        guards: vec![nowhere.clone(); TXN_ITEMS_MAX - 4],
        ..many.clone()
    };
    let small = Operation::Delete {
        cache: cache("nowhere"),
        key: Bytes::new(),
    };
    let twice = Txn {
        guards: vec![nowhere.clone()],
        then: vec![small.clone(), small.clone()],
        otherwise: vec![small.clone(), small.clone()],
    };
    let once = Txn {
        then: vec![small],
        ..twice.clone()
    };
    let appends = vec![operation_append("nowhere", fit()); 2];
    let streams = Txn {
        guards: vec![nowhere],
        then: appends,
        otherwise: Vec::new(),
    };
    let key_rule = "a key is written at most once";
    Rules {
        of: "the form of a transaction",
        rows: vec![
            txn_row(
                "it has too many guards and operations",
                many,
                limit("guards and operations of a transaction", TXN_ITEMS_MAX),
            ),
            txn_row("it is too large", large, limit("bytes of a transaction", TXN_BYTES_MAX)),
            txn_row("one branch writes a key twice", twice, invalid("then[1]", key_rule)),
            txn_row("the other one does", once, invalid("otherwise[1]", key_rule)),
            txn_row(
                "one branch appends to a stream twice",
                streams,
                invalid("then[1]", "a stream is appended to at most once"),
            ),
        ],
        ..Rules::at(lab)
    }
}

pub(super) fn txn_rules() -> Rules {
    let mut scene = scene();
    let revision = scene.closed_at();
    let lab = &mut scene.lab;
    lab.ask(0, anonymous(create_stream("log", settings())));
    lab.ask(0, anonymous(append("log", fit())));
    let big = "v".repeat(VALUE_BYTES_MAX / 2 + 1);
    lab.ask(0, anonymous(put("big", &big)));
    let rows = [guard_rows(), owner_rows(&scene, revision), operation_rows()];
    Rules {
        of: "a transaction",
        rows: rows.into_iter().flatten().collect(),
        ..Rules::at(scene.lab)
    }
}

/// Of guards the first that fails decides; operations are not looked at.
fn guard_rows() -> Vec<Row> {
    let key = |name| TxnGuard::Counter {
        cache: cache(name),
        key: Bytes::from_static(b"mine"),
        min: None,
        max: None,
    };
    let tail = TxnGuard::StreamTail {
        stream: cache("nowhere"),
        tail: 0,
    };
    let with = |guards| Txn {
        guards,
        then: vec![get("elsewhere", "k")],
        otherwise: vec![get("elsewhere", "k")],
    };
    vec![
        txn_row(
            "the cache of a guard does not exist",
            with(vec![key("nowhere"), key("leases"), tail.clone()]),
            no_cache("nowhere"),
        ),
        txn_row(
            "what is guarded as a counter is none",
            with(vec![key("leases"), tail.clone()]),
            wrong_type(),
        ),
        txn_row(
            "the stream of a guard does not exist",
            with(vec![tail]),
            no_stream("nowhere"),
        ),
    ]
}

/// An operation that may be done comes first each time, so that nothing done proves that all is checked before.
fn owner_rows(scene: &Scene, revision: u64) -> Vec<Row> {
    let by = |owner: SessionRef| Txn {
        then: vec![
            put_operation("leases", "first", None),
            put_operation("leases", "new", Some(owner)),
        ],
        ..Txn::default()
    };
    // It may own one more when it gives one up, and not two.
    let mut exchanged = by(scene.sated);
    exchanged.then[0] = Operation::Delete {
        cache: cache("leases"),
        key: Bytes::from_static(b"k0"),
    };
    exchanged.then.push(put_operation("leases", "newer", Some(scene.sated)));
    let may_own = || limit("what a session may own", SESSION_OWNED_MAX);
    vec![
        txn_row("nobody opened the owner", by(nobody()), no_session()),
        txn_row(
            "the owner has ended",
            by(with_wrong_secret(scene.closed)),
            Failure::SessionExpired {
                session: scene.closed.id,
                reason: EndReason::Closed,
                revision,
            },
        ),
        txn_row(
            "the secret is not the owner's",
            by(with_wrong_secret(scene.identity)),
            Failure::WrongSecret {
                session: scene.identity.id,
            },
        ),
        txn_row(
            "the owner has no TTL",
            by(scene.identity),
            invalid("owner", "a session without a TTL can own nothing"),
        ),
        txn_row("the owner has all that it may have", by(scene.sated), may_own()),
        txn_row("the owner would have more than it may have", exchanged, may_own()),
    ]
}

fn operation_rows() -> Vec<Row> {
    let after_one = |operation| Txn {
        then: vec![put_operation("leases", "first", None), operation],
        ..Txn::default()
    };
    let with_token = |token| Append {
        token: Some(token),
        expected: Some(9),
        ..fit()
    };
    let read_twice = Txn {
        then: vec![
            put_operation("leases", "first", None),
            get("leases", "big"),
            get("leases", "big"),
        ],
        ..Txn::default()
    };
    vec![
        txn_row(
            "the cache of an operation does not exist",
            after_one(put_operation("nowhere", "k", Some(nobody()))),
            no_cache("nowhere"),
        ),
        txn_row(
            "what is added to is no counter",
            after_one(Operation::Add {
                cache: cache("leases"),
                key: Bytes::from_static(b"mine"),
                delta: 1,
                ttl: None,
            }),
            wrong_type(),
        ),
        txn_row(
            "the stream of an operation does not exist",
            after_one(operation_append("leases", fit())),
            no_stream("leases"),
        ),
        txn_row(
            "a higher token was accepted",
            after_one(operation_append("log", with_token(4))),
            Refusal::StaleToken { current: 5 },
        ),
        txn_row(
            "the tail is another",
            after_one(operation_append("log", with_token(5))),
            Refusal::WrongTail { tail: 1 },
        ),
        txn_row(
            "it reads too much",
            read_twice,
            limit("bytes that a transaction reads", TXN_READ_BYTES_MAX),
        ),
    ]
}

fn settings() -> StreamSettings {
    StreamSettings {
        retention: None,
        retention_bytes: None,
        fence: FenceMode::Optional,
        dedup_window: HOUR,
        replication: 1,
    }
}

fn txn_row(when: &'static str, txn: Txn, gives: impl super::Verdict) -> Row {
    row(when, anonymous(Command::Txn(txn)), gives)
}

/// An append with the token 5 that every stream takes once.
fn fit() -> Append {
    Append {
        records: vec![Bytes::from_static(b"r")],
        token: Some(5),
        ..Append::default()
    }
}

fn add(name: &str, key: &str, delta: i64) -> Command {
    Command::Add {
        cache: cache(name),
        key: Bytes::copy_from_slice(key.as_bytes()),
        delta,
        ttl: None,
    }
}

fn delete_prefix(name: &str) -> Command {
    Command::DeletePrefix {
        cache: cache(name),
        prefix: Bytes::new(),
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

fn trim(name: &str) -> Command {
    Command::TrimStream {
        stream: cache(name),
        before: 1,
    }
}

fn operation_append(name: &str, append: Append) -> Operation {
    Operation::Append {
        stream: cache(name),
        append,
    }
}

fn put_operation(name: &str, key: &str, owner: Option<SessionRef>) -> Operation {
    Operation::Put {
        cache: cache(name),
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::from_static(b"v"),
        ttl: None,
        owner,
    }
}

fn get(name: &str, key: &str) -> Operation {
    Operation::Get {
        cache: cache(name),
        key: Bytes::copy_from_slice(key.as_bytes()),
    }
}

fn no_stream(name: &str) -> Failure {
    let name: ObjectName = cache(name);
    Failure::NotFound {
        what: Missing::Stream(name),
    }
}

fn wrong_type() -> Failure {
    Failure::WrongType { is: "value".to_owned() }
}

fn invalid(field: &str, rule: &str) -> Failure {
    Failure::Invalid {
        field: field.to_owned(),
        rule: rule.to_owned(),
    }
}

fn limit(which: &str, value: usize) -> Failure {
    Failure::Limit {
        which: which.to_owned(),
        value: value as u64,
    }
}
