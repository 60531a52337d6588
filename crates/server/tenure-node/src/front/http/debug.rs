//! What became of a session or a key lately, as JSON. It shows names, revisions and reasons, neither values nor secrets.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tenure_api::v1;
use tenure_core::ids::{GroupId, Namespace, ObjectName, SessionId};
use tenure_core::query::{Found, Query};
use tenure_core::refusal::EndReason;

use crate::cluster::DEFAULT_NAME;
use crate::observe::transitions::{Transition, What};
use crate::service::{Reading, Service, ServiceError};

/// How long the home of the namespace is looked for.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What is asked for: `session=ID`, or `cache=NAME&key=KEY`, of `tenant=NAME&namespace=NAME`.
pub(super) async fn transitions(State(service): State<Service>, RawQuery(given): RawQuery) -> Response {
    let parameters = parameters(given.as_deref().unwrap_or_default());
    match find(&service, &parameters).await {
        Ok(found) => ([(CONTENT_TYPE, "application/json")], json(&found)).into_response(),
        Err((status, why)) => (status, why + "\n").into_response(),
    }
}

async fn find(service: &Service, given: &[(&str, Vec<u8>)]) -> Result<Vec<Transition>, (StatusCode, String)> {
    let bytes = |name: &str| {
        given
            .iter()
            .find(|(given, _)| *given == name)
            .map(|(_, value)| &value[..])
    };
    let parameter = |name| bytes(name).map(String::from_utf8_lossy);
    let part = |name| parameter(name).map_or(DEFAULT_NAME.to_owned(), Cow::into_owned);
    let namespace = Namespace {
        tenant: part("tenant"),
        name: part("namespace"),
    };
    let deadline = service.now() + TIMEOUT;
    let group = service
        .home(&namespace, deadline)
        .await
        .map_err(|error| (status_of(&error), error.to_string()))?;
    let kept = &service.hub().observed().transitions;
    match (parameter("session"), parameter("cache"), bytes("key")) {
        (Some(session), None, None) => {
            let id = session
                .parse()
                .map_err(|_| (StatusCode::BAD_REQUEST, "session: a number".to_owned()))?;
            Ok(kept.of_session(group, SessionId(id)))
        }
        (None, Some(cache), Some(key)) => {
            let name = cache.into_owned();
            let incarnation = incarnation(service, group, ObjectName { namespace, name }, deadline).await?;
            Ok(kept.of_key(group, incarnation, key))
        }
        _ => Err((
            StatusCode::BAD_REQUEST,
            "ask for session=ID, or for cache=NAME and key=KEY".to_owned(),
        )),
    }
}

async fn incarnation(
    service: &Service,
    group: GroupId,
    cache: ObjectName,
    deadline: Duration,
) -> Result<tenure_core::ids::Incarnation, (StatusCode, String)> {
    let reading = Reading::Stale { min_revision: 0 };
    let read = service
        .query(group, &Query::Cache(cache.clone()), reading, deadline)
        .await
        .map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    match read.found {
        Found::Cache(record) => Ok(record.incarnation),
        _ => Err((StatusCode::NOT_FOUND, format!("there is no cache {cache}"))),
    }
}

/// The parameters behind the question mark of an address, decoded. Keys are any bytes, so these are.
fn parameters(given: &str) -> Vec<(&str, Vec<u8>)> {
    let named = given.split('&').filter_map(|parameter| parameter.split_once('='));
    named.map(|(name, value)| (name, decoded(value))).collect()
}

fn decoded(value: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
    }
    bytes
}

fn json(transitions: &[Transition]) -> String {
    let mut text = String::from("{\"transitions\":[");
    for (place, transition) in transitions.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        let Transition {
            group,
            revision,
            time,
            what,
        } = transition;
        // Writing into a string cannot fail.
        let _ = write!(
            text,
            "{{\"group\":{},\"revision\":{revision},\"time_us\":{}",
            group.0, time.0
        );
        match what {
            What::SessionEnded { session, reason } => {
                let _ = write!(
                    text,
                    ",\"what\":\"session_ended\",\"session\":{},\"reason\":\"{}\"",
                    session.0,
                    reason_name(*reason)
                );
            }
            What::Put {
                key, created, owner, ..
            } => {
                let _ = write!(text, ",\"what\":\"put\",\"key\":{},\"created\":{created}", quoted(key));
                if let Some(owner) = owner {
                    let _ = write!(text, ",\"owner\":{}", owner.0);
                }
            }
            What::Removed { key, reason, .. } => {
                let _ = write!(
                    text,
                    ",\"what\":\"removed\",\"key\":{},\"reason\":\"{}\"",
                    quoted(key),
                    reason_name(*reason)
                );
            }
        }
        text.push('}');
    }
    text.push_str("]}\n");
    text
}

fn reason_name(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Delete => v1::EndReason::Delete,
        EndReason::Expired => v1::EndReason::Expired,
        EndReason::Session => v1::EndReason::Session,
        EndReason::Closed => v1::EndReason::Closed,
        EndReason::Forced => v1::EndReason::Forced,
        EndReason::ObjectDeleted => v1::EndReason::ObjectDeleted,
    }
    .name()
}

/// A key as a JSON string. What is no text is shown by replacement characters.
fn quoted(key: &[u8]) -> String {
    let mut text = String::from('"');
    for character in String::from_utf8_lossy(key).chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(text, "\\u{:04x}", u32::from(control));
            }
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

/// A namespace that does not exist is not found; for everything else another time may do.
fn status_of(error: &ServiceError) -> StatusCode {
    match error {
        ServiceError::NamespaceUnknown(_) => StatusCode::NOT_FOUND,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_to_bytes() {
        let given = parameters("cache=leases&key=a%2Fb%ff+c%zz&broken");
        assert_eq!(
            given,
            [("cache", b"leases".to_vec()), ("key", b"a/b\xff c%zz".to_vec())]
        );
    }

    #[test]
    fn any_key_becomes_a_json_string() {
        assert_eq!(quoted(b"a\"b\\c\nd\x00"), "\"a\\\"b\\\\c\\u000ad\\u0000\"");
        assert_eq!(quoted(&[0xff]), "\"\u{fffd}\"");
    }
}
