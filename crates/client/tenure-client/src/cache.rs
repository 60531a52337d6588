//! The keys of a cache: reading, writing, counting, watching.

mod count;
mod list;
mod prefix;
mod read;
mod write;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use tenure_api::v1::{self, guard};
use tenure_recipes::session::believed;

use crate::client::Client;
use crate::runtime::{Clock, Instants};
use crate::watch::WatchBuilder;

pub use count::{Add, Added, GetCounter};
pub use list::{List, Page};
pub use prefix::{DeletePrefix, PrefixStep};
pub use read::{Get, Read};
pub use write::{Delete, Deleted, Owner, Put, PutOutcome, Removal, Touch, Touched, Written};

/// The keys of one cache. Making it sends nothing.
#[derive(Clone, Debug)]
pub struct Cache {
    client: Client,
    name: String,
}

impl Cache {
    pub(crate) fn new(client: Client, name: String) -> Cache {
        Cache { client, name }
    }

    /// The cache's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client, seen from the cache's namespace.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Writes a key. What is awaited is the verdict; a guard that does not hold refuses it.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Put {
        Put::new(self.clone(), copied(key.as_ref()), copied(value.as_ref()))
    }

    /// Reads a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Get {
        Get::new(self.clone(), copied(key.as_ref()))
    }

    /// Deletes a key. Deleting what is not there is done, too.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Delete {
        Delete::new(self.clone(), copied(key.as_ref()))
    }

    /// Renews the TTL of a key: no new version and no event. Without such a key: `not_found`.
    pub fn touch(&self, key: impl AsRef<[u8]>, ttl: Duration) -> Touch {
        Touch::new(self.clone(), copied(key.as_ref()), ttl)
    }

    /// Adds to a counter, which is a key whose value is the decimal text of a number of 64 bits. One that does not exist
    /// counts as 0 and is created.
    pub fn add(&self, key: impl AsRef<[u8]>, delta: i64) -> Add {
        Add::new(self.clone(), copied(key.as_ref()), delta)
    }

    /// Reads a counter.
    pub fn counter(&self, key: impl AsRef<[u8]>) -> GetCounter {
        GetCounter::new(self.clone(), copied(key.as_ref()))
    }

    /// Deletes the keys that begin with these bytes, all keys if there are none, step after step.
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> DeletePrefix {
        DeletePrefix::new(self.clone(), copied(prefix.as_ref()))
    }

    /// Reads keys in order of their bytes.
    pub fn list(&self) -> List {
        List::new(self.clone())
    }

    /// Follows every change in order, from the next one on unless something else is chosen.
    pub fn watch(&self) -> WatchBuilder {
        WatchBuilder::new(self.clone())
    }
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// Its value; empty where only keys were asked for.
    pub value: Bytes,
    /// Revision of its last write, for compare-and-set.
    pub version: u64,
    /// Revision of its creation: its fencing token, which renewals and later writes leave alone.
    pub created: u64,
    /// The session that owns it; `None`: nobody.
    pub owner_session: Option<u64>,
    /// How long it lives if nobody renews it, as of the answer; `None`: without end. In a stale read and in a watch's
    /// state it is for display only.
    pub remaining: Option<Duration>,
}

impl Entry {
    /// The fencing token.
    pub fn token(&self) -> u64 {
        self.created
    }

    pub(crate) fn from_wire(key: v1::KeyValue) -> Entry {
        Entry {
            key: key.key,
            value: key.value,
            version: key.version,
            created: key.created,
            owner_session: key.owner_session,
            remaining: key.remaining_us.map(Duration::from_micros),
        }
    }
}

/// What must hold for a write to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present,
    /// Its last write had this version.
    Version(u64),
    /// It has this value.
    Value(Bytes),
    /// It was created at this revision, its fencing token, and has existed since.
    Created(u64),
}

impl Guard {
    pub(crate) fn to_wire(&self) -> v1::Guard {
        let condition = match self {
            Guard::Absent => guard::Condition::Absent(true),
            Guard::Present => guard::Condition::Present(true),
            Guard::Version(version) => guard::Condition::Version(*version),
            Guard::Value(value) => guard::Condition::Value(value.clone()),
            Guard::Created(created) => guard::Condition::Created(*created),
        };
        v1::Guard {
            condition: Some(condition),
        }
    }
}

/// Until when a holder may believe that what it wrote is still there: counted from the sending of the attempt that was
/// answered, and 0.8 of what the server said, on a clock that goes on while the machine is suspended.
#[derive(Clone)]
pub struct LocalDeadline {
    clock: Arc<dyn Clock>,
    at: Duration,
}

impl LocalDeadline {
    pub(crate) fn new(clock: &Arc<dyn Clock>, sent: Instants, remaining: Duration) -> LocalDeadline {
        LocalDeadline {
            clock: Arc::clone(clock),
            at: sent.boot.saturating_add(believed(remaining)),
        }
    }

    /// How long it is off; zero once it has passed.
    pub fn remaining(&self) -> Duration {
        self.at.saturating_sub(self.clock.boot())
    }

    /// Whether it has passed.
    pub fn has_passed(&self) -> bool {
        self.clock.boot() >= self.at
    }

    /// The instant, on the boot-time clock of the runtime.
    pub fn at(&self) -> Duration {
        self.at
    }
}

impl std::fmt::Debug for LocalDeadline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalDeadline")
            .field("remaining", &self.remaining())
            .finish()
    }
}

pub(crate) fn copied(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
