//! The records of streams, and the state that is committed with them.

use std::collections::BTreeSet;

use bytes::Bytes;

use tenure_api::v1::WireError;

use super::{ClusterClient, Needed, creating, or_nothing};
use crate::error::Error;
use crate::stream::StreamState;
use crate::txn::{Operation, OperationResult};
use crate::verdict::{Refusal, Verdict};

/// The offset of a commit before the value that it wrote.
const VERSION_BYTES: usize = 8;

/// What is waited for in publishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// Nothing: the records go into a queue.
    None,
    /// That the record is in the stream.
    PerMessage,
    /// That the batch is in the stream.
    PerBatch,
}

/// The verdict on a conditional write to a stream. A refusal is a normal answer, and always means a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionalWrite {
    /// It was written.
    Written {
        /// The offset of the first record.
        offset: u64,
    },
    /// The stream's tail is another: nothing was written.
    Refused {
        /// The offset that the next record gets.
        tail: u64,
    },
}

/// One part of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitOp {
    stream: String,
    kind: CommitKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CommitKind {
    Publish(Vec<u8>),
    Put(String, Vec<u8>),
    Delete(String),
}

impl CommitOp {
    /// A record for the stream.
    pub fn publish(stream: impl Into<String>, payload: impl Into<Vec<u8>>) -> CommitOp {
        CommitOp {
            stream: stream.into(),
            kind: CommitKind::Publish(payload.into()),
        }
    }

    /// Sets a key of the entity's state.
    pub fn put(stream: impl Into<String>, key: impl Into<String>, value: impl Into<Vec<u8>>) -> CommitOp {
        CommitOp {
            stream: stream.into(),
            kind: CommitKind::Put(key.into(), value.into()),
        }
    }

    /// Removes a key of the entity's state.
    pub fn delete(stream: impl Into<String>, key: impl Into<String>) -> CommitOp {
        CommitOp {
            stream: stream.into(),
            kind: CommitKind::Delete(key.into()),
        }
    }
}

/// A key of an entity's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateValue {
    /// Its value; `None`: there is none.
    pub value: Option<Bytes>,
    /// The offset of the commit that wrote it.
    pub version: Option<u64>,
    /// A tail of the stream below which every commit is contained in what was read: if nobody else commits, a
    /// [`commit_if`](ClusterClient::commit_if) at this offset is written. `None`: there is no such stream.
    pub as_of: Option<u64>,
}

impl ClusterClient {
    /// Appends a record; returns its offset, with [`AckMode::None`] nothing.
    ///
    /// # Errors
    /// Those of the call; with [`AckMode::None`] only that the record is too large.
    pub async fn publish(
        &self,
        tenant: &str,
        namespace: &str,
        stream: &str,
        payload: Vec<u8>,
        ack: AckMode,
    ) -> anyhow::Result<Option<u64>> {
        self.publish_batch(tenant, namespace, stream, vec![payload], ack).await
    }

    /// Appends records, all or none; returns the offset of the first, with [`AckMode::None`] or without records nothing.
    ///
    /// # Errors
    /// Those of the call; with [`AckMode::None`] only that the batch is too large.
    pub async fn publish_batch(
        &self,
        tenant: &str,
        namespace: &str,
        stream: &str,
        payloads: Vec<Vec<u8>>,
        ack: AckMode,
    ) -> anyhow::Result<Option<u64>> {
        if payloads.is_empty() {
            return Ok(None);
        }
        let client = self.client.namespace(tenant, namespace);
        if ack == AckMode::None {
            self.background.append(client, stream, payloads).await?;
            return Ok(None);
        }
        self.background.settled(client.timeout()).await?;
        let needed = [Needed::Stream(stream)];
        let append = creating(&client, &needed, || client.stream(stream).append(&payloads));
        Ok(Some(append.await?.done()?.first))
    }

    /// Appends records, all or none, if the first gets this offset. The key places nothing.
    ///
    /// # Errors
    /// Those of the call. A refusal is none, unless the stream demands fencing tokens.
    pub async fn publish_if(
        &self,
        tenant: &str,
        namespace: &str,
        stream: &str,
        _key: Option<&[u8]>,
        payloads: Vec<Vec<u8>>,
        expected_offset: u64,
    ) -> anyhow::Result<ConditionalWrite> {
        let client = self.client.namespace(tenant, namespace);
        self.background.settled(client.timeout()).await?;
        let append = || client.stream(stream).append(&payloads).if_offset(expected_offset);
        let verdict = creating(&client, &[Needed::Stream(stream)], append).await?;
        conditional(verdict.map(|appended| appended.first))
    }

    /// Appends records and changes an entity's state in one step, if the first record gets this offset. All operations
    /// name one stream, and at least one of them is a record.
    ///
    /// # Errors
    /// The operations are not of that kind; those of the call. A refusal is none.
    pub async fn commit_if(
        &self,
        tenant: &str,
        namespace: &str,
        entity_key: &[u8],
        ops: Vec<CommitOp>,
        expected_offset: u64,
    ) -> anyhow::Result<ConditionalWrite> {
        let client = self.client.namespace(tenant, namespace);
        let stream = one_stream(&ops)?;
        self.background.settled(client.timeout()).await?;
        let cache = state_cache(&stream);
        let records = ops.iter().filter_map(|op| match &op.kind {
            CommitKind::Publish(payload) => Some(payload),
            CommitKind::Put(..) | CommitKind::Delete(_) => None,
        });
        let append = Operation::append(&stream, records).if_offset(expected_offset);
        let mut txn = client.txn().then(append);
        for op in &ops {
            txn = match &op.kind {
                CommitKind::Publish(_) => txn,
                CommitKind::Put(key, value) => {
                    let value = [&expected_offset.to_be_bytes(), value.as_slice()].concat();
                    txn.then(Operation::put(&cache, state_key(entity_key, key)?, value))
                }
                CommitKind::Delete(key) => txn.then(Operation::delete(&cache, state_key(entity_key, key)?)),
            };
        }
        let needed = [Needed::Stream(&stream), Needed::Cache(&cache)];
        match creating(&client, &needed, || txn.clone()).await? {
            Verdict::Done(outcome) => match outcome.results.first() {
                Some(OperationResult::Appended(appended)) => Ok(ConditionalWrite::Written { offset: appended.first }),
                _ => Err(Error::unexpected("txn").into()),
            },
            Verdict::Refused(refusal) => conditional(Verdict::Refused(refusal)),
        }
    }

    /// Reads a key of an entity's state.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn state_get(
        &self,
        tenant: &str,
        namespace: &str,
        stream: &str,
        entity_key: &[u8],
        key: &str,
    ) -> anyhow::Result<StateValue> {
        let client = self.client.namespace(tenant, namespace);
        // The tail is read first, so that what is read then contains every commit below it.
        let state: Option<StreamState> = or_nothing(client.stream(stream).info().await.map(Some))?;
        let as_of = state.map(|state| state.tail);
        let cache = client.cache(state_cache(stream));
        let entry = or_nothing(cache.get(state_key(entity_key, key)?).await)?;
        let Some(mut value) = entry.map(|entry| entry.value) else {
            return Ok(StateValue {
                value: None,
                version: None,
                as_of,
            });
        };
        let version = value.first_chunk::<VERSION_BYTES>().copied();
        let version = version.ok_or_else(|| Error::from_wire(WireError::wrong_type(key, "value")))?;
        Ok(StateValue {
            value: Some(value.split_off(VERSION_BYTES)),
            version: Some(u64::from_be_bytes(version)),
            as_of,
        })
    }
}

fn conditional(verdict: Verdict<u64>) -> anyhow::Result<ConditionalWrite> {
    match verdict {
        Verdict::Done(offset) => Ok(ConditionalWrite::Written { offset }),
        Verdict::Refused(Refusal::WrongTail { tail }) => Ok(ConditionalWrite::Refused { tail }),
        Verdict::Refused(refusal) => Err(Error::Refused(Box::new(refusal)).into()),
    }
}

/// The stream that a commit is about.
fn one_stream(ops: &[CommitOp]) -> Result<String, Error> {
    let invalid = |rule: &str| Error::Invalid {
        what: "ops",
        rule: rule.to_owned(),
    };
    let streams: BTreeSet<&str> = ops.iter().map(|op| op.stream.as_str()).collect();
    if !ops.iter().any(|op| matches!(op.kind, CommitKind::Publish(_))) {
        return Err(invalid("a commit publishes at least one record"));
    }
    match streams.first() {
        Some(stream) if streams.len() == 1 => Ok((*stream).to_owned()),
        _ => Err(invalid("a commit is about one stream")),
    }
}

/// The cache in which the state of a stream's entities is kept.
fn state_cache(stream: &str) -> String {
    format!("{stream}.state")
}

/// The key of an entity's state: no two pairs have the same.
fn state_key(entity_key: &[u8], key: &str) -> Result<Vec<u8>, Error> {
    let length = u32::try_from(entity_key.len()).map_err(|_| Error::Invalid {
        what: "entity key",
        rule: "shorter than 4 GiB".to_owned(),
    })?;
    Ok([&length.to_be_bytes(), entity_key, key.as_bytes()].concat())
}

#[cfg(test)]
mod tests;
