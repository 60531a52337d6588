//! What can be said of a command without the state: how many bytes it carries, and which rules of form it breaks.
//!
//! The doors ask before they propose anything, and the machine asks again, since its log may have been written by
//! another release.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{Append, Guard, Operation, StreamSettings, Txn, TxnGuard};
use crate::ids::ObjectName;
use crate::limits::{
    APPEND_BYTES_MAX, APPEND_RECORDS_MAX, DEDUP_WINDOW_MAX, KEY_TTL_MAX, KEY_TTL_MIN, MESSAGE_ID_BYTES_MAX,
    RECORD_BYTES_MAX, TOKEN_MAX, TXN_BYTES_MAX, TXN_ITEMS_MAX,
};
use crate::refusal::Failure;
use crate::time::Span;

impl Txn {
    /// Bytes of its keys, values, records and message ids.
    pub fn bytes(&self) -> usize {
        let guards: usize = self.guards.iter().map(TxnGuard::bytes).sum();
        guards + self.operations().map(Operation::bytes).sum::<usize>()
    }

    /// Whether it may have so many guards and operations.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_items(items: usize) -> Result<(), Failure> {
        Failure::unless_within("guards and operations of a transaction", items, TXN_ITEMS_MAX)
    }

    /// Its size, and that no branch writes one thing twice.
    ///
    /// # Errors
    /// `Limit` or `Invalid`.
    pub fn check(&self) -> Result<(), Failure> {
        Txn::check_items(self.guards.len() + self.then.len() + self.otherwise.len())?;
        Failure::unless_within("bytes of a transaction", self.bytes(), TXN_BYTES_MAX)?;
        writes_once("then", &self.then)?;
        writes_once("otherwise", &self.otherwise)
    }

    /// The operations of both branches.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.then.iter().chain(&self.otherwise)
    }

    /// The objects that it names, in order, each as often as it does.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectName> {
        let of_guards = self.guards.iter().filter_map(TxnGuard::object);
        of_guards.chain(self.operations().map(Operation::object))
    }
}

impl TxnGuard {
    /// Bytes of its key and value.
    fn bytes(&self) -> usize {
        match self {
            TxnGuard::Key { key, guard, .. } => key.len() + guard.bytes(),
            TxnGuard::Counter { key, .. } => key.len(),
            TxnGuard::StreamTail { .. } | TxnGuard::SessionAlive { .. } => 0,
        }
    }

    fn object(&self) -> Option<&ObjectName> {
        match self {
            TxnGuard::Key { cache, .. } | TxnGuard::Counter { cache, .. } => Some(cache),
            TxnGuard::StreamTail { stream, .. } => Some(stream),
            TxnGuard::SessionAlive { .. } => None,
        }
    }
}

impl Operation {
    /// Bytes of its key and value, or of what it appends.
    fn bytes(&self) -> usize {
        match self {
            Operation::Put { key, value, .. } => key.len() + value.len(),
            Operation::Delete { key, .. } | Operation::Add { key, .. } | Operation::Get { key, .. } => key.len(),
            Operation::Append { append, .. } => append.bytes(),
        }
    }

    fn object(&self) -> &ObjectName {
        match self {
            Operation::Put { cache, .. }
            | Operation::Delete { cache, .. }
            | Operation::Add { cache, .. }
            | Operation::Get { cache, .. } => cache,
            Operation::Append { stream, .. } => stream,
        }
    }
}

impl Guard {
    /// Bytes of the value that it compares with.
    pub fn bytes(&self) -> usize {
        match self {
            Guard::Value(value) => value.len(),
            Guard::Absent | Guard::Present | Guard::Version(_) | Guard::Created(_) => 0,
        }
    }
}

impl Append {
    /// Bytes of its records and message id.
    pub fn bytes(&self) -> usize {
        self.record_bytes() + self.message_id.as_ref().map_or(0, Bytes::len)
    }

    /// What can be said of it without its stream.
    ///
    /// # Errors
    /// `Limit` or `Invalid`.
    pub fn check(&self) -> Result<(), Failure> {
        let Append {
            records,
            token,
            message_id,
            ..
        } = self;
        if let Some(id) = message_id {
            if id.is_empty() {
                return Err(Failure::invalid("message_id", "at least 1 byte"));
            }
            Failure::unless_within("message id bytes", id.len(), MESSAGE_ID_BYTES_MAX)?;
        }
        if token.is_some_and(|token| token == 0 || token > TOKEN_MAX) {
            return Err(Failure::invalid("fence_token", format!("from 1 to {TOKEN_MAX}")));
        }
        if records.is_empty() && token.is_none() {
            return Err(Failure::invalid(
                "records",
                "at least one, or a fencing token to seal with",
            ));
        }
        Failure::unless_within("records of an append", records.len(), APPEND_RECORDS_MAX)?;
        let longest = records.iter().map(Bytes::len).max().unwrap_or(0);
        Failure::unless_within("bytes of a record", longest, RECORD_BYTES_MAX)?;
        Failure::unless_within("bytes of an append", self.record_bytes(), APPEND_BYTES_MAX)
    }

    fn record_bytes(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }
}

impl StreamSettings {
    /// What can be said of them without the namespace.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(retention) = self.retention {
            within("retention_ms", retention, KEY_TTL_MIN, KEY_TTL_MAX)?;
        }
        if self.retention_bytes == Some(0) {
            return Err(Failure::invalid("retention_bytes", "at least 1"));
        }
        within("dedup_window_ms", self.dedup_window, Span(0), DEDUP_WINDOW_MAX)
    }
}

fn within(field: &str, span: Span, min: Span, max: Span) -> Result<(), Failure> {
    if (min..=max).contains(&span) {
        return Ok(());
    }
    let rule = format!("from {} to {} milliseconds", min.as_millis(), max.as_millis());
    Err(Failure::invalid(field, rule))
}

fn writes_once(branch: &str, operations: &[Operation]) -> Result<(), Failure> {
    let (mut keys, mut streams) = (BTreeSet::new(), BTreeSet::new());
    for (place, operation) in operations.iter().enumerate() {
        let (fresh, rule) = match operation {
            Operation::Put { cache, key, .. }
            | Operation::Delete { cache, key }
            | Operation::Add { cache, key, .. } => (keys.insert((cache, key)), "a key is written at most once"),
            Operation::Append { stream, .. } => (streams.insert(stream), "a stream is appended to at most once"),
            Operation::Get { .. } => continue,
        };
        if !fresh {
            return Err(Failure::invalid(&format!("{branch}[{place}]"), rule));
        }
    }
    Ok(())
}
