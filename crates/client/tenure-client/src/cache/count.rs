//! Counters: keys whose value is the decimal text of a number of 64 bits.

use std::future::IntoFuture;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_api::v1::{AddRequest, RequestId, WireError, client_frame, server_frame};

use super::{Cache, LocalDeadline};
use crate::channel::{Answer, milliseconds};
use crate::client::Mutation;
use crate::error::Error;

/// A counter was changed.
#[derive(Clone, Debug)]
pub struct Added {
    /// What it holds now.
    pub sum: i64,
    /// Revision of this write.
    pub version: u64,
    /// Revision of the counter's creation: equal to `version` if this addition created it.
    pub created: u64,
    /// How long it lives as of the answer; `None`: without end; zero if it is gone already.
    pub remaining: Option<Duration>,
    /// Until when this program may believe in it; `None`: without end.
    pub deadline: Option<LocalDeadline>,
    /// Whether the server remembered this from an earlier attempt.
    pub repeated: bool,
}

/// An addition to a counter that is being described; awaiting it sends it.
///
/// ```no_run
/// # async fn run(client: tenure_client::Client) -> Result<(), tenure_client::Error> {
/// use std::time::Duration;
///
/// let limits = client.cache("limits");
/// // The first addition creates the counter, which then lives for a minute.
/// let added = limits.add("requests/user-42", 1).ttl(Duration::from_secs(60)).await?;
/// if added.sum > 100 {
///     println!("too many requests");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an addition is sent when it is awaited"]
pub struct Add {
    cache: Cache,
    key: Bytes,
    delta: i64,
    ttl: Option<Duration>,
}

impl Add {
    pub(super) fn new(cache: Cache, key: Bytes, delta: i64) -> Add {
        Add {
            cache,
            key,
            delta,
            ttl: None,
        }
    }

    /// The TTL with which the counter is created if it does not exist, from 1 ms to ten years; one that does keeps its
    /// own. Without it: no end.
    pub fn ttl(mut self, ttl: Duration) -> Add {
        self.ttl = Some(ttl);
        self
    }

    async fn send(self) -> Result<Added, Error> {
        let client = &self.cache.client;
        let make = |request: Option<RequestId>| {
            client_frame::Body::Add(AddRequest {
                scope: Some(client.scope()),
                cache: self.cache.name.clone(),
                key: self.key.clone(),
                delta: self.delta,
                ttl_ms: self.ttl.map(milliseconds),
                request,
                timeout_ms: 0,
            })
        };
        let Answer { body, sent } = client.mutate(Mutation::ONCE, client.timeout(), make).await?;
        let server_frame::Body::Add(reply) = body else {
            return Err(Error::unexpected("add"));
        };
        client.saw(reply.header.as_ref());
        let done = reply.done.ok_or_else(|| Error::unexpected("add"))?;
        let remaining = reply.remaining_us.map(Duration::from_micros);
        let deadline = remaining.map(|time| LocalDeadline::new(&client.runtime().clock, sent, time));
        Ok(Added {
            sum: done.sum,
            version: done.version,
            created: done.created,
            remaining,
            deadline,
            repeated: reply.repeated,
        })
    }
}

impl IntoFuture for Add {
    type Output = Result<Added, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    /// `wrong_type`: the key has a value that is no counter; `invalid`: the sum does not fit 64 bits. Nothing changed
    /// in either case. Those of the call besides.
    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// A read of a counter that is being described; awaiting it sends it.
#[derive(Clone, Debug)]
#[must_use = "a read is sent when it is awaited"]
pub struct GetCounter {
    cache: Cache,
    key: Bytes,
    stale: bool,
}

impl GetCounter {
    pub(super) fn new(cache: Cache, key: Bytes) -> GetCounter {
        GetCounter {
            cache,
            key,
            stale: false,
        }
    }

    /// Read what the node has, without asking for the newest, but nothing older than this client has seen.
    pub fn stale(mut self) -> GetCounter {
        self.stale = true;
        self
    }

    async fn send(self) -> Result<Option<i64>, Error> {
        let get = self.cache.get(&self.key);
        let get = if self.stale { get.stale() } else { get };
        match get.await? {
            None => Ok(None),
            Some(entry) => match number(&entry.value) {
                Some(number) => Ok(Some(number)),
                None => {
                    let key = self.key.escape_ascii().to_string();
                    Err(Error::from_wire(WireError::wrong_type(&key, "value")))
                }
            },
        }
    }
}

impl IntoFuture for GetCounter {
    type Output = Result<Option<i64>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// What the counter holds; `None`: there is no such key, which counts as 0.
    ///
    /// # Errors
    /// `wrong_type`: the key has a value that is no counter. Those of the call; without such a cache `not_found`.
    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// The number that a counter's value stands for; `None`: it is no counter's. There is one text for each number.
pub(crate) fn number(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests;
