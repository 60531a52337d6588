//! What a transaction is made of: guards and operations.

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use bytes::Bytes;

use tenure_api::v1::{self, txn_guard, txn_operation};

use crate::cache::{Guard, Owner, copied};
use crate::channel::milliseconds;

/// What must hold for the first branch of a transaction to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnGuard {
    /// A key of a cache fulfils a condition.
    Key {
        /// The cache.
        cache: String,
        /// The key.
        key: Bytes,
        /// What must hold.
        guard: Guard,
    },
    /// A counter lies within bounds. A key that does not exist counts as 0.
    Counter {
        /// The cache.
        cache: String,
        /// The key.
        key: Bytes,
        /// At least this; `None`: whatever.
        min: Option<i64>,
        /// At most this; `None`: whatever.
        max: Option<i64>,
    },
    /// The next record of a stream would get this offset.
    StreamTail {
        /// The stream.
        stream: String,
        /// The offset.
        tail: u64,
    },
    /// A session is alive.
    SessionAlive {
        /// Its id.
        session: u64,
    },
}

impl TxnGuard {
    /// A key of a cache fulfils a condition.
    pub fn key(cache: impl Into<String>, key: impl AsRef<[u8]>, guard: Guard) -> TxnGuard {
        TxnGuard::Key {
            cache: cache.into(),
            key: copied(key.as_ref()),
            guard,
        }
    }

    /// A counter lies within a range, as in `1..`, `..=10` or `0..100`. A key that does not exist counts as 0. A range in
    /// which no number lies holds of no counter.
    pub fn counter(cache: impl Into<String>, key: impl AsRef<[u8]>, range: impl RangeBounds<i64>) -> TxnGuard {
        // An excluded bound beyond which there is no number leaves no number: least above greatest.
        let (mut min, mut max) = (None, None);
        let mut nothing = false;
        match range.start_bound() {
            Bound::Included(start) => min = Some(*start),
            Bound::Excluded(start) => {
                min = start.checked_add(1);
                nothing |= min.is_none();
            }
            Bound::Unbounded => {}
        }
        match range.end_bound() {
            Bound::Included(end) => max = Some(*end),
            Bound::Excluded(end) => {
                max = end.checked_sub(1);
                nothing |= max.is_none();
            }
            Bound::Unbounded => {}
        }
        if nothing {
            (min, max) = (Some(i64::MAX), Some(i64::MIN));
        }
        TxnGuard::Counter {
            cache: cache.into(),
            key: copied(key.as_ref()),
            min,
            max,
        }
    }

    /// The next record of a stream would get this offset.
    pub fn stream_tail(stream: impl Into<String>, tail: u64) -> TxnGuard {
        TxnGuard::StreamTail {
            stream: stream.into(),
            tail,
        }
    }

    /// A session is alive: the session, by its id.
    pub fn session_alive(session: u64) -> TxnGuard {
        TxnGuard::SessionAlive { session }
    }

    pub(super) fn to_wire(&self) -> v1::TxnGuard {
        let kind = match self {
            TxnGuard::Key { cache, key, guard } => txn_guard::Kind::Key(Box::new(txn_guard::KeyGuard {
                cache: cache.clone(),
                key: key.clone(),
                guard: Some(guard.to_wire()),
            })),
            TxnGuard::Counter { cache, key, min, max } => txn_guard::Kind::Counter(Box::new(txn_guard::CounterGuard {
                cache: cache.clone(),
                key: key.clone(),
                min: *min,
                max: *max,
            })),
            TxnGuard::StreamTail { stream, tail } => {
                txn_guard::Kind::StreamTail(Box::new(txn_guard::StreamTailGuard {
                    stream: stream.clone(),
                    tail: *tail,
                }))
            }
            TxnGuard::SessionAlive { session } => txn_guard::Kind::SessionAlive(*session),
        };
        v1::TxnGuard { kind: Some(kind) }
    }
}

/// An operation of a transaction. Each sees what those before it did. In one branch a key is written at most once, and a
/// stream is appended to at most once.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Writes a key.
    Put(PutKey),
    /// Deletes a key.
    Delete {
        /// The cache.
        cache: String,
        /// The key.
        key: Bytes,
    },
    /// Adds to a counter.
    Add {
        /// The cache.
        cache: String,
        /// The key.
        key: Bytes,
        /// What is added.
        delta: i64,
        /// The TTL with which it is created if it does not exist; `None`: none.
        ttl: Option<Duration>,
    },
    /// Appends to a stream.
    Append(AppendTo),
    /// Reads a key.
    Get {
        /// The cache.
        cache: String,
        /// The key.
        key: Bytes,
    },
}

impl Operation {
    /// Writes a key; TTL and owner are said to what this returns.
    pub fn put(cache: impl Into<String>, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> PutKey {
        PutKey {
            cache: cache.into(),
            key: copied(key.as_ref()),
            value: copied(value.as_ref()),
            ttl: None,
            owner: None,
        }
    }

    /// Deletes a key. Deleting what is not there is done, too.
    pub fn delete(cache: impl Into<String>, key: impl AsRef<[u8]>) -> Operation {
        Operation::Delete {
            cache: cache.into(),
            key: copied(key.as_ref()),
        }
    }

    /// Adds to a counter, which is created without a TTL if it does not exist.
    pub fn add(cache: impl Into<String>, key: impl AsRef<[u8]>, delta: i64) -> Operation {
        Operation::Add {
            cache: cache.into(),
            key: copied(key.as_ref()),
            delta,
            ttl: None,
        }
    }

    /// Appends records to a stream; what must hold is said to what this returns.
    pub fn append<T: AsRef<[u8]>>(stream: impl Into<String>, records: impl IntoIterator<Item = T>) -> AppendTo {
        let records = records.into_iter().map(|record| copied(record.as_ref())).collect();
        AppendTo {
            stream: stream.into(),
            append: v1::Append {
                records,
                ..v1::Append::default()
            },
        }
    }

    /// Raises a stream's fencing token without appending anything.
    pub fn seal(stream: impl Into<String>, token: u64) -> AppendTo {
        Operation::append::<&[u8]>(stream, []).fence_token(token)
    }

    /// Reads a key.
    pub fn get(cache: impl Into<String>, key: impl AsRef<[u8]>) -> Operation {
        Operation::Get {
            cache: cache.into(),
            key: copied(key.as_ref()),
        }
    }

    /// Who will own what this writes.
    pub(super) fn owner(&self) -> Option<&Owner> {
        match self {
            Operation::Put(put) => put.owner.as_ref(),
            _ => None,
        }
    }

    pub(super) fn to_wire(&self) -> v1::TxnOperation {
        let kind = match self {
            Operation::Put(put) => txn_operation::Kind::Put(Box::new(put.to_wire())),
            Operation::Delete { cache, key } => txn_operation::Kind::Delete(Box::new(txn_operation::Delete {
                cache: cache.clone(),
                key: key.clone(),
            })),
            Operation::Add { cache, key, delta, ttl } => txn_operation::Kind::Add(Box::new(txn_operation::Add {
                cache: cache.clone(),
                key: key.clone(),
                delta: *delta,
                ttl_ms: ttl.map(milliseconds),
            })),
            Operation::Append(append) => txn_operation::Kind::Append(Box::new(txn_operation::AppendTo {
                stream: append.stream.clone(),
                append: Some(append.append.clone()),
            })),
            Operation::Get { cache, key } => txn_operation::Kind::Get(Box::new(txn_operation::Get {
                cache: cache.clone(),
                key: key.clone(),
            })),
        };
        v1::TxnOperation { kind: Some(kind) }
    }
}

/// The writing of a key in a transaction.
#[derive(Clone, Debug)]
#[must_use = "it is part of a transaction"]
pub struct PutKey {
    cache: String,
    key: Bytes,
    value: Bytes,
    ttl: Option<Duration>,
    owner: Option<Owner>,
}

impl PutKey {
    /// Its own TTL, from 1 ms to ten years. Without one it stays until it is deleted or its owner's session ends.
    pub fn ttl(mut self, ttl: Duration) -> PutKey {
        self.ttl = Some(ttl);
        self
    }

    /// The session that owns the key from now on, with which it goes; without one nobody does.
    pub fn owner(mut self, owner: impl Into<Owner>) -> PutKey {
        self.owner = Some(owner.into());
        self
    }

    fn to_wire(&self) -> txn_operation::Put {
        txn_operation::Put {
            cache: self.cache.clone(),
            key: self.key.clone(),
            value: self.value.clone(),
            ttl_ms: self.ttl.map(milliseconds),
            owner: self.owner.as_ref().map(Owner::to_wire),
        }
    }
}

impl From<PutKey> for Operation {
    fn from(put: PutKey) -> Operation {
        Operation::Put(put)
    }
}

/// An append in a transaction. If it is refused, so is the whole transaction.
#[derive(Clone, Debug)]
#[must_use = "it is part of a transaction"]
pub struct AppendTo {
    stream: String,
    append: v1::Append,
}

impl AppendTo {
    /// Only if the first record gets this offset; with another tail the transaction is refused.
    pub fn if_offset(mut self, offset: u64) -> AppendTo {
        self.append.expected_offset = Some(offset);
        self
    }

    /// The writer's fencing token, from 1. One below the highest that the stream has accepted refuses the transaction.
    pub fn fence_token(mut self, token: u64) -> AppendTo {
        self.append.fence_token = Some(token);
        self
    }

    /// A name of this append, 1 to 255 bytes, under which the stream recognises it within its window.
    pub fn message_id(mut self, id: impl AsRef<[u8]>) -> AppendTo {
        self.append.message_id = Some(copied(id.as_ref()));
        self
    }
}

impl From<AppendTo> for Operation {
    fn from(append: AppendTo) -> Operation {
        Operation::Append(append)
    }
}

#[cfg(test)]
mod tests;
