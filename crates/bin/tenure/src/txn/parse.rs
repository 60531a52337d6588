//! A transaction as JSON: read strictly, so that a misspelt guard is an error and not a guard that is missing.
//!
//! Numbers that JSON readers cannot hold are strings; a plain number is taken as long as every reader agrees on it,
//! below 2^53. Keys, values and records that are no text stand under their names with `_base64` behind.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use tenure_client::Guard as KeyGuard;

use crate::output::base64;

/// The first number that JSON readers disagree about.
const PLAIN_NUMBER_END: u64 = 1 << 53;

/// A transaction as it was written.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Transaction {
    /// What must hold.
    pub(super) guards: Vec<Guard>,
    /// What is done if it does.
    pub(super) then: Vec<Operation>,
    /// What is done if it does not.
    pub(super) otherwise: Vec<Operation>,
}

/// What must hold.
#[derive(Debug, PartialEq)]
pub(super) enum Guard {
    Key {
        cache: String,
        key: Bytes,
        guard: KeyGuard,
    },
    Counter {
        cache: String,
        key: Bytes,
        min: Option<i64>,
        max: Option<i64>,
    },
    Tail {
        stream: String,
        tail: u64,
    },
    Alive {
        session: u64,
    },
}

/// What is done.
#[derive(Debug, PartialEq)]
pub(super) enum Operation {
    Put {
        cache: String,
        key: Bytes,
        value: Bytes,
        ttl_ms: Option<u64>,
        session: Option<String>,
    },
    Delete {
        cache: String,
        key: Bytes,
    },
    Add {
        cache: String,
        key: Bytes,
        delta: i64,
        ttl_ms: Option<u64>,
    },
    Publish {
        stream: String,
        publish: Publish,
    },
    Get {
        cache: String,
        key: Bytes,
    },
}

/// What is appended to a stream.
#[derive(Debug, PartialEq)]
pub(super) struct Publish {
    pub(super) records: Vec<Bytes>,
    pub(super) if_offset: Option<u64>,
    pub(super) fence_token: Option<u64>,
    pub(super) dedup_id: Option<Bytes>,
}

impl Transaction {
    /// Reads a transaction.
    ///
    /// # Errors
    /// What is wrong and where: a line and a column, or which guard or operation.
    pub(super) fn parse(text: &[u8]) -> Result<Transaction, String> {
        let Object(written): Object<Written> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let named = |branch: &'static str| {
            move |(place, operation): (usize, WrittenOperation)| {
                operation
                    .into_operation()
                    .map_err(|rule| format!("{branch}[{place}]: {rule}"))
            }
        };
        let guards = written
            .guards
            .into_iter()
            .enumerate()
            .map(|(place, guard)| guard.0.into_guard().map_err(|rule| format!("guards[{place}]: {rule}")));
        Ok(Transaction {
            guards: guards.collect::<Result<_, _>>()?,
            then: written
                .then
                .into_iter()
                .enumerate()
                .map(named("then"))
                .collect::<Result<_, _>>()?,
            otherwise: written
                .otherwise
                .into_iter()
                .enumerate()
                .map(named("else"))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl Transaction {
    /// The keys that are taken for counters.
    pub(super) fn counters(&self) -> Vec<(String, Bytes)> {
        let guards = self.guards.iter().filter_map(|guard| match guard {
            Guard::Counter { cache, key, .. } => Some((cache, key)),
            _ => None,
        });
        let operations = self.then.iter().chain(&self.otherwise);
        let added = operations.filter_map(|operation| match operation {
            Operation::Add { cache, key, .. } => Some((cache, key)),
            _ => None,
        });
        let keys: BTreeSet<_> = guards.chain(added).collect();
        keys.into_iter()
            .map(|(cache, key)| (cache.clone(), key.clone()))
            .collect()
    }
}

/// What stands in braces: a structure by itself would be read from a list of its fields, too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object in braces")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}

/// The whole, field by field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    guards: Vec<Object<WrittenGuard>>,
    #[serde(default)]
    then: Vec<WrittenOperation>,
    #[serde(default, rename = "else")]
    otherwise: Vec<WrittenOperation>,
}

/// A guard of any kind: which one it is, is said by the fields that it has.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenGuard {
    cache: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
    absent: Option<bool>,
    present: Option<bool>,
    version: Option<Number<u64>>,
    created: Option<Number<u64>>,
    value: Option<String>,
    value_base64: Option<String>,
    min: Option<Number<i64>>,
    max: Option<Number<i64>>,
    stream: Option<String>,
    tail: Option<Number<u64>>,
    session: Option<Number<u64>>,
    alive: Option<bool>,
}

impl WrittenGuard {
    fn into_guard(self) -> Result<Guard, String> {
        let of_a_key = self.cache.is_some() || self.key.is_some() || self.key_base64.is_some();
        let bounds = self.min.is_some() || self.max.is_some();
        let conditions = [
            self.absent.is_some(),
            self.present.is_some(),
            self.version.is_some(),
            self.created.is_some(),
            self.value.is_some() || self.value_base64.is_some(),
            bounds,
        ];
        let count = conditions.into_iter().filter(|given| *given).count();
        let of_a_stream = self.stream.is_some() || self.tail.is_some();
        let of_a_session = self.session.is_some() || self.alive.is_some();
        match (of_a_key || count > 0, of_a_stream, of_a_session) {
            (true, false, false) if count == 1 => self.into_guard_of_key(bounds),
            (true, false, false) => {
                Err("a key needs exactly one of absent, present, version, created, value, or min and max".to_owned())
            }
            (false, true, false) => Ok(Guard::Tail {
                stream: self.stream.ok_or("stream is missing")?,
                tail: self.tail.ok_or("tail is missing")?.0,
            }),
            (false, false, true) => Ok(Guard::Alive {
                session: self.session.ok_or("session is missing")?.0,
            })
            .and_then(|guard| match self.alive {
                Some(true) => Ok(guard),
                _ => Err("alive must be true".to_owned()),
            }),
            _ => Err("it must be of one key, one stream or one session".to_owned()),
        }
    }

    fn into_guard_of_key(self, bounds: bool) -> Result<Guard, String> {
        let cache = self.cache.ok_or("cache is missing")?;
        let key = bytes("key", self.key, self.key_base64)?;
        if bounds {
            return Ok(Guard::Counter {
                cache,
                key,
                min: self.min.map(|min| min.0),
                max: self.max.map(|max| max.0),
            });
        }
        let guard = match (self.absent, self.present, self.version, self.created) {
            (Some(true), ..) => KeyGuard::Absent,
            (_, Some(true), ..) => KeyGuard::Present,
            (None, None, Some(version), _) => KeyGuard::Version(version.0),
            (None, None, None, Some(created)) => KeyGuard::Created(created.0),
            (None, None, None, None) => KeyGuard::Value(bytes("value", self.value, self.value_base64)?),
            _ => return Err("absent and present must be true: say the other instead of false".to_owned()),
        };
        Ok(Guard::Key { cache, key, guard })
    }
}

/// An operation under its name.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenOperation {
    Put(Object<WrittenPut>),
    Delete(Object<WrittenKey>),
    Add(Object<WrittenAdd>),
    Publish(Object<WrittenPublish>),
    Get(Object<WrittenKey>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPut {
    cache: String,
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    ttl_ms: Option<Number<u64>>,
    session: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    cache: String,
    key: Option<String>,
    key_base64: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAdd {
    cache: String,
    key: Option<String>,
    key_base64: Option<String>,
    delta: Number<i64>,
    ttl_ms: Option<Number<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPublish {
    stream: String,
    records: Option<Vec<String>>,
    records_base64: Option<Vec<String>>,
    if_offset: Option<Number<u64>>,
    fence_token: Option<Number<u64>>,
    dedup_id: Option<String>,
}

impl WrittenOperation {
    fn into_operation(self) -> Result<Operation, String> {
        Ok(match self {
            WrittenOperation::Put(Object(put)) => Operation::Put {
                cache: put.cache,
                key: bytes("key", put.key, put.key_base64)?,
                value: bytes("value", put.value, put.value_base64)?,
                ttl_ms: put.ttl_ms.map(|ttl_ms| ttl_ms.0),
                session: put.session,
            },
            WrittenOperation::Delete(Object(target)) => Operation::Delete {
                key: bytes("key", target.key, target.key_base64)?,
                cache: target.cache,
            },
            WrittenOperation::Add(Object(add)) => Operation::Add {
                cache: add.cache,
                key: bytes("key", add.key, add.key_base64)?,
                delta: add.delta.0,
                ttl_ms: add.ttl_ms.map(|ttl_ms| ttl_ms.0),
            },
            WrittenOperation::Publish(Object(publish)) => publish.into_operation()?,
            WrittenOperation::Get(Object(target)) => Operation::Get {
                key: bytes("key", target.key, target.key_base64)?,
                cache: target.cache,
            },
        })
    }
}

impl WrittenPublish {
    fn into_operation(self) -> Result<Operation, String> {
        let records = match (self.records, self.records_base64) {
            (Some(records), None) => records.into_iter().map(Bytes::from).collect(),
            (None, Some(records)) => records
                .iter()
                .map(|record| decoded("records_base64", record))
                .collect::<Result<_, _>>()?,
            (None, None) => Vec::new(),
            (Some(_), Some(_)) => return Err("records and records_base64 exclude each other".to_owned()),
        };
        Ok(Operation::Publish {
            stream: self.stream,
            publish: Publish {
                records,
                if_offset: self.if_offset.map(|offset| offset.0),
                fence_token: self.fence_token.map(|token| token.0),
                dedup_id: self.dedup_id.map(Bytes::from),
            },
        })
    }
}

/// Bytes that are given as text or as base64.
fn bytes(name: &str, text: Option<String>, encoded: Option<String>) -> Result<Bytes, String> {
    match (text, encoded) {
        (Some(text), None) => Ok(Bytes::from(text)),
        (None, Some(encoded)) => decoded(&format!("{name}_base64"), &encoded),
        (None, None) => Err(format!("{name} is missing")),
        (Some(_), Some(_)) => Err(format!("{name} and {name}_base64 exclude each other")),
    }
}

fn decoded(name: &str, encoded: &str) -> Result<Bytes, String> {
    base64::decode(encoded)
        .map(Bytes::from)
        .ok_or_else(|| format!("{name} is no base64 with padding"))
}

/// A whole number: a decimal string, or a plain number that every reader of JSON holds.
#[derive(Clone, Copy, Debug)]
struct Number<T>(T);

impl<'de, T: TryFrom<i128> + std::str::FromStr + fmt::Display> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number<T>, D::Error> {
        deserializer.deserialize_any(NumberVisitor(PhantomData))
    }
}

struct NumberVisitor<T>(PhantomData<T>);

impl<T: TryFrom<i128> + std::str::FromStr + fmt::Display> NumberVisitor<T> {
    fn plain<E: de::Error>(number: i128) -> Result<Number<T>, E> {
        if number.unsigned_abs() >= u128::from(PLAIN_NUMBER_END) {
            return Err(E::custom(format!(
                "{number} is too large for a plain number: write it as a string"
            )));
        }
        T::try_from(number)
            .map(Number)
            .map_err(|_| E::custom(format!("{number} is out of range here")))
    }
}

impl<T: TryFrom<i128> + std::str::FromStr + fmt::Display> Visitor<'_> for NumberVisitor<T> {
    type Value = Number<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, as a decimal string or below 2^53")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Number<T>, E> {
        Self::plain(i128::from(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Number<T>, E> {
        Self::plain(i128::from(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Number<T>, E> {
        let number: T = text
            .parse()
            .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))?;
        // One way to write a number: no plus sign, no zeros before it.
        if number.to_string() == text {
            Ok(Number(number))
        } else {
            Err(E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }
}

#[cfg(test)]
mod tests;
