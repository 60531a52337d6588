//! What one entry does, step by step.
//!
//! 1. The entry's keep-alives, at the time so far: a session whose deadline is not before it gets the new time
//!    plus its TTL.
//! 2. Time becomes the stamp, never less than before. What is due ends, in the order of (deadline, id), at most
//!    [`ENDED_PER_ENTRY_USUAL`] objects an entry; more only for a single session, which is never split. Rows of deleted
//!    caches and streams are swept, and streams are shortened, with what is left of that budget.
//! 3. The commands. One that meets a lapsed key or session not reached yet ends it first, in the same way, so
//!    that the removal precedes the new value.
//! 4. If due work is left, the entry says so and the leader proposes the next one at once.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::{Command, Entry, Origin, Request};
use crate::effect::Effect;
use crate::ids::{Incarnation, ObjectName, Revision, SessionId};
use crate::keyspace::{self, SessionRow};
use crate::limits::{ENDED_PER_ENTRY_USUAL, ENTRY_READ_BYTES_MAX};
use crate::query::{Found, Query};
use crate::refusal::{Failure, Halt, Missing, Refusal};
use crate::response::{Answer, Done, KeptAlive, Response};
use crate::revision::Revisions;
use crate::session::requests;
use crate::session::rows::SessionRows;
use crate::stream::Gaps;
use crate::table::{Table, TableRead};
use crate::time::{Span, Timestamp};
use crate::{home, kv, session, stream, system, txn};

pub(crate) mod deadlines;
mod ends;
mod read;

use deadlines::Deadlines;

/// Which commands a group's machine takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// The system group.
    System,
    /// A home group.
    Home,
}

/// What an entry did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// One for each keep-alive, in order.
    pub kept_alive: Vec<KeptAlive>,
    /// One for each request, in order.
    pub answers: Vec<Answer>,
    /// What changed, in order.
    pub effects: Vec<Effect>,
    /// Whether due work is left for the next entry, to be proposed at once.
    pub more_due: bool,
    /// The group's revision after the entry.
    pub revision: Revision,
    /// Cluster time after the entry.
    pub time: Timestamp,
}

/// The state machine of one group: a table, and what memory derives from it.
#[derive(Debug)]
pub struct Machine {
    kind: GroupKind,
    memory: Memory,
}

/// What memory holds beside the table. All of it can be rebuilt from the table, and is, at [`Machine::open`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Cluster time so far.
    pub(crate) time: Timestamp,
    /// Revisions consumed and at hand.
    pub(crate) revisions: Revisions,
    /// When what ends.
    pub(crate) deadlines: Deadlines,
    /// The caches that live, each with its life: most commands ask for it.
    pub(crate) caches: BTreeMap<ObjectName, Incarnation>,
    /// The streams that live, each with its life.
    pub(crate) streams: BTreeMap<ObjectName, Incarnation>,
    /// Gaps of streams, which restores have left: their beginnings and ends, ascending.
    pub(crate) gaps: Gaps,
    /// Deleted caches and streams with rows left.
    pub(crate) sweeps: BTreeSet<Incarnation>,
    /// Streams with rows to be removed: below their first record, or beyond the bytes that are kept.
    pub(crate) shortening: BTreeSet<Incarnation>,
    /// Sessions that are open or still answer repeats.
    pub(crate) sessions: usize,
    /// The remembered numbered requests, each with the bytes of its row: most numbers that come are new, and what is
    /// acknowledged is named one by one, so neither has to be looked for in the table.
    pub(crate) kept: BTreeMap<(SessionId, u64), usize>,
    /// Remembered one-shot requests.
    pub(crate) one_shots: usize,
    /// Bytes of their results.
    pub(crate) one_shot_bytes: usize,
}

/// How many of what a machine remembers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that are open or still answer repeats.
    pub sessions: usize,
    /// Keys that end by a deadline of their own.
    pub keys_with_deadlines: usize,
    /// Results of numbered requests.
    pub results: usize,
    /// One-shot requests.
    pub one_shots: usize,
    /// Bytes of their results.
    pub one_shot_bytes: usize,
}

/// One entry being applied: the table, what memory derives from it, and the effects so far.
pub(crate) struct Run<'a> {
    pub(crate) table: &'a mut dyn Table,
    pub(crate) memory: &'a mut Memory,
    pub(crate) sessions: SessionRows,
    pub(crate) effects: Vec<Effect>,
    /// Cluster time of this entry.
    pub(crate) now: Timestamp,
    /// Bytes that its transactions have read and its repeats have brought back so far.
    pub(crate) read_bytes: usize,
    /// Keys that its deletions by prefix have removed or ended so far.
    pub(crate) prefix_deleted: usize,
}

impl Run<'_> {
    /// The row of a session as this entry has left it so far.
    pub(crate) fn session(&mut self, id: SessionId) -> Option<&SessionRow> {
        self.sessions.get(&*self.table, id)
    }

    /// The same row, to be changed.
    pub(crate) fn session_mut(&mut self, id: SessionId) -> Option<&mut SessionRow> {
        self.sessions.get_mut(&*self.table, id)
    }

    /// The life of a cache that exists.
    pub(crate) fn incarnation(&self, name: &ObjectName) -> Result<Incarnation, Failure> {
        self.memory.caches.get(name).copied().ok_or_else(|| Failure::NotFound {
            what: Missing::Cache(name.clone()),
        })
    }

    /// The life of a stream that exists.
    pub(crate) fn stream(&self, name: &ObjectName) -> Result<Incarnation, Failure> {
        self.memory.streams.get(name).copied().ok_or_else(|| Failure::NotFound {
            what: Missing::Stream(name.clone()),
        })
    }

    /// Consumes a revision; [`Run::has_headroom`] was asked before.
    pub(crate) fn consume_revision(&mut self) -> u64 {
        self.memory.revisions.consume()
    }

    /// Counts what an answer brings back against what those of one entry may, of which it takes its part or is not given.
    pub(crate) fn count_read(&mut self, bytes: usize) -> Result<(), Failure> {
        if self.read_bytes + bytes > ENTRY_READ_BYTES_MAX {
            return Err(Failure::Overloaded {
                what: "reads of one entry".to_owned(),
                retry_after: Span::from_millis(100),
            });
        }
        self.read_bytes += bytes;
        Ok(())
    }

    /// Whether there are revisions for one more command or end and what it may meet.
    pub(crate) fn has_headroom(&self) -> bool {
        self.memory.revisions.has_headroom()
    }
}

/// The one revision of a step that may change several things: consumed with the first of them.
#[derive(Debug, Default)]
pub(crate) struct StepRevision(Option<u64>);

impl StepRevision {
    /// The revision, consumed now if it was not yet.
    pub(crate) fn of(&mut self, run: &mut Run<'_>) -> u64 {
        *self.0.get_or_insert_with(|| run.consume_revision())
    }

    /// The revision, if anything changed.
    pub(crate) fn consumed(&self) -> Option<u64> {
        self.0
    }
}

impl Machine {
    /// A machine over a table, which may be empty. Rebuilds from it what memory holds.
    pub fn open(kind: GroupKind, table: &dyn TableRead) -> Machine {
        Machine {
            kind,
            memory: read::rebuild(table),
        }
    }

    /// Applies an entry. Deterministic: the same table and entry give the same writes, answers and effects.
    ///
    /// Panics if a row is damaged or an invariant does not hold; the group must stop then, and nothing that was
    /// written to `table` may be kept.
    pub fn apply(&mut self, table: &mut dyn Table, entry: &Entry) -> Applied {
        let kind = self.kind;
        let time_before = self.memory.time;
        let revisions_before = self.memory.revisions.clone();
        let now = time_before.max(entry.stamp);
        let mut run = Run {
            table,
            memory: &mut self.memory,
            sessions: SessionRows::default(),
            effects: Vec::new(),
            now,
            read_bytes: 0,
            prefix_deleted: 0,
        };

        let mut kept_alive: Vec<KeptAlive> = entry
            .keep_alives
            .iter()
            .map(|kept| session::keep_alive(&mut run, *kept))
            .collect();
        run.memory.time = now;
        let ended = ends::end_what_is_due(&mut run);
        let left = ENDED_PER_ENTRY_USUAL.saturating_sub(ended);
        let swept = home::sweep(&mut run, left);
        stream::shorten(&mut run, left - swept);
        for kept in &mut kept_alive {
            session::name_end(&mut run, kept);
        }
        let answers = entry
            .requests
            .iter()
            .map(|request| answer(kind, &mut run, request))
            .collect();

        let more_due = ends::is_more_due(run.memory, now);
        let (effects, sessions) = (run.effects, run.sessions);
        sessions.write(table);
        if now != time_before {
            keyspace::write(table, keyspace::TIME.to_vec(), &now);
        }
        if self.memory.revisions != revisions_before {
            keyspace::write(table, keyspace::REVISIONS.to_vec(), &self.memory.revisions);
        }
        Applied {
            kept_alive,
            answers,
            effects,
            more_due,
            revision: self.revision(),
            time: now,
        }
    }

    /// Reads at the applied time: what is due then is not seen, whether it was reached or not.
    pub fn query(&self, table: &dyn TableRead, query: &Query) -> Found {
        read::query(table, &self.memory, query)
    }

    /// Reads an image of a table that no machine has opened, at the time and the revision that its rows carry.
    pub fn query_image(image: &dyn TableRead, query: &Query) -> (Found, Revision) {
        let memory = Memory {
            time: keyspace::read(image, keyspace::TIME).unwrap_or_default(),
            revisions: keyspace::read(image, keyspace::REVISIONS).unwrap_or_default(),
            gaps: match query {
                Query::Records { .. } => Gaps::load(image),
                // Nothing else looks at them, and they are a scan of their own.
                _ => Gaps::default(),
            },
            ..Memory::default()
        };
        (read::query(image, &memory, query), Revision(memory.revisions.last()))
    }

    /// The revision and the time that the rows of an image carry.
    pub fn point_of_image(image: &dyn TableRead) -> (Revision, Timestamp) {
        let revisions: Revisions = keyspace::read(image, keyspace::REVISIONS).unwrap_or_default();
        let time = keyspace::read(image, keyspace::TIME).unwrap_or_default();
        (Revision(revisions.last()), time)
    }

    /// How many of what it remembers there are. Costs nothing.
    pub fn counts(&self) -> Counts {
        let Memory {
            sessions,
            ref deadlines,
            ref kept,
            one_shots,
            one_shot_bytes,
            ..
        } = self.memory;
        Counts {
            sessions,
            keys_with_deadlines: deadlines.keys(),
            results: kept.len(),
            one_shots,
            one_shot_bytes,
        }
    }

    /// Cluster time so far.
    pub fn time(&self) -> Timestamp {
        self.memory.time
    }

    /// The highest revision consumed so far.
    pub fn revision(&self) -> Revision {
        Revision(self.memory.revisions.last())
    }

    /// When the next key or session ends: a tick is to be proposed as soon as it is due. `None` also while no
    /// revisions are at hand, since a tick could end nothing then; the entry that takes the next block says that
    /// more is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let next = self.memory.deadlines.next_told();
        next.filter(|_| self.memory.revisions.has_headroom())
    }

    /// Whether anything has a deadline, bookkeeping included: then a tick is worth proposing now and then.
    pub fn has_deadlines(&self) -> bool {
        !self.memory.deadlines.is_empty()
    }

    /// Whether due work is left that an entry can do at once: after an opening and after a snapshot as well as after
    /// an entry.
    pub fn has_due_work(&self) -> bool {
        ends::is_more_due(&self.memory, self.memory.time)
    }

    /// Whether the group should ask the system group for its next block of revisions.
    pub fn wants_block(&self) -> bool {
        self.kind == GroupKind::Home && self.memory.revisions.is_low()
    }

    /// Whether what memory holds is what the table says: an expensive check for tests.
    pub fn memory_matches(&self, table: &dyn TableRead) -> bool {
        self.memory == read::rebuild(table)
    }
}

/// Runs one request under its identity, and says how long what it claimed lives, as of this entry.
fn answer(kind: GroupKind, run: &mut Run<'_>, request: &Request) -> Answer {
    let Request { origin, command } = request;
    let (mut response, repeated) = match origin {
        Origin::Anonymous => (execute(kind, run, command), false),
        Origin::OneShot {
            id,
            not_after,
            fingerprint,
        } => requests::one_shot(run, *id, *not_after, *fingerprint, is_remembered(command), &mut |run| {
            execute(kind, run, command)
        }),
        Origin::Session {
            session,
            seq,
            acknowledged,
            fingerprint,
        } => {
            let numbered = requests::Numbered {
                session: *session,
                seq: *seq,
                acknowledged,
                fingerprint: *fingerprint,
            };
            let remembered = is_remembered(command);
            requests::of_session(run, &numbered, remembered, &mut |run| execute(kind, run, command))
        }
    };
    if repeated {
        renew_facts(run, command, &mut response);
    }
    let remaining = remaining(run, command, &response);
    Answer {
        response,
        repeated,
        remaining,
        revision: Revision(run.memory.revisions.last()),
        time: run.now,
    }
}

/// What a remembered refusal says of the time left to what stood in the way is as of now; the rest of the
/// verdict stays.
fn renew_facts(run: &mut Run<'_>, command: &Command, response: &mut Response) {
    if let (
        Command::Put { cache, key, .. } | Command::Delete { cache, key, .. },
        Response::Refused(Refusal::ConditionFailed(Some(facts))),
    ) = (command, response)
    {
        facts.remaining = kv::remaining_of(run, cache, key, facts.created);
    }
}

/// Whether the result of a command is kept for repeats. A touch is worth repeating only as new work, an opening
/// is found by its nonce, and an acknowledgement has no result.
fn is_remembered(command: &Command) -> bool {
    !matches!(
        command,
        Command::Touch { .. } | Command::OpenSession { .. } | Command::Acknowledge { .. }
    )
}

fn execute(kind: GroupKind, run: &mut Run<'_>, command: &Command) -> Response {
    let belongs = match command {
        Command::System(_) => kind == GroupKind::System,
        _ => kind == GroupKind::Home,
    };
    if !belongs {
        return Response::Failed(Failure::WrongGroup);
    }
    if consumes(command) && !run.has_headroom() {
        let retry_after = Span::from_millis(100);
        return Response::Failed(Failure::Overloaded {
            what: "revisions".to_owned(),
            retry_after,
        });
    }
    match dispatch(run, command) {
        Ok(done) => Response::Done(done),
        Err(Halt::Refused(refusal)) => Response::Refused(*refusal),
        Err(Halt::Failed(failure)) => Response::Failed(failure),
    }
}

fn dispatch(run: &mut Run<'_>, command: &Command) -> Result<Done, Halt> {
    Ok(match command {
        Command::OpenSession {
            nonce,
            secret,
            ttl,
            label,
            namespace,
        } => {
            let opening = session::Opening {
                nonce: *nonce,
                secret: *secret,
                ttl: *ttl,
                label,
                namespace,
            };
            session::open(run, &opening)?
        }
        Command::CloseSession { session, secret } => session::close(run, *session, *secret)?,
        Command::Acknowledge { session, acknowledged } => requests::acknowledge(run, *session, acknowledged)?,
        Command::CreateCache { name, settings } => home::create_cache(run, name, settings)?,
        Command::DeleteCache { name } => home::delete_cache(run, name)?,
        Command::Put {
            cache,
            key,
            value,
            ttl,
            guard,
            owner,
        } => {
            let put = kv::Put {
                cache,
                key,
                value,
                ttl: *ttl,
                guard: guard.as_ref(),
                owner: *owner,
            };
            kv::put(run, &put)?
        }
        Command::Delete { cache, key, guard } => kv::delete(run, cache, key, guard.as_ref())?,
        Command::Touch { cache, key, ttl, guard } => kv::touch(run, cache, key, *ttl, guard.as_ref())?,
        Command::TakeBlock { first } => Done::BlockTaken {
            taken: run.memory.revisions.take(*first),
        },
        Command::System(command) => Done::System(system::execute(run, command)?),
        Command::Add { cache, key, delta, ttl } => kv::counter::add(run, cache, key, *delta, *ttl)?,
        Command::DeletePrefix { cache, prefix } => kv::prefix::delete(run, cache, prefix)?,
        Command::Txn(txn) => txn::execute(run, txn)?,
        Command::CreateStream { name, settings } => home::create_stream(run, name, settings)?,
        Command::DeleteStream { name } => home::delete_stream(run, name)?,
        Command::Append { stream, append } => stream::append(run, stream, append)?,
        Command::TrimStream { stream, before } => stream::trim(run, stream, *before)?,
    })
}

/// Whether a command may consume revisions, its own or those of what it meets.
fn consumes(command: &Command) -> bool {
    !matches!(
        command,
        Command::TakeBlock { .. } | Command::System(_) | Command::Acknowledge { .. }
    )
}

/// How long the claim that a response speaks of lives, computed now and never remembered.
fn remaining(run: &mut Run<'_>, command: &Command, response: &Response) -> Option<Span> {
    match (command, response) {
        (Command::Put { cache, key, .. }, Response::Done(Done::Put { created, .. }))
        | (Command::Add { cache, key, .. }, Response::Done(Done::Added { created, .. }))
        | (Command::Touch { cache, key, .. }, Response::Done(Done::Touched { created, .. })) => {
            kv::remaining_of(run, cache, key, *created)
        }
        (_, Response::Done(Done::SessionOpened { id, .. })) => session::remaining_in(run, *id),
        _ => None,
    }
}
