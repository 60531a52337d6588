//! The machine over a table in memory, and the bytes of its entries.

use std::hint::black_box;

use bytes::Bytes;
use tenure_core::codec::{decode_entry, encode_entry, fingerprint};
use tenure_core::command::{Acknowledged, CacheSettings, Command, Entry, Guard, Origin, Request};
use tenure_core::ids::{Namespace, Nonce, ObjectName, Secret, SessionRef};
use tenure_core::machine::{GroupKind, Machine};
use tenure_core::response::{Done, Response};
use tenure_core::table::MemTable;
use tenure_core::time::{Span, Timestamp};

/// Commands of one entry.
const ENTRY_COMMANDS: usize = 64;
/// Sessions that take turns.
const SESSIONS: u64 = 100;
/// Keys that take turns.
const KEYS: u64 = 500;
/// Keys that only lie there.
const OTHER_KEYS: u64 = 2_000;
const TTL: Span = Span::from_secs(30);

/// Claims a key that does not exist and deletes it again, as the session that owns it.
pub(super) fn claims(operations: u64) {
    let mut group = Group::new();
    for batch in batches(operations) {
        let mut requests = Vec::with_capacity(2 * ENTRY_COMMANDS);
        for turn in batch.clone() {
            let claim = put(turn % KEYS, Some(Guard::Absent), Some(group.session(turn)));
            requests.push(group.numbered(turn, claim));
        }
        for turn in batch {
            requests.push(group.numbered(turn, delete(turn % KEYS)));
        }
        group.apply_all(requests);
    }
}

/// Renews the TTL of a key.
pub(super) fn touches(operations: u64) {
    let mut group = Group::new();
    for batch in batches(operations) {
        group.apply_all(batch.map(|turn| anonymous(touch(OTHER_KEYS + turn % KEYS))).collect());
    }
}

/// Renews a session.
pub(super) fn keep_alives(operations: u64) {
    let mut group = Group::new();
    for batch in batches(operations) {
        let entry = Entry {
            stamp: Timestamp(1),
            keep_alives: batch.map(|turn| group.session(turn)).collect(),
            requests: Vec::new(),
        };
        black_box(group.machine.apply(&mut group.table, &entry));
    }
}

/// Writes an entry as bytes and reads it.
pub(super) fn entries(operations: u64) {
    let mut group = Group::new();
    let requests = (0..ENTRY_COMMANDS as u64).map(|turn| {
        let claim = put(turn, Some(Guard::Absent), Some(group.session(turn)));
        group.numbered(turn, claim)
    });
    let entry = Entry {
        stamp: Timestamp(1),
        keep_alives: Vec::new(),
        requests: requests.collect(),
    };
    for _ in 0..operations {
        let bytes = encode_entry(black_box(&entry));
        black_box(decode_entry(&bytes).expect("what was just written can be read"));
    }
}

/// Numbers in batches of one entry.
fn batches(operations: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    let each = ENTRY_COMMANDS as u64;
    (0..operations.div_ceil(each)).map(move |batch| batch * each..((batch + 1) * each).min(operations))
}

/// A group with sessions and keys.
struct Group {
    machine: Machine,
    table: MemTable,
    sessions: Vec<(SessionRef, u64)>,
}

impl Group {
    fn new() -> Group {
        let table = MemTable::new();
        let mut group = Group {
            machine: Machine::open(GroupKind::Home, &table),
            table,
            sessions: Vec::new(),
        };
        let create = Command::CreateCache {
            name: cache(),
            settings: CacheSettings { replication: 1 },
        };
        group.apply_all(vec![anonymous(Command::TakeBlock { first: 1 }), anonymous(create)]);
        for number in 0..SESSIONS {
            let opened = group.apply_all(vec![anonymous(Command::OpenSession {
                nonce: Nonce(u128::from(number)),
                secret: Secret(u128::from(number)),
                ttl: Some(TTL),
                label: "worker".to_owned(),
                namespace: cache().namespace,
            })]);
            let Some(Response::Done(Done::SessionOpened { id, secret, .. })) = opened.into_iter().next() else {
                panic!("the session was not opened");
            };
            group.sessions.push((SessionRef { id, secret }, 0));
        }
        // The keys that are renewed are among them.
        for first in (0..OTHER_KEYS).step_by(ENTRY_COMMANDS) {
            let keys = first..(first + ENTRY_COMMANDS as u64).min(OTHER_KEYS);
            group.apply_all(keys.map(|key| anonymous(put(OTHER_KEYS + key, None, None))).collect());
        }
        group
    }

    fn session(&self, turn: u64) -> SessionRef {
        self.sessions[(turn % SESSIONS) as usize].0
    }

    /// The next request of the session whose turn it is, which acknowledges all before it.
    fn numbered(&mut self, turn: u64, command: Command) -> Request {
        let (session, seq) = &mut self.sessions[(turn % SESSIONS) as usize];
        *seq += 1;
        Request {
            origin: Origin::Session {
                session: *session,
                seq: *seq,
                acknowledged: Acknowledged {
                    below: *seq,
                    also: Vec::new(),
                },
                fingerprint: fingerprint(&command),
            },
            command,
        }
    }

    /// Applies these in one entry. All of them are done.
    fn apply_all(&mut self, requests: Vec<Request>) -> Vec<Response> {
        let entry = Entry {
            stamp: Timestamp(1),
            keep_alives: Vec::new(),
            requests,
        };
        let applied = self.machine.apply(&mut self.table, &entry);
        let responses: Vec<Response> = applied.answers.into_iter().map(|answer| answer.response).collect();
        for response in &responses {
            assert!(matches!(response, Response::Done(_)), "{response:?}");
        }
        responses
    }
}

fn put(number: u64, guard: Option<Guard>, owner: Option<SessionRef>) -> Command {
    Command::Put {
        cache: cache(),
        key: key(number),
        value: Bytes::from_static(b"10.0.0.7:8080, host 3"),
        ttl: Some(TTL),
        guard,
        owner,
    }
}

fn delete(number: u64) -> Command {
    Command::Delete {
        cache: cache(),
        key: key(number),
        guard: Some(Guard::Present),
    }
}

fn touch(number: u64) -> Command {
    Command::Touch {
        cache: cache(),
        key: key(number),
        ttl: TTL,
        guard: None,
    }
}

fn anonymous(command: Command) -> Request {
    Request {
        origin: Origin::Anonymous,
        command,
    }
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("jobs/nightly/{number:08}"))
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
