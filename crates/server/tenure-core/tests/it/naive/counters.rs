//! Counters and prefixes by the naive rules.

use bytes::Bytes;
use tenure_core::ids::ObjectName;
use tenure_core::refusal::{EndReason, Failure};
use tenure_core::response::Done;
use tenure_core::time::Span;

use super::{Key, Naive, no_cache};

impl Naive {
    pub(super) fn add(
        &mut self,
        name: &ObjectName,
        key: &Bytes,
        delta: i64,
        ttl: Option<Span>,
    ) -> Result<Done, Failure> {
        let old = self.caches[name].keys.get(key).cloned();
        let sum = counter(old.as_ref())? + delta;
        let deadline = match &old {
            Some(old) => old.deadline,
            None => ttl.map(|ttl| self.now + ttl),
        };
        let owner = old.and_then(|old| old.owner);
        match self.write(name, key, &Bytes::from(sum.to_string()), deadline, owner) {
            Done::Put { version, created } => Ok(Done::Added { sum, version, created }),
            other => panic!("writing puts: {other:?}"),
        }
    }

    pub(super) fn delete_prefix(&mut self, name: &ObjectName, prefix: &Bytes) -> Result<Done, Failure> {
        let keys = |naive: &Naive| -> Vec<Bytes> {
            let keys = naive.caches[name].keys.keys();
            keys.filter(|key| key.starts_with(prefix)).cloned().collect()
        };
        if !self.caches.contains_key(name) {
            return Err(no_cache(name));
        }
        for key in keys(self) {
            self.refuses(name, &key, None);
        }
        let going = keys(self);
        let revision = (!going.is_empty()).then(|| self.consume());
        for key in &going {
            self.remove_at(revision.expect("it was consumed"), name, key, EndReason::Delete);
        }
        Ok(Done::PrefixDeleted {
            revision,
            removed: going.len() as u64,
            more: false,
        })
    }
}

/// What a counter holds. The scripts write a digit, or something else.
pub(super) fn counter(row: Option<&Key>) -> Result<i64, Failure> {
    let Some(row) = row else { return Ok(0) };
    let text = String::from_utf8_lossy(&row.value);
    text.parse().map_err(|_| Failure::WrongType { is: "value".to_owned() })
}
