//! What each client asked for, when, and what it was told; and what watches told.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure_client::{
    Cache, Change, ChangeKind, Delete, Deleted, EndReason, Entry, Error, ErrorCode, Guard, Outcome, Put, PutOutcome,
    Refusal, Verdict,
};

/// The calls of all clients of one run.
#[derive(Debug)]
pub struct History {
    begun: Instant,
    calls: Mutex<Vec<Call>>,
}

/// One call of one client.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who called. One client makes one call after another.
    pub client: u32,
    /// What was asked for.
    pub operation: Operation,
    /// When, since the history began.
    pub called: Duration,
    /// When the answer came; `None`: it may take effect at any later time.
    pub returned: Option<Duration>,
    /// What the client was told.
    pub told: Told,
    /// Why it got no answer, if it got none.
    pub failure: Option<Failure>,
}

/// Why a call got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code from the table of errors.
    pub code: ErrorCode,
    /// How long the call took.
    pub after: Duration,
    /// What the client was told, in full.
    pub message: String,
}

/// What was asked for. No two writes of one run have the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A write.
    Put {
        /// The key.
        key: String,
        /// The value, which no other call writes.
        value: String,
        /// What had to hold.
        guard: Guarded,
    },
    /// A removal.
    Delete {
        /// The key.
        key: String,
        /// What had to hold.
        guard: Guarded,
    },
    /// A read that sees every write acknowledged before it.
    Get {
        /// The key.
        key: String,
    },
}

/// What was read of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadValue {
    /// The value.
    pub value: String,
    /// Revision of the write.
    pub version: u64,
    /// Revision of the key's creation.
    pub created: u64,
}

/// What had to hold for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// Nothing.
    Nothing,
    /// There is no such key.
    Absent,
    /// Its last write had this version.
    Version(u64),
    /// It has this fencing token.
    Created(u64),
}

/// What a client was told about its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was written.
    Written {
        /// Revision of the write.
        version: u64,
        /// Revision of the key's creation.
        created: u64,
    },
    /// It is not there.
    Deleted {
        /// Revision of the removal, and the version that was removed; `None`: it was not there before.
        removed: Option<(u64, u64)>,
    },
    /// Nothing changed.
    Refused {
        /// Version of the key that stood in the way; `None`: there was no key.
        version: Option<u64>,
    },
    /// It was read.
    Read {
        /// What was there; `None`: no such key.
        found: Option<ReadValue>,
    },
    /// It was not applied and never will be.
    NotApplied,
    /// It may or may not have been applied.
    Unknown,
}

/// A change that a watch told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The revision that it consumed.
    pub revision: u64,
    /// The key.
    pub key: String,
    /// What happened.
    pub kind: EventKind,
    /// The version before.
    pub previous_version: Option<u64>,
}

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was written.
    Put {
        /// The value.
        value: String,
        /// Revision of the write.
        version: u64,
        /// Revision of the key's creation.
        created: u64,
    },
    /// It is gone.
    Removed {
        /// Why.
        reason: EndReason,
    },
}

impl Default for History {
    fn default() -> History {
        History {
            begun: Instant::now(),
            calls: Mutex::default(),
        }
    }
}

impl History {
    /// Makes a write and records it. A call that is cancelled stays in the history with an unknown outcome.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn put(&self, client: u32, put: Put, operation: Operation) -> Result<PutOutcome, Error> {
        let call = async { put.await };
        self.record(client, operation, call, |written| match written {
            Verdict::Done(written) => Told::Written {
                version: written.version,
                created: written.created,
            },
            Verdict::Refused(refusal) => refused(refusal),
        })
        .await
    }

    /// Makes a removal and records it, likewise.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn delete(&self, client: u32, delete: Delete, operation: Operation) -> Result<Verdict<Deleted>, Error> {
        let call = async { delete.await };
        self.record(client, operation, call, |deleted| match deleted {
            Verdict::Done(deleted) => Told::Deleted {
                removed: deleted.removed.map(|removal| (removal.revision, removal.version)),
            },
            Verdict::Refused(refusal) => refused(refusal),
        })
        .await
    }

    /// Makes a read and records it. One that got no answer says nothing.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn get(&self, client: u32, cache: &Cache, key: &str) -> Result<Option<Entry>, Error> {
        let operation = Operation::Get { key: key.to_owned() };
        let call = async { cache.get(key).await };
        self.record(client, operation, call, |found| Told::Read {
            found: found.as_ref().map(|entry| ReadValue {
                value: String::from_utf8_lossy(&entry.value).into_owned(),
                version: entry.version,
                created: entry.created,
            }),
        })
        .await
    }

    /// Every call so far, in the order in which they were made.
    pub fn calls(&self) -> Vec<Call> {
        self.locked().clone()
    }

    /// How many writes and removals were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.locked().iter().filter(|call| call.told.is_acknowledged()).count()
    }

    async fn record<T>(
        &self,
        client: u32,
        operation: Operation,
        call: impl Future<Output = Result<T, Error>>,
        told: impl FnOnce(&T) -> Told,
    ) -> Result<T, Error> {
        let index = {
            let mut calls = self.locked();
            calls.push(Call {
                client,
                operation,
                called: self.begun.elapsed(),
                returned: None,
                told: Told::Unknown,
                failure: None,
            });
            calls.len() - 1
        };
        let result = call.await;
        let returned = self.begun.elapsed();
        let told = result.as_ref().map_or_else(failed, told);
        let call = &mut self.locked()[index];
        call.returned = (told != Told::Unknown).then_some(returned);
        call.told = told;
        call.failure = result.as_ref().err().map(|error| Failure {
            code: error.code(),
            after: returned.saturating_sub(call.called),
            message: format!("{error} ({error:?})"),
        });
        result
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    /// Whether the client was told that it was done.
    pub fn is_acknowledged(&self) -> bool {
        matches!(self, Told::Written { .. } | Told::Deleted { .. })
    }
}

impl Operation {
    /// The key that it is about.
    pub fn key(&self) -> &str {
        match self {
            Operation::Put { key, .. } | Operation::Delete { key, .. } | Operation::Get { key } => key,
        }
    }

    /// What had to hold.
    pub fn guard(&self) -> Guarded {
        match self {
            Operation::Put { guard, .. } | Operation::Delete { guard, .. } => *guard,
            Operation::Get { .. } => Guarded::Nothing,
        }
    }
}

impl Guarded {
    /// The same for the client; `None`: no guard.
    pub fn to_guard(self) -> Option<Guard> {
        match self {
            Guarded::Nothing => None,
            Guarded::Absent => Some(Guard::Absent),
            Guarded::Version(version) => Some(Guard::Version(version)),
            Guarded::Created(created) => Some(Guard::Created(created)),
        }
    }
}

impl Event {
    /// A change as a client's watch gives it.
    pub fn of(change: Change) -> Event {
        let kind = match change.kind {
            ChangeKind::Put {
                value,
                version,
                created,
                ..
            } => EventKind::Put {
                value: String::from_utf8_lossy(&value).into_owned(),
                version,
                created,
            },
            ChangeKind::Removed { reason } => EventKind::Removed { reason },
        };
        Event {
            revision: change.revision,
            key: String::from_utf8_lossy(&change.key).into_owned(),
            kind,
            previous_version: change.previous_version,
        }
    }
}

fn refused(refusal: &Refusal) -> Told {
    Told::Refused {
        version: refusal.key().map(|key| key.version),
    }
}

fn failed(error: &Error) -> Told {
    match error.outcome() {
        Outcome::Unknown => Told::Unknown,
        Outcome::NotApplied | Outcome::Refused => Told::NotApplied,
    }
}
