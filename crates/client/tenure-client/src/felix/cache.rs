//! The keys of caches.

use std::time::Duration;

use bytes::Bytes;

use super::{ClusterClient, Needed, creating, or_nothing};
use crate::cache::{Entry, Guard};
use crate::error::Error;
use crate::txn::{Operation, OperationResult};
use crate::verdict::Verdict;

/// What must hold for a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheCondition {
    /// There is no live entry.
    Absent,
    /// The live entry has this version.
    Version(u64),
}

/// The verdict on a conditional write. A refusal is a normal answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConditionResult {
    /// Whether it was done.
    pub applied: bool,
    /// Of a put that was done, the version that it wrote; of a refusal, the version of the live entry, `None` if there is
    /// none; of a delete that was done, `None`.
    pub version: Option<u64>,
}

/// A value with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedValue {
    /// The value.
    pub value: Bytes,
    /// Its version, for [`CacheCondition::Version`].
    pub version: u64,
}

impl ClusterClient {
    /// Writes a key. Without a TTL it stays until it is deleted.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn cache_put(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
        key: &str,
        value: Bytes,
        ttl_ms: Option<u64>,
    ) -> anyhow::Result<()> {
        let verdict = self.put(tenant, namespace, cache, key, value, ttl_ms, None).await?;
        verdict.done()?;
        Ok(())
    }

    /// Writes a key if a condition holds.
    ///
    /// # Errors
    /// Those of the call. A refusal is none.
    #[expect(clippy::too_many_arguments, reason = "the shape is given")]
    pub async fn cache_put_if(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
        key: &str,
        value: Bytes,
        ttl_ms: Option<u64>,
        condition: CacheCondition,
    ) -> anyhow::Result<CacheConditionResult> {
        let guard = match condition {
            CacheCondition::Absent => Guard::Absent,
            CacheCondition::Version(version) => Guard::Version(version),
        };
        let put = self.put(tenant, namespace, cache, key, value, ttl_ms, Some(guard));
        Ok(match put.await? {
            Verdict::Done(written) => CacheConditionResult {
                applied: true,
                version: Some(written.version),
            },
            Verdict::Refused(refusal) => CacheConditionResult {
                applied: false,
                version: refusal.key().map(|key| key.version),
            },
        })
    }

    /// Reads a key; `None`: there is no live entry.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn cache_get(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
        key: &str,
    ) -> anyhow::Result<Option<Bytes>> {
        let entry = self.entry(tenant, namespace, cache, key).await?;
        Ok(entry.map(|entry| entry.value))
    }

    /// Reads a key with its version; `None`: there is no live entry.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn cache_get_versioned(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
        key: &str,
    ) -> anyhow::Result<Option<VersionedValue>> {
        let entry = self.entry(tenant, namespace, cache, key).await?;
        Ok(entry.map(|entry| VersionedValue {
            value: entry.value,
            version: entry.version,
        }))
    }

    /// Deletes a key; returns the value that was removed, in the same step. `None`: there was no live entry.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn cache_delete(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
        key: &str,
    ) -> anyhow::Result<Option<Bytes>> {
        let client = self.client.namespace(tenant, namespace);
        let txn = client
            .txn()
            .then(Operation::get(cache, key))
            .then(Operation::delete(cache, key));
        let Some(outcome) = or_nothing(txn.await.and_then(Verdict::done).map(Some))? else {
            return Ok(None);
        };
        match outcome.results.into_iter().next() {
            Some(OperationResult::Got(entry)) => Ok(entry.map(|entry| entry.value)),
            _ => Err(Error::unexpected("txn").into()),
        }
    }

    /// Deletes a key if it has this version.
    ///
    /// # Errors
    /// Those of the call. A refusal is none.
    pub async fn cache_delete_if(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
        key: &str,
        version: u64,
    ) -> anyhow::Result<CacheConditionResult> {
        let client = self.client.namespace(tenant, namespace);
        let deleted = client.cache(cache).delete(key).if_version(version).await;
        Ok(match or_nothing(deleted.map(Some))? {
            Some(Verdict::Done(deleted)) => CacheConditionResult {
                applied: deleted.removed.is_some(),
                version: None,
            },
            Some(Verdict::Refused(refusal)) => CacheConditionResult {
                applied: false,
                version: refusal.key().map(|key| key.version),
            },
            None => CacheConditionResult {
                applied: false,
                version: None,
            },
        })
    }

    /// Adds to a counter; returns its sum with this delta.
    ///
    /// # Errors
    /// The key has a value that is no number (`wrong_type`); those of the call.
    pub async fn counter_add(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
        key: &str,
        delta: i64,
    ) -> anyhow::Result<i64> {
        let client = self.client.namespace(tenant, namespace);
        let needed = [Needed::Cache(cache)];
        let added = creating(&client, &needed, || client.cache(cache).add(key, delta)).await?;
        Ok(added.sum)
    }

    /// Reads a counter; `None`: it was never written, which is not the same as zero.
    ///
    /// # Errors
    /// The key has a value that is no number (`wrong_type`); those of the call.
    pub async fn counter_get(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
        key: &str,
    ) -> anyhow::Result<Option<i64>> {
        let client = self.client.namespace(tenant, namespace);
        Ok(or_nothing(client.cache(cache).counter(key).await)?)
    }

    #[expect(clippy::too_many_arguments, reason = "they are those of the calls that use it")]
    async fn put(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
        key: &str,
        value: Bytes,
        ttl_ms: Option<u64>,
        guard: Option<Guard>,
    ) -> Result<crate::PutOutcome, Error> {
        let client = self.client.namespace(tenant, namespace);
        let put = || {
            let mut put = client.cache(cache).put(key, &value);
            if let Some(ttl_ms) = ttl_ms {
                put = put.ttl(Duration::from_millis(ttl_ms));
            }
            match &guard {
                Some(guard) => put.guard(guard.clone()),
                None => put,
            }
        };
        creating(&client, &[Needed::Cache(cache)], put).await
    }

    async fn entry(&self, tenant: &str, namespace: &str, cache: &str, key: &str) -> Result<Option<Entry>, Error> {
        let client = self.client.namespace(tenant, namespace);
        or_nothing(client.cache(cache).get(key).await)
    }
}
