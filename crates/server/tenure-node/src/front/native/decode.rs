//! From the wire to the machine's words, with every rule that can be judged without state. What is refused here
//! was not proposed.

pub(super) mod streams;
pub(super) mod txn;

use bytes::Bytes;
use tenure_api::v1::wire_error::Detail;
use tenure_api::v1::{self, WireError};
use tenure_core::codec::fingerprint;
use tenure_core::command::{Acknowledged, Command, Guard, Origin, Request};
use tenure_core::ids::{Namespace, Nonce, ObjectName, OneShotId, Secret, SessionId, SessionRef};
use tenure_core::limits::{
    KEY_BYTES_MAX, KEY_TTL_MAX, KEY_TTL_MIN, LABEL_BYTES_MAX, NAME_BYTES_MAX, PAGE_ROWS_MAX,
    REQUEST_ACKNOWLEDGEMENTS_MAX, SESSION_TTL_MAX, SESSION_TTL_MIN, VALUE_BYTES_MAX,
};
use tenure_core::time::{Span, Timestamp};

use crate::cluster::DEFAULT_NAME;

/// Copies that are wished for if the request does not say.
const REPLICATION_DEFAULT: u32 = 3;
/// No object may wish for more.
const REPLICATION_MAX: u32 = 7;
const NOT_IN_THIS_VERSION: &str = "not in this version";

/// The namespace; what is left out is `default`.
pub(super) fn namespace(scope: Option<&v1::Scope>) -> Result<Namespace, WireError> {
    let part = |field: &str, given: Option<&String>| match given.map(String::as_str) {
        None | Some("") => Ok(DEFAULT_NAME.to_owned()),
        Some(given) => name(field, given),
    };
    Ok(Namespace {
        tenant: part("tenant", scope.map(|scope| &scope.tenant))?,
        name: part("namespace", scope.map(|scope| &scope.namespace))?,
    })
}

/// The full name of a cache.
pub(super) fn cache(scope: Option<&v1::Scope>, given: &str) -> Result<ObjectName, WireError> {
    object(scope, "cache", given)
}

/// The full name of an object that stands in this field.
pub(super) fn object(scope: Option<&v1::Scope>, field: &str, given: &str) -> Result<ObjectName, WireError> {
    Ok(ObjectName {
        namespace: namespace(scope)?,
        name: name(field, given)?,
    })
}

/// A name of a tenant, namespace, cache or stream.
pub(super) fn name(field: &str, given: &str) -> Result<String, WireError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if given.is_empty() || given.len() > NAME_BYTES_MAX || !given.bytes().all(allowed) {
        return Err(WireError::invalid(
            field,
            format!("1 to {NAME_BYTES_MAX} characters of a-z A-Z 0-9 . _ -"),
        ));
    }
    Ok(given.to_owned())
}

/// A key.
pub(super) fn key(given: Bytes) -> Result<Bytes, WireError> {
    if given.is_empty() {
        return Err(WireError::invalid("key", "at least 1 byte"));
    }
    at_most("key bytes", given, KEY_BYTES_MAX)
}

/// A prefix of keys, which may be empty.
pub(super) fn prefix(given: Bytes) -> Result<Bytes, WireError> {
    at_most("key bytes", given, KEY_BYTES_MAX)
}

/// A value.
pub(super) fn value(given: Bytes) -> Result<Bytes, WireError> {
    at_most("value bytes", given, VALUE_BYTES_MAX)
}

/// The TTL of a key.
pub(super) fn key_ttl(ttl_ms: u64) -> Result<Span, WireError> {
    ttl(ttl_ms, KEY_TTL_MIN, KEY_TTL_MAX)
}

/// The TTL of a session.
pub(super) fn session_ttl(ttl_ms: u64) -> Result<Span, WireError> {
    ttl(ttl_ms, SESSION_TTL_MIN, SESSION_TTL_MAX)
}

/// What must hold for a write.
pub(super) fn guard(given: Option<v1::Guard>) -> Result<Option<Guard>, WireError> {
    use v1::guard::Condition;
    let Some(given) = given else { return Ok(None) };
    let guard = match given.condition {
        Some(Condition::Absent(true)) => Guard::Absent,
        Some(Condition::Present(true)) => Guard::Present,
        Some(Condition::Version(version)) => Guard::Version(version),
        Some(Condition::Value(wanted)) => Guard::Value(value(wanted)?),
        Some(Condition::Created(created)) => Guard::Created(created),
        Some(Condition::Absent(false) | Condition::Present(false)) => {
            return Err(WireError::invalid("guard", "absent and present are true or left out"));
        }
        None => {
            return Err(WireError::invalid(
                "guard",
                "it names a condition that this node does not know",
            ));
        }
    };
    Ok(Some(guard))
}

/// A session with its secret.
pub(super) fn session(field: &str, given: &v1::SessionRef) -> Result<SessionRef, WireError> {
    Ok(SessionRef {
        id: SessionId(given.id),
        secret: Secret(identity(&format!("{field}.secret"), &given.secret)?),
    })
}

/// A session with its secret that must be there.
pub(super) fn required_session(field: &str, given: Option<&v1::SessionRef>) -> Result<SessionRef, WireError> {
    session(
        field,
        given.ok_or_else(|| WireError::invalid(field, "it must be given"))?,
    )
}

/// The nonce of an opening.
pub(super) fn nonce(given: &[u8]) -> Result<Nonce, WireError> {
    Ok(Nonce(identity("nonce", given)?))
}

/// The label of a session.
pub(super) fn label(given: String) -> Result<String, WireError> {
    if given.len() > LABEL_BYTES_MAX {
        return Err(WireError::limit("label bytes", LABEL_BYTES_MAX as u64));
    }
    Ok(given)
}

/// A command under the identity that the caller gave it.
pub(super) fn request(given: Option<v1::RequestId>, command: Command) -> Result<Request, WireError> {
    use v1::request_id::Kind;
    let kind = match given {
        None => None,
        Some(v1::RequestId { kind: Some(kind) }) => Some(kind),
        // Whoever sends one wants to be remembered, so it must not run as if there were none.
        Some(v1::RequestId { kind: None }) => {
            return Err(WireError::invalid(
                "request",
                "an identity of a kind that this node knows",
            ));
        }
    };
    let origin = match kind {
        None => Origin::Anonymous,
        Some(Kind::OneShot(one_shot)) => Origin::OneShot {
            id: OneShotId(identity("request.one_shot.id", &one_shot.id)?),
            not_after: Timestamp(one_shot.not_after_us),
            fingerprint: fingerprint(&command),
        },
        Some(Kind::Session(numbered)) => {
            if numbered.seq == 0 {
                return Err(WireError::invalid("request.session.seq", "it counts from 1"));
            }
            Origin::Session {
                session: required_session("request.session.session", numbered.session.as_ref())?,
                seq: numbered.seq,
                acknowledged: acknowledged(numbered.acknowledged_below, numbered.acknowledged)?,
                fingerprint: fingerprint(&command),
            }
        }
    };
    Ok(Request { origin, command })
}

/// How many groups an object is to be spread over.
pub(super) fn shards(field: &str, given: Option<u32>) -> Result<(), WireError> {
    match given {
        None | Some(1) => Ok(()),
        Some(_) => Err(WireError::invalid(field, NOT_IN_THIS_VERSION)),
    }
}

/// How the writes of an object are to be made safe: there is one way so far.
pub(super) fn consistency(field: &str, given: i32) -> Result<(), WireError> {
    match v1::Consistency::try_from(given) {
        Ok(v1::Consistency::Unspecified | v1::Consistency::Quorum) => Ok(()),
        Ok(v1::Consistency::Leader) => Err(WireError::invalid(field, NOT_IN_THIS_VERSION)),
        Err(_) => Err(WireError::invalid(field, "one that this node knows")),
    }
}

/// How many copies of an object are wished for.
pub(super) fn replication(field: &str, given: Option<u32>) -> Result<u32, WireError> {
    let replication = given.unwrap_or(REPLICATION_DEFAULT);
    if !(1..=REPLICATION_MAX).contains(&replication) {
        return Err(WireError::invalid(field, format!("from 1 to {REPLICATION_MAX}")));
    }
    Ok(replication)
}

/// The same result, with the place at which a field that breaks a rule stands.
pub(super) fn within<T>(place: &str, result: Result<T, WireError>) -> Result<T, WireError> {
    result.map_err(|error| match error.detail {
        Some(Detail::Invalid(invalid)) => WireError::invalid(format!("{place}.{}", invalid.field), invalid.rule),
        _ => error,
    })
}

/// Acknowledged request numbers.
pub(super) fn acknowledged(below: u64, also: Vec<u64>) -> Result<Acknowledged, WireError> {
    if also.len() > REQUEST_ACKNOWLEDGEMENTS_MAX {
        return Err(WireError::limit(
            "single acknowledgements of a request",
            REQUEST_ACKNOWLEDGEMENTS_MAX as u64,
        ));
    }
    Ok(Acknowledged { below, also })
}

/// Rows of a page; 0 and anything too large mean as many as a page takes.
pub(super) fn page(limit: u32) -> usize {
    match limit as usize {
        0 => PAGE_ROWS_MAX,
        limit => limit.min(PAGE_ROWS_MAX),
    }
}

/// 128 bits.
pub(super) fn identity(field: &str, given: &[u8]) -> Result<u128, WireError> {
    let bytes = given
        .try_into()
        .map_err(|_| WireError::invalid(field, "exactly 16 bytes"))?;
    Ok(u128::from_be_bytes(bytes))
}

fn ttl(ttl_ms: u64, min: Span, max: Span) -> Result<Span, WireError> {
    let span = Span::from_millis(ttl_ms);
    if span < min || span > max {
        let rule = format!("from {} to {} milliseconds", min.as_millis(), max.as_millis());
        return Err(WireError::invalid("ttl_ms", rule));
    }
    Ok(span)
}

fn at_most(which: &str, given: Bytes, max: usize) -> Result<Bytes, WireError> {
    if given.len() > max {
        Err(WireError::limit(which, max as u64))
    } else {
        Ok(given)
    }
}

#[cfg(test)]
mod tests;
