//! Streams: create, list, look at, delete, append, read, follow, trim.

use prost::Message;
use tenure_api::v1::follow_event::{Event, Records, Started};
use tenure_api::v1::{self, WireError, append_reply, create_stream_reply};
use tenure_core::command::Command;
use tenure_core::query::{Found, Query, ReadFrom};
use tenure_core::refusal::{Failure, Missing};
use tenure_core::response::{Done, Response};

use super::error::{object_gone, of_failure, of_follow, of_service, records_gone};
use super::handler::{Call, unexpected, unexpected_refusal};
use super::keys::reading;
use super::{decode, encode};
use crate::front::answers::{AnswerShare, Room};
use crate::service::follow::{Follow, FollowItem, FollowSpec};
use crate::service::{Reading, unexpected as unexpected_find};

pub(super) async fn create(
    call: &Call<'_>,
    request: v1::CreateStreamRequest,
) -> Result<v1::CreateStreamReply, WireError> {
    let name = decode::object(request.scope.as_ref(), "name", &request.name)?;
    let namespace = name.namespace.clone();
    let settings = decode::streams::settings(request.settings)?;
    // With its first object a namespace comes into being.
    let deadline = call.deadline(request.timeout_ms);
    call.service.make_home(&namespace, deadline).await.map_err(of_service)?;
    let command = Command::CreateStream { name, settings };
    let (group, answer) = call.submit(&namespace, request.request, command, deadline).await?;
    let (verdict, existed) = match &answer.response {
        Response::Done(Done::StreamCreated { record, existed }) => (
            create_stream_reply::Verdict::Done(encode::stream_info(record, call.service.copies(group))),
            *existed,
        ),
        Response::Refused(refusal) => (
            create_stream_reply::Verdict::Refused(encode::refusal(refusal, call.service.copies(group))),
            true,
        ),
        Response::Failed(failure) => return Err(of_failure(failure.clone())),
        Response::Done(other) => return Err(unexpected(other)),
    };
    Ok(v1::CreateStreamReply {
        header: encode::header_of_answer(group, &answer),
        repeated: answer.repeated,
        verdict: Some(verdict),
        existed,
    })
}

pub(super) async fn list(call: &Call<'_>, request: v1::ListStreamsRequest) -> Result<v1::ListStreamsReply, WireError> {
    let namespace = decode::namespace(request.scope.as_ref())?;
    let query = Query::Streams(namespace.clone());
    let deadline = call.deadline(request.timeout_ms);
    let (group, read) = call.query(&namespace, &query, Reading::Linearizable, deadline).await?;
    let Found::Streams(streams) = &read.found else {
        return Err(of_service(unexpected_find(&read.found)));
    };
    let streams = streams
        .iter()
        .map(|record| encode::stream_info(record, call.service.copies(group)));
    Ok(v1::ListStreamsReply {
        header: encode::header_of_read(group, &read),
        streams: streams.collect(),
    })
}

pub(super) async fn get(call: &Call<'_>, request: v1::GetStreamRequest) -> Result<v1::GetStreamReply, WireError> {
    let name = decode::object(request.scope.as_ref(), "name", &request.name)?;
    let namespace = name.namespace.clone();
    let deadline = call.deadline(request.timeout_ms);
    let (group, read) = call
        .query(&namespace, &Query::Stream(name), Reading::Linearizable, deadline)
        .await?;
    let Found::Stream(view) = &read.found else {
        return Err(of_service(unexpected_find(&read.found)));
    };
    Ok(v1::GetStreamReply {
        header: encode::header_of_read(group, &read),
        stream: Some(encode::stream_info(&view.record, call.service.copies(group))),
        first: view.first,
        tail: view.tail,
        bytes: view.bytes,
        fence_token: view.token,
    })
}

pub(super) async fn delete(
    call: &Call<'_>,
    request: v1::DeleteStreamRequest,
) -> Result<v1::DeleteStreamReply, WireError> {
    let name = decode::object(request.scope.as_ref(), "name", &request.name)?;
    let namespace = name.namespace.clone();
    let command = Command::DeleteStream { name };
    let deadline = call.deadline(request.timeout_ms);
    let (group, answer) = call.submit(&namespace, request.request, command, deadline).await?;
    match &answer.response {
        Response::Done(Done::StreamDeleted { revision }) => Ok(v1::DeleteStreamReply {
            header: encode::header_of_answer(group, &answer),
            repeated: answer.repeated,
            revision: *revision,
        }),
        Response::Failed(failure) => Err(of_failure(failure.clone())),
        Response::Done(other) => Err(unexpected(other)),
        Response::Refused(refusal) => Err(unexpected_refusal(refusal)),
    }
}

pub(super) async fn append(call: &Call<'_>, request: v1::AppendRequest) -> Result<v1::AppendReply, WireError> {
    let stream = decode::object(request.scope.as_ref(), "stream", &request.stream)?;
    let namespace = stream.namespace.clone();
    let append = decode::streams::append(request.append)?;
    let command = Command::Append { stream, append };
    let deadline = call.deadline(request.timeout_ms);
    let (group, answer) = call.submit(&namespace, request.request, command, deadline).await?;
    let verdict = match &answer.response {
        Response::Done(Done::Appended(appended)) => append_reply::Verdict::Done(encode::appended(*appended)),
        Response::Refused(refusal) => {
            append_reply::Verdict::Refused(encode::refusal(refusal, call.service.copies(group)))
        }
        Response::Failed(failure) => return Err(of_failure(failure.clone())),
        Response::Done(other) => return Err(unexpected(other)),
    };
    Ok(v1::AppendReply {
        header: encode::header_of_answer(group, &answer),
        repeated: answer.repeated,
        verdict: Some(verdict),
    })
}

pub(super) async fn read(call: &Call<'_>, request: v1::ReadRecordsRequest) -> Result<v1::ReadRecordsReply, WireError> {
    let stream = decode::object(request.scope.as_ref(), "stream", &request.stream)?;
    let (namespace, name) = (stream.namespace.clone(), stream.to_string());
    let from = decode::streams::read_from(request.from)?;
    let query = Query::Records {
        stream,
        from,
        limit: decode::page(request.limit),
    };
    let reading = reading(request.stale, request.min_revision);
    let deadline = call.deadline(request.timeout_ms);
    let (group, read) = call.query(&namespace, &query, reading, deadline).await?;
    let header = encode::header_of_read(group, &read);
    let (records, first, tail, incarnation) = match read.found {
        Found::Records {
            records,
            first,
            tail,
            incarnation,
        } => (records, first, tail, incarnation.0),
        Found::Failed(Failure::NotFound {
            what: Missing::Stream(_),
        }) if request.incarnation.is_some() => return Err(object_gone(&name, 0)),
        other => return Err(of_service(unexpected_find(&other))),
    };
    if request.incarnation.is_some_and(|seen| seen != incarnation) {
        return Err(object_gone(&name, 0));
    }
    let begin = match from {
        ReadFrom::Offset(offset) if offset < first => return Err(records_gone(first)),
        ReadFrom::Offset(offset) => offset,
        ReadFrom::Earliest => first,
        ReadFrom::Latest => tail,
    };
    Ok(v1::ReadRecordsReply {
        header,
        next: records.last().map_or(begin, |last| last.offset + 1),
        records: records.into_iter().map(encode::record).collect(),
        first,
        tail,
        incarnation,
        age_us: read.age.map(|age| age.0),
    })
}

pub(super) async fn trim(call: &Call<'_>, request: v1::TrimStreamRequest) -> Result<v1::TrimStreamReply, WireError> {
    let stream = decode::object(request.scope.as_ref(), "stream", &request.stream)?;
    let namespace = stream.namespace.clone();
    let command = Command::TrimStream {
        stream,
        before: request.before,
    };
    let deadline = call.deadline(request.timeout_ms);
    let (group, answer) = call.submit(&namespace, request.request, command, deadline).await?;
    match &answer.response {
        Response::Done(Done::StreamTrimmed { first }) => Ok(v1::TrimStreamReply {
            header: encode::header_of_answer(group, &answer),
            repeated: answer.repeated,
            first: *first,
        }),
        Response::Failed(failure) => Err(of_failure(failure.clone())),
        Response::Done(other) => Err(unexpected(other)),
        Response::Refused(refusal) => Err(unexpected_refusal(refusal)),
    }
}

/// A follower and the name that its end speaks of.
pub(super) struct WireFollow {
    follow: Follow,
    stream: String,
}

/// Begins to follow a stream.
pub(super) async fn follow(call: &Call<'_>, request: v1::FollowRequest) -> Result<WireFollow, WireError> {
    let stream = decode::object(request.scope.as_ref(), "stream", &request.stream)?;
    let (namespace, name) = (stream.namespace.clone(), stream.to_string());
    let spec = FollowSpec {
        stream,
        from: decode::streams::read_from(request.from)?,
        incarnation: request.incarnation,
        min_revision: request.min_revision,
    };
    let deadline = call.deadline(0);
    let group = call.service.home(&namespace, deadline).await.map_err(of_service)?;
    let follow = call
        .service
        .follow(group, spec, deadline, Room::new(call.room.connection().clone()))
        .await
        .map_err(|stop| of_follow(stop, &name))?;
    Ok(WireFollow { follow, stream: name })
}

impl WireFollow {
    /// The next event, with its share of the connection's room, or why there is none any more. Nothing is lost when the
    /// future is dropped before it is ready.
    pub(super) async fn next(&mut self) -> Result<(v1::FollowEvent, AnswerShare), WireError> {
        let item = self.follow.next().await.map_err(|stop| of_follow(stop, &self.stream))?;
        let event = match item {
            FollowItem::Started { next, incarnation } => Event::Started(Started { next, incarnation }),
            FollowItem::Records(records) => Event::Records(Records {
                records: records.into_iter().map(encode::record).collect(),
            }),
        };
        let event = v1::FollowEvent { event: Some(event) };
        let share = self.follow.hand_on(event.encoded_len());
        Ok((event, share))
    }
}
