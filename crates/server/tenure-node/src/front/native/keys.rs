//! Keys: put, get, delete, touch, list, counters, deletion by prefix.

use tenure_api::v1::{self, WireError};
use tenure_core::command::Command;
use tenure_core::query::{Found, Query};
use tenure_core::response::{Done, Response};

use super::error::{of_failure, of_service};
use super::handler::{Call, unexpected, unexpected_refusal};
use super::{decode, encode};
use crate::service::{Reading, unexpected as unexpected_find};

pub(super) async fn put(call: &Call<'_>, request: v1::PutRequest) -> Result<v1::PutReply, WireError> {
    let cache = decode::cache(request.scope.as_ref(), &request.cache)?;
    let namespace = cache.namespace.clone();
    let command = Command::Put {
        cache,
        key: decode::key(request.key)?,
        value: decode::value(request.value)?,
        ttl: request.ttl_ms.map(decode::key_ttl).transpose()?,
        guard: decode::guard(request.guard)?,
        owner: request
            .owner
            .as_ref()
            .map(|owner| decode::session("owner", owner))
            .transpose()?,
    };
    let (group, answer) = call
        .submit(&namespace, request.request, command, call.deadline(request.timeout_ms))
        .await?;
    let verdict = match &answer.response {
        Response::Done(Done::Put { version, created }) => v1::put_reply::Verdict::Done(v1::PutDone {
            version: *version,
            created: *created,
        }),
        Response::Refused(refusal) => {
            v1::put_reply::Verdict::Refused(encode::refusal(refusal, call.service.copies(group)))
        }
        Response::Failed(failure) => return Err(of_failure(failure.clone())),
        Response::Done(other) => return Err(unexpected(other)),
    };
    Ok(v1::PutReply {
        header: encode::header_of_answer(group, &answer),
        repeated: answer.repeated,
        remaining_us: answer.remaining.map(|remaining| remaining.0),
        verdict: Some(verdict),
    })
}

pub(super) async fn delete(call: &Call<'_>, request: v1::DeleteRequest) -> Result<v1::DeleteReply, WireError> {
    let cache = decode::cache(request.scope.as_ref(), &request.cache)?;
    let namespace = cache.namespace.clone();
    let command = Command::Delete {
        cache,
        key: decode::key(request.key)?,
        guard: decode::guard(request.guard)?,
    };
    let (group, answer) = call
        .submit(&namespace, request.request, command, call.deadline(request.timeout_ms))
        .await?;
    let verdict = match &answer.response {
        Response::Done(Done::Deleted { removed }) => v1::delete_reply::Verdict::Done(encode::deleted(*removed)),
        Response::Refused(refusal) => {
            v1::delete_reply::Verdict::Refused(encode::refusal(refusal, call.service.copies(group)))
        }
        Response::Failed(failure) => return Err(of_failure(failure.clone())),
        Response::Done(other) => return Err(unexpected(other)),
    };
    let header = encode::header_of_answer(group, &answer);
    Ok(v1::DeleteReply {
        header,
        repeated: answer.repeated,
        verdict: Some(verdict),
    })
}

pub(super) async fn touch(call: &Call<'_>, request: v1::TouchRequest) -> Result<v1::TouchReply, WireError> {
    if request.request.is_some() {
        // Its result is not remembered, so an identity would promise what is not kept.
        return Err(WireError::invalid(
            "request",
            "left out with a touch, which is safe to send again as new work",
        ));
    }
    let cache = decode::cache(request.scope.as_ref(), &request.cache)?;
    let namespace = cache.namespace.clone();
    let command = Command::Touch {
        cache,
        key: decode::key(request.key)?,
        ttl: decode::key_ttl(request.ttl_ms)?,
        guard: decode::guard(request.guard)?,
    };
    let (group, answer) = call
        .submit(&namespace, None, command, call.deadline(request.timeout_ms))
        .await?;
    let verdict = match &answer.response {
        Response::Done(Done::Touched { version, created }) => v1::touch_reply::Verdict::Done(v1::TouchDone {
            version: *version,
            created: *created,
        }),
        Response::Refused(refusal) => {
            v1::touch_reply::Verdict::Refused(encode::refusal(refusal, call.service.copies(group)))
        }
        Response::Failed(failure) => return Err(of_failure(failure.clone())),
        Response::Done(other) => return Err(unexpected(other)),
    };
    Ok(v1::TouchReply {
        header: encode::header_of_answer(group, &answer),
        remaining_us: answer.remaining.map(|remaining| remaining.0),
        verdict: Some(verdict),
    })
}

pub(super) async fn add(call: &Call<'_>, request: v1::AddRequest) -> Result<v1::AddReply, WireError> {
    let cache = decode::cache(request.scope.as_ref(), &request.cache)?;
    let namespace = cache.namespace.clone();
    let command = Command::Add {
        cache,
        key: decode::key(request.key)?,
        delta: request.delta,
        ttl: request.ttl_ms.map(decode::key_ttl).transpose()?,
    };
    let (group, answer) = call
        .submit(&namespace, request.request, command, call.deadline(request.timeout_ms))
        .await?;
    let done = match &answer.response {
        Response::Done(Done::Added { sum, version, created }) => v1::AddDone {
            sum: *sum,
            version: *version,
            created: *created,
        },
        Response::Failed(failure) => return Err(of_failure(failure.clone())),
        Response::Done(other) => return Err(unexpected(other)),
        Response::Refused(refusal) => return Err(unexpected_refusal(refusal)),
    };
    Ok(v1::AddReply {
        header: encode::header_of_answer(group, &answer),
        repeated: answer.repeated,
        remaining_us: answer.remaining.map(|remaining| remaining.0),
        done: Some(done),
    })
}

pub(super) async fn delete_prefix(
    call: &Call<'_>,
    request: v1::DeletePrefixRequest,
) -> Result<v1::DeletePrefixReply, WireError> {
    let cache = decode::cache(request.scope.as_ref(), &request.cache)?;
    let namespace = cache.namespace.clone();
    let command = Command::DeletePrefix {
        cache,
        prefix: decode::prefix(request.prefix)?,
    };
    let (group, answer) = call
        .submit(&namespace, request.request, command, call.deadline(request.timeout_ms))
        .await?;
    match &answer.response {
        Response::Done(Done::PrefixDeleted {
            revision,
            removed,
            more,
        }) => Ok(v1::DeletePrefixReply {
            header: encode::header_of_answer(group, &answer),
            repeated: answer.repeated,
            removed: *removed,
            revision: *revision,
            more: *more,
        }),
        Response::Failed(failure) => Err(of_failure(failure.clone())),
        Response::Done(other) => Err(unexpected(other)),
        Response::Refused(refusal) => Err(unexpected_refusal(refusal)),
    }
}

pub(super) async fn get(call: &Call<'_>, request: v1::GetRequest) -> Result<v1::GetReply, WireError> {
    let cache = decode::cache(request.scope.as_ref(), &request.cache)?;
    let namespace = cache.namespace.clone();
    let query = Query::Get {
        cache,
        key: decode::key(request.key)?,
    };
    let reading = reading(request.stale, request.min_revision);
    let (group, read) = call
        .query(&namespace, &query, reading, call.deadline(request.timeout_ms))
        .await?;
    let Found::Key(key) = &read.found else {
        return Err(of_service(unexpected_find(&read.found)));
    };
    Ok(v1::GetReply {
        header: encode::header_of_read(group, &read),
        key: key.clone().map(|key| encode::key_value(key, read.behind_leader, false)),
        age_us: read.age.map(|age| age.0),
    })
}

pub(super) async fn list(call: &Call<'_>, request: v1::ListRequest) -> Result<v1::ListReply, WireError> {
    let cache = decode::cache(request.scope.as_ref(), &request.cache)?;
    let namespace = cache.namespace.clone();
    let query = Query::List {
        cache,
        prefix: decode::prefix(request.prefix)?,
        after: request.after.map(decode::key).transpose()?,
        limit: decode::page(request.limit),
    };
    let reading = reading(request.stale, request.min_revision);
    let (group, read) = call
        .query(&namespace, &query, reading, call.deadline(request.timeout_ms))
        .await?;
    let header = encode::header_of_read(group, &read);
    let Found::Keys { keys, more } = read.found else {
        return Err(of_service(unexpected_find(&read.found)));
    };
    let keys = keys
        .into_iter()
        .map(|key| encode::key_value(key, read.behind_leader, request.keys_only));
    Ok(v1::ListReply {
        header,
        keys: keys.collect(),
        more,
        age_us: read.age.map(|age| age.0),
    })
}

/// How a request wants to be read.
pub(super) fn reading(stale: bool, min_revision: u64) -> Reading {
    if stale {
        Reading::Stale { min_revision }
    } else {
        Reading::Linearizable
    }
}
