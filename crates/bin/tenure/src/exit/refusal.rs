//! What stood in the way, as a line and as an object.

use serde::Serialize;

use tenure_api::ErrorCode;
use tenure_client::{KeyFacts, Refusal};

use crate::cache::CacheSettings;
use crate::output::{Blob, Decimal, MaybeBlob, escaped};
use crate::stream::Settings;

/// A value that stood in the way is shown in text if it is at most so long.
const VALUE_SHOWN_BYTES_MAX: usize = 64;

/// What stood in the way, in one line.
pub(super) fn text(refusal: &Refusal) -> String {
    match refusal {
        Refusal::ConditionFailed { key: None } => "the key does not exist".to_owned(),
        Refusal::ConditionFailed { key: Some(key) } => key_text(key),
        Refusal::ExistsOtherwise { cache: Some(info) } => CacheSettings::new(info).exists_with(),
        Refusal::StreamExistsOtherwise { stream } => Settings::new(stream).exists_with(),
        Refusal::WrongTail { tail } => format!("tail {tail}"),
        Refusal::StaleToken { current } => format!("token {current} is the writer's now"),
        other => other.to_string(),
    }
}

/// All that a condition can be about.
fn key_text(key: &KeyFacts) -> String {
    let mut text = format!("version {}, token {}", key.version, key.created);
    if let Some(holder) = key.holder {
        text.push_str(&format!(", held by s-{holder}"));
    }
    if let Some(remaining) = key.remaining {
        text.push_str(&format!(", {} ms left", remaining.as_millis()));
    }
    match &key.value {
        Some(value) if value.len() <= VALUE_SHOWN_BYTES_MAX => text.push_str(&format!(", value {}", escaped(value))),
        _ => text.push_str(&format!(", value of {} bytes", key.value_len)),
    }
    text
}

/// A refusal in JSON.
#[derive(Serialize)]
pub(crate) struct RefusalObject<'a> {
    applied: bool,
    code: &'static str,
    /// What stood in the way, for people.
    refused: String,
    #[serde(flatten)]
    key: Option<KeyObject<'a>>,
    #[serde(flatten)]
    cache: Option<CacheSettings>,
    #[serde(flatten)]
    stream: Option<Settings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tail: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<Decimal>,
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
pub(crate) fn object(refusal: &Refusal) -> RefusalObject<'_> {
    let mut object = RefusalObject {
        applied: false,
        code: refusal.code().name(),
        refused: text(refusal),
        key: None,
        cache: None,
        stream: None,
        tail: None,
        current: None,
    };
    match refusal {
        Refusal::ConditionFailed { key } => object.key = Some(KeyObject::new(key.as_ref())),
        Refusal::ExistsOtherwise { cache } => object.cache = cache.as_ref().map(CacheSettings::new),
        Refusal::StreamExistsOtherwise { stream } => object.stream = Some(Settings::new(stream)),
        Refusal::WrongTail { tail } => object.tail = Some(Decimal(*tail)),
        Refusal::StaleToken { current } => object.current = Some(Decimal(*current)),
        _ => {}
    }
    object
}

/// The object of a verdict about the members of the cluster.
pub(crate) fn kept(why: &str) -> RefusalObject<'_> {
    RefusalObject {
        applied: false,
        code: ErrorCode::ConditionFailed.name(),
        refused: why.to_owned(),
        key: None,
        cache: None,
        stream: None,
        tail: None,
        current: None,
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
