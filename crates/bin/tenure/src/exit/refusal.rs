//! What stood in the way, as a line and as an object.

use serde::Serialize;

use tenure_client::{KeyFacts, Refusal};

use crate::cache::CacheSettings;
use crate::output::{Blob, Decimal, MaybeBlob};

/// What stood in the way, in one line.
pub(super) fn text(refusal: &Refusal) -> String {
    match refusal {
        Refusal::ConditionFailed { key: None } => "the key does not exist".to_owned(),
        Refusal::ExistsOtherwise { cache: Some(info) } => CacheSettings::new(info).exists_with(),
        other => other.to_string(),
    }
}

/// A refusal in JSON.
#[derive(Serialize)]
pub(super) struct RefusalObject<'a> {
    applied: bool,
    code: &'static str,
    /// What stood in the way, for people.
    refused: String,
    #[serde(flatten)]
    key: Option<KeyObject<'a>>,
    #[serde(flatten)]
    cache: Option<CacheSettings>,
}

/// The key that stood in the way.
#[derive(Serialize)]
struct KeyObject<'a> {
    exists: bool,
    version: Option<Decimal>,
    created: Option<Decimal>,
    holder: Option<Decimal>,
    ttl_ms: Option<u64>,
    #[serde(flatten)]
    value: MaybeBlob<&'a [u8]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_len: Option<u64>,
}

/// The object of a refusal.
pub(super) fn object(refusal: &Refusal) -> RefusalObject<'_> {
    let (key, cache) = match refusal {
        Refusal::ConditionFailed { key } => (Some(KeyObject::new(key.as_ref())), None),
        Refusal::ExistsOtherwise { cache } => (None, cache.as_ref().map(CacheSettings::new)),
        _ => (None, None),
    };
    RefusalObject {
        applied: false,
        code: refusal.code().name(),
        refused: text(refusal),
        key,
        cache,
    }
}

impl<'a> KeyObject<'a> {
    fn new(facts: Option<&'a KeyFacts>) -> KeyObject<'a> {
        let value = facts.and_then(|facts| facts.value.as_deref());
        KeyObject {
            exists: facts.is_some(),
            version: facts.map(|facts| Decimal(facts.version)),
            created: facts.map(|facts| Decimal(facts.created)),
            holder: facts.and_then(|facts| facts.holder).map(Decimal),
            ttl_ms: facts.and_then(|facts| facts.remaining).map(crate::duration::whole_ms),
            value: MaybeBlob(value.map(Blob::value)),
            // A long value is not sent along.
            value_len: facts.filter(|facts| facts.value.is_none()).map(|facts| facts.value_len),
        }
    }
}
