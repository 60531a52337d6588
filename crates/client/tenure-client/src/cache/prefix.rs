//! Deleting the keys that begin with a prefix, step after step.

use std::future::IntoFuture;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_api::Outcome;
use tenure_api::v1::{DeletePrefixRequest, RequestId, WireError, client_frame, server_frame};

use super::Cache;
use crate::client::Mutation;
use crate::error::Error;

/// How long a deletion waits after a step that removed nothing though there is more, in microseconds.
const IN_VAIN_PAUSE_US: u64 = 10_000;
/// How many such steps it makes one after the other.
const IN_VAIN_MAX: u32 = 200;

/// A deletion by prefix that is being described. Awaiting it runs it to its end and returns how many keys were removed;
/// [`step`](DeletePrefix::step) runs it step by step.
///
/// Each step is one atomic request of its own, of at most 4,096 keys or 4 MiB; the whole is not atomic, and keys that
/// are written meanwhile may or may not be removed.
///
/// ```no_run
/// # async fn run(client: tenure_client::Client) -> Result<(), tenure_client::Error> {
/// let mut deletion = client.cache("jobs").delete_prefix("batch-7/");
/// while let Some(step) = deletion.step().await? {
///     println!("{} keys removed, {} so far", step.removed, deletion.removed());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a deletion runs when it is awaited, or step by step"]
pub struct DeletePrefix {
    cache: Cache,
    prefix: Bytes,
    removed: u64,
    /// Steps one after the other that removed nothing though there is more.
    in_vain: u32,
    over: bool,
}

/// One step of a deletion by prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixStep {
    /// How many keys it removed.
    pub removed: u64,
    /// The revision that their removals share; `None`: there were none.
    pub revision: Option<u64>,
    /// Whether another step follows.
    pub more: bool,
    /// Whether the server remembered this from an earlier attempt.
    pub repeated: bool,
}

impl DeletePrefix {
    pub(super) fn new(cache: Cache, prefix: Bytes) -> DeletePrefix {
        DeletePrefix {
            cache,
            prefix,
            removed: 0,
            in_vain: 0,
            over: false,
        }
    }

    /// How many keys the steps so far have removed.
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// Runs the next step; `None`: there is nothing left to do. After an error it may be called again, which goes on with
    /// what is still there.
    ///
    /// # Errors
    /// Those of the call, with the outcome of this step alone; without such a cache `not_found`; `overloaded` if step after
    /// step removes nothing though there is more.
    pub async fn step(&mut self) -> Result<Option<PrefixStep>, Error> {
        if self.over {
            return Ok(None);
        }
        if self.in_vain >= IN_VAIN_MAX {
            self.in_vain = 0;
            let why = "others take all the room that deletions by prefix have: go on later";
            return Err(Error::from_wire(WireError::overloaded(why, IN_VAIN_PAUSE_US)));
        }
        if self.in_vain > 0 {
            tokio::time::sleep(Duration::from_micros(IN_VAIN_PAUSE_US)).await;
        }
        let client = &self.cache.client;
        let make = |request: Option<RequestId>| {
            client_frame::Body::DeletePrefix(DeletePrefixRequest {
                scope: Some(client.scope()),
                cache: self.cache.name.clone(),
                prefix: self.prefix.clone(),
                request,
                timeout_ms: 0,
            })
        };
        let answer = client.mutate(Mutation::ONCE, client.timeout(), make).await?;
        let server_frame::Body::DeletePrefix(reply) = answer.body else {
            return Err(Error::unexpected("delete_prefix"));
        };
        client.saw(reply.header.as_ref());
        self.removed = self.removed.saturating_add(reply.removed);
        // A step may remove nothing and still not be the last: what it met had lapsed, or others took its room.
        self.over = !reply.more;
        self.in_vain = if reply.removed == 0 { self.in_vain + 1 } else { 0 };
        Ok(Some(PrefixStep {
            removed: reply.removed,
            revision: reply.revision,
            more: !self.over,
            repeated: reply.repeated,
        }))
    }

    async fn run(mut self) -> Result<u64, Error> {
        loop {
            match self.step().await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(self.removed),
                // The steps before it did something, so "not applied" would be wrong of the whole.
                Err(error) if self.removed > 0 => return Err(error.with_outcome(Outcome::Unknown)),
                Err(error) => return Err(error),
            }
        }
    }
}

impl IntoFuture for DeletePrefix {
    type Output = Result<u64, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    /// Those of the call; without such a cache `not_found`. If a step fails after others have removed keys, the outcome
    /// of the whole is unknown.
    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}
