//! Reading a key.

use std::future::IntoFuture;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_api::v1::{GetRequest, Header, client_frame, server_frame};
use tenure_recipes::outcome::Repeat;

use super::{Cache, Entry};
use crate::error::Error;

/// What was read, and of which state.
#[derive(Clone, Debug)]
pub struct Read<T> {
    /// What was read.
    pub value: T,
    /// The group that answered.
    pub group: u32,
    /// The group's revision as of this answer: a watch from the one after it misses nothing.
    pub revision: u64,
    /// In a stale read, how long ago at most the node had all that was acknowledged anywhere; `None` also if it has heard from
    /// no leader since it started.
    pub age: Option<Duration>,
}

impl<T> Read<T> {
    pub(super) fn new(value: T, header: Option<Header>, age_us: Option<u64>) -> Read<T> {
        let header = header.unwrap_or_default();
        let age = age_us.map(Duration::from_micros);
        Read {
            value,
            group: header.group,
            revision: header.revision,
            age,
        }
    }
}

/// A read that is being described; awaiting it sends it.
#[derive(Clone, Debug)]
#[must_use = "a read is sent when it is awaited"]
pub struct Get {
    cache: Cache,
    key: Bytes,
    stale: bool,
}

impl Get {
    pub(super) fn new(cache: Cache, key: Bytes) -> Get {
        Get {
            cache,
            key,
            stale: false,
        }
    }

    /// Read what the node has, without asking for the newest, but nothing older than this client has seen.
    pub fn stale(mut self) -> Get {
        self.stale = true;
        self
    }

    /// Reads the key together with the revision of the state that it was read from.
    ///
    /// # Errors
    /// Those of the call; without such a cache `not_found`.
    pub async fn with_revision(self) -> Result<Read<Option<Entry>>, Error> {
        let client = &self.cache.client;
        let (min_revision, left) = client.oldest_wanted(self.stale).await?;
        let make = || {
            client_frame::Body::Get(GetRequest {
                scope: Some(client.scope()),
                cache: self.cache.name.clone(),
                key: self.key.clone(),
                stale: self.stale,
                min_revision,
                timeout_ms: 0,
            })
        };
        let answer = client.repeatable(Repeat::Read, left, make).await?;
        let server_frame::Body::Get(reply) = answer.body else {
            return Err(Error::unexpected("get"));
        };
        client.saw(reply.header.as_ref());
        Ok(Read::new(reply.key.map(Entry::from_wire), reply.header, reply.age_us))
    }
}

impl IntoFuture for Get {
    type Output = Result<Option<Entry>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.with_revision().map(|read| read.map(|read| read.value)).boxed()
    }
}
