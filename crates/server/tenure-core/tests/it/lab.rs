//! A machine with its table, driven as a replica drives it, and short ways to say what tests say often.

use bytes::Bytes;
use tenure_core::codec;
use tenure_core::command::{Acknowledged, CacheSettings, Command, Entry, Guard, Origin, Request};
use tenure_core::ids::{Namespace, Nonce, ObjectName, OneShotId, Secret, SessionRef};
use tenure_core::limits::ENTRY_COMMANDS_MAX;
use tenure_core::machine::{Applied, GroupKind, Machine};
use tenure_core::query::{Found, Query};
use tenure_core::response::{Answer, Done, Response};
use tenure_core::restore::{GroupRestore, NewCluster, Outcome, RestoreError};
use tenure_core::snapshot;
use tenure_core::table::{MemTable, Overlay, Table as _, TableRead, Visit};
use tenure_core::time::{Span, Timestamp};

/// A machine and its table.
pub(crate) struct Lab {
    pub(crate) kind: GroupKind,
    pub(crate) machine: Machine,
    pub(crate) table: MemTable,
    /// Whether every entry is followed by a comparison of what memory holds with what the table says.
    pub(crate) checks_memory: bool,
}

impl Lab {
    /// A group that has just been made.
    pub(crate) fn empty(kind: GroupKind) -> Lab {
        Lab::over(kind, MemTable::new())
    }

    /// A group over a table.
    pub(crate) fn over(kind: GroupKind, table: MemTable) -> Lab {
        Lab {
            kind,
            machine: Machine::open(kind, &table),
            table,
            checks_memory: true,
        }
    }

    /// A home group with its first block of revisions.
    pub(crate) fn home() -> Lab {
        let mut lab = Lab::empty(GroupKind::Home);
        lab.run(0, vec![anonymous(Command::TakeBlock { first: 1 })]);
        lab
    }

    /// A home group with a block and the cache `acme/prod/leases`, which is revision 1.
    pub(crate) fn home_with_cache() -> Lab {
        let mut lab = Lab::home();
        lab.run(0, vec![anonymous(create("leases", 1))]);
        lab
    }

    /// Applies an entry as a replica does: over an overlay, whose writes are committed afterwards.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Applied {
        let mut overlay = Overlay::new(&self.table);
        let applied = self.machine.apply(&mut overlay, entry);
        let writes = overlay.into_writes();
        self.table.commit(writes);
        if self.checks_memory {
            self.check_memory();
        }
        applied
    }

    /// Applies requests stamped so many milliseconds after the beginning.
    pub(crate) fn run(&mut self, at_ms: u64, requests: Vec<Request>) -> Applied {
        self.apply(&entry_at(Timestamp(at_ms * 1_000), requests))
    }

    /// Applies one request and returns its response.
    pub(crate) fn ask(&mut self, at_ms: u64, request: Request) -> Response {
        let answers = self.run(at_ms, vec![request]).answers;
        let [answer] = <[Answer; 1]>::try_from(answers).expect("one request has one answer");
        answer.response
    }

    /// Opens a session.
    pub(crate) fn open(&mut self, at_ms: u64, nonce: u128, ttl: Option<Span>) -> SessionRef {
        match self.ask(at_ms, anonymous(open(nonce, ttl))) {
            Response::Done(Done::SessionOpened { id, secret, .. }) => SessionRef { id, secret },
            other => panic!("the session was not opened: {other:?}"),
        }
    }

    /// Applies very many requests, in entries of the largest size.
    pub(crate) fn run_many(&mut self, at: Timestamp, requests: Vec<Request>) -> Vec<Applied> {
        let checks_memory = std::mem::replace(&mut self.checks_memory, false);
        let applied = requests
            .chunks(ENTRY_COMMANDS_MAX)
            .map(|chunk| self.apply(&entry_at(at, chunk.to_vec())))
            .collect();
        self.checks_memory = checks_memory;
        self.check_memory();
        applied
    }

    pub(crate) fn query(&self, query: &Query) -> Found {
        self.machine.query(&self.table, query)
    }

    /// The machine as it would be after a restart.
    pub(crate) fn reopen(&mut self) {
        self.machine = Machine::open(self.kind, &self.table);
    }

    /// Panics if what memory holds is not what the table says.
    pub(crate) fn check_memory(&self) {
        assert!(
            self.machine.memory_matches(&self.table),
            "memory is not what the table says"
        );
    }

    /// The whole table as bytes.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        export(&self.table)
    }
}

/// Every row as the bytes of a snapshot.
pub(crate) fn export(table: &dyn TableRead) -> Vec<u8> {
    let mut bytes = Vec::new();
    let result: Result<(), std::convert::Infallible> = snapshot::export(table, &mut |chunk| {
        bytes.extend_from_slice(chunk);
        Ok(())
    });
    match result {
        Ok(()) => bytes,
        Err(never) => match never {},
    }
}

/// The table of a snapshot.
pub(crate) fn import(bytes: &[u8]) -> MemTable {
    let mut table = MemTable::new();
    snapshot::import(bytes, &mut table).expect("the snapshot is whole");
    table
}

/// What a restore makes of a table.
pub(crate) fn restored(
    kind: GroupKind,
    table: &MemTable,
    new: NewCluster,
) -> Result<(MemTable, Outcome), RestoreError> {
    let mut restore = GroupRestore::new(kind, new)?;
    let mut made = Made::default();
    for (key, value) in rows(table) {
        restore.take(&key, &value, &mut |key, value| made.take(key, value))?;
    }
    let outcome = restore.finish(&mut |key, value| made.take(key, value))?;
    Ok((made.counted(outcome.rows), outcome))
}

/// The rows that a restore or a recovery hands on.
#[derive(Default)]
pub(crate) struct Made {
    table: MemTable,
    last: Vec<u8>,
}

impl Made {
    pub(crate) fn take(&mut self, key: Vec<u8>, value: Bytes) {
        assert!(self.last < key, "rows are handed on in order");
        self.last.clone_from(&key);
        self.table.put(key, value);
    }

    /// All of them, if they are as many as was said.
    pub(crate) fn counted(self, rows: u64) -> MemTable {
        assert_eq!(self.table.len() as u64, rows, "every row is counted");
        self.table
    }
}

/// Every row of a table, in key order.
pub(crate) fn rows(table: &dyn TableRead) -> Vec<(Vec<u8>, Bytes)> {
    let mut rows = Vec::new();
    table.scan(&[], &[u8::MAX], &mut |key, value| {
        rows.push((key.to_vec(), value.clone()));
        Visit::Continue(())
    });
    rows
}

pub(crate) fn entry_at(stamp: Timestamp, requests: Vec<Request>) -> Entry {
    Entry {
        stamp,
        keep_alives: Vec::new(),
        requests,
    }
}

pub(crate) fn anonymous(command: Command) -> Request {
    Request {
        origin: Origin::Anonymous,
        command,
    }
}

/// A numbered request, honest about its fingerprint, that acknowledges nothing.
pub(crate) fn numbered(session: SessionRef, seq: u64, command: Command) -> Request {
    acknowledging(session, seq, Acknowledged::default(), command)
}

pub(crate) fn acknowledging(session: SessionRef, seq: u64, acknowledged: Acknowledged, command: Command) -> Request {
    Request {
        origin: Origin::Session {
            session,
            seq,
            acknowledged,
            fingerprint: codec::fingerprint(&command),
        },
        command,
    }
}

pub(crate) fn one_shot(id: u128, not_after: Timestamp, command: Command) -> Request {
    Request {
        origin: Origin::OneShot {
            id: OneShotId(id),
            not_after,
            fingerprint: codec::fingerprint(&command),
        },
        command,
    }
}

pub(crate) fn namespace(name: &str) -> Namespace {
    Namespace {
        tenant: "acme".to_owned(),
        name: name.to_owned(),
    }
}

/// A cache of `acme/prod`.
pub(crate) fn cache(name: &str) -> ObjectName {
    ObjectName {
        namespace: namespace("prod"),
        name: name.to_owned(),
    }
}

pub(crate) fn create(name: &str, replication: u32) -> Command {
    Command::CreateCache {
        name: cache(name),
        settings: CacheSettings { replication },
    }
}

/// The secret that tests give to the session of a nonce.
pub(crate) fn secret_of(nonce: u128) -> Secret {
    Secret(nonce ^ (0x5ec2e7 << 64))
}

/// The same session with a secret that is not its own.
pub(crate) fn with_wrong_secret(session: SessionRef) -> SessionRef {
    SessionRef {
        id: session.id,
        secret: Secret(!session.secret.0),
    }
}

pub(crate) fn open(nonce: u128, ttl: Option<Span>) -> Command {
    Command::OpenSession {
        nonce: Nonce(nonce),
        secret: secret_of(nonce),
        ttl,
        label: format!("worker {nonce}"),
        namespace: namespace("prod"),
    }
}

/// A put into `acme/prod/leases` without a guard, a TTL or an owner.
pub(crate) fn put(key: &str, value: &str) -> Command {
    put_with(key, value, None, None, None)
}

pub(crate) fn put_with(
    key: &str,
    value: &str,
    ttl: Option<Span>,
    guard: Option<Guard>,
    owner: Option<SessionRef>,
) -> Command {
    Command::Put {
        cache: cache("leases"),
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl,
        guard,
        owner,
    }
}

pub(crate) fn delete(key: &str, guard: Option<Guard>) -> Command {
    Command::Delete {
        cache: cache("leases"),
        key: Bytes::copy_from_slice(key.as_bytes()),
        guard,
    }
}

pub(crate) fn touch(key: &str, ttl: Span, guard: Option<Guard>) -> Command {
    Command::Touch {
        cache: cache("leases"),
        key: Bytes::copy_from_slice(key.as_bytes()),
        ttl,
        guard,
    }
}
