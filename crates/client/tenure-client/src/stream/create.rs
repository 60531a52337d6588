//! Creating a stream.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_api::v1::{
    Consistency, CreateStreamRequest, FenceMode, StreamInfo, StreamSettings, client_frame, create_stream_reply,
    server_frame,
};

use super::Stream;
use crate::channel::milliseconds;
use crate::client::Mutation;
use crate::error::Error;
use crate::verdict::{Refusal, Verdict};

/// The creation of a stream that is being described; awaiting it sends it. The namespace comes into being with it.
///
/// ```no_run
/// # async fn run(client: tenure_client::Client) -> Result<(), tenure_client::Error> {
/// use std::time::Duration;
///
/// let created = client
///     .stream("orders")
///     .create()
///     .retention(Duration::from_secs(7 * 86_400))
///     .retention_bytes(1 << 30)
///     .dedup_window(Duration::from_secs(600))
///     .await?
///     .done()?;
/// println!("{}", if created.existed { "was there" } else { "new" });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a stream is created when this is awaited"]
pub struct CreateStream {
    stream: Stream,
    settings: StreamSettings,
}

/// A stream exists with the settings that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamCreated {
    /// Its settings.
    pub info: StreamInfo,
    /// Whether it existed before.
    pub existed: bool,
    /// Whether the server remembered this from an earlier attempt.
    pub repeated: bool,
}

impl CreateStream {
    pub(super) fn new(stream: Stream) -> CreateStream {
        CreateStream {
            stream,
            settings: StreamSettings::default(),
        }
    }

    /// How long records are kept, from 1 ms to ten years; they may be readable a little longer. Without it: no end.
    pub fn retention(mut self, time: Duration) -> CreateStream {
        self.settings.retention_ms = Some(milliseconds(time));
        self
    }

    /// How many bytes of records are kept, at least; the oldest beyond that go. Without it: all.
    pub fn retention_bytes(mut self, bytes: u64) -> CreateStream {
        self.settings.retention_bytes = Some(bytes);
        self
    }

    /// Whether appends need a fencing token; optional if nothing is chosen.
    pub fn fence(mut self, mode: FenceMode) -> CreateStream {
        self.settings.fence = mode.into();
        self
    }

    /// Every append needs a fencing token.
    pub fn fence_mandatory(self) -> CreateStream {
        self.fence(FenceMode::Mandatory)
    }

    /// For how long a message id is remembered, at most 24 h; zero: not at all. Two minutes if nothing is chosen.
    pub fn dedup_window(mut self, window: Duration) -> CreateStream {
        let window_ms = if window.is_zero() { 0 } else { milliseconds(window) };
        self.settings.dedup_window_ms = Some(window_ms);
        self
    }

    /// How many groups to spread it over; 1 if nothing is chosen.
    pub fn shards(mut self, shards: u32) -> CreateStream {
        self.settings.shards = Some(shards);
        self
    }

    /// How many copies are wished for; 3 if nothing is chosen.
    pub fn replication(mut self, copies: u32) -> CreateStream {
        self.settings.replication = Some(copies);
        self
    }

    /// How its writes are made safe; by a quorum if nothing is chosen.
    pub fn consistency(mut self, consistency: Consistency) -> CreateStream {
        self.settings.consistency = consistency.into();
        self
    }

    async fn send(self) -> Result<Verdict<StreamCreated>, Error> {
        let client = &self.stream.client;
        let make = |request| {
            client_frame::Body::CreateStream(CreateStreamRequest {
                scope: Some(client.scope()),
                name: self.stream.name.clone(),
                settings: Some(self.settings),
                request,
                timeout_ms: 0,
            })
        };
        let answer = client.mutate(Mutation::CREATION, client.timeout(), make).await?;
        let server_frame::Body::CreateStream(reply) = answer.body else {
            return Err(Error::unexpected("create_stream"));
        };
        client.saw(reply.header.as_ref());
        match reply.verdict {
            Some(create_stream_reply::Verdict::Done(info)) => {
                let (existed, repeated) = (reply.existed, reply.repeated);
                Ok(Verdict::Done(StreamCreated {
                    info,
                    existed,
                    repeated,
                }))
            }
            Some(create_stream_reply::Verdict::Refused(refused)) => Ok(Verdict::Refused(Refusal::from_wire(refused))),
            None => Err(Error::unexpected("create_stream")),
        }
    }
}

impl IntoFuture for CreateStream {
    type Output = Result<Verdict<StreamCreated>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}
