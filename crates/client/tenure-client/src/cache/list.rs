//! Reading keys in order.

use std::future::IntoFuture;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, TryStreamExt, stream};

use tenure_api::v1::{ListRequest, client_frame, server_frame};
use tenure_recipes::outcome::Repeat;

use super::{Cache, Entry, Read, copied};
use crate::error::Error;

/// Keys of one page, if no limit is chosen.
const PAGE_LIMIT: u32 = 1_000;

/// A listing that is being described. Awaiting it reads all its pages into memory; [`stream`](List::stream) and
/// [`page`](List::page) do not.
#[derive(Clone, Debug)]
#[must_use = "a listing is read when it is awaited"]
pub struct List {
    cache: Cache,
    prefix: Bytes,
    after: Option<Bytes>,
    limit: Option<usize>,
    keys_only: bool,
    stale: bool,
}

/// A page of keys, of one revision.
#[derive(Clone, Debug)]
pub struct Page {
    /// The keys, in order of their bytes.
    pub entries: Vec<Entry>,
    /// Whether there are more behind the last of them.
    pub more: bool,
}

impl List {
    pub(super) fn new(cache: Cache) -> List {
        List {
            cache,
            prefix: Bytes::new(),
            after: None,
            limit: None,
            keys_only: false,
            stale: false,
        }
    }

    /// Only keys that begin with these bytes.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> List {
        self.prefix = copied(prefix.as_ref());
        self
    }

    /// Only keys behind this one.
    pub fn after(mut self, key: impl AsRef<[u8]>) -> List {
        self.after = Some(copied(key.as_ref()));
        self
    }

    /// At most so many keys over all pages.
    pub fn limit(mut self, keys: usize) -> List {
        self.limit = Some(keys);
        self
    }

    /// Leave the values out.
    pub fn keys_only(mut self) -> List {
        self.keys_only = true;
        self
    }

    /// Read what the node has, without asking for the newest, but nothing older than this client has seen.
    pub fn stale(mut self) -> List {
        self.stale = true;
        self
    }

    /// Reads the first page: at most 1,000 keys or 1 MiB.
    ///
    /// # Errors
    /// Those of the call; without such a cache `not_found`.
    pub async fn page(&self) -> Result<Read<Page>, Error> {
        let client = &self.cache.client;
        let limit = self
            .limit
            .and_then(|limit| u32::try_from(limit).ok())
            .map_or(PAGE_LIMIT, |it| it.min(PAGE_LIMIT));
        let (min_revision, left) = client.oldest_wanted(self.stale).await?;
        let make = || {
            client_frame::Body::List(ListRequest {
                scope: Some(client.scope()),
                cache: self.cache.name.clone(),
                prefix: self.prefix.clone(),
                after: self.after.clone(),
                limit,
                keys_only: self.keys_only,
                stale: self.stale,
                min_revision,
                timeout_ms: 0,
            })
        };
        let answer = client.repeatable(Repeat::Read, left, make).await?;
        let server_frame::Body::List(reply) = answer.body else {
            return Err(Error::unexpected("list"));
        };
        client.saw(reply.header.as_ref());
        let entries = reply.keys.into_iter().map(Entry::from_wire).collect();
        Ok(Read::new(
            Page {
                entries,
                more: reply.more,
            },
            reply.header,
            reply.age_us,
        ))
    }

    /// Reads page after page as the entries are taken. Each page is of one revision; several need not be of the same.
    pub fn stream(self) -> impl Stream<Item = Result<Entry, Error>> + Send {
        stream::try_unfold(Some(self), |rest| async move {
            match rest {
                Some(list) => list.step().await,
                None => Ok(None),
            }
        })
        .map_ok(|entries| stream::iter(entries.into_iter().map(Ok)))
        .try_flatten()
    }

    /// Reads one page, and says what is left of the listing.
    async fn step(mut self) -> Result<Option<(Vec<Entry>, Option<List>)>, Error> {
        if self.limit == Some(0) {
            return Ok(None);
        }
        let page = self.page().await?.value;
        self.limit = self.limit.map(|limit| limit.saturating_sub(page.entries.len()));
        let last = page.entries.last().map(|entry| entry.key.clone());
        let rest = match last {
            Some(key) if page.more => Some(List {
                after: Some(key),
                ..self
            }),
            _ => None,
        };
        Ok(Some((page.entries, rest)))
    }
}

impl IntoFuture for List {
    type Output = Result<Vec<Entry>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.stream().try_collect().boxed()
    }
}
