//! The rules once more, written for clarity only: plain maps, everything looked for by looking at everything.
//!
//! It knows no bounds except that of ends in one entry, and a deleted cache is simply gone. The scripts keep below
//! all other bounds; what a cache leaves behind to be swept shows only in [`Naive::is_sweeping`].

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tenure_core::command::{Acknowledged, CacheSettings, Command, Entry, Guard, Origin, Request};
use tenure_core::effect::{Change, ChangeKind, Effect};
use tenure_core::ids::{Fingerprint, Incarnation, ObjectName, Revision, Secret, SessionId, SessionRef};
use tenure_core::limits::{BLOCK_REVISIONS, BLOCKS_WAITING_MAX, ENDED_PER_ENTRY_USUAL, SESSION_OWNED_MAX};
use tenure_core::machine::Applied;
use tenure_core::refusal::{EndReason, Failure, KeyFacts, Missing, Refusal};
use tenure_core::response::{Answer, CacheRecord, Done, KeptAlive, Removed, Response};
use tenure_core::time::{Span, Timestamp};

mod counters;
mod reads;
mod streams;
mod transactions;

use counters::counter;
use streams::Stream;

const QUARTER_HOUR: Span = Span::from_secs(15 * 60);
const HOUR: Span = Span::from_secs(3_600);

/// Keys as the change feed tells them: value, version, token and owner.
pub(crate) type Told = BTreeMap<(Incarnation, Bytes), (Bytes, u64, u64, Option<SessionId>)>;

/// A home group with its first block of revisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Naive {
    now: Timestamp,
    revision: u64,
    /// Behind the highest block, and how many blocks wait behind the first.
    top: u64,
    waiting: usize,
    caches: BTreeMap<ObjectName, Cache>,
    streams: BTreeMap<ObjectName, Stream>,
    sessions: BTreeMap<SessionId, Session>,
    calls: BTreeMap<u128, Call>,
    /// Of the entry that is being applied.
    effects: Vec<Effect>,
    is_sweeping: bool,
    /// While a transaction is tried: the revision that it has consumed, if it has.
    step: Option<Option<u64>>,
}

#[derive(Clone, Debug)]
struct Cache {
    record: CacheRecord,
    keys: BTreeMap<Bytes, Key>,
}

#[derive(Clone, Debug)]
struct Key {
    value: Bytes,
    version: u64,
    created: u64,
    deadline: Option<Timestamp>,
    owner: Option<SessionId>,
}

#[derive(Clone, Debug)]
struct Session {
    nonce: u128,
    secret: Secret,
    ttl: Option<Span>,
    label: String,
    /// When it ends, or when it is forgotten if it has ended.
    deadline: Timestamp,
    ended: Option<(EndReason, u64)>,
    below: u64,
    acknowledged: BTreeSet<u64>,
    results: BTreeMap<u64, (Fingerprint, Response)>,
}

/// A remembered call without a session.
#[derive(Clone, Debug)]
struct Call {
    not_after: Timestamp,
    fingerprint: Fingerprint,
    response: Response,
}

/// What has a deadline, in the order in which equal deadlines are served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Session(SessionId),
    Key(Incarnation, Bytes, ObjectName),
    EndedSession(SessionId),
    Call(u128),
    Stream(Incarnation, ObjectName),
}

impl Naive {
    pub(crate) fn apply(&mut self, entry: &Entry) -> Applied {
        let before = self.now;
        self.now = self.now.max(entry.stamp);
        self.is_sweeping = false;
        let kept_alive = entry
            .keep_alives
            .iter()
            .map(|kept| self.keep_alive(before, *kept))
            .collect::<Vec<KeptAlive>>();
        let ended = self.end_what_is_due();
        self.shorten_streams(ENDED_PER_ENTRY_USUAL.saturating_sub(ended));
        let kept_alive = kept_alive.into_iter().map(|kept| self.with_revision(kept)).collect();
        let answers = entry.requests.iter().map(|request| self.answer(request)).collect();
        Applied {
            kept_alive,
            answers,
            effects: std::mem::take(&mut self.effects),
            more_due: self.is_sweeping || self.is_shortening() || !self.due().is_empty(),
            revision: Revision(self.revision),
            time: self.now,
        }
    }

    /// Whether a cache was deleted in the last entry, so that the machine still counts its keys as owned.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.is_sweeping
    }

    fn keep_alive(&mut self, before: Timestamp, kept: SessionRef) -> KeptAlive {
        let id = kept.id;
        if self.sessions.get(&id).is_none_or(|known| known.secret != kept.secret) {
            return KeptAlive::Unknown { session: id };
        }
        if self.sessions[&id].ended.is_none() && self.sessions[&id].deadline < before {
            return KeptAlive::Ended {
                session: id,
                reason: EndReason::Expired,
                revision: 0,
            };
        }
        let now = self.now;
        let session = self.sessions.get_mut(&id).expect("it was just seen");
        match session.ended {
            Some((reason, revision)) => KeptAlive::Ended {
                session: id,
                reason,
                revision,
            },
            None => {
                session.deadline = now + session.ttl.unwrap_or(HOUR);
                KeptAlive::Renewed {
                    session: id,
                    remaining: session.ttl,
                }
            }
        }
    }

    /// A session that had lapsed is told at which revision it ended, if it has.
    fn with_revision(&self, kept: KeptAlive) -> KeptAlive {
        match kept {
            KeptAlive::Ended {
                session,
                reason,
                revision: 0,
            } => {
                let revision = self.sessions[&session].ended.map_or(0, |(_, revision)| revision);
                KeptAlive::Ended {
                    session,
                    reason,
                    revision,
                }
            }
            other => other,
        }
    }

    /// Everything that is due now, in order.
    fn due(&self) -> BTreeSet<(Timestamp, Due)> {
        let mut due = BTreeSet::new();
        for (id, session) in &self.sessions {
            let item = match session.ended {
                Some(_) => Due::EndedSession(*id),
                None => Due::Session(*id),
            };
            due.insert((session.deadline, item));
        }
        for (name, cache) in &self.caches {
            for (key, row) in &cache.keys {
                if let Some(deadline) = row.deadline {
                    due.insert((deadline, Due::Key(cache.record.incarnation, key.clone(), name.clone())));
                }
            }
        }
        for (id, call) in &self.calls {
            due.insert((call.not_after, Due::Call(*id)));
        }
        for (name, stream) in &self.streams {
            if let Some(end) = stream.first_end() {
                due.insert((end, Due::Stream(stream.record.incarnation, name.clone())));
            }
        }
        due.retain(|(deadline, _)| *deadline < self.now);
        due
    }

    /// Ends what is due, and says how much.
    fn end_what_is_due(&mut self) -> usize {
        let mut ended = 0;
        for (_, item) in self.due() {
            let size = match &item {
                Due::Session(id) => 1 + self.owned_by(*id).len(),
                Due::EndedSession(id) => 1 + self.sessions[id].results.len(),
                Due::Key(..) | Due::Call(_) | Due::Stream(..) => 1,
            };
            if ended > 0 && ended + size > ENDED_PER_ENTRY_USUAL {
                return ended;
            }
            ended += size;
            match item {
                Due::Session(id) => {
                    self.end_session(id, EndReason::Expired);
                }
                // Its session may have ended just before, and taken it along.
                Due::Key(_, key, name) if self.caches[&name].keys.contains_key(&key) => {
                    self.remove(&name, &key, EndReason::Expired);
                }
                Due::Key(..) => ended -= size,
                Due::EndedSession(id) => {
                    self.sessions.remove(&id);
                }
                Due::Call(id) => {
                    self.calls.remove(&id);
                }
                Due::Stream(_, name) => {
                    let now = self.now;
                    let stream = self.streams.get_mut(&name).expect("what is due is there");
                    ended += stream.expire(now, ENDED_PER_ENTRY_USUAL + 1 - ended) - 1;
                }
            }
        }
        ended
    }

    fn answer(&mut self, request: &Request) -> Answer {
        let Request { origin, command } = request;
        let (mut response, repeated) = match origin {
            Origin::Anonymous => (self.execute(command), false),
            Origin::OneShot {
                id,
                not_after,
                fingerprint,
            } => self.call(id.0, *not_after, *fingerprint, command),
            Origin::Session {
                session,
                seq,
                acknowledged,
                fingerprint,
            } => self.numbered(*session, *seq, acknowledged, *fingerprint, command),
        };
        let remaining = match (command, &mut response) {
            (Command::Put { cache, key, .. }, Response::Done(Done::Put { created, .. }))
            | (Command::Add { cache, key, .. }, Response::Done(Done::Added { created, .. }))
            | (Command::Touch { cache, key, .. }, Response::Done(Done::Touched { created, .. })) => {
                self.remaining_of(cache, key, *created)
            }
            (
                Command::Put { cache, key, .. } | Command::Delete { cache, key, .. },
                Response::Refused(Refusal::ConditionFailed(Some(facts))),
            ) => {
                facts.remaining = self.remaining_of(cache, key, facts.created);
                None
            }
            (_, Response::Done(Done::SessionOpened { id, .. })) => match self.sessions.get(id) {
                Some(session) if session.ended.is_none() => {
                    session.ttl.map(|_| session.deadline.remaining_at(self.now))
                }
                _ => Some(Span(0)),
            },
            _ => None,
        };
        Answer {
            response,
            repeated,
            remaining,
            revision: Revision(self.revision),
            time: self.now,
        }
    }

    fn call(
        &mut self,
        id: u128,
        not_after: Timestamp,
        fingerprint: Fingerprint,
        command: &Command,
    ) -> (Response, bool) {
        if not_after < self.now {
            return (Response::Failed(Failure::TooLate), false);
        }
        match self.calls.get(&id) {
            Some(call) if call.not_after >= self.now && call.fingerprint != fingerprint => {
                return (Response::Failed(Failure::RequestReused), false);
            }
            Some(call) if call.not_after >= self.now => return (call.response.clone(), true),
            _ => {}
        }
        if not_after > self.now + Span::from_secs(120) {
            let failure = Failure::Invalid {
                field: "not_after".to_owned(),
                rule: "at most 120000 ms ahead of the group's time".to_owned(),
            };
            return (Response::Failed(failure), false);
        }
        let response = self.execute(command);
        if is_remembered(command, &response) {
            let call = Call {
                not_after,
                fingerprint,
                response: response.clone(),
            };
            self.calls.insert(id, call);
        }
        (response, false)
    }

    fn numbered(
        &mut self,
        by: SessionRef,
        seq: u64,
        acknowledged: &Acknowledged,
        fingerprint: Fingerprint,
        command: &Command,
    ) -> (Response, bool) {
        if let Err(failure) = self.acknowledge(by, acknowledged) {
            return (Response::Failed(failure), false);
        }
        let session = &self.sessions[&by.id];
        match session.results.get(&seq) {
            Some((known, _)) if *known != fingerprint => return (Response::Failed(Failure::RequestReused), false),
            Some((_, response)) => return (response.clone(), true),
            None => {}
        }
        if seq < session.below || session.acknowledged.contains(&seq) {
            return (Response::Failed(Failure::RequestForgotten { seq }), false);
        }
        if let Err(failure) = self.alive(by.id) {
            return (Response::Failed(failure), false);
        }
        let now = self.now;
        let session = self.sessions.get_mut(&by.id).expect("it lives");
        if session.ttl.is_none() {
            session.deadline = now + HOUR;
        }
        let response = self.execute(command);
        if is_remembered(command, &response) {
            let session = self.sessions.get_mut(&by.id).expect("it may have ended, not gone");
            session.results.insert(seq, (fingerprint, response.clone()));
        }
        (response, false)
    }

    fn acknowledge(&mut self, by: SessionRef, acknowledged: &Acknowledged) -> Result<(), Failure> {
        let unknown = Failure::SessionUnknown { session: by.id };
        let session = self.sessions.get_mut(&by.id).ok_or(unknown)?;
        if session.secret != by.secret {
            return Err(Failure::WrongSecret { session: by.id });
        }
        session.below = session.below.max(acknowledged.below);
        session.acknowledged.extend(&acknowledged.also);
        let (below, single) = (session.below, &session.acknowledged);
        session.results.retain(|seq, _| *seq >= below && !single.contains(seq));
        Ok(())
    }

    fn execute(&mut self, command: &Command) -> Response {
        let done = match command {
            Command::OpenSession {
                nonce,
                secret,
                ttl,
                label,
                ..
            } => self.open(nonce.0, *secret, *ttl, label),
            Command::CloseSession { session, secret } => self.close(*session, *secret),
            Command::Acknowledge { session, acknowledged } => {
                self.acknowledge(*session, acknowledged).map(|()| Done::Acknowledged)
            }
            Command::CreateCache { name, settings } => return self.create_cache(name, settings),
            Command::DeleteCache { name } => self.delete_cache(name),
            Command::Put {
                cache,
                key,
                guard,
                owner,
                value,
                ttl,
            } => {
                if let Some(verdict) = self.refuses(cache, key, guard.as_ref()) {
                    return verdict;
                }
                self.put(cache, key, value, *ttl, *owner)
            }
            Command::Delete { cache, key, guard } => {
                if let Some(verdict) = self.refuses(cache, key, guard.as_ref()) {
                    return verdict;
                }
                Ok(self.delete(cache, key))
            }
            Command::Touch { cache, key, ttl, guard } => {
                if let Some(verdict) = self.refuses(cache, key, guard.as_ref()) {
                    return verdict;
                }
                self.touch(cache, key, *ttl)
            }
            Command::TakeBlock { first } => {
                let taken = *first >= self.top && self.waiting < BLOCKS_WAITING_MAX;
                if taken {
                    // The first block is begun by the first revision.
                    self.waiting += usize::from(self.top > 0);
                    self.top = first + BLOCK_REVISIONS;
                }
                Ok(Done::BlockTaken { taken })
            }
            Command::System(_) => Err(Failure::WrongGroup),
            Command::Add { cache, key, delta, ttl } => {
                if let Some(verdict) = self.refuses(cache, key, None) {
                    return verdict;
                }
                self.add(cache, key, *delta, *ttl)
            }
            Command::DeletePrefix { cache, prefix } => self.delete_prefix(cache, prefix),
            Command::Txn(txn) => return self.txn(txn),
            Command::CreateStream { name, settings } => return self.create_stream(name, *settings),
            Command::DeleteStream { name } => self.delete_stream(name),
            Command::Append { stream, append } => return self.append(stream, append),
            Command::TrimStream { stream, before } => self.trim(stream, *before),
        };
        match done {
            Ok(done) => Response::Done(done),
            Err(failure) => Response::Failed(failure),
        }
    }

    fn create_cache(&mut self, name: &ObjectName, settings: &CacheSettings) -> Response {
        let existing = self.caches.get(name).map(|cache| cache.record.clone());
        if let Some(record) = existing {
            if record.settings == *settings {
                return Response::Done(Done::CacheCreated { record, existed: true });
            }
            return Response::Refused(Refusal::ExistsOtherwise(record));
        }
        let record = CacheRecord {
            name: name.clone(),
            settings: settings.clone(),
            incarnation: Incarnation(self.consume()),
        };
        let cache = Cache {
            record: record.clone(),
            keys: BTreeMap::new(),
        };
        self.caches.insert(name.clone(), cache);
        Response::Done(Done::CacheCreated { record, existed: false })
    }

    fn delete(&mut self, name: &ObjectName, key: &Bytes) -> Done {
        let version = self.caches[name].keys.get(key).map(|row| row.version);
        let removed = version.map(|version| Removed {
            revision: self.remove(name, key, EndReason::Delete),
            version,
        });
        Done::Deleted { removed }
    }

    fn touch(&mut self, name: &ObjectName, key: &Bytes, ttl: Span) -> Result<Done, Failure> {
        let deadline = self.now + ttl;
        let missing = Failure::NotFound {
            what: Missing::Key(key.clone()),
        };
        let keys = &mut self.caches.get_mut(name).expect("it was just seen").keys;
        let row = keys.get_mut(key).ok_or(missing)?;
        row.deadline = Some(deadline);
        Ok(Done::Touched {
            version: row.version,
            created: row.created,
        })
    }

    fn open(&mut self, nonce: u128, secret: Secret, ttl: Option<Span>, label: &str) -> Result<Done, Failure> {
        let known = self.sessions.iter().find(|(_, session)| session.nonce == nonce);
        if let Some(id) = known.map(|(id, _)| *id) {
            self.alive(id)?;
            let session = &self.sessions[&id];
            return Ok(Done::SessionOpened {
                id,
                secret: session.secret,
                ttl: session.ttl,
            });
        }
        let id = SessionId(self.consume());
        let session = Session {
            nonce,
            secret,
            ttl,
            label: label.to_owned(),
            deadline: self.now + ttl.unwrap_or(HOUR),
            ended: None,
            below: 1,
            acknowledged: BTreeSet::new(),
            results: BTreeMap::new(),
        };
        self.sessions.insert(id, session);
        Ok(Done::SessionOpened { id, secret, ttl })
    }

    fn close(&mut self, id: SessionId, secret: Option<Secret>) -> Result<Done, Failure> {
        self.alive_to_be_named(id)?;
        if secret.is_some_and(|secret| secret != self.sessions[&id].secret) {
            return Err(Failure::WrongSecret { session: id });
        }
        let removed = self.owned_by(id).len() as u64;
        let reason = if secret.is_some() {
            EndReason::Closed
        } else {
            EndReason::Forced
        };
        let revision = self.end_session(id, reason);
        Ok(Done::SessionClosed { revision, removed })
    }

    fn delete_cache(&mut self, name: &ObjectName) -> Result<Done, Failure> {
        let cache = self.caches.remove(name).ok_or_else(|| no_cache(name))?;
        self.is_sweeping = true;
        let revision = self.consume();
        self.effects.push(Effect::ObjectDeleted {
            incarnation: cache.record.incarnation,
            revision,
        });
        Ok(Done::CacheDeleted { revision })
    }

    /// Lets what has lapsed end first; then says whether the cache is missing or the guard does not hold.
    fn refuses(&mut self, name: &ObjectName, key: &Bytes, guard: Option<&Guard>) -> Option<Response> {
        let Some(cache) = self.caches.get(name) else {
            return Some(Response::Failed(no_cache(name)));
        };
        if let Some(row) = cache.keys.get(key) {
            let owner = row.owner;
            if row.deadline.is_some_and(|deadline| deadline < self.now) {
                self.remove(name, key, EndReason::Expired);
            } else if let Some(owner) = owner {
                // The end of its session takes the key along.
                let _ = self.alive(owner);
            }
        }
        let row = self.caches[name].keys.get(key);
        let holds = match (guard, row) {
            (None, _) => true,
            (Some(Guard::Absent), row) => row.is_none(),
            (Some(_), None) => false,
            (Some(Guard::Present), Some(_)) => true,
            (Some(Guard::Version(version)), Some(row)) => row.version == *version,
            (Some(Guard::Value(value)), Some(row)) => row.value == *value,
            (Some(Guard::Created(created)), Some(row)) => row.created == *created,
        };
        (!holds).then(|| {
            Response::Refused(Refusal::ConditionFailed(row.map(|row| KeyFacts {
                version: row.version,
                created: row.created,
                holder: row.owner,
                remaining: self.remaining(row),
                value: Some(row.value.clone()),
                value_len: row.value.len() as u64,
            })))
        })
    }

    fn put(
        &mut self,
        name: &ObjectName,
        key: &Bytes,
        value: &Bytes,
        ttl: Option<Span>,
        owner: Option<SessionRef>,
    ) -> Result<Done, Failure> {
        if let Some(owner) = owner {
            self.alive_to_be_named(owner.id)?;
            let session = &self.sessions[&owner.id];
            if session.secret != owner.secret {
                return Err(Failure::WrongSecret { session: owner.id });
            }
            if session.ttl.is_none() {
                return Err(Failure::Invalid {
                    field: "owner".to_owned(),
                    rule: "a session without a TTL can own nothing".to_owned(),
                });
            }
            let every_key = self.caches.values().flat_map(|cache| cache.keys.values());
            let owned = every_key.filter(|row| row.owner == Some(owner.id)).count();
            let owns_it = self.caches[name]
                .keys
                .get(key)
                .is_some_and(|row| row.owner == Some(owner.id));
            if owned >= SESSION_OWNED_MAX && !owns_it {
                return Err(Failure::Limit {
                    which: "what a session may own".to_owned(),
                    value: SESSION_OWNED_MAX as u64,
                });
            }
        }
        let deadline = ttl.map(|ttl| self.now + ttl);
        Ok(self.write(name, key, value, deadline, owner.map(|owner| owner.id)))
    }

    fn write(
        &mut self,
        name: &ObjectName,
        key: &Bytes,
        value: &Bytes,
        deadline: Option<Timestamp>,
        owner: Option<SessionId>,
    ) -> Done {
        let version = self.consume();
        let cache = self.caches.get_mut(name).expect("it was just seen");
        let old = cache.keys.get(key).map(|old| (old.version, old.created));
        let created = old.map_or(version, |(_, created)| created);
        let row = Key {
            value: value.clone(),
            version,
            created,
            deadline,
            owner,
        };
        cache.keys.insert(key.clone(), row);
        self.effects.push(Effect::Changed(Change {
            revision: version,
            incarnation: cache.record.incarnation,
            key: key.clone(),
            kind: ChangeKind::Put {
                value: value.clone(),
                created,
                owner,
                ttl: deadline.map(|deadline| deadline.remaining_at(self.now)),
            },
            previous_version: old.map(|(version, _)| version),
        }));
        Done::Put { version, created }
    }

    fn remove(&mut self, name: &ObjectName, key: &Bytes, reason: EndReason) -> u64 {
        let revision = self.consume();
        self.remove_at(revision, name, key, reason);
        revision
    }

    fn remove_at(&mut self, revision: u64, name: &ObjectName, key: &Bytes, reason: EndReason) {
        let cache = self.caches.get_mut(name).expect("a key is in a cache");
        let row = cache.keys.remove(key).expect("what is removed is there");
        self.effects.push(Effect::Changed(Change {
            revision,
            incarnation: cache.record.incarnation,
            key: key.clone(),
            kind: ChangeKind::Removed { reason },
            previous_version: Some(row.version),
        }));
    }

    fn end_session(&mut self, id: SessionId, reason: EndReason) -> u64 {
        let revision = self.consume();
        let reason_of_keys = match reason {
            EndReason::Expired => EndReason::Session,
            other => other,
        };
        for ((_, key), name) in self.owned_by(id) {
            self.remove_at(revision, &name, &key, reason_of_keys);
        }
        let forgotten_at = self.now + QUARTER_HOUR;
        let session = self.sessions.get_mut(&id).expect("a session ends once it was opened");
        session.ended = Some((reason, revision));
        session.deadline = forgotten_at;
        self.effects.push(Effect::SessionEnded {
            session: id,
            reason,
            revision,
        });
        revision
    }

    /// Whether a session lives; one that has lapsed ends first.
    fn alive(&mut self, id: SessionId) -> Result<(), Failure> {
        let Some(session) = self.sessions.get(&id) else {
            return Err(Failure::SessionUnknown { session: id });
        };
        if session.ended.is_none() && session.deadline < self.now {
            self.end_session(id, EndReason::Expired);
        }
        match self.sessions[&id].ended {
            Some((reason, revision)) => Err(Failure::SessionExpired {
                session: id,
                reason,
                revision,
            }),
            None => Ok(()),
        }
    }

    /// The same where the session is a thing that a command names, and not who asks.
    fn alive_to_be_named(&mut self, id: SessionId) -> Result<(), Failure> {
        match self.sessions.contains_key(&id) {
            true => self.alive(id),
            false => Err(Failure::NotFound {
                what: Missing::Session(id),
            }),
        }
    }

    fn owned_by(&self, id: SessionId) -> BTreeMap<(Incarnation, Bytes), ObjectName> {
        let mut owned = BTreeMap::new();
        for (name, cache) in &self.caches {
            for (key, row) in &cache.keys {
                if row.owner == Some(id) {
                    owned.insert((cache.record.incarnation, key.clone()), name.clone());
                }
            }
        }
        owned
    }

    fn remaining_of(&self, name: &ObjectName, key: &Bytes, created: u64) -> Option<Span> {
        let row = self.caches.get(name).and_then(|cache| cache.keys.get(key));
        match row {
            Some(row) if row.created == created => self.remaining(row),
            _ => Some(Span(0)),
        }
    }

    fn remaining(&self, row: &Key) -> Option<Span> {
        let by_session = row.owner.map(|owner| self.sessions[&owner].deadline);
        let deadlines = [row.deadline, by_session];
        let earliest = deadlines.into_iter().flatten().min();
        earliest.map(|deadline| deadline.remaining_at(self.now))
    }

    fn consume(&mut self) -> u64 {
        if let Some(Some(shared)) = self.step {
            return shared;
        }
        self.revision += 1;
        if self.step.is_some() {
            self.step = Some(Some(self.revision));
        }
        self.revision
    }
}

/// Whether a repeat finds the result.
fn is_remembered(command: &Command, response: &Response) -> bool {
    let by_command = !matches!(
        command,
        Command::Touch { .. } | Command::OpenSession { .. } | Command::Acknowledge { .. }
    );
    by_command && !matches!(response, Response::Failed(Failure::WrongSecret { .. }))
}

fn no_cache(name: &ObjectName) -> Failure {
    Failure::NotFound {
        what: Missing::Cache(name.clone()),
    }
}
