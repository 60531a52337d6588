//! The machine alone over long times and large numbers, faster than time passes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_core::codec::{encode_entry, fingerprint};
use tenure_core::command::{Acknowledged, CacheSettings, Command, Entry, Guard, Origin, Request};
use tenure_core::effect::{ChangeKind, Effect};
use tenure_core::ids::{GroupId, Namespace, Nonce, ObjectName, Secret, SessionId, SessionRef};
use tenure_core::limits::ENDED_PER_ENTRY_MAX;
use tenure_core::machine::{Applied, GroupKind, Machine};
use tenure_core::response::{Done, KeptAlive, Response};
use tenure_core::table::{MemTable, Overlay, TableRead, Visit};
use tenure_core::time::{Span, Timestamp};
use tenure_storage::disk::RecordingDisk;
use tenure_storage::feed::FeedLimits;
use tenure_storage::log::{Log, LogOptions, WriterMode};
use tenure_storage::mem::MemEngine;
use tenure_storage::state::{AppliedMark, GroupState, StateEngine};

/// Sessions that end together, each with a key; and keys that end together.
const SESSIONS: usize = 50_000;
const KEYS: usize = 100_000;
/// Sessions that are renewed meanwhile, in each entry.
const RENEWING: usize = 1_000;
/// Commands of one entry while everything is made.
const COMMANDS: usize = 1_024;
/// When everything ends.
const THE_END: Timestamp = Timestamp(60_000_000);

/// Entries of a second, seconds of a minute and minutes of an hour of renewals.
const ENTRIES_PER_SECOND: u64 = 10;
const MINUTES: u64 = 60;
/// Sessions that are renewed for an hour, so many in each entry.
const LONG_SESSIONS: usize = 200;
const RENEWED_PER_ENTRY: usize = 12;
/// The log has one segment in use and one or two beside it.
const SEGMENT_BYTES: u64 = 1 << 20;

fn cache() -> ObjectName {
    ObjectName {
        namespace: namespace(),
        name: "leases".to_owned(),
    }
}

fn namespace() -> Namespace {
    Namespace {
        tenant: "acme".to_owned(),
        name: "prod".to_owned(),
    }
}

fn anonymous(command: Command) -> Request {
    Request {
        origin: Origin::Anonymous,
        command,
    }
}

fn begin() -> Vec<Request> {
    let name = cache();
    let settings = CacheSettings { replication: 1 };
    vec![
        anonymous(Command::TakeBlock { first: 1 }),
        anonymous(Command::CreateCache { name, settings }),
    ]
}

fn open(number: usize, ttl: Span) -> Request {
    anonymous(Command::OpenSession {
        nonce: Nonce(number as u128),
        secret: Secret(number as u128),
        ttl: Some(ttl),
        label: "worker".to_owned(),
        namespace: namespace(),
    })
}

fn put(key: String, ttl: Option<Span>, guard: Option<Guard>, owner: Option<SessionRef>) -> Command {
    Command::Put {
        cache: cache(),
        key: Bytes::from(key),
        value: Bytes::from_static(b"10.0.0.7:8080"),
        ttl,
        guard,
        owner,
    }
}

fn opened(applied: &Applied) -> Vec<SessionRef> {
    let opened = applied.answers.iter().map(|answer| match answer.response {
        Response::Done(Done::SessionOpened { id, secret, .. }) => SessionRef { id, secret },
        ref other => panic!("the session was not opened: {other:?}"),
    });
    opened.collect()
}

/// A machine over a table in memory.
struct Bare {
    machine: Machine,
    table: MemTable,
    stamp: Timestamp,
}

impl Bare {
    fn new() -> Bare {
        let table = MemTable::new();
        let mut bare = Bare {
            machine: Machine::open(GroupKind::Home, &table),
            table,
            stamp: Timestamp(1),
        };
        bare.apply(Vec::new(), begin());
        bare
    }

    fn apply(&mut self, keep_alives: Vec<SessionRef>, requests: Vec<Request>) -> Applied {
        let entry = Entry {
            stamp: self.stamp,
            keep_alives,
            requests,
        };
        self.machine.apply(&mut self.table, &entry)
    }

    fn open_sessions(&mut self, first: usize, count: usize, ttl: Span) -> Vec<SessionRef> {
        let numbers: Vec<usize> = (first..first + count).collect();
        let parts = numbers.chunks(COMMANDS);
        parts
            .flat_map(|part| opened(&self.apply(Vec::new(), part.iter().map(|number| open(*number, ttl)).collect())))
            .collect()
    }

    /// Lets time reach the end and applies entries as a leader proposes them, each with renewals and a claim, until
    /// nothing is due any more. Returns what was told to end, in order, and how many entries it took.
    fn end_all(&mut self, renewing: &[SessionRef]) -> (Vec<(u64, Bytes)>, usize) {
        self.stamp = Timestamp(THE_END.0 + 1);
        let (mut told, mut entries) = (Vec::new(), 0);
        loop {
            let claim = put(format!("claim {entries}"), None, Some(Guard::Absent), None);
            let applied = self.apply(renewing.to_vec(), vec![anonymous(claim)]);
            entries += 1;
            assert!(
                matches!(applied.answers[0].response, Response::Done(Done::Put { .. })),
                "a claim is granted"
            );
            let lost = applied
                .kept_alive
                .iter()
                .filter(|kept| !matches!(kept, KeptAlive::Renewed { .. }));
            assert_eq!(lost.count(), 0, "nobody who renews loses a session");
            let before = told.len();
            for effect in applied.effects {
                if let Effect::Changed(change) = effect
                    && matches!(change.kind, ChangeKind::Removed { .. })
                {
                    told.push((change.revision, change.key));
                }
            }
            assert!(
                told.len() - before <= ENDED_PER_ENTRY_MAX,
                "an entry ends no more than it may"
            );
            if !applied.more_due {
                return (told, entries);
            }
            // Time goes on while the entries follow each other.
            self.stamp = Timestamp(self.stamp.0 + 1_000);
        }
    }
}

#[test]
fn fifty_thousand_sessions_that_end_in_one_microsecond_end_in_order_and_renewals_go_on() {
    let mut bare = Bare::new();
    let ttl = Span(THE_END.0 - bare.stamp.0);
    let renewing = bare.open_sessions(0, RENEWING, Span(2 * THE_END.0));
    let ending = bare.open_sessions(RENEWING, SESSIONS, ttl);
    for part in ending.chunks(COMMANDS) {
        let puts = part
            .iter()
            .map(|owner| put(format!("key of {}", owner.id), None, None, Some(*owner)));
        bare.apply(Vec::new(), puts.map(anonymous).collect());
    }
    let (told, entries) = bare.end_all(&renewing);
    let expected: Vec<Bytes> = ending
        .iter()
        .map(|session| Bytes::from(format!("key of {}", session.id)))
        .collect();
    assert!(ending.is_sorted_by_key(|session| session.id));
    assert_eq!(
        told.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>(),
        expected,
        "by deadline and id"
    );
    assert!(
        told.is_sorted_by(|one, next| one.0 < next.0),
        "each has a revision of its own"
    );
    assert!(entries <= 2 * SESSIONS / 256, "{entries} entries");
    assert!(bare.machine.memory_matches(&bare.table));
}

#[test]
fn a_hundred_thousand_keys_that_end_in_one_microsecond_end_in_order_and_renewals_go_on() {
    let mut bare = Bare::new();
    let ttl = Span(THE_END.0 - bare.stamp.0);
    let renewing = bare.open_sessions(0, RENEWING, Span(2 * THE_END.0));
    // Written in another order than that of their names.
    let mut numbers: Vec<usize> = (0..KEYS).map(|number| number * 7_919 % KEYS).collect();
    for part in numbers.chunks(COMMANDS) {
        let puts = part
            .iter()
            .map(|number| put(format!("key {number:06}"), Some(ttl), None, None));
        bare.apply(Vec::new(), puts.map(anonymous).collect());
    }
    let (told, entries) = bare.end_all(&renewing);
    numbers.sort_unstable();
    let expected: Vec<Bytes> = numbers
        .iter()
        .map(|number| Bytes::from(format!("key {number:06}")))
        .collect();
    assert_eq!(
        told.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>(),
        expected,
        "by deadline and id"
    );
    assert!(entries <= KEYS / 256, "{entries} entries");
    assert!(bare.machine.memory_matches(&bare.table));
}

/// A machine over state and log in memory, as a replica runs it.
struct Replica {
    machine: Machine,
    state: GroupState,
    log: Log,
    disk: RecordingDisk,
    index: u64,
    seqs: BTreeMap<SessionId, u64>,
}

impl Replica {
    fn new() -> Replica {
        let options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            salt: 1,
            ..LogOptions::default()
        };
        let disk = RecordingDisk::new();
        let log =
            Log::open(Arc::new(disk.clone()), Path::new("log"), options, WriterMode::Inline).expect("a new log opens");
        let state = MemEngine::new(FeedLimits::default())
            .group(GroupId(1))
            .expect("a new group opens");
        let machine = state
            .read(|table| Machine::open(GroupKind::Home, table))
            .expect("it can be read");
        Replica {
            machine,
            state,
            log,
            disk,
            index: 0,
            seqs: BTreeMap::new(),
        }
    }

    fn apply(&mut self, stamp: Timestamp, keep_alives: Vec<SessionRef>, requests: Vec<Request>) -> Applied {
        let entry = Entry {
            stamp,
            keep_alives,
            requests,
        };
        self.index += 1;
        let written = Box::new(|result: Result<(), _>| result.expect("memory does not fail"));
        self.log
            .group(GroupId(1))
            .append(vec![(self.index, encode_entry(&entry))], written);
        let machine = &mut self.machine;
        let run = self.state.read(|table| {
            let mut overlay = Overlay::new(table);
            let applied = machine.apply(&mut overlay, &entry);
            (applied, overlay.into_writes())
        });
        let (applied, writes) = run.expect("it can be read");
        let changes = applied.effects.iter().filter_map(|effect| match effect {
            Effect::Changed(change) => Some(change.clone()),
            _ => None,
        });
        let mark = AppliedMark {
            index: self.index,
            bytes: Bytes::new(),
        };
        self.state
            .commit(writes, changes.collect(), applied.time, mark)
            .expect("it lies behind");
        applied
    }

    /// The next request of a session, which acknowledges all before it.
    fn numbered(&mut self, session: SessionRef, command: Command) -> Request {
        let seq = self.seqs.entry(session.id).or_insert(0);
        *seq += 1;
        let origin = Origin::Session {
            session,
            seq: *seq,
            acknowledged: Acknowledged {
                below: *seq,
                also: Vec::new(),
            },
            fingerprint: fingerprint(&command),
        };
        Request { origin, command }
    }

    /// What happens behind the machine once a second: rows to the disk, the log cut off below them.
    fn write_behind(&mut self) {
        let durable = self.state.make_durable(u64::MAX).expect("memory does not fail");
        if let Some(upto) = durable {
            let done = Box::new(|result: Result<(), _>| result.expect("memory does not fail"));
            self.log.group(GroupId(1)).purge(upto, Bytes::new(), done);
        }
    }

    fn rows(&self) -> usize {
        let count = |table: &dyn TableRead| {
            let mut rows = 0;
            table.scan(&[], &[u8::MAX], &mut |_, _| {
                rows += 1;
                Visit::Continue(())
            });
            rows
        };
        self.state.read(count).expect("it can be read")
    }
}

/// How long something takes.
fn timed(work: impl FnOnce()) -> Duration {
    let begun = std::time::Instant::now();
    work();
    begun.elapsed()
}

#[test]
fn after_an_hour_of_renewals_and_claims_nothing_is_slower_or_larger() {
    let mut replica = Replica::new();
    let ttl = Span::from_secs(10);
    replica.apply(Timestamp(1), Vec::new(), begin());
    let sessions = opened(&replica.apply(
        Timestamp(1),
        Vec::new(),
        (0..LONG_SESSIONS).map(|number| open(number, ttl)).collect(),
    ));
    let (mut fastest, mut sizes) = (Vec::new(), Vec::new());
    for minute in 0..MINUTES {
        let mut seconds = Vec::new();
        for second in 0..60 {
            seconds.push(timed(|| {
                for part in 0..ENTRIES_PER_SECOND {
                    let turn = (minute * 60 + second) * ENTRIES_PER_SECOND + part;
                    one_entry(&mut replica, &sessions, turn);
                }
                replica.write_behind();
            }));
        }
        seconds.sort();
        fastest.push(seconds[seconds.len() / 4]);
        sizes.push((replica.rows(), replica.disk.used()));
    }
    // The best of the first and of the last ten: the machine has other work too.
    let best = |minutes: &[Duration]| minutes.iter().min().copied().unwrap_or_default();
    let (first, last) = (best(&fastest[..10]), best(&fastest[fastest.len() - 10..]));
    println!(
        "a second's entries took {first:?} at first and {last:?} in the end; rows and bytes of the log {:?}, {:?}",
        sizes[1], sizes[59]
    );
    assert!(last <= first + first / 5, "{first:?} at first, {last:?} in the end");
    let (rows, _) = sizes[1];
    assert!(sizes[1..].iter().all(|size| size.0 <= rows + 20), "{sizes:?}");
    assert!(sizes.iter().all(|size| size.1 <= 6 * SEGMENT_BYTES), "{sizes:?}");
}

/// Renews some sessions, claims and frees a key for one of them, and writes one that ends by itself.
fn one_entry(replica: &mut Replica, sessions: &[SessionRef], turn: u64) {
    let stamp = Timestamp(2 + turn * 1_000_000 / ENTRIES_PER_SECOND);
    let from = usize::try_from(turn).expect("a small number") * RENEWED_PER_ENTRY;
    let renewed = (from..from + RENEWED_PER_ENTRY).map(|number| sessions[number % sessions.len()]);
    let who = sessions[from / RENEWED_PER_ENTRY % sessions.len()];
    let claim = put(format!("job {}", turn % 50), None, Some(Guard::Absent), Some(who));
    let free = Command::Delete {
        cache: cache(),
        key: Bytes::from(format!("job {}", turn % 50)),
        guard: Some(Guard::Present),
    };
    let requests = vec![
        replica.numbered(who, claim),
        replica.numbered(who, free),
        anonymous(put(
            format!("short {}", turn % 1_000),
            Some(Span::from_millis(500)),
            None,
            None,
        )),
    ];
    let applied = replica.apply(stamp, renewed.collect(), requests);
    let kept = applied
        .kept_alive
        .iter()
        .all(|kept| matches!(kept, KeptAlive::Renewed { .. }));
    let done = applied
        .answers
        .iter()
        .all(|answer| matches!(answer.response, Response::Done(_)));
    assert!(kept && done, "turn {turn}: {applied:?}");
}
