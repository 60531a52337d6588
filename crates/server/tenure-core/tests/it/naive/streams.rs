//! Streams by the naive rules.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_core::command::{Append, FenceMode, StreamSettings};
use tenure_core::effect::Effect;
use tenure_core::ids::{Incarnation, ObjectName};
use tenure_core::query::{Found, RecordView, StreamView};
use tenure_core::refusal::{Failure, Missing, Refusal};
use tenure_core::response::{Appended, Done, Response, StreamRecord};
use tenure_core::time::{Span, Timestamp};

use super::Naive;

#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) record: StreamRecord,
    /// What can be read.
    records: BTreeMap<u64, RecordView>,
    first: u64,
    tail: u64,
    /// Below this no row is left.
    swept: u64,
    token: Option<u64>,
    ids: BTreeMap<Bytes, MessageId>,
}

#[derive(Clone, Copy, Debug)]
struct MessageId {
    first: u64,
    count: u64,
    until: Timestamp,
}

impl Stream {
    /// When its first record or message id ends, if one does.
    pub(super) fn first_end(&self) -> Option<Timestamp> {
        let ids = self.ids.values().map(|id| id.until).min();
        self.first_record_end().into_iter().chain(ids).min()
    }

    fn first_record_end(&self) -> Option<Timestamp> {
        let retention = self.record.settings.retention?;
        self.records.get(&self.first).map(|record| record.time + retention)
    }

    /// Removes what is due, and says how much that was.
    pub(super) fn expire(&mut self, now: Timestamp, budget: usize) -> usize {
        let mut done = 0;
        while done < budget && self.first_record_end().is_some_and(|end| end < now) {
            self.drop_first();
            done += 1;
        }
        while done < budget {
            let ended = self.ids.iter().filter(|(_, id)| id.until < now);
            let Some((_, id)) = ended.map(|(name, id)| (id.until, name.clone())).min() else {
                break;
            };
            self.ids.remove(&id);
            done += 1;
        }
        done
    }

    fn shorten(&mut self, budget: usize) -> usize {
        let mut done = 0;
        while done < budget && self.swept < self.first {
            self.swept += 1;
            done += 1;
        }
        while done < budget && self.is_too_long() {
            self.drop_first();
            done += 1;
        }
        done
    }

    fn is_to_be_shortened(&self) -> bool {
        self.swept < self.first || self.is_too_long()
    }

    fn is_too_long(&self) -> bool {
        let behind_first: u64 = self
            .records
            .values()
            .skip(1)
            .map(|record| record.data.len() as u64)
            .sum();
        let kept = self.record.settings.retention_bytes;
        !self.records.is_empty() && kept.is_some_and(|kept| behind_first >= kept)
    }

    fn drop_first(&mut self) {
        self.records.remove(&self.first);
        if self.swept == self.first {
            self.swept += 1;
        }
        self.first += 1;
    }
}

impl Naive {
    pub(super) fn shorten_streams(&mut self, budget: usize) {
        let mut left = budget;
        let mut streams: Vec<&mut Stream> = self.streams.values_mut().collect();
        streams.sort_by_key(|stream| stream.record.incarnation);
        for stream in streams {
            left -= stream.shorten(left);
        }
    }

    pub(super) fn is_shortening(&self) -> bool {
        self.streams.values().any(Stream::is_to_be_shortened)
    }

    pub(super) fn create_stream(&mut self, name: &ObjectName, settings: StreamSettings) -> Response {
        let existing = self.streams.get(name).map(|stream| stream.record.clone());
        if let Some(record) = existing {
            if record.settings == settings {
                return Response::Done(Done::StreamCreated { record, existed: true });
            }
            return Response::Refused(Refusal::StreamExistsOtherwise(record));
        }
        let record = StreamRecord {
            name: name.clone(),
            settings,
            incarnation: Incarnation(self.consume()),
        };
        let stream = Stream {
            record: record.clone(),
            records: BTreeMap::new(),
            first: 0,
            tail: 0,
            swept: 0,
            token: None,
            ids: BTreeMap::new(),
        };
        self.streams.insert(name.clone(), stream);
        Response::Done(Done::StreamCreated { record, existed: false })
    }

    pub(super) fn delete_stream(&mut self, name: &ObjectName) -> Result<Done, Failure> {
        let stream = self.streams.remove(name).ok_or_else(|| no_stream(name))?;
        self.is_sweeping = true;
        let revision = self.consume();
        self.effects.push(Effect::ObjectDeleted {
            incarnation: stream.record.incarnation,
            revision,
        });
        Ok(Done::StreamDeleted { revision })
    }

    pub(super) fn trim(&mut self, name: &ObjectName, before: u64) -> Result<Done, Failure> {
        let stream = self.streams.get_mut(name).ok_or_else(|| no_stream(name))?;
        let first = stream.first.max(before.min(stream.tail));
        if first > stream.first {
            stream.first = first;
            stream.records.retain(|offset, _| *offset >= first);
            self.consume();
        }
        Ok(Done::StreamTrimmed { first })
    }

    pub(super) fn append(&mut self, name: &ObjectName, append: &Append) -> Response {
        let now = self.now;
        let Some(stream) = self.streams.get(name) else {
            return Response::Failed(no_stream(name));
        };
        let id = append.message_id.as_ref();
        if let Some(known) = id.and_then(|id| stream.ids.get(id)).filter(|id| id.until >= now) {
            return Response::Done(Done::Appended(Appended {
                first: known.first,
                count: known.count,
                duplicate: true,
            }));
        }
        let settings = stream.record.settings;
        let invalid = |field: &str, rule: &str| {
            Response::Failed(Failure::Invalid {
                field: field.to_owned(),
                rule: rule.to_owned(),
            })
        };
        if append.records.is_empty() && append.token.is_none() {
            return invalid("records", "at least one, or a fencing token to seal with");
        }
        if id.is_some() && settings.dedup_window == Span(0) {
            return invalid("message_id", "this stream knows no message ids");
        }
        let highest = stream.token.unwrap_or(0);
        if append.token.is_some_and(|token| token < highest) {
            return Response::Refused(Refusal::StaleToken { current: highest });
        }
        if append.token.is_none() && settings.fence == FenceMode::Mandatory {
            return invalid("fence_token", "this stream takes no append without one");
        }
        let tail = stream.tail;
        if append.expected.is_some_and(|expected| expected != tail) {
            return Response::Refused(Refusal::WrongTail { tail });
        }
        let changes = !append.records.is_empty() || append.token > stream.token || id.is_some();
        if changes {
            let revision = self.consume();
            self.do_append(name, append, revision);
        }
        Response::Done(Done::Appended(Appended {
            first: tail,
            count: append.records.len() as u64,
            duplicate: false,
        }))
    }

    fn do_append(&mut self, name: &ObjectName, append: &Append, revision: u64) {
        let now = self.now;
        let stream = self.streams.get_mut(name).expect("it was just seen");
        if let Some(id) = &append.message_id {
            let id_row = MessageId {
                first: stream.tail,
                count: append.records.len() as u64,
                until: now + stream.record.settings.dedup_window,
            };
            stream.ids.insert(id.clone(), id_row);
        }
        for data in &append.records {
            let view = RecordView {
                offset: stream.tail,
                data: data.clone(),
                time: now,
                token: append.token,
            };
            stream.records.insert(stream.tail, view);
            stream.tail += 1;
        }
        stream.token = stream.token.max(append.token);
        for _ in 0..2 * append.records.len() {
            if stream.is_too_long() {
                stream.drop_first();
            }
        }
        if !append.records.is_empty() {
            self.effects.push(Effect::Appended {
                incarnation: stream.record.incarnation,
                tail: stream.tail,
                revision,
            });
        }
    }

    pub(super) fn tail(&self, name: &ObjectName) -> Result<u64, Failure> {
        let stream = self.streams.get(name).ok_or_else(|| no_stream(name))?;
        Ok(stream.tail)
    }

    /// What a reader sees of a stream.
    pub(crate) fn stream(&self, name: &ObjectName) -> Found {
        match self.streams.get(name) {
            Some(stream) => Found::Stream(StreamView {
                record: stream.record.clone(),
                first: stream.first,
                tail: stream.tail,
                bytes: stream.records.values().map(|record| record.data.len() as u64).sum(),
                token: stream.token,
            }),
            None => Found::Failed(no_stream(name)),
        }
    }

    /// What a reader sees of the records of a stream.
    pub(crate) fn records(&self, name: &ObjectName) -> Found {
        match self.streams.get(name) {
            Some(stream) => Found::Records {
                records: stream.records.values().cloned().collect(),
                first: stream.first,
                tail: stream.tail,
                incarnation: stream.record.incarnation,
            },
            None => Found::Failed(no_stream(name)),
        }
    }

    /// The streams by name.
    pub(crate) fn streams(&self) -> Found {
        Found::Streams(self.streams.values().map(|stream| stream.record.clone()).collect())
    }
}

fn no_stream(name: &ObjectName) -> Failure {
    Failure::NotFound {
        what: Missing::Stream(name.clone()),
    }
}
