//! What a fake node keeps: caches and streams, a small model of what the real one does with them.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_api::v1::{
    self, Header, Refusal, WireError, guard, read_from, refusal, txn_guard, txn_operation, txn_result,
};

use crate::fake::Say;

/// Keys that one step of a deletion by prefix removes.
pub(crate) const PREFIX_KEYS_MAX: usize = 3;
/// Records of one page.
const PAGE_RECORDS_MAX: usize = 4;

/// The objects of one namespace.
#[derive(Clone, Default)]
pub(crate) struct Objects {
    pub(crate) caches: BTreeMap<String, Keys>,
    pub(crate) streams: BTreeMap<String, FakeStream>,
    /// A cache comes into being by being used.
    pub(crate) lenient: bool,
    /// So many steps of deletions by prefix remove nothing and say that there is more.
    pub(crate) steps_in_vain: usize,
    /// What has changed in which cache.
    pub(crate) changes: Vec<(String, v1::Change)>,
}

pub(crate) type Keys = BTreeMap<Bytes, Row>;

/// A key's value with its version, its creation and its TTL.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) value: Bytes,
    pub(crate) version: u64,
    created: u64,
    ttl_ms: Option<u64>,
}

#[derive(Clone, Default)]
pub(crate) struct FakeStream {
    pub(crate) records: Vec<v1::Record>,
    first: usize,
    token: Option<u64>,
    ids: BTreeMap<Bytes, v1::AppendDone>,
    settings: v1::StreamSettings,
}

/// Why an operation is not done.
pub(crate) enum No {
    Refused(Box<Refusal>),
    Error(Box<WireError>),
}

type Result<T> = std::result::Result<T, No>;

impl From<WireError> for No {
    fn from(error: WireError) -> No {
        No::Error(Box::new(error))
    }
}

fn refused(code: &str, detail: refusal::Detail) -> No {
    No::Refused(Box::new(Refusal {
        code: code.to_owned(),
        detail: Some(detail),
    }))
}

impl Objects {
    fn cache(&mut self, name: &str) -> Result<&mut Keys> {
        if self.lenient {
            return Ok(self.caches.entry(name.to_owned()).or_default());
        }
        let missing = || WireError::not_found("cache", name.to_owned());
        Ok(self.caches.get_mut(name).ok_or_else(missing)?)
    }

    fn stream(&mut self, name: &str) -> Result<&mut FakeStream> {
        let missing = || WireError::not_found("stream", name.to_owned());
        Ok(self.streams.get_mut(name).ok_or_else(missing)?)
    }

    pub(crate) fn put(
        &mut self,
        revision: u64,
        cache: &str,
        key: &Bytes,
        value: &Bytes,
        ttl_ms: Option<u64>,
        guard: Option<&v1::Guard>,
    ) -> Result<v1::PutDone> {
        let keys = self.cache(cache)?;
        check(keys.get(key), guard)?;
        let created = keys.get(key).map_or(revision, |row| row.created);
        let row = Row {
            value: value.clone(),
            version: revision,
            created,
            ttl_ms,
        };
        let previous_version = keys.insert(key.clone(), row).map(|row| row.version);
        let put = v1::change::Put {
            value: value.clone(),
            version: revision,
            created,
            owner_session: None,
            ttl_ms,
        };
        self.changed(cache, revision, key, v1::change::Kind::Put(put), previous_version);
        let version = revision;
        Ok(v1::PutDone { version, created })
    }

    pub(crate) fn get(&mut self, cache: &str, key: &Bytes) -> Result<Option<v1::KeyValue>> {
        Ok(self.cache(cache)?.get(key).map(|row| v1::KeyValue {
            key: key.clone(),
            value: row.value.clone(),
            version: row.version,
            created: row.created,
            owner_session: None,
            remaining_us: row.ttl_ms.map(|ttl| ttl * 1_000),
        }))
    }

    pub(crate) fn delete(
        &mut self,
        revision: u64,
        cache: &str,
        key: &Bytes,
        guard: Option<&v1::Guard>,
    ) -> Result<v1::DeleteDone> {
        let keys = self.cache(cache)?;
        check(keys.get(key), guard)?;
        let removed = keys.remove(key).map(|row| v1::delete_done::Removal {
            revision,
            version: row.version,
        });
        if let Some(removal) = &removed {
            let reason = v1::EndReason::Delete.into();
            let kind = v1::change::Kind::Removed(v1::change::Removed { reason });
            self.changed(cache, revision, key, kind, Some(removal.version));
        }
        Ok(v1::DeleteDone { removed })
    }

    fn changed(
        &mut self,
        cache: &str,
        revision: u64,
        key: &Bytes,
        kind: v1::change::Kind,
        previous_version: Option<u64>,
    ) {
        let change = v1::Change {
            revision,
            key: key.clone(),
            kind: Some(kind),
            previous_version,
        };
        self.changes.push((cache.to_owned(), change));
    }

    /// The changes of one revision that a watch wants, from this revision on.
    pub(crate) fn changes_from(&self, watch: &v1::WatchRequest, from: u64) -> Option<(u64, Vec<v1::Change>)> {
        let wanted = |key: &Bytes| match watch.target.as_ref().unwrap() {
            v1::watch_request::Target::Key(wanted) => key == wanted,
            v1::watch_request::Target::Prefix(prefix) => key.starts_with(prefix),
            v1::watch_request::Target::All(_) => true,
        };
        let of_watch = |(cache, change): &&(String, v1::Change)| {
            *cache == watch.cache && change.revision >= from && wanted(&change.key)
        };
        let mut changes = self.changes.iter().filter(of_watch).map(|(_, change)| change.clone());
        let first = changes.next()?;
        let revision = first.revision;
        let others = changes.take_while(|change| change.revision == revision);
        Some((revision, std::iter::once(first).chain(others).collect()))
    }

    pub(crate) fn add(
        &mut self,
        revision: u64,
        cache: &str,
        key: &Bytes,
        delta: i64,
        ttl_ms: Option<u64>,
    ) -> Result<v1::AddDone> {
        let sum = self.number(cache, key)?.checked_add(delta);
        let sum = sum.ok_or_else(|| WireError::invalid("delta", "the sum fits 64 bits"))?;
        let known = self.cache(cache)?.get(key).cloned();
        let ttl_ms = known.map_or(ttl_ms, |row| row.ttl_ms);
        let value = Bytes::from(sum.to_string());
        let done = self.put(revision, cache, key, &value, ttl_ms, None)?;
        Ok(v1::AddDone {
            sum,
            version: done.version,
            created: done.created,
        })
    }

    fn number(&mut self, cache: &str, key: &Bytes) -> Result<i64> {
        let wrong_type = || WireError::wrong_type("the key", "value");
        match self.cache(cache)?.get(key) {
            None => Ok(0),
            Some(row) => Ok(std::str::from_utf8(&row.value)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(wrong_type)?),
        }
    }

    /// One step; says how many keys were removed and whether there are more.
    pub(crate) fn delete_prefix(&mut self, cache: &str, prefix: &Bytes) -> Result<(u64, bool)> {
        if self.steps_in_vain > 0 {
            self.steps_in_vain -= 1;
            return Ok((0, true));
        }
        let keys = self.cache(cache)?;
        let mut matching = keys.keys().filter(|key| key.starts_with(prefix)).cloned();
        let step: Vec<Bytes> = matching.by_ref().take(PREFIX_KEYS_MAX).collect();
        let more = matching.next().is_some();
        for key in &step {
            keys.remove(key);
        }
        Ok((step.len() as u64, more))
    }

    pub(crate) fn create_stream(
        &mut self,
        create: &v1::CreateStreamRequest,
        revision: u64,
    ) -> Result<(v1::StreamInfo, bool)> {
        let settings = create.settings.unwrap_or_default();
        let existed = self.streams.contains_key(&create.name);
        let stream = self.streams.entry(create.name.clone()).or_default();
        if !existed {
            stream.settings = settings;
        }
        let info = v1::StreamInfo {
            name: create.name.clone(),
            settings: Some(stream.settings),
            incarnation: revision,
            ..v1::StreamInfo::default()
        };
        if stream.settings != settings {
            let detail = refusal::Detail::ExistsOtherwise(refusal::ExistsOtherwise {
                cache: None,
                stream: Some(info),
            });
            return Err(refused("exists_otherwise", detail));
        }
        Ok((info, existed))
    }

    pub(crate) fn stream_state(&mut self, name: &str, header: Header) -> Result<v1::GetStreamReply> {
        let stream = self.stream(name)?;
        Ok(v1::GetStreamReply {
            header: Some(header),
            stream: Some(v1::StreamInfo {
                name: name.to_owned(),
                settings: Some(stream.settings),
                ..v1::StreamInfo::default()
            }),
            first: stream.first as u64,
            tail: stream.tail(),
            bytes: stream.records.iter().map(|record| record.data.len() as u64).sum(),
            fence_token: stream.token,
        })
    }

    pub(crate) fn append(&mut self, name: &str, append: &v1::Append) -> Result<v1::AppendDone> {
        let stream = self.stream(name)?;
        if let Some(known) = append.message_id.as_ref().and_then(|id| stream.ids.get(id)) {
            return Ok(v1::AppendDone {
                duplicate: true,
                ..*known
            });
        }
        match (append.fence_token, stream.token) {
            (Some(token), Some(current)) if token < current => {
                return Err(refused("stale_token", refusal::Detail::StaleToken(current)));
            }
            (None, _) if stream.settings.fence() == v1::FenceMode::Mandatory => {
                return Err(WireError::invalid("fence_token", "this stream demands one").into());
            }
            _ => {}
        }
        let tail = stream.tail();
        if append.expected_offset.is_some_and(|expected| expected != tail) {
            return Err(refused("wrong_tail", refusal::Detail::WrongTail(tail)));
        }
        stream.token = append.fence_token.or(stream.token);
        let records = append.records.iter().zip(tail..).map(|(data, offset)| v1::Record {
            offset,
            data: data.clone(),
            time_us: 7,
            fence_token: append.fence_token,
        });
        stream.records.extend(records.collect::<Vec<_>>());
        let done = v1::AppendDone {
            first: tail,
            count: append.records.len() as u64,
            duplicate: false,
        };
        if let Some(id) = &append.message_id {
            stream.ids.insert(id.clone(), done);
        }
        Ok(done)
    }

    pub(crate) fn trim(&mut self, name: &str, before: u64) -> Result<u64> {
        let stream = self.stream(name)?;
        let before = usize::try_from(before).unwrap_or(usize::MAX).min(stream.records.len());
        stream.first = stream.first.max(before);
        Ok(stream.first as u64)
    }

    pub(crate) fn read(&mut self, read: &v1::ReadRecordsRequest, header: Header) -> Result<v1::ReadRecordsReply> {
        let stream = self.stream(&read.stream)?;
        let from = match read.from.and_then(|from| from.from) {
            None | Some(read_from::From::Earliest(_)) => stream.first,
            Some(read_from::From::Latest(_)) => stream.records.len(),
            Some(read_from::From::Offset(offset)) => usize::try_from(offset).unwrap_or(usize::MAX),
        };
        if from < stream.first {
            return Err(WireError::compacted(stream.first as u64).into());
        }
        let limit = match read.limit {
            0 => PAGE_RECORDS_MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX).min(PAGE_RECORDS_MAX),
        };
        let records: Vec<v1::Record> = stream.records.iter().skip(from).take(limit).cloned().collect();
        Ok(v1::ReadRecordsReply {
            header: Some(header),
            next: (from + records.len()) as u64,
            records,
            first: stream.first as u64,
            tail: stream.tail(),
            incarnation: 1,
            age_us: None,
        })
    }

    /// Runs a transaction on a copy, and keeps that if all of its branch is done.
    pub(crate) fn txn(&mut self, txn: &v1::TxnRequest, revision: u64) -> Result<v1::TxnDone> {
        let mut failed_guard = None;
        for (place, guard) in txn.guards.iter().enumerate() {
            if failed_guard.is_none() && !self.holds(guard)? {
                failed_guard = Some(u32::try_from(place).unwrap());
            }
        }
        let branch = if failed_guard.is_none() {
            &txn.then
        } else {
            &txn.otherwise
        };
        let mut copy = self.clone();
        let mut results = Vec::new();
        for operation in branch {
            let kind = Some(copy.operate(operation, revision)?);
            results.push(v1::TxnResult { kind });
        }
        *self = copy;
        Ok(v1::TxnDone {
            applied: failed_guard.is_none(),
            failed_guard,
            revision: Some(revision),
            results,
        })
    }

    fn holds(&mut self, guard: &v1::TxnGuard) -> Result<bool> {
        Ok(match guard.kind.as_ref().unwrap() {
            txn_guard::Kind::Key(key) => check(self.cache(&key.cache)?.get(&key.key), key.guard.as_ref()).is_ok(),
            txn_guard::Kind::Counter(counter) => {
                let number = self.number(&counter.cache, &counter.key)?;
                counter.min.is_none_or(|min| min <= number) && counter.max.is_none_or(|max| number <= max)
            }
            txn_guard::Kind::StreamTail(tail) => self.stream(&tail.stream)?.tail() == tail.tail,
            txn_guard::Kind::SessionAlive(_) => true,
        })
    }

    fn operate(&mut self, operation: &v1::TxnOperation, revision: u64) -> Result<txn_result::Kind> {
        Ok(match operation.kind.as_ref().unwrap() {
            txn_operation::Kind::Put(put) => {
                txn_result::Kind::Put(self.put(revision, &put.cache, &put.key, &put.value, put.ttl_ms, None)?)
            }
            txn_operation::Kind::Delete(delete) => {
                txn_result::Kind::Deleted(self.delete(revision, &delete.cache, &delete.key, None)?)
            }
            txn_operation::Kind::Add(add) => {
                txn_result::Kind::Added(self.add(revision, &add.cache, &add.key, add.delta, add.ttl_ms)?)
            }
            txn_operation::Kind::Append(append) => {
                txn_result::Kind::Appended(self.append(&append.stream, append.append.as_ref().unwrap())?)
            }
            txn_operation::Kind::Get(get) => {
                let key = self.get(&get.cache, &get.key)?;
                txn_result::Kind::Got(txn_result::GetDone { key })
            }
        })
    }
}

impl FakeStream {
    fn tail(&self) -> u64 {
        self.records.len() as u64
    }
}

fn check(row: Option<&Row>, guard: Option<&v1::Guard>) -> Result<()> {
    let holds = match guard.and_then(|guard| guard.condition.as_ref()) {
        None => true,
        Some(guard::Condition::Absent(_)) => row.is_none(),
        Some(guard::Condition::Present(_)) => row.is_some(),
        Some(guard::Condition::Version(version)) => row.is_some_and(|row| row.version == *version),
        Some(guard::Condition::Value(value)) => row.is_some_and(|row| row.value == value),
        Some(guard::Condition::Created(created)) => row.is_some_and(|row| row.created == *created),
    };
    if holds {
        return Ok(());
    }
    let key = row.map(|row| v1::KeyFacts {
        version: row.version,
        created: row.created,
        value_len: row.value.len() as u64,
        ..v1::KeyFacts::default()
    });
    let detail = refusal::Detail::ConditionFailed(refusal::ConditionFailed { key });
    Err(refused("condition_failed", detail))
}

/// Runs a mutation and makes its answer.
pub(crate) fn verdict<T>(result: Result<T>, done: impl FnOnce(T) -> Say, refused: impl FnOnce(Refusal) -> Say) -> Say {
    match result {
        Ok(result) => done(result),
        Err(No::Refused(refusal)) => refused(*refusal),
        Err(No::Error(error)) => Say::Error(*error),
    }
}

/// Makes an answer of what cannot be refused.
pub(crate) fn answer<T>(result: Result<T>, done: impl FnOnce(T) -> Say) -> Say {
    verdict(result, done, |refusal| {
        Say::Error(WireError::internal(format!("refused: {}", refusal.code)))
    })
}
