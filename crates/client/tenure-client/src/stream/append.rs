//! Appending records.

use std::future::IntoFuture;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_api::v1::{self, AppendRequest, RequestId, append_reply, client_frame, server_frame};

use super::Stream;
use crate::client::Mutation;
use crate::error::Error;
use crate::verdict::{Refusal, Verdict};

/// Records are in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset of the first; for a seal the tail.
    pub first: u64,
    /// How many there are, at consecutive offsets; 0 for a seal.
    pub count: u64,
    /// They were there already: another append had the same message id.
    pub duplicate: bool,
    /// Whether the server remembered this from an earlier attempt of the same request.
    pub repeated: bool,
}

impl Appended {
    /// The offset behind the last of them.
    pub fn next(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    pub(crate) fn from_wire(done: v1::AppendDone, repeated: bool) -> Appended {
        Appended {
            first: done.first,
            count: done.count,
            duplicate: done.duplicate,
            repeated,
        }
    }
}

/// An append that is being described; awaiting it sends it.
///
/// ```no_run
/// # async fn run(client: tenure_client::Client) -> Result<(), tenure_client::Error> {
/// use tenure_client::{Refusal, Verdict};
///
/// // Only if nobody else has appended since the tail was 7: then the record is number 7.
/// match client.stream("ledger").append(["+100"]).if_offset(7).await? {
///     Verdict::Done(appended) => assert_eq!(appended.first, 7),
///     Verdict::Refused(Refusal::WrongTail { tail }) => println!("read on, the tail is {tail}"),
///     Verdict::Refused(other) => println!("{other}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an append is sent when it is awaited"]
pub struct Append {
    stream: Stream,
    append: v1::Append,
}

impl Append {
    pub(super) fn new(stream: Stream, records: Vec<Bytes>) -> Append {
        let append = v1::Append {
            records,
            ..v1::Append::default()
        };
        Append { stream, append }
    }

    /// Only if the first record gets this offset; with another tail it is refused as
    /// [`WrongTail`](Refusal::WrongTail).
    pub fn if_offset(mut self, offset: u64) -> Append {
        self.append.expected_offset = Some(offset);
        self
    }

    /// The writer's fencing token, from 1: [`Written::token`](crate::Written::token) of the key that makes it the
    /// writer. One below the highest that the stream has accepted is refused as [`StaleToken`](Refusal::StaleToken).
    pub fn fence_token(mut self, token: u64) -> Append {
        self.append.fence_token = Some(token);
        self
    }

    /// A name of this append, 1 to 255 bytes. Within the stream's window an append with a known name appends nothing and
    /// is answered with the offsets of the first, as a [duplicate](Appended::duplicate).
    pub fn message_id(mut self, id: impl AsRef<[u8]>) -> Append {
        self.append.message_id = Some(Bytes::copy_from_slice(id.as_ref()));
        self
    }

    async fn send(self) -> Result<Verdict<Appended>, Error> {
        let client = &self.stream.client;
        let make = |request: Option<RequestId>| {
            client_frame::Body::Append(AppendRequest {
                scope: Some(client.scope()),
                stream: self.stream.name.clone(),
                append: Some(self.append.clone()),
                request,
                timeout_ms: 0,
            })
        };
        let answer = client.mutate(Mutation::ONCE, client.timeout(), make).await?;
        let server_frame::Body::Append(reply) = answer.body else {
            return Err(Error::unexpected("append"));
        };
        client.saw(reply.header.as_ref());
        match reply.verdict {
            Some(append_reply::Verdict::Done(done)) => Ok(Verdict::Done(Appended::from_wire(done, reply.repeated))),
            Some(append_reply::Verdict::Refused(refused)) => Ok(Verdict::Refused(Refusal::from_wire(refused))),
            None => Err(Error::unexpected("append")),
        }
    }
}

impl IntoFuture for Append {
    type Output = Result<Verdict<Appended>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    /// `invalid`: it breaks a rule, or the stream demands a fencing token; those of the call; without such a stream
    /// `not_found`.
    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}
