//! A system under measurement, as the works see it.

#[cfg(feature = "peers")]
pub mod etcd;
#[cfg(feature = "peers")]
pub mod redis;
pub mod tenure;
#[cfg(feature = "peers")]
pub mod zookeeper;

use std::future::Future;
use std::time::Duration;

use crate::work::Work;

/// What a key is worth: as long as an address with a port.
pub(crate) const VALUE: &str = "10.0.0.7:8080, host 3";

/// One connection to a system; workers share it and ask through it at the same time. What is asked is durable, as far
/// as the system is set up so, when the answer comes.
pub trait Target: Send + Sync + 'static {
    /// The proof of a claim that a release and a renewal show.
    type Grant: Send + Sync;
    /// Where events come from.
    type Watcher: Watcher;

    /// Makes what a work needs and may be there already.
    fn prepare(&self, work: Work) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Writes a key that does not exist, with a TTL.
    ///
    /// # Errors
    /// [`Failure::Refused`] if it exists.
    fn claim(&self, key: &str, ttl: Duration) -> impl Future<Output = Result<Self::Grant, Failure>> + Send;

    /// Deletes a key if it is still the one that was claimed.
    ///
    /// # Errors
    /// [`Failure::Refused`] if it is not.
    fn release(&self, key: &str, grant: &Self::Grant) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Gives a key its TTL anew if it is still the one that was claimed.
    ///
    /// # Errors
    /// [`Failure::Refused`] if it is not.
    fn renew(&self, key: &str, grant: &Self::Grant, ttl: Duration) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Writes a key, whether it exists or not, with a TTL.
    fn put(&self, key: &str, ttl: Duration) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Reads a key.
    ///
    /// # Errors
    /// [`Failure::Refused`] if it does not exist.
    fn get(&self, key: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Appends a record to the stream of the measurement.
    fn publish(&self, record: &[u8]) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Asks for something that touches no data.
    fn echo(&self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Follows the keys that begin with this; what changes after it returns is seen.
    fn watch(&self, prefix: &str) -> impl Future<Output = Result<Self::Watcher, Failure>> + Send;
}

/// Events of the keys that are watched.
pub trait Watcher: Send + 'static {
    /// Puts the key of each event of the next batch that is of the wanted kind into `keys`, at least one.
    ///
    /// # Errors
    /// The watch has ended.
    fn next(&mut self, kind: EventKind, keys: &mut Vec<String>) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Which events are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Writes.
    Written,
    /// Ends of TTLs.
    Expired,
}

/// Why something was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// What was asked did not hold. Nothing changed.
    #[error("refused: {why}")]
    Refused {
        /// What stood in the way.
        why: String,
    },
    /// The system cannot do that, or it is not compared.
    #[error("not measured: {why}")]
    NotMeasured {
        /// Why.
        why: String,
    },
    /// Tenure gave no answer, or an error.
    #[error(transparent)]
    Tenure(#[from] tenure_client::Error),
    /// Redis gave no answer, or an error.
    #[cfg(feature = "peers")]
    #[error("redis: {0}")]
    Redis(std::sync::Arc<::redis::RedisError>),
    /// etcd gave no answer, or an error.
    #[cfg(feature = "peers")]
    #[error("etcd: {0}")]
    Etcd(std::sync::Arc<tonic::Status>),
    /// ZooKeeper gave no answer, or an error.
    #[cfg(feature = "peers")]
    #[error("zookeeper: {0}")]
    ZooKeeper(zookeeper::Trouble),
    /// An answer of a kind that was not expected, or none in time.
    #[error("{what}")]
    Unexpected {
        /// What came.
        what: String,
    },
}

impl Failure {
    pub(crate) fn refused(why: impl Into<String>) -> Failure {
        Failure::Refused { why: why.into() }
    }

    #[cfg(feature = "peers")]
    pub(crate) fn not_measured(work: impl std::fmt::Display) -> Failure {
        let why = format!("{work} is not compared with this system");
        Failure::NotMeasured { why }
    }

    pub(crate) fn unexpected(what: impl Into<String>) -> Failure {
        Failure::Unexpected { what: what.into() }
    }
}
