//! Random scripts: what a crowd of honest and confused clients may send, entry by entry.
//!
//! A script names things by small numbers, so that few of them meet often and a failing script shrinks well. What
//! the numbers stand for (ids, versions, deadlines) is filled in while the script runs, from answers only.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use tenure_core::codec;
use tenure_core::command::{
    Acknowledged, Append, CacheSettings, Command, Entry, FenceMode, Guard, Operation, Origin, Request, StreamSettings,
    SystemCommand, Txn, TxnGuard,
};
use tenure_core::ids::{Fingerprint, Nonce, ObjectName, OneShotId, SessionId, SessionRef};
use tenure_core::limits::{BLOCK_REVISIONS, ENTRY_COMMANDS_MAX, SESSION_OWNED_MAX};
use tenure_core::machine::{Applied, Machine};
use tenure_core::response::{Done, Response};
use tenure_core::time::{Span, Timestamp};

use crate::lab::{anonymous, cache, create, entry_at, namespace, open, secret_of, with_wrong_secret};

/// The caches that scripts use, and their keys.
pub(crate) const CACHES: [&str; 2] = ["one", "two"];
pub(crate) const KEYS: [&str; 4] = ["a", "a/b", "b", "c"];
/// The streams that scripts use.
pub(crate) const STREAMS: [&str; 2] = ["jobs", "logs"];
/// The prefixes that are deleted.
const PREFIXES: [&str; 3] = ["", "a", "b"];
/// The first of the sessions that own as much as a session may.
const GREAT_NONCE: u128 = 1_000;

/// One entry of a script.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    time: Time,
    keep_alives: Vec<Actor>,
    requests: Vec<(Identity, Deed)>,
}

#[derive(Clone, Debug)]
enum Time {
    Later(u64),
    Earlier(u64),
    AtTheNextDeadline,
    JustBehindTheNextDeadline,
    MuchLater(u64),
}

/// A session by its nonce, perhaps with a wrong secret.
#[derive(Clone, Copy, Debug)]
struct Actor {
    nonce: u128,
    wrong: bool,
}

#[derive(Clone, Debug)]
enum Identity {
    Anonymous,
    Numbered {
        actor: Actor,
        /// The next number of the session, or one that may have been used.
        seq: Option<u64>,
        below: u64,
        also: Vec<u64>,
        wrong_fingerprint: bool,
    },
    OneShot {
        id: u128,
        ahead_ms: u64,
    },
    /// The whole of an earlier request again, whatever the deed.
    Again(usize),
}

#[derive(Clone, Debug)]
enum Deed {
    Open {
        nonce: u128,
        ttl_ms: Option<u64>,
    },
    Close {
        actor: Actor,
        forced: bool,
    },
    Acknowledge {
        actor: Actor,
        below: u64,
        also: Vec<u64>,
    },
    Create {
        cache: usize,
        replication: u32,
    },
    DeleteCache {
        cache: usize,
    },
    Put {
        place: Place,
        value: u8,
        ttl_ms: Option<u64>,
        guard: Option<Condition>,
        owner: Option<Actor>,
    },
    Delete {
        place: Place,
        guard: Option<Condition>,
    },
    Touch {
        place: Place,
        ttl_ms: u64,
        guard: Option<Condition>,
    },
    TakeBlock {
        number: u64,
    },
    WrongGroup,
    Add {
        place: Place,
        delta: i64,
        ttl_ms: Option<u64>,
    },
    DeletePrefix {
        cache: usize,
        prefix: usize,
    },
    Txn {
        guards: Vec<Premise>,
        then: Vec<Act>,
        otherwise: Vec<Act>,
    },
    CreateStream {
        stream: usize,
        settings: StreamSettings,
    },
    DeleteStream {
        stream: usize,
    },
    Append(Appending),
    Trim {
        stream: usize,
        back: u64,
    },
}

#[derive(Clone, Debug)]
struct Appending {
    stream: usize,
    records: Vec<u8>,
    /// The tail as it was last known, or one beside it.
    expected: Option<u64>,
    token: Option<u64>,
    id: Option<u8>,
}

/// A guard of a transaction.
#[derive(Clone, Debug)]
enum Premise {
    Key(Place, Condition),
    Counter(Place, Option<i64>, Option<i64>),
    Tail(usize, u64),
    Alive(Actor),
}

/// An operation of a transaction.
#[derive(Clone, Debug)]
enum Act {
    Put(Place, u8, Option<u64>, Option<Actor>),
    Delete(Place),
    Add(Place, i64, Option<u64>),
    Append(Appending),
    Get(Place),
}

#[derive(Clone, Copy, Debug)]
struct Place {
    cache: usize,
    key: usize,
}

#[derive(Clone, Copy, Debug)]
enum Condition {
    Absent,
    Present,
    Value(u8),
    /// The version that the key was last known to have, or one beside it.
    Version(u64),
    /// The token that the key was last known to have, or one beside it.
    Created(u64),
}

/// What is known from the answers so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    sessions: BTreeMap<u128, SessionRef>,
    seqs: BTreeMap<SessionId, u64>,
    known: BTreeMap<(usize, usize), (u64, u64)>,
    tails: BTreeMap<usize, u64>,
    sent: Vec<Request>,
}

/// A script of at most so many entries. With `great` sessions about, no cache is deleted.
pub(crate) fn script(entries_max: usize, great: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = (time(), vec(actor(), 0..3), vec((identity(), deed(great)), 0..6));
    let step = step.prop_map(|(time, keep_alives, requests)| Step {
        time,
        keep_alives,
        requests,
    });
    vec(step, 1..entries_max)
}

/// What happens before every script: the first block, both caches and both streams.
pub(crate) fn prelude() -> Vec<Entry> {
    let requests = vec![
        anonymous(Command::TakeBlock { first: 1 }),
        anonymous(create(CACHES[0], 1)),
        anonymous(create(CACHES[1], 1)),
        anonymous(Command::CreateStream {
            name: cache(STREAMS[0]),
            settings: stream_settings(0, 0),
        }),
        anonymous(Command::CreateStream {
            name: cache(STREAMS[1]),
            settings: stream_settings(1, 1),
        }),
    ];
    vec![entry_at(Timestamp(0), requests)]
}

/// Sessions which own as much as a session may, so that each takes the whole room of the entry that ends it and
/// whatever ends after it waits for the next one.
pub(crate) fn great_sessions(opened: &mut dyn FnMut(&Entry) -> Applied) {
    opened(&entry_at(Timestamp(0), vec![anonymous(create("great", 1))]));
    for (number, ttl) in [(0, 1_500), (1, 2_500), (2, 2_500), (3, 5_000)] {
        let opening = anonymous(open(GREAT_NONCE + number, Some(Span::from_millis(ttl))));
        let applied = opened(&entry_at(Timestamp(0), vec![opening]));
        let Response::Done(Done::SessionOpened { id, secret, .. }) = applied.answers[0].response else {
            panic!("the session was not opened: {applied:?}");
        };
        let puts: Vec<Request> = (0..SESSION_OWNED_MAX)
            .map(|key| {
                anonymous(Command::Put {
                    cache: cache("great"),
                    key: Bytes::from(format!("{number}/{key}")),
                    value: Bytes::new(),
                    ttl: None,
                    guard: None,
                    owner: Some(SessionRef { id, secret }),
                })
            })
            .collect();
        for chunk in puts.chunks(ENTRY_COMMANDS_MAX) {
            opened(&entry_at(Timestamp(0), chunk.to_vec()));
        }
    }
}

impl Writer {
    /// The entry that a step means now.
    pub(crate) fn entry(&self, step: &Step, machine: &Machine) -> Entry {
        let now = machine.time();
        let next = machine.next_deadline().unwrap_or(now);
        let stamp = match step.time {
            Time::Later(micros) => now + Span(micros),
            Time::Earlier(micros) => Timestamp(now.0.saturating_sub(micros)),
            Time::AtTheNextDeadline => next,
            Time::JustBehindTheNextDeadline => next + Span(1),
            Time::MuchLater(secs) => now + Span::from_secs(secs),
        };
        let (mut seqs, mut requests) = (self.seqs.clone(), Vec::new());
        for (identity, deed) in &step.requests {
            requests.push(self.request(&mut seqs, now.max(stamp), identity, deed));
        }
        Entry {
            stamp,
            keep_alives: step.keep_alives.iter().map(|actor| self.session(*actor)).collect(),
            requests,
        }
    }

    /// Takes note of what was sent and answered.
    pub(crate) fn observe(&mut self, entry: &Entry, applied: &Applied) {
        for (request, answer) in entry.requests.iter().zip(&applied.answers) {
            self.sent.push(request.clone());
            if let Origin::Session { session, seq, .. } = &request.origin {
                let last = self.seqs.entry(session.id).or_default();
                *last = (*last).max(*seq);
            }
            match (&request.command, &answer.response) {
                (Command::OpenSession { nonce, .. }, Response::Done(Done::SessionOpened { id, secret, .. })) => {
                    let session = SessionRef {
                        id: *id,
                        secret: *secret,
                    };
                    self.sessions.insert(nonce.0, session);
                }
                (Command::Put { cache, key, .. }, Response::Done(Done::Put { version, created })) => {
                    let cache = CACHES.iter().position(|name| *name == cache.name);
                    let key = KEYS.iter().position(|name| name.as_bytes() == key);
                    if let (Some(cache), Some(key)) = (cache, key) {
                        self.known.insert((cache, key), (*version, *created));
                    }
                }
                (Command::Append { stream, .. }, Response::Done(Done::Appended(appended))) => {
                    if let Some(stream) = STREAMS.iter().position(|name| *name == stream.name) {
                        self.tails.insert(stream, appended.first + appended.count);
                    }
                }
                _ => {}
            }
        }
    }

    fn request(
        &self,
        seqs: &mut BTreeMap<SessionId, u64>,
        now: Timestamp,
        identity: &Identity,
        deed: &Deed,
    ) -> Request {
        let command = self.command(deed);
        let honest = codec::fingerprint(&command);
        let origin = match identity {
            Identity::Anonymous => Origin::Anonymous,
            Identity::Numbered {
                actor,
                seq,
                below,
                also,
                wrong_fingerprint,
            } => {
                let session = self.session(*actor);
                let last = seqs.entry(session.id).or_default();
                let seq = seq.unwrap_or(*last + 1);
                *last = (*last).max(seq);
                Origin::Session {
                    session,
                    seq,
                    acknowledged: Acknowledged {
                        below: *below,
                        also: also.clone(),
                    },
                    fingerprint: if *wrong_fingerprint { Fingerprint(7) } else { honest },
                }
            }
            Identity::OneShot { id, ahead_ms } => Origin::OneShot {
                id: OneShotId(*id),
                not_after: now + Span::from_millis(*ahead_ms),
                fingerprint: honest,
            },
            Identity::Again(which) => match self.sent.len() {
                0 => Origin::Anonymous,
                sent => return self.sent[sent - 1 - which % sent].clone(),
            },
        };
        Request { origin, command }
    }

    fn command(&self, deed: &Deed) -> Command {
        match deed {
            Deed::Open { nonce, ttl_ms } => Command::OpenSession {
                nonce: Nonce(*nonce),
                secret: secret_of(*nonce),
                ttl: ttl_ms.map(Span::from_millis),
                label: String::new(),
                namespace: namespace("prod"),
            },
            Deed::Close { actor, forced } => {
                let session = self.session(*actor);
                Command::CloseSession {
                    session: session.id,
                    secret: (!forced).then_some(session.secret),
                }
            }
            Deed::Acknowledge { actor, below, also } => Command::Acknowledge {
                session: self.session(*actor),
                acknowledged: Acknowledged {
                    below: *below,
                    also: also.clone(),
                },
            },
            Deed::Create {
                cache: which,
                replication,
            } => Command::CreateCache {
                name: cache(CACHES[*which]),
                settings: CacheSettings {
                    replication: *replication,
                },
            },
            Deed::DeleteCache { cache: which } => Command::DeleteCache {
                name: cache(CACHES[*which]),
            },
            Deed::Put {
                place,
                value: of,
                ttl_ms,
                guard,
                owner,
            } => Command::Put {
                cache: place.cache(),
                key: place.key(),
                value: value(*of),
                ttl: ttl_ms.map(Span::from_millis),
                guard: guard.map(|guard| self.guard(*place, guard)),
                owner: owner.map(|owner| self.session(owner)),
            },
            Deed::Delete { place, guard } => Command::Delete {
                cache: place.cache(),
                key: place.key(),
                guard: guard.map(|guard| self.guard(*place, guard)),
            },
            Deed::Touch { place, ttl_ms, guard } => Command::Touch {
                cache: place.cache(),
                key: place.key(),
                ttl: Span::from_millis(*ttl_ms),
                guard: guard.map(|guard| self.guard(*place, guard)),
            },
            deed => self.command_of_objects(deed),
        }
    }

    fn command_of_objects(&self, deed: &Deed) -> Command {
        match deed {
            Deed::TakeBlock { number } => Command::TakeBlock {
                first: number * BLOCK_REVISIONS + 1,
            },
            Deed::WrongGroup => Command::System(SystemCommand::ReserveBlock),
            Deed::Add { place, delta, ttl_ms } => Command::Add {
                cache: place.cache(),
                key: place.key(),
                delta: *delta,
                ttl: ttl_ms.map(Span::from_millis),
            },
            Deed::DeletePrefix { cache: which, prefix } => Command::DeletePrefix {
                cache: cache(CACHES[*which]),
                prefix: Bytes::from_static(PREFIXES[*prefix].as_bytes()),
            },
            Deed::Txn {
                guards,
                then,
                otherwise,
            } => Command::Txn(Txn {
                guards: guards.iter().map(|premise| self.premise(premise)).collect(),
                then: then.iter().map(|act| self.act(act)).collect(),
                otherwise: otherwise.iter().map(|act| self.act(act)).collect(),
            }),
            Deed::CreateStream { stream, settings } => Command::CreateStream {
                name: cache(STREAMS[*stream]),
                settings: *settings,
            },
            Deed::DeleteStream { stream } => Command::DeleteStream {
                name: cache(STREAMS[*stream]),
            },
            Deed::Append(appending) => Command::Append {
                stream: cache(STREAMS[appending.stream]),
                append: self.append(appending),
            },
            Deed::Trim { stream, back } => Command::TrimStream {
                stream: cache(STREAMS[*stream]),
                before: self.tails.get(stream).copied().unwrap_or(0).saturating_sub(*back),
            },
            other => unreachable!("{other:?} is done elsewhere"),
        }
    }

    fn append(&self, appending: &Appending) -> Append {
        let tail = self.tails.get(&appending.stream).copied().unwrap_or(0);
        Append {
            records: appending
                .records
                .iter()
                .map(|len| Bytes::from(vec![b'r'; usize::from(*len)]))
                .collect(),
            expected: appending.expected.map(|beside| tail + beside),
            token: appending.token,
            message_id: appending.id.map(|id| Bytes::from(vec![id])),
        }
    }

    fn premise(&self, premise: &Premise) -> TxnGuard {
        match premise {
            Premise::Key(place, condition) => TxnGuard::Key {
                cache: place.cache(),
                key: place.key(),
                guard: self.guard(*place, *condition),
            },
            Premise::Counter(place, min, max) => TxnGuard::Counter {
                cache: place.cache(),
                key: place.key(),
                min: *min,
                max: *max,
            },
            Premise::Tail(stream, beside) => TxnGuard::StreamTail {
                stream: cache(STREAMS[*stream]),
                tail: self.tails.get(stream).copied().unwrap_or(0) + beside,
            },
            Premise::Alive(actor) => TxnGuard::SessionAlive {
                session: self.session(*actor).id,
            },
        }
    }

    fn act(&self, act: &Act) -> Operation {
        match act {
            Act::Put(place, of, ttl_ms, owner) => Operation::Put {
                cache: place.cache(),
                key: place.key(),
                value: value(*of),
                ttl: ttl_ms.map(Span::from_millis),
                owner: owner.map(|owner| self.session(owner)),
            },
            Act::Delete(place) => Operation::Delete {
                cache: place.cache(),
                key: place.key(),
            },
            Act::Add(place, delta, ttl_ms) => Operation::Add {
                cache: place.cache(),
                key: place.key(),
                delta: *delta,
                ttl: ttl_ms.map(Span::from_millis),
            },
            Act::Append(appending) => Operation::Append {
                stream: cache(STREAMS[appending.stream]),
                append: self.append(appending),
            },
            Act::Get(place) => Operation::Get {
                cache: place.cache(),
                key: place.key(),
            },
        }
    }

    fn guard(&self, place: Place, condition: Condition) -> Guard {
        let (version, created) = self.known.get(&(place.cache, place.key)).copied().unwrap_or((1, 1));
        match condition {
            Condition::Absent => Guard::Absent,
            Condition::Present => Guard::Present,
            Condition::Value(of) => Guard::Value(value(of)),
            Condition::Version(beside) => Guard::Version(version + beside),
            Condition::Created(beside) => Guard::Created(created + beside),
        }
    }

    fn session(&self, actor: Actor) -> SessionRef {
        let nobody = SessionRef {
            id: SessionId(987_654_321),
            secret: secret_of(actor.nonce),
        };
        let session = self.sessions.get(&actor.nonce).copied().unwrap_or(nobody);
        if actor.wrong {
            with_wrong_secret(session)
        } else {
            session
        }
    }
}

impl Place {
    fn cache(self) -> ObjectName {
        cache(CACHES[self.cache])
    }

    fn key(self) -> Bytes {
        Bytes::from_static(KEYS[self.key].as_bytes())
    }
}

/// What scripts write: mostly numbers.
fn value(of: u8) -> Bytes {
    Bytes::from_static(match of {
        0 => b"0",
        1 => b"1",
        _ => b"x",
    })
}

/// One of a few kinds of streams.
fn stream_settings(retention: usize, window: usize) -> StreamSettings {
    StreamSettings {
        retention: [None, Some(Span::from_millis(1_500)), None][retention],
        retention_bytes: [None, None, Some(12)][retention],
        fence: [FenceMode::Optional, FenceMode::Optional, FenceMode::Mandatory][window],
        dedup_window: [Span::from_secs(2), Span(0), Span::from_secs(2)][window],
        replication: 1,
    }
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        6 => (0u64..1_500_000).prop_map(Time::Later),
        2 => Just(Time::Later(0)),
        1 => (0u64..5_000_000).prop_map(Time::Earlier),
        2 => Just(Time::AtTheNextDeadline),
        2 => Just(Time::JustBehindTheNextDeadline),
        1 => prop_oneof![Just(60u64), Just(15 * 60), Just(3_600)].prop_map(Time::MuchLater),
    ]
}

fn actor() -> impl Strategy<Value = Actor> {
    (1u128..5, prop::bool::weighted(0.05)).prop_map(|(nonce, wrong)| Actor { nonce, wrong })
}

fn identity() -> impl Strategy<Value = Identity> {
    let numbered = (
        actor(),
        prop_oneof![3 => Just(None), 1 => (0u64..20).prop_map(Some)],
        prop_oneof![4 => Just(0u64), 1 => 0u64..12],
        vec(1u64..20, 0..3),
        prop::bool::weighted(0.05),
    );
    let numbered = numbered.prop_map(|(actor, seq, below, also, wrong_fingerprint)| Identity::Numbered {
        actor,
        seq,
        below,
        also,
        wrong_fingerprint,
    });
    prop_oneof![
        3 => Just(Identity::Anonymous),
        4 => numbered,
        1 => (0u128..6, 0u64..130_000).prop_map(|(id, ahead_ms)| Identity::OneShot { id, ahead_ms }),
        2 => (0usize..30).prop_map(Identity::Again),
    ]
}

fn deed(great: bool) -> impl Strategy<Value = Deed> {
    let put = (place(), 0u8..3, of(1u64..8_000), of(condition()), of(actor())).prop_map(
        |(place, value, ttl_ms, guard, owner)| Deed::Put {
            place,
            value,
            ttl_ms,
            guard,
            owner,
        },
    );
    let touch =
        (place(), 1u64..8_000, of(condition())).prop_map(|(place, ttl_ms, guard)| Deed::Touch { place, ttl_ms, guard });
    let acknowledge = (actor(), 0u64..12, vec(1u64..20, 0..3)).prop_map(|(actor, below, also)| Deed::Acknowledge {
        actor,
        below,
        also,
    });
    prop_oneof![
        5 => (1u128..5, of(500u64..8_000)).prop_map(|(nonce, ttl_ms)| Deed::Open { nonce, ttl_ms }),
        2 => (actor(), prop::bool::weighted(0.3)).prop_map(|(actor, forced)| Deed::Close { actor, forced }),
        1 => acknowledge,
        1 => (0..CACHES.len(), 1u32..3).prop_map(|(cache, replication)| Deed::Create { cache, replication }),
        u32::from(!great) => (0..CACHES.len()).prop_map(|cache| Deed::DeleteCache { cache }),
        12 => put,
        3 => (place(), of(condition())).prop_map(|(place, guard)| Deed::Delete { place, guard }),
        3 => touch,
        2 => prop_oneof![(0u64..9).prop_map(|number| Deed::TakeBlock { number }), Just(Deed::WrongGroup)],
        15 => deed_of_objects(great),
    ]
}

/// What is done with counters, prefixes, streams, and several of them at once.
fn deed_of_objects(great: bool) -> impl Strategy<Value = Deed> {
    let txn = (vec(premise(), 0..3), vec(act(), 0..4), vec(act(), 0..3));
    let txn = txn.prop_map(|(guards, then, otherwise)| Deed::Txn {
        guards,
        then,
        otherwise,
    });
    let create = (0..STREAMS.len(), 0usize..3, 0usize..3);
    let create = create.prop_map(|(stream, retention, window)| Deed::CreateStream {
        stream,
        settings: stream_settings(retention, window),
    });
    prop_oneof![
        3 => (place(), -3i64..4, of(1u64..8_000)).prop_map(|(place, delta, ttl_ms)| Deed::Add { place, delta, ttl_ms }),
        1 => (0..CACHES.len(), 0..PREFIXES.len()).prop_map(|(cache, prefix)| Deed::DeletePrefix { cache, prefix }),
        6 => txn,
        1 => create,
        u32::from(!great) => (0..STREAMS.len()).prop_map(|stream| Deed::DeleteStream { stream }),
        7 => appending().prop_map(Deed::Append),
        1 => (0..STREAMS.len(), 0u64..6).prop_map(|(stream, back)| Deed::Trim { stream, back }),
    ]
}

fn appending() -> impl Strategy<Value = Appending> {
    let token = prop_oneof![1 => Just(None), 1 => (1u64..5).prop_map(Some)];
    (
        0..STREAMS.len(),
        vec(0u8..6, 0..4),
        of(0u64..2),
        token,
        prop_oneof![2 => Just(None), 1 => (0u8..4).prop_map(Some)],
    )
        .prop_map(|(stream, records, expected, token, id)| Appending {
            stream,
            records,
            expected,
            token,
            id,
        })
}

fn premise() -> impl Strategy<Value = Premise> {
    prop_oneof![
        (place(), condition()).prop_map(|(place, condition)| Premise::Key(place, condition)),
        (place(), of(-3i64..2), of(-1i64..4)).prop_map(|(place, min, max)| Premise::Counter(place, min, max)),
        (0..STREAMS.len(), 0u64..2).prop_map(|(stream, beside)| Premise::Tail(stream, beside)),
        actor().prop_map(Premise::Alive),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (place(), 0u8..3, of(1u64..8_000), of(actor()))
            .prop_map(|(place, value, ttl_ms, owner)| Act::Put(place, value, ttl_ms, owner)),
        1 => place().prop_map(Act::Delete),
        1 => (place(), -3i64..4, of(1u64..8_000)).prop_map(|(place, delta, ttl_ms)| Act::Add(place, delta, ttl_ms)),
        2 => appending().prop_map(Act::Append),
        2 => place().prop_map(Act::Get),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    (0..CACHES.len(), 0..KEYS.len()).prop_map(|(cache, key)| Place { cache, key })
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Absent),
        Just(Condition::Present),
        (0u8..3).prop_map(Condition::Value),
        (0u64..2).prop_map(Condition::Version),
        (0u64..2).prop_map(Condition::Created),
    ]
}
