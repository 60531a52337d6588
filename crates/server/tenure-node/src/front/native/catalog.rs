//! The catalog: create, list, look at and delete caches.

use tenure_api::v1::{self, WireError};
use tenure_core::command::{CacheSettings, Command};
use tenure_core::query::{Found, Query};
use tenure_core::response::{Done, Response};

use super::error::{of_failure, of_service};
use super::handler::{Call, unexpected};
use super::{decode, encode};
use crate::service::{Reading, unexpected as unexpected_find};

pub(super) async fn create_cache(
    call: &Call<'_>,
    request: v1::CreateCacheRequest,
) -> Result<v1::CreateCacheReply, WireError> {
    let name = decode::object(request.scope.as_ref(), "name", &request.name)?;
    let namespace = name.namespace.clone();
    let settings = settings(&request)?;
    // With its first object a namespace comes into being.
    let deadline = call.deadline(request.timeout_ms);
    call.service.make_home(&namespace, deadline).await.map_err(of_service)?;
    let command = Command::CreateCache { name, settings };
    let (group, answer) = call.submit(&namespace, request.request, command, deadline).await?;
    let (verdict, existed) = match &answer.response {
        Response::Done(Done::CacheCreated { record, existed }) => (
            v1::create_cache_reply::Verdict::Done(encode::cache_info(record, call.service.copies(group))),
            *existed,
        ),
        Response::Refused(refusal) => (
            v1::create_cache_reply::Verdict::Refused(encode::refusal(refusal, call.service.copies(group))),
            true,
        ),
        Response::Failed(failure) => return Err(of_failure(failure.clone())),
        Response::Done(other) => return Err(unexpected(other)),
    };
    let header = encode::header_of_answer(group, &answer);
    Ok(v1::CreateCacheReply {
        header,
        repeated: answer.repeated,
        verdict: Some(verdict),
        existed,
    })
}

pub(super) async fn list_caches(
    call: &Call<'_>,
    request: v1::ListCachesRequest,
) -> Result<v1::ListCachesReply, WireError> {
    let namespace = decode::namespace(request.scope.as_ref())?;
    let query = Query::Caches(namespace.clone());
    let (group, read) = call
        .query(
            &namespace,
            &query,
            Reading::Linearizable,
            call.deadline(request.timeout_ms),
        )
        .await?;
    let Found::Caches(caches) = &read.found else {
        return Err(of_service(unexpected_find(&read.found)));
    };
    let caches = caches
        .iter()
        .map(|record| encode::cache_info(record, call.service.copies(group)));
    Ok(v1::ListCachesReply {
        header: encode::header_of_read(group, &read),
        caches: caches.collect(),
    })
}

pub(super) async fn get_cache(call: &Call<'_>, request: v1::GetCacheRequest) -> Result<v1::GetCacheReply, WireError> {
    let name = decode::object(request.scope.as_ref(), "name", &request.name)?;
    let namespace = name.namespace.clone();
    let (group, read) = call
        .query(
            &namespace,
            &Query::Cache(name),
            Reading::Linearizable,
            call.deadline(request.timeout_ms),
        )
        .await?;
    let Found::Cache(record) = &read.found else {
        return Err(of_service(unexpected_find(&read.found)));
    };
    let cache = Some(encode::cache_info(record, call.service.copies(group)));
    Ok(v1::GetCacheReply {
        header: encode::header_of_read(group, &read),
        cache,
    })
}

pub(super) async fn delete_cache(
    call: &Call<'_>,
    request: v1::DeleteCacheRequest,
) -> Result<v1::DeleteCacheReply, WireError> {
    let name = decode::object(request.scope.as_ref(), "name", &request.name)?;
    let namespace = name.namespace.clone();
    let command = Command::DeleteCache { name };
    let (group, answer) = call
        .submit(&namespace, request.request, command, call.deadline(request.timeout_ms))
        .await?;
    match &answer.response {
        Response::Done(Done::CacheDeleted { revision }) => Ok(v1::DeleteCacheReply {
            header: encode::header_of_answer(group, &answer),
            repeated: answer.repeated,
            revision: *revision,
        }),
        Response::Failed(failure) => Err(of_failure(failure.clone())),
        Response::Done(other) => Err(unexpected(other)),
        Response::Refused(refusal) => Err(WireError::internal(format!("a deletion was refused: {refusal:?}"))),
    }
}

fn settings(request: &v1::CreateCacheRequest) -> Result<CacheSettings, WireError> {
    decode::shards("shards", request.shards)?;
    decode::consistency("consistency", request.consistency)?;
    let replication = decode::replication("replication", request.replication)?;
    Ok(CacheSettings { replication })
}
