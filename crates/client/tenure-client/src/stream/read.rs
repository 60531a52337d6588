//! Reading records in pages.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_api::v1::{ReadRecordsRequest, client_frame, server_frame};
use tenure_recipes::outcome::Repeat;

use super::{ReadFrom, Record, Stream};
use crate::error::Error;

/// A read of records that is being described; awaiting it sends it. It reads one page: at most 1,000 records or 1 MiB,
/// and at least one if there is one.
#[derive(Clone, Debug)]
#[must_use = "a read is sent when it is awaited"]
pub struct ReadRecords {
    stream: Stream,
    from: ReadFrom,
    limit: u32,
    stale: bool,
    incarnation: Option<u64>,
}

/// A page of records.
#[derive(Clone, Debug)]
pub struct RecordPage {
    /// The records, at consecutive offsets.
    pub records: Vec<Record>,
    /// The first offset that can be read.
    pub first: u64,
    /// The offset that the next record of the stream gets.
    pub tail: u64,
    /// The offset from which reading goes on. Equal to `tail`: everything was read.
    pub next: u64,
    /// The life of the stream, for [`ReadRecords::incarnation`] of the next page.
    pub incarnation: u64,
    /// The group's revision as of this answer.
    pub revision: u64,
    /// In a stale read, how long ago at most the node had all that was acknowledged anywhere; `None` also if it has heard from
    /// no leader since it started.
    pub age: Option<Duration>,
}

impl ReadRecords {
    pub(super) fn new(stream: Stream) -> ReadRecords {
        ReadRecords {
            stream,
            from: ReadFrom::Earliest,
            limit: 0,
            stale: false,
            incarnation: None,
        }
    }

    /// From there on.
    pub fn from(mut self, from: ReadFrom) -> ReadRecords {
        self.from = from;
        self
    }

    /// From the oldest record on, which is so if nothing is chosen.
    pub fn from_earliest(self) -> ReadRecords {
        self.from(ReadFrom::Earliest)
    }

    /// Only what comes behind the last record: an empty page that says where that is.
    pub fn from_latest(self) -> ReadRecords {
        self.from(ReadFrom::Latest)
    }

    /// From this offset on. If it is not kept any more, the error `compacted` says which the first one is.
    pub fn from_offset(self, offset: u64) -> ReadRecords {
        self.from(ReadFrom::Offset(offset))
    }

    /// At most so many records.
    pub fn limit(mut self, records: u32) -> ReadRecords {
        self.limit = records;
        self
    }

    /// Read what the node has, without asking for the newest, but nothing older than this client has seen.
    pub fn stale(mut self) -> ReadRecords {
        self.stale = true;
        self
    }

    /// Only if the stream still lives this life; a stream that was deleted and created again is `object_deleted`.
    pub fn incarnation(mut self, incarnation: u64) -> ReadRecords {
        self.incarnation = Some(incarnation);
        self
    }

    async fn send(self) -> Result<RecordPage, Error> {
        let client = &self.stream.client;
        let (min_revision, left) = client.oldest_wanted(self.stale).await?;
        let make = || {
            client_frame::Body::ReadRecords(ReadRecordsRequest {
                scope: Some(client.scope()),
                stream: self.stream.name.clone(),
                from: Some(self.from.to_wire()),
                limit: self.limit,
                stale: self.stale,
                min_revision,
                incarnation: self.incarnation,
                timeout_ms: 0,
            })
        };
        let answer = client.repeatable(Repeat::Read, left, make).await?;
        let server_frame::Body::ReadRecords(reply) = answer.body else {
            return Err(Error::unexpected("read_records"));
        };
        client.saw(reply.header.as_ref());
        Ok(RecordPage {
            records: reply.records.into_iter().map(Record::from_wire).collect(),
            first: reply.first,
            tail: reply.tail,
            next: reply.next,
            incarnation: reply.incarnation,
            revision: reply.header.map_or(0, |header| header.revision),
            age: reply.age_us.map(Duration::from_micros),
        })
    }
}

impl IntoFuture for ReadRecords {
    type Output = Result<RecordPage, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    /// `compacted`: the offset is not kept any more; `object_deleted`: it is another stream now; those of the call;
    /// without such a stream `not_found`.
    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}
