//! Following a stream: every record in order, or an explicit end.
//!
//! A broken connection, a node that cannot go on, and a taker that is slower than its buffer are resumed at the offset
//! behind the last record that was taken: nothing is missed and nothing comes twice.

use std::collections::VecDeque;
use std::fmt;
use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};

use tenure_api::ErrorCode;
use tenure_api::v1::{self, FollowEvent, FollowRequest, WireError, client_frame, follow_event, wire_error};

use super::{ReadFrom, Record, Stream};
use crate::error::Error;
use crate::feed::FeedEvent;
use crate::feed::subscription::{Subscription, SubscriptionEnd};

/// A following that is being described; awaiting it begins it.
#[derive(Clone, Debug)]
#[must_use = "following begins when this is awaited"]
pub struct FollowBuilder {
    stream: Stream,
    from: ReadFrom,
    incarnation: Option<u64>,
}

impl FollowBuilder {
    pub(super) fn new(stream: Stream) -> FollowBuilder {
        FollowBuilder {
            stream,
            from: ReadFrom::Earliest,
            incarnation: None,
        }
    }

    /// From there on.
    pub fn from(mut self, from: ReadFrom) -> FollowBuilder {
        self.from = from;
        self
    }

    /// From the oldest record on, which is so if nothing is chosen.
    pub fn from_earliest(self) -> FollowBuilder {
        self.from(ReadFrom::Earliest)
    }

    /// Only records that come from now on.
    pub fn from_latest(self) -> FollowBuilder {
        self.from(ReadFrom::Latest)
    }

    /// From this offset on. If it is not kept any more, the end `compacted` says which the first one is.
    pub fn from_offset(self, offset: u64) -> FollowBuilder {
        self.from(ReadFrom::Offset(offset))
    }

    /// Only if the stream still lives this life, which [`Follow::incarnation`] of an earlier following said.
    pub fn incarnation(mut self, incarnation: u64) -> FollowBuilder {
        self.incarnation = Some(incarnation);
        self
    }

    async fn begin(self) -> Result<Follow, Error> {
        let timeout = self.stream.client.timeout();
        let mut follow = Follow::new(self);
        let beginning = async {
            let client = &follow.stream.client;
            client.home(false, timeout).await.map_err(FollowEnd::Failed)?;
            while follow.cursor.started.is_none() {
                follow.advance().await?;
            }
            Ok(())
        };
        match tokio::time::timeout(timeout, beginning).await {
            Ok(Ok(())) => Ok(follow),
            Ok(Err(end)) => Err(FollowEnd::into_error(end)),
            Err(_) => Err(follow.subscription.not_begun()),
        }
    }
}

impl IntoFuture for FollowBuilder {
    type Output = Result<Follow, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.begin().boxed()
    }
}

/// A following that has begun. Dropping it ends it.
pub struct Follow {
    stream: Stream,
    cursor: Cursor,
    subscription: Subscription,
    ended: bool,
    /// Why it has ended, until that has been told, behind the records that came before.
    end: Option<FollowEnd>,
}

impl Follow {
    fn new(builder: FollowBuilder) -> Follow {
        let subscription = Subscription::new(builder.stream.client.clone());
        Follow {
            cursor: Cursor::new(builder.from, builder.incarnation),
            stream: builder.stream,
            subscription,
            ended: false,
            end: None,
        }
    }

    /// The offset of the first record that has come or will come.
    pub fn started_at(&self) -> u64 {
        self.cursor.started.unwrap_or_default()
    }

    /// The offset of the next record that [`next`](Follow::next) will give: a new following with it would go on there.
    pub fn next_offset(&self) -> u64 {
        self.cursor.next_to_give()
    }

    /// The life of the stream.
    pub fn incarnation(&self) -> u64 {
        self.cursor.incarnation.unwrap_or_default()
    }

    /// The next record. It waits for as long as nothing is appended, or no node can be reached. After an error, which
    /// says why the following has ended, there is `None`. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<Record, FollowEnd>> {
        loop {
            if let Some(record) = self.cursor.records.pop_front() {
                return Some(Ok(record));
            }
            if let Some(end) = self.more().await? {
                return Some(Err(end));
            }
        }
    }

    /// The next records, as many as have come together and at least one; else like [`next`](Follow::next).
    pub async fn next_batch(&mut self) -> Option<Result<Vec<Record>, FollowEnd>> {
        loop {
            if !self.cursor.records.is_empty() {
                return Some(Ok(std::mem::take(&mut self.cursor.records).into()));
            }
            if let Some(end) = self.more().await? {
                return Some(Err(end));
            }
        }
    }

    /// The records as a stream that ends after the first error.
    pub fn into_stream(self) -> impl futures_util::Stream<Item = Result<Record, FollowEnd>> + Send {
        stream::unfold(self, |mut follow| async move {
            follow.next().await.map(|record| (record, follow))
        })
    }

    /// One step towards more records, or the end; `None`: that has been told.
    async fn more(&mut self) -> Option<Option<FollowEnd>> {
        if self.ended {
            return self.end.take().map(Some);
        }
        if let Err(end) = self.advance().await {
            self.ended = true;
            self.end = Some(end);
            self.subscription.close();
        }
        Some(None)
    }

    /// One step: subscribes if need be, else takes one event.
    async fn advance(&mut self) -> Result<(), FollowEnd> {
        let (cursor, stream) = (&self.cursor, &self.stream);
        let request = |min_revision| {
            client_frame::Body::Follow(FollowRequest {
                scope: Some(stream.client.scope()),
                stream: stream.name.clone(),
                from: Some(cursor.wanted().to_wire()),
                incarnation: cursor.incarnation,
                min_revision,
            })
        };
        match self.subscription.step(request).await {
            Ok(Some(FeedEvent::Follow(event))) => {
                self.cursor.take(event)?;
                self.subscription.served();
                Ok(())
            }
            Ok(Some(FeedEvent::Watch(_))) => Err(FollowEnd::Failed(Error::unexpected("follow"))),
            Ok(None) => Ok(()),
            // Records are read from where they are kept: what a node left out is asked for again.
            Err(SubscriptionEnd::Lagged { .. }) => Ok(()),
            Err(SubscriptionEnd::Compacted { resume_from }) => {
                let resume_from = resume_from.unwrap_or_else(|| self.cursor.next_to_give());
                Err(FollowEnd::Compacted { resume_from })
            }
            Err(SubscriptionEnd::ObjectDeleted { revision }) => Err(FollowEnd::ObjectDeleted { revision }),
            Err(SubscriptionEnd::Failed(error)) => Err(FollowEnd::Failed(error)),
        }
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow")
            .field("stream", &self.stream.name)
            .field("next_offset", &self.next_offset())
            .finish_non_exhaustive()
    }
}

/// What a following has received, and what it asks for next: a pure state machine over the messages of its feeds.
struct Cursor {
    from: ReadFrom,
    incarnation: Option<u64>,
    /// The offset of the first record, as soon as a feed has said it.
    started: Option<u64>,
    /// The offset behind the last record that was received, as soon as it is known.
    next: Option<u64>,
    /// Received and not given yet: those of one message.
    records: VecDeque<Record>,
}

impl Cursor {
    fn new(from: ReadFrom, incarnation: Option<u64>) -> Cursor {
        Cursor {
            from,
            incarnation,
            started: None,
            next: None,
            records: VecDeque::new(),
        }
    }

    /// What to ask a node for now.
    fn wanted(&self) -> ReadFrom {
        match self.next {
            // As long as nothing has come, the oldest record is still whichever is the oldest.
            Some(next) if self.from == ReadFrom::Earliest && self.started == Some(next) => ReadFrom::Earliest,
            Some(next) => ReadFrom::Offset(next),
            None => self.from,
        }
    }

    fn next_to_give(&self) -> u64 {
        match self.records.front() {
            Some(record) => record.offset,
            None => self.next.unwrap_or_default(),
        }
    }

    /// Takes a message.
    ///
    /// # Errors
    /// The following cannot go on.
    fn take(&mut self, event: FollowEvent) -> Result<(), FollowEnd> {
        match event.event {
            Some(follow_event::Event::Started(started)) => self.begin(started),
            Some(follow_event::Event::Records(message)) => {
                message.records.into_iter().try_for_each(|record| self.add(record))
            }
            // An event that is newer than this program changes nothing that it knows of.
            None => Ok(()),
        }
    }

    fn begin(&mut self, started: follow_event::Started) -> Result<(), FollowEnd> {
        if self.incarnation.is_some_and(|life| life != started.incarnation) {
            return Err(FollowEnd::ObjectDeleted { revision: None });
        }
        self.incarnation = Some(started.incarnation);
        match self.next {
            // From the oldest once more, and nothing had come yet.
            Some(_) if self.wanted() == ReadFrom::Earliest => {}
            Some(next) if started.next > next => {
                let resume_from = started.next;
                return Err(FollowEnd::Compacted { resume_from });
            }
            Some(_) => return Ok(()),
            None => {}
        }
        self.started = Some(started.next);
        self.next = Some(started.next);
        Ok(())
    }

    fn add(&mut self, record: v1::Record) -> Result<(), FollowEnd> {
        let Some(next) = self.next else {
            let error = WireError::internal("a record came before its following had begun");
            return Err(FollowEnd::Failed(Error::from_wire(error)));
        };
        if record.offset < next {
            return Ok(());
        }
        if record.offset > next {
            let message = format!("record {} came where {next} was due", record.offset);
            return Err(FollowEnd::Failed(Error::from_wire(WireError::internal(message))));
        }
        self.next = Some(next.saturating_add(1));
        self.records.push_back(Record::from_wire(record));
        Ok(())
    }
}

/// Why a following has ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FollowEnd {
    /// The wanted records are not kept any more.
    #[error("compacted: records are kept from offset {resume_from} on")]
    Compacted {
        /// The first offset that can be read.
        resume_from: u64,
    },
    /// The stream was deleted; one of the same name that may exist now is another.
    #[error("the stream was deleted")]
    ObjectDeleted {
        /// The revision of the deletion, if it is known.
        revision: Option<u64>,
    },
    /// It cannot go on.
    #[error(transparent)]
    Failed(Error),
}

impl FollowEnd {
    /// The code from the table of errors.
    pub fn code(&self) -> ErrorCode {
        match self {
            FollowEnd::Compacted { .. } => ErrorCode::Compacted,
            FollowEnd::ObjectDeleted { .. } => ErrorCode::ObjectDeleted,
            FollowEnd::Failed(error) => error.code(),
        }
    }

    /// The offset from which a following can go on, without what lies before it.
    pub fn resume_from(&self) -> Option<u64> {
        match self {
            FollowEnd::Compacted { resume_from } => Some(*resume_from),
            FollowEnd::ObjectDeleted { .. } | FollowEnd::Failed(_) => None,
        }
    }

    /// The same as an error of a call.
    pub fn into_error(self) -> Error {
        match self {
            FollowEnd::Compacted { resume_from } => {
                let message = format!("records before offset {resume_from} are not kept any more: follow from there");
                let error = WireError::new(ErrorCode::Compacted, message);
                Error::from_wire(error.with_detail(wire_error::Detail::ResumeFrom(resume_from)))
            }
            FollowEnd::ObjectDeleted { revision } => {
                Error::from_wire(WireError::object_deleted("the stream", revision.unwrap_or_default()))
            }
            FollowEnd::Failed(error) => error,
        }
    }
}

#[cfg(test)]
mod tests;
