//! Streams: records in order, numbered from 0 without gaps.

mod append;
mod create;
mod follow;
mod read;

use std::time::Duration;

use bytes::Bytes;

use tenure_api::v1::{
    self, DeleteStreamRequest, GetStreamRequest, ListStreamsRequest, StreamInfo, TrimStreamRequest, client_frame,
    read_from, server_frame,
};

use crate::client::{Client, Mutation};
use crate::error::Error;

pub use append::{Append, Appended};
pub use create::{CreateStream, StreamCreated};
pub use follow::{Follow, FollowBuilder, FollowEnd};
pub use read::{ReadRecords, RecordPage};

impl Client {
    /// The records of a stream. Nothing is sent: whether it exists shows when it is used.
    pub fn stream(&self, name: impl Into<String>) -> Stream {
        Stream {
            client: self.clone(),
            name: name.into(),
        }
    }

    /// Reads the streams of the namespace by name.
    ///
    /// # Errors
    /// Those of the call; without such a namespace `not_found`.
    pub async fn streams(&self) -> Result<Vec<StreamInfo>, Error> {
        let make = || {
            client_frame::Body::ListStreams(ListStreamsRequest {
                scope: Some(self.scope()),
                timeout_ms: 0,
            })
        };
        let server_frame::Body::ListStreams(reply) = self.read(make).await?.body else {
            return Err(Error::unexpected("list_streams"));
        };
        self.saw(reply.header.as_ref());
        Ok(reply.streams)
    }
}

/// The records of one stream. Making it sends nothing.
///
/// ```no_run
/// # async fn run(client: tenure_client::Client, token: u64) -> Result<(), tenure_client::Error> {
/// use tenure_client::{Refusal, Verdict};
///
/// let audit = client.stream("audit");
/// audit.create().fence_mandatory().await?.done()?;
///
/// // A writer whose lease was taken over is refused, however late its append arrives.
/// match audit.append(["door opened", "door closed"]).fence_token(token).await? {
///     Verdict::Done(appended) => println!("at {}..{}", appended.first, appended.next()),
///     Verdict::Refused(Refusal::StaleToken { current }) => println!("stop: {current} is the writer now"),
///     Verdict::Refused(other) => println!("{other}"),
/// }
///
/// let mut following = audit.follow().from_earliest().await?;
/// while let Some(record) = following.next().await {
///     let record = record.map_err(|end| end.into_error())?;
///     println!("{}: {}", record.offset, record.data.escape_ascii());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    client: Client,
    name: String,
}

impl Stream {
    /// The stream's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client, seen from the stream's namespace.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Creates the stream. One that exists with the same settings is returned; with others it is refused.
    pub fn create(&self) -> CreateStream {
        CreateStream::new(self.clone())
    }

    /// Reads what the stream is and holds.
    ///
    /// # Errors
    /// Those of the call; without such a stream `not_found`.
    pub async fn info(&self) -> Result<StreamState, Error> {
        let make = || {
            client_frame::Body::GetStream(GetStreamRequest {
                scope: Some(self.client.scope()),
                name: self.name.clone(),
                timeout_ms: 0,
            })
        };
        let server_frame::Body::GetStream(reply) = self.client.read(make).await?.body else {
            return Err(Error::unexpected("get_stream"));
        };
        self.client.saw(reply.header.as_ref());
        Ok(StreamState {
            info: reply.stream.ok_or_else(|| Error::unexpected("get_stream"))?,
            first: reply.first,
            tail: reply.tail,
            bytes: reply.bytes,
            fence_token: reply.fence_token,
        })
    }

    /// Deletes the stream with its records, and ends every following of it; returns the revision of the deletion.
    ///
    /// # Errors
    /// Those of the call; without such a stream `not_found`.
    pub async fn delete(&self) -> Result<u64, Error> {
        let make = |request| {
            client_frame::Body::DeleteStream(DeleteStreamRequest {
                scope: Some(self.client.scope()),
                name: self.name.clone(),
                request,
                timeout_ms: 0,
            })
        };
        let answer = self.client.mutate(Mutation::ONCE, self.client.timeout(), make).await?;
        let server_frame::Body::DeleteStream(reply) = answer.body else {
            return Err(Error::unexpected("delete_stream"));
        };
        self.client.saw(reply.header.as_ref());
        Ok(reply.revision)
    }

    /// Appends records, all or none, at consecutive offsets: 1 to 1,024 of them, each at most 1 MiB, 2 MiB together.
    pub fn append<T: AsRef<[u8]>>(&self, records: impl IntoIterator<Item = T>) -> Append {
        let copied = |record: T| Bytes::copy_from_slice(record.as_ref());
        Append::new(self.clone(), records.into_iter().map(copied).collect())
    }

    /// Raises the stream's fencing token without appending anything, so that a writer with a lower one is refused from
    /// now on. What is answered is the tail, with a count of 0.
    pub fn seal(&self, token: u64) -> Append {
        Append::new(self.clone(), Vec::new()).fence_token(token)
    }

    /// Reads a page of records, from the oldest on unless something else is chosen.
    pub fn read(&self) -> ReadRecords {
        ReadRecords::new(self.clone())
    }

    /// Follows the stream: the records that are there first, then those that come. From the oldest on unless something
    /// else is chosen.
    pub fn follow(&self) -> FollowBuilder {
        FollowBuilder::new(self.clone())
    }

    /// Removes the records before an offset, all of them if it is above the tail; returns the first offset that can be
    /// read from now on.
    ///
    /// # Errors
    /// Those of the call; without such a stream `not_found`.
    pub async fn trim(&self, before: u64) -> Result<u64, Error> {
        let make = |request| {
            client_frame::Body::TrimStream(TrimStreamRequest {
                scope: Some(self.client.scope()),
                stream: self.name.clone(),
                before,
                request,
                timeout_ms: 0,
            })
        };
        let answer = self.client.mutate(Mutation::ONCE, self.client.timeout(), make).await?;
        let server_frame::Body::TrimStream(reply) = answer.body else {
            return Err(Error::unexpected("trim_stream"));
        };
        self.client.saw(reply.header.as_ref());
        Ok(reply.first)
    }
}

/// A stream and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// What it was created with, and its life.
    pub info: StreamInfo,
    /// The first offset that can be read.
    pub first: u64,
    /// The offset that the next record gets.
    pub tail: u64,
    /// Bytes of the records that are kept.
    pub bytes: u64,
    /// The highest fencing token that an append carried; `None`: none did.
    pub fence_token: Option<u64>,
}

/// A record of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its offset.
    pub offset: u64,
    /// What was appended.
    pub data: Bytes,
    /// Cluster time of its append. It counts from the cluster's beginning and is no time of day.
    pub time: Duration,
    /// The fencing token that its append carried; `None`: none.
    pub fence_token: Option<u64>,
}

impl Record {
    fn from_wire(record: v1::Record) -> Record {
        Record {
            offset: record.offset,
            data: record.data,
            time: Duration::from_micros(record.time_us),
            fence_token: record.fence_token,
        }
    }
}

/// Where reading or following begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// With the oldest record that is kept.
    #[default]
    Earliest,
    /// Behind the last record.
    Latest,
    /// At this offset. If it is not kept any more: `compacted`.
    Offset(u64),
}

impl ReadFrom {
    fn to_wire(self) -> v1::ReadFrom {
        let from = match self {
            ReadFrom::Earliest => read_from::From::Earliest(true),
            ReadFrom::Latest => read_from::From::Latest(true),
            ReadFrom::Offset(offset) => read_from::From::Offset(offset),
        };
        v1::ReadFrom { from: Some(from) }
    }
}
