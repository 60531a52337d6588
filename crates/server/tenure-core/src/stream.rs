//! Streams: records in order, numbered from 0 without gaps, and a fencing token that only rises.
//!
//! An append is judged first and done afterwards, so that a transaction can judge everything before it writes. A
//! message id is remembered beside the records and not in them: trimming and retention free no id, and its window
//! counts from the first acceptance and does not slide.

use bytes::Bytes;

use crate::command::{Append, FenceMode};
use crate::effect::Effect;
use crate::ids::{Incarnation, ObjectName};
use crate::keyspace::{self, HeadRow, MessageIdRow, RecordRow, RecordRowRef};
use crate::limits::{SHORTENED_PER_RECORD, STREAM_MESSAGE_IDS_MAX};
use crate::machine::deadlines::Item;
use crate::machine::{Run, StepRevision};
use crate::refusal::{Failure, Halt, Refusal};
use crate::response::{Appended, Done};
use crate::table::{TableRead, Visit, prefix_end};
use crate::time::{Span, Timestamp};

mod gaps;
mod retention;

pub(crate) use gaps::Gaps;
pub(crate) use retention::{expire, shorten};

/// An append that may be done.
pub(crate) enum Judged<'a> {
    /// Its message id is known: it is answered like the first, and nothing is done.
    Known(Appended),
    /// Nothing stands in its way.
    Fit { stream: Box<Stream>, append: &'a Append },
}

/// A stream as a step changes it.
pub(crate) struct Stream {
    incarnation: Incarnation,
    head: HeadRow,
    /// Until when memory lets it be, as of the head that was read.
    was_due: Option<Timestamp>,
}

/// Appends records, or raises the token.
pub(crate) fn append(run: &mut Run<'_>, name: &ObjectName, append: &Append) -> Result<Done, Halt> {
    let judged = judge(run, name, append)?;
    let mut revision = StepRevision::default();
    Ok(Done::Appended(perform(run, judged, &mut revision)))
}

/// Whether an append may be done. In order: the stream exists; a known message id; the form of the append; the token;
/// the tail; room for a message id.
pub(crate) fn judge<'a>(run: &Run<'_>, name: &ObjectName, append: &'a Append) -> Result<Judged<'a>, Halt> {
    let stream = Stream::named(run, name)?;
    if let Some(id) = &append.message_id
        && let Some(known) = stream.known_id(run.table, id, run.now)
    {
        return Ok(Judged::Known(Appended {
            first: known.first,
            count: known.count,
            duplicate: true,
        }));
    }
    append.check()?;
    let head = &stream.head;
    if append.message_id.is_some() && head.settings.dedup_window == Span(0) {
        return Err(Failure::invalid("message_id", "this stream knows no message ids").into());
    }
    match (append.token, head.token) {
        (Some(token), Some(current)) if token < current => return Err(Refusal::StaleToken { current }.into()),
        (None, _) if head.settings.fence == FenceMode::Mandatory => {
            return Err(Failure::invalid("fence_token", "this stream takes no append without one").into());
        }
        _ => {}
    }
    if append.expected.is_some_and(|expected| expected != head.tail) {
        return Err(Refusal::WrongTail { tail: head.tail }.into());
    }
    if let Some(id) = &append.message_id
        && head.ids >= STREAM_MESSAGE_IDS_MAX
        && stream.id_row(run.table, id).is_none()
    {
        return Err(Failure::Overloaded {
            what: "message ids of the stream".to_owned(),
            retry_after: Span::from_secs(1),
        }
        .into());
    }
    Ok(Judged::Fit {
        stream: Box::new(stream),
        append,
    })
}

/// Does what was judged; nothing can fail any more, since the state is as it was.
pub(crate) fn perform(run: &mut Run<'_>, judged: Judged<'_>, revision: &mut StepRevision) -> Appended {
    let (mut stream, append) = match judged {
        Judged::Known(appended) => return appended,
        Judged::Fit { stream, append } => (stream, append),
    };
    let appended = Appended {
        first: stream.head.tail,
        count: append.records.len() as u64,
        duplicate: false,
    };
    let raises = append.token > stream.head.token;
    if append.records.is_empty() && !raises && append.message_id.is_none() {
        return appended;
    }
    let revision = revision.of(run);
    for data in &append.records {
        stream.push(run, data, append.token, revision);
    }
    stream.head.token = stream.head.token.max(append.token);
    if let Some(id) = &append.message_id {
        stream.note_id(run, id, &appended);
    }
    stream.drop_by_size(run, SHORTENED_PER_RECORD * append.records.len());
    let (incarnation, tail) = (stream.incarnation, stream.head.tail);
    stream.save(run);
    if !append.records.is_empty() {
        run.effects.push(Effect::Appended {
            incarnation,
            tail,
            revision,
        });
    }
    appended
}

/// Removes the records before an offset. They are gone at once; their rows go in bounded steps.
pub(crate) fn trim(run: &mut Run<'_>, name: &ObjectName, before: u64) -> Result<Done, Failure> {
    let mut stream = Stream::named(run, name)?;
    let first = before.clamp(stream.head.first, stream.head.tail);
    if first > stream.head.first {
        run.consume_revision();
        stream.move_first(run, first);
        let first = stream.head.first;
        stream.save(run);
        return Ok(Done::StreamTrimmed { first });
    }
    Ok(Done::StreamTrimmed { first })
}

/// The offset that the next record of a stream gets.
pub(crate) fn tail(run: &Run<'_>, name: &ObjectName) -> Result<u64, Failure> {
    Ok(Stream::named(run, name)?.head.tail)
}

/// When a stream has something to do of itself: the end by age of its first record, or of its first message id.
pub(crate) fn due(head: &HeadRow) -> Option<Timestamp> {
    match (first_end(head), head.ids_until) {
        (Some(by_age), Some(ids_until)) => Some(by_age.min(ids_until)),
        (due, None) | (None, due) => due,
    }
}

/// When the first record ends by its age.
fn first_end(head: &HeadRow) -> Option<Timestamp> {
    let retention = head.settings.retention.filter(|_| head.first < head.tail)?;
    Some(head.first_time + retention)
}

/// Whether a stream has rows that are to be removed as soon as there is room for it.
pub(crate) fn is_to_be_shortened(head: &HeadRow) -> bool {
    head.swept < head.first || is_too_long(head)
}

/// Whether the first record may go: what is left still has the bytes that are kept at least.
fn is_too_long(head: &HeadRow) -> bool {
    let left = head.bytes_written - head.bytes_gone - head.first_bytes;
    head.first < head.tail && head.settings.retention_bytes.is_some_and(|kept| left >= kept)
}

impl Stream {
    /// The stream of a life that exists.
    pub(crate) fn load(table: &(impl TableRead + ?Sized), incarnation: Incarnation) -> Stream {
        let head: HeadRow =
            keyspace::read(table, &keyspace::head(incarnation)).expect("a stream that lives has a head");
        let was_due = due(&head);
        Stream {
            incarnation,
            head,
            was_due,
        }
    }

    fn named(run: &Run<'_>, name: &ObjectName) -> Result<Stream, Failure> {
        Ok(Stream::load(run.table, run.stream(name)?))
    }

    /// Writes the head, and tells memory what it says.
    pub(crate) fn save(self, run: &mut Run<'_>) {
        let Stream {
            incarnation,
            head,
            was_due,
        } = self;
        let due = due(&head);
        if due != was_due {
            if let Some(was_due) = was_due {
                run.memory.deadlines.remove(was_due, Item::Stream(incarnation));
            }
            if let Some(due) = due {
                run.memory.deadlines.insert(due, Item::Stream(incarnation));
            }
        }
        if is_to_be_shortened(&head) {
            run.memory.shortening.insert(incarnation);
        } else {
            run.memory.shortening.remove(&incarnation);
        }
        keyspace::write(run.table, keyspace::head(incarnation), &head);
    }

    /// Takes it out of what memory holds: it is deleted.
    pub(crate) fn forget(self, run: &mut Run<'_>) {
        if let Some(was_due) = self.was_due {
            run.memory.deadlines.remove(was_due, Item::Stream(self.incarnation));
        }
        run.memory.shortening.remove(&self.incarnation);
        for start in run.memory.gaps.forget_stream(self.incarnation) {
            run.table.delete(&keyspace::gap(self.incarnation, start));
        }
        run.table.delete(&keyspace::head(self.incarnation));
    }

    fn push(&mut self, run: &mut Run<'_>, data: &Bytes, token: Option<u64>, revision: u64) {
        let head = &mut self.head;
        let row = RecordRow {
            data: data.clone(),
            time: run.now,
            token,
            revision,
            bytes_before: head.bytes_written,
        };
        keyspace::write(run.table, keyspace::record(self.incarnation, head.tail), &row);
        if head.first == head.tail {
            head.first_bytes = data.len() as u64;
            head.first_time = run.now;
        }
        head.tail += 1;
        head.bytes_written += data.len() as u64;
    }

    fn id_row(&self, table: &(impl TableRead + ?Sized), id: &[u8]) -> Option<MessageIdRow> {
        keyspace::read(table, &keyspace::message_id(self.incarnation, id))
    }

    /// A message id within its window. Judged by time: its row may stay a little longer.
    fn known_id(&self, table: &(impl TableRead + ?Sized), id: &[u8], now: Timestamp) -> Option<MessageIdRow> {
        self.id_row(table, id).filter(|row| !row.until.is_due_at(now))
    }

    /// Takes note of a message id from now on. One whose window has ended and whose row is still there begins anew.
    fn note_id(&mut self, run: &mut Run<'_>, id: &Bytes, appended: &Appended) {
        if let Some(ended) = self.id_row(run.table, id) {
            run.table.delete(&keyspace::id_end(self.incarnation, ended.until, id));
            self.head.ids -= 1;
        }
        let row = MessageIdRow {
            first: appended.first,
            count: appended.count,
            until: run.now + self.head.settings.dedup_window,
        };
        keyspace::write(run.table, keyspace::message_id(self.incarnation, id), &row);
        run.table
            .put(keyspace::id_end(self.incarnation, row.until, id), Bytes::new());
        self.head.ids += 1;
        // Time does not go back, so a new id is never the first to end among others.
        if self.head.ids == 1 || self.head.ids_until.is_none_or(|until| until.is_due_at(run.now)) {
            self.head.ids_until = first_id_end(run.table, self.incarnation);
        }
    }

    /// Moves the first offset, at most to the tail, and over a gap that it meets.
    fn move_first(&mut self, run: &Run<'_>, first: u64) {
        let first = match run.memory.gaps.around(self.incarnation, first) {
            Some(gap) => gap.end,
            None => first,
        };
        let head = &mut self.head;
        head.first = first;
        if first == head.tail {
            head.bytes_gone = head.bytes_written;
            head.first_bytes = 0;
            return;
        }
        let key = keyspace::record(self.incarnation, first);
        let bytes = run
            .table
            .get(&key)
            .expect("every record from the first to the tail has a row");
        let row: RecordRowRef<'_> = keyspace::decode(&key, &bytes);
        head.bytes_gone = row.bytes_before;
        head.first_bytes = row.data.len() as u64;
        head.first_time = row.time;
    }
}

/// When the first message id of a stream ends.
fn first_id_end(table: &(impl TableRead + ?Sized), incarnation: Incarnation) -> Option<Timestamp> {
    let from = keyspace::id_ends_of(incarnation);
    let to = prefix_end(&from).expect("a kind byte is below 255");
    let mut first = None;
    table.scan(&from, &to, &mut |key, _| {
        first = Some(Timestamp(keyspace::number_at(key, 9)));
        Visit::Break(())
    });
    first
}
