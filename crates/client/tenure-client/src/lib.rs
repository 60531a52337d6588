//! Client of a Tenure cluster: sessions kept alive, safe retries, resuming watches.
//!
//! ```no_run
//! use std::time::Duration;
//! use tenure_client::{Client, Verdict};
//!
//! # async fn run() -> Result<(), tenure_client::Error> {
//! let client = Client::connect(["127.0.0.1:7400"]).await?.namespace("acme", "prod");
//! client.create_cache("leases").await?.done()?;
//!
//! // This process is alive as long as its session is, which is renewed in the background.
//! let session = client.open_session(Duration::from_secs(10)).await?;
//!
//! // Of several that try, one creates the key; its revision is the fencing token.
//! match client.cache("leases").put("reconcile", "worker-7").if_absent().owner(&session).await? {
//!     Verdict::Done(written) => {
//!         println!("mine, token {}", written.token());
//!         tokio::select! {
//!             reason = session.lost() => println!("stop at once: {reason:?}"),
//!             () = work(written.token()) => session.close().await?,
//!         }
//!     }
//!     Verdict::Refused(refusal) => println!("somebody has it: {refusal}"),
//! }
//! # Ok(())
//! # }
//! # async fn work(_token: u64) {}
//! ```
//!
//! An error is not a "no": [`Error::outcome`] says whether the call was *not applied* or is *unknown*. A mutation is
//! sent again by itself under the same identity, so the server gives the first answer to every repeat.

mod cache;
mod call;
mod catalog;
mod channel;
mod client;
mod directory;
mod error;
mod feed;
pub mod felix;
mod keep_alive;
mod options;
mod pool;
mod requests;
pub mod runtime;
mod session;
mod sessions;
mod stream;
mod txn;
mod verdict;
mod watch;

pub use cache::{
    Add, Added, Cache, Delete, DeletePrefix, Deleted, Entry, Get, GetCounter, Guard, List, LocalDeadline, Owner, Page,
    PrefixStep, Put, PutOutcome, Read, Removal, Touch, Touched, Written,
};
pub use catalog::{CacheCreated, CreateCache};
pub use client::Client;
pub use error::Error;
pub use options::{ClientBuilder, ENDPOINTS_MAX, TIMEOUT_DEFAULT};
pub use requests::RequestMode;
pub use runtime::ClientRuntime;
pub use session::{OpenSession, OpenedSession, Session, SessionKey};
pub use sessions::SessionClosed;
pub use stream::{
    Append, Appended, CreateStream, Follow, FollowBuilder, FollowEnd, ReadFrom, ReadRecords, Record, RecordPage,
    Stream, StreamCreated, StreamState,
};
pub use txn::{AppendTo, Operation, OperationResult, PutKey, Txn, TxnGuard, TxnOutcome};
pub use verdict::{KeyFacts, Refusal, Verdict};
pub use watch::{Change, ChangeKind, Watch, WatchBuilder, WatchEnd, WatchItem};

pub use tenure_api::v1::{
    CacheInfo, Consistency, EndReason, FenceMode, GroupInfo, HelloReply, NamespaceInfo, NodeInfo, SessionInfo,
    StatusReply, StreamInfo, StreamSettings, WireError,
};
pub use tenure_api::{ErrorCode, Outcome};
pub use tenure_recipes::{EndCause, LostReason, SessionState};
