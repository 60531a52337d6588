//! What a command costs in the machine alone: no log, no disk, no network.
//!
//! `cargo run --release -p tenure-core --example apply_speed` prints nanoseconds a command over a table in memory,
//! for entries of 64 commands.

use std::fmt::Write as _;

use bytes::Bytes;
use tenure_core::codec::fingerprint;
use tenure_core::command::{
    Acknowledged, Append, CacheSettings, Command, Entry, FenceMode, Guard, Operation, Origin, Request, StreamSettings,
    Txn, TxnGuard,
};
use tenure_core::ids::{Namespace, Nonce, ObjectName, Secret, SessionRef};
use tenure_core::limits::DEDUP_WINDOW_DEFAULT;
use tenure_core::machine::{Applied, GroupKind, Machine};
use tenure_core::response::{Done, Response};
use tenure_core::table::MemTable;
use tenure_core::time::{Span, Timestamp};

/// Commands of one entry.
const ENTRY_COMMANDS: usize = 64;
/// Commands of one measurement.
const COMMANDS: usize = 320_000;
/// Sessions that take turns.
const SESSIONS: usize = 1_000;
/// Bytes that the stream keeps, so that it is shortened all the time.
const STREAM_BYTES: u64 = 1 << 20;
const TTL: Span = Span::from_secs(30);

/// A group with sessions.
struct Bench {
    machine: Machine,
    table: MemTable,
    sessions: Vec<SessionRef>,
    seqs: Vec<u64>,
}

fn main() {
    let mut report = String::new();
    for keys in [0, 1_000_000] {
        let mut bench = Bench::new(keys);
        let _ = writeln!(report, "with {keys} other keys:");
        measure(
            &mut report,
            "claim and delete, each once an attempt",
            &mut bench,
            |_, turn| anonymous(claim_or_delete(turn, None)),
        );
        measure(
            &mut report,
            "claim and delete, numbered, owned by a session",
            &mut bench,
            |bench, turn| {
                let who = turn / 2 % SESSIONS;
                bench.numbered(who, claim_or_delete(turn, Some(bench.sessions[who])))
            },
        );
        measure(&mut report, "write of a key that exists", &mut bench, |_, turn| {
            anonymous(put(turn % 100, None, None))
        });
        measure(&mut report, "touch", &mut bench, |_, turn| anonymous(touch(turn % 100)));
        measure(&mut report, "addition to a counter", &mut bench, |_, turn| {
            anonymous(add(turn % 100))
        });
        measure(
            &mut report,
            "transaction of a guard, two writes and an append",
            &mut bench,
            |_, turn| anonymous(txn(turn % 100)),
        );
        measure(&mut report, "append of one record of 100 bytes", &mut bench, |_, _| {
            anonymous(append(None))
        });
        measure(
            &mut report,
            "the same with a message id and a token",
            &mut bench,
            |_, turn| anonymous(append(Some(turn))),
        );
        bench.keep_alives(&mut report);
    }
    println!("{report}");
}

impl Bench {
    fn new(keys: usize) -> Bench {
        let mut table = MemTable::new();
        let mut bench = Bench {
            machine: Machine::open(GroupKind::Home, &table),
            table: std::mem::take(&mut table),
            sessions: Vec::new(),
            seqs: vec![0; SESSIONS],
        };
        let create = Command::CreateCache {
            name: cache(),
            settings: CacheSettings { replication: 1 },
        };
        let create_stream = Command::CreateStream {
            name: stream(),
            settings: StreamSettings {
                retention: None,
                retention_bytes: Some(STREAM_BYTES),
                fence: FenceMode::Optional,
                dedup_window: DEDUP_WINDOW_DEFAULT,
                replication: 1,
            },
        };
        bench.apply(vec![
            anonymous(Command::TakeBlock { first: 1 }),
            anonymous(create),
            anonymous(create_stream),
        ]);
        for number in 0..SESSIONS {
            let opened = bench.apply(vec![anonymous(Command::OpenSession {
                nonce: Nonce(number as u128),
                secret: Secret(number as u128),
                ttl: Some(TTL),
                label: "worker".to_owned(),
                namespace: cache().namespace,
            })]);
            let Response::Done(Done::SessionOpened { id, secret, .. }) = opened.answers[0].response else {
                panic!("the session was not opened: {opened:?}");
            };
            bench.sessions.push(SessionRef { id, secret });
        }
        for chunk in (0..keys).collect::<Vec<_>>().chunks(1_024) {
            bench.apply(
                chunk
                    .iter()
                    .map(|key| anonymous(put(key + 1_000, None, None)))
                    .collect(),
            );
        }
        bench
    }

    fn apply(&mut self, requests: Vec<Request>) -> Applied {
        let entry = Entry {
            stamp: Timestamp(1),
            keep_alives: Vec::new(),
            requests,
        };
        self.machine.apply(&mut self.table, &entry)
    }

    /// The next request of a session, which acknowledges all before it.
    fn numbered(&mut self, who: usize, command: Command) -> Request {
        self.seqs[who] += 1;
        Request {
            origin: Origin::Session {
                session: self.sessions[who],
                seq: self.seqs[who],
                acknowledged: Acknowledged {
                    below: self.seqs[who],
                    also: Vec::new(),
                },
                fingerprint: fingerprint(&command),
            },
            command,
        }
    }

    fn keep_alives(&mut self, report: &mut String) {
        let entries: Vec<Entry> = (0..COMMANDS / SESSIONS)
            .map(|turn| Entry {
                stamp: Timestamp(turn as u64),
                keep_alives: self.sessions.clone(),
                requests: Vec::new(),
            })
            .collect();
        let nanos = timed(|| {
            for entry in &entries {
                self.machine.apply(&mut self.table, entry);
            }
        });
        line(report, "keep-alive", nanos);
    }
}

fn measure(report: &mut String, what: &str, bench: &mut Bench, mut request: impl FnMut(&mut Bench, usize) -> Request) {
    let requests: Vec<Request> = (0..COMMANDS).map(|turn| request(bench, turn)).collect();
    let entries: Vec<Entry> = requests
        .chunks(ENTRY_COMMANDS)
        .map(|chunk| Entry {
            stamp: Timestamp(1),
            keep_alives: Vec::new(),
            requests: chunk.to_vec(),
        })
        .collect();
    let mut done = 0;
    let nanos = timed(|| {
        for entry in &entries {
            let applied = bench.machine.apply(&mut bench.table, entry);
            done += applied
                .answers
                .iter()
                .filter(|answer| matches!(answer.response, Response::Done(_)))
                .count();
        }
    });
    assert_eq!(done, COMMANDS, "every command was done");
    line(report, what, nanos);
}

fn line(report: &mut String, what: &str, nanos: u128) {
    let each = nanos / COMMANDS as u128;
    let rate = 1_000_000_000 / each.max(1);
    let _ = writeln!(report, "  {what:<50} {each:>6} ns, {rate:>9} a second");
}

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "measuring is what this is for"
)]
fn timed(work: impl FnOnce()) -> u128 {
    let begun = std::time::Instant::now();
    work();
    begun.elapsed().as_nanos()
}

fn claim_or_delete(turn: usize, owner: Option<SessionRef>) -> Command {
    match turn % 2 {
        0 => put(turn / 2 % 500, Some(Guard::Absent), owner),
        _ => Command::Delete {
            cache: cache(),
            key: key(turn / 2 % 500),
            guard: Some(Guard::Present),
        },
    }
}

fn put(number: usize, guard: Option<Guard>, owner: Option<SessionRef>) -> Command {
    Command::Put {
        cache: cache(),
        key: key(number),
        value: Bytes::from_static(b"10.0.0.7:8080, host 3"),
        ttl: Some(TTL),
        guard,
        owner,
    }
}

fn touch(number: usize) -> Command {
    Command::Touch {
        cache: cache(),
        key: key(number),
        ttl: TTL,
        guard: None,
    }
}

fn add(number: usize) -> Command {
    Command::Add {
        cache: cache(),
        key: Bytes::from(format!("counters/{number:08}")),
        delta: 1,
        ttl: None,
    }
}

fn append(number: Option<usize>) -> Command {
    Command::Append {
        stream: stream(),
        append: Append {
            records: vec![record()],
            token: number.map(|_| 1),
            message_id: number.map(|number| Bytes::from(format!("order-{number:012}"))),
            ..Append::default()
        },
    }
}

fn txn(number: usize) -> Command {
    let put = |number| Operation::Put {
        cache: cache(),
        key: key(number),
        value: Bytes::from_static(b"10.0.0.7:8080, host 3"),
        ttl: Some(TTL),
        owner: None,
    };
    Command::Txn(Txn {
        guards: vec![TxnGuard::Key {
            cache: cache(),
            key: key(number),
            guard: Guard::Present,
        }],
        then: vec![
            put(number),
            put(number + 100),
            Operation::Append {
                stream: stream(),
                append: Append {
                    records: vec![record()],
                    ..Append::default()
                },
            },
        ],
        otherwise: Vec::new(),
    })
}

fn record() -> Bytes {
    Bytes::from_static(&[b'r'; 100])
}

fn anonymous(command: Command) -> Request {
    Request {
        origin: Origin::Anonymous,
        command,
    }
}

fn key(number: usize) -> Bytes {
    Bytes::from(format!("jobs/nightly/{number:08}"))
}

fn stream() -> ObjectName {
    ObjectName {
        name: "events".to_owned(),
        ..cache()
    }
}

fn cache() -> ObjectName {
    ObjectName {
        namespace: Namespace {
            tenant: "acme".to_owned(),
            name: "prod".to_owned(),
        },
        name: "leases".to_owned(),
    }
}
