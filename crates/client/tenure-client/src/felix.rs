//! A drop-in shape for programs that were written against the Rust client of Felix: `use tenure_client::felix as
//! felix_client;` and they need no other edit. It is a thin layer over [`Client`], and not a second client.
//!
//! ```no_run
//! use std::sync::Arc;
//! use bytes::Bytes;
//! use tenure_client::felix as felix_client;
//! use felix_client::{CacheCondition, ClientConfig, ClusterClient};
//!
//! # async fn run() -> anyhow::Result<()> {
//! let seeds = ["127.0.0.1:7400".parse()?];
//! let client = Arc::new(ClusterClient::connect(&seeds, "localhost", ClientConfig::default()).await?);
//! let me = Bytes::from_static(b"worker-7");
//! let taken = client
//!     .cache_put_if("acme", "prod", "leases", "endpoint-7", me, Some(30_000), CacheCondition::Absent)
//!     .await?;
//! println!("{}", if taken.applied { "mine" } else { "somebody has it" });
//! # Ok(())
//! # }
//! ```
//!
//! What differs, for the better unless it says otherwise:
//!
//! - A cache or a stream comes into being, with the default settings, with the first write to it, and a cache also with
//!   the first watch of it, so that no change is missed. Reading one that does not exist finds nothing.
//! - A call whose answer is lost is asked again under the same identity, so it gets its original verdict. An error that
//!   is left says what is known: `error.downcast_ref::<tenure_client::Error>()` and then
//!   [`outcome`](crate::Error::outcome).
//! - Versions and the offsets of a watch are revisions of the namespace. They never run backwards, and survive
//!   restarts, failover and deletion. Offsets of a stream count its records, and nothing else.
//! - A counter is a key of its cache, whose value is the number as decimal text; a watch sees it change.
//! - A batch is appended whole or not at all, and so is a commit. Routing keys and entity keys place nothing, as a
//!   stream is one log here; an entity key is part of the state's key.
//! - [`AckMode::None`] hands records to a queue of bounded length, which appends them in order. A full queue makes the
//!   caller wait. Records that cannot be appended in the time of a call are dropped, which is logged. Whoever publishes
//!   with an acknowledgement afterwards waits for what is queued before it.
//! - The state of a stream's entities is kept in the cache `STREAM.state`: the key is the entity key with its length in
//!   four bytes before it, then the key; the value is the offset of the commit in eight bytes, big end first, then the
//!   value.
//! - The server name and the token of the configuration are taken and not used: connections are not encrypted, and
//!   nobody is asked who they are. So this belongs into a network that is trusted.

mod background;
mod cache;
mod records;
mod watch;

use std::fmt;
use std::net::SocketAddr;

use tenure_api::ErrorCode;
use tenure_api::v1::wire_error;

use crate::client::Client;
use crate::error::Error;
use background::Background;

pub use cache::{CacheCondition, CacheConditionResult, VersionedValue};
pub use records::{AckMode, CommitOp, ConditionalWrite, StateValue};
pub use watch::{CacheChange, CacheWatchFilter, CacheWatchItem, ClusterCacheWatch, ShardMoved};

/// How often a call is made anew because something that it needs was missing and has been created.
const CREATIONS_MAX: usize = 3;

/// How a client is made. Every field has a default.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The tenant as which the program acts. Calls name their tenant themselves, so it is not used.
    pub auth_tenant_id: Option<String>,
    /// The proof of the right to do so. It is not used.
    pub auth_token: Option<String>,
}

impl ClientConfig {
    /// The defaults. What is given describes a transport that is not used here.
    pub fn optimized_defaults<T>(_transport: T) -> ClientConfig {
        ClientConfig::default()
    }
}

/// Hides the token.
impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("auth_tenant_id", &self.auth_tenant_id)
            .finish_non_exhaustive()
    }
}

/// A client of a cluster, to be shared as `Arc<ClusterClient>`. Every call names its tenant and its namespace.
#[derive(Debug)]
pub struct ClusterClient {
    client: Client,
    background: Background,
}

impl ClusterClient {
    /// Connects to a cluster, given some of its nodes. The server name is not used.
    ///
    /// # Errors
    /// No seed is given, or none could be reached.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
    pub async fn connect(
        seeds: &[SocketAddr],
        server_name: &str,
        config: ClientConfig,
    ) -> anyhow::Result<ClusterClient> {
        tracing::debug!(server_name, ?config, "connecting");
        let endpoints = seeds.iter().map(SocketAddr::to_string);
        Ok(ClusterClient::over(Client::connect(endpoints).await?))
    }

    /// The same over a client that was made in another way.
    pub fn over(client: Client) -> ClusterClient {
        ClusterClient {
            client,
            background: Background::default(),
        }
    }

    /// The client beneath, which can do more.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// What a write needs.
enum Needed<'a> {
    Cache(&'a str),
    Stream(&'a str),
}

/// Makes a call; creates what it needs, with the default settings, if it says that something does not exist.
async fn creating<T, F>(client: &Client, needed: &[Needed<'_>], call: impl Fn() -> F) -> Result<T, Error>
where
    F: IntoFuture<Output = Result<T, Error>>,
{
    for _ in 0..CREATIONS_MAX {
        match call().await {
            Err(error) if misses_object(&error) => {
                for object in needed {
                    // One that exists with other settings serves as well.
                    match object {
                        Needed::Cache(name) => drop(client.create_cache(*name).await?),
                        Needed::Stream(name) => drop(client.stream(*name).create().await?),
                    }
                }
            }
            result => return result,
        }
    }
    call().await
}

/// Reads; what does not exist holds nothing.
fn or_nothing<T: Default>(read: Result<T, Error>) -> Result<T, Error> {
    match read {
        Err(error) if misses_object(&error) => Ok(T::default()),
        result => result,
    }
}

/// Whether a cache, a stream or the namespace does not exist.
fn misses_object(error: &Error) -> bool {
    error.code() == ErrorCode::NotFound
        && match error.detail() {
            Some(wire_error::Detail::NotFound(missing)) => {
                matches!(missing.kind.as_str(), "namespace" | "cache" | "stream")
            }
            _ => false,
        }
}
