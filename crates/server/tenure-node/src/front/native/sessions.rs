//! Sessions: open, keep alive, close, acknowledge, look at.

use std::time::Duration;

use futures_util::future::join_all;
use tenure_api::limits::KEEP_ALIVE_SESSIONS_MAX;
use tenure_api::v1::{self, WireError};
use tenure_core::command::Command;
use tenure_core::ids::{GroupId, SessionId};
use tenure_core::query::{Found, Query, SessionView};
use tenure_core::response::{Done, KeptAlive, Response};

use super::error::{of_failure, of_service};
use super::handler::{Call, unexpected};
use super::{decode, encode};
use crate::service::{Read, Reading, unexpected as unexpected_find};

/// How long a renewal is waited for. A client tries again sooner than that.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn open(call: &Call<'_>, request: v1::OpenSessionRequest) -> Result<v1::OpenSessionReply, WireError> {
    let namespace = decode::namespace(request.scope.as_ref())?;
    let command = Command::OpenSession {
        nonce: decode::nonce(&request.nonce)?,
        secret: call.service.fresh_secret(),
        ttl: request.ttl_ms.map(decode::session_ttl).transpose()?,
        label: decode::label(request.label)?,
        namespace: namespace.clone(),
    };
    // A session is the first thing that many clients make in a namespace.
    let deadline = call.deadline(request.timeout_ms);
    call.service.make_home(&namespace, deadline).await.map_err(of_service)?;
    let (group, answer) = call.submit(&namespace, None, command, deadline).await?;
    let (id, secret, ttl) = match &answer.response {
        Response::Done(Done::SessionOpened { id, secret, ttl }) => (*id, *secret, *ttl),
        Response::Failed(failure) => return Err(of_failure(failure.clone())),
        Response::Done(other) => return Err(unexpected(other)),
        Response::Refused(refusal) => return Err(WireError::internal(format!("an opening was refused: {refusal:?}"))),
    };
    Ok(v1::OpenSessionReply {
        header: encode::header_of_answer(group, &answer),
        session: Some(encode::session_ref(id, secret)),
        ttl_ms: ttl.map(tenure_core::time::Span::as_millis),
        remaining_us: answer.remaining.map(|remaining| remaining.0),
        repeated: answer.repeated,
    })
}

/// Renews sessions. Each has its own result, so one that is gone does not harm the others.
pub(super) async fn keep_alive(
    call: &Call<'_>,
    request: v1::KeepAliveRequest,
) -> Result<v1::KeepAliveReply, WireError> {
    if request.sessions.len() > KEEP_ALIVE_SESSIONS_MAX {
        return Err(WireError::limit(
            "sessions of one keep-alive",
            KEEP_ALIVE_SESSIONS_MAX as u64,
        ));
    }
    let attempt = request.attempt;
    let answers = join_all(
        request
            .sessions
            .into_iter()
            .map(|session| keep_one_alive(call, session)),
    )
    .await;
    let mut reply = v1::KeepAliveReply {
        attempt,
        ..v1::KeepAliveReply::default()
    };
    for (kept, header) in answers {
        reply.sessions.push(kept);
        if let Some(header) = header
            && !reply.headers.iter().any(|known| known.group == header.group)
        {
            reply.headers.push(header);
        }
    }
    call.service
        .metrics()
        .keep_alives
        .increment(reply.sessions.len() as u64);
    Ok(reply)
}

async fn keep_one_alive(call: &Call<'_>, asked: v1::SessionInGroup) -> (v1::KeptAlive, Option<v1::Header>) {
    use v1::kept_alive::{Renewed, Result as Kept};
    let group = GroupId(asked.group);
    let known = match group {
        GroupId::SYSTEM => Err(WireError::invalid("group", "a home group: no session lives in group 0")),
        _ => decode::required_session("session", asked.session.as_ref()),
    };
    let answer = match known {
        Ok(session) => {
            // Bounded for each, so that a group that stands still does not hold up the answers of the others.
            let limit = call
                .deadline(0)
                .saturating_sub(call.service.now())
                .min(KEEP_ALIVE_TIMEOUT);
            match tokio::time::timeout(limit, call.service.keep_alive(group, session)).await {
                Ok(answer) => answer.map_err(|error| call.told(error)),
                Err(_) => Err(WireError::quorum_timeout()),
            }
        }
        Err(error) => Err(error),
    };
    let session = asked.session.map_or(0, |session| session.id);
    let (result, header) = match answer {
        Ok((kept, time)) => {
            let result = match kept {
                KeptAlive::Renewed { remaining, .. } => Kept::Renewed(Renewed {
                    remaining_us: remaining.map(|remaining| remaining.0),
                }),
                KeptAlive::Ended { reason, revision, .. } => Kept::Ended(encode::session_end(reason, revision)),
                KeptAlive::Unknown { .. } => Kept::Unknown(true),
            };
            let revision = call
                .service
                .group(group)
                .map_or(0, |group| group.replica.status().revision.0);
            (
                result,
                Some(v1::Header {
                    group: asked.group,
                    revision,
                    time_us: time.0,
                }),
            )
        }
        Err(error) => (Kept::Failed(error), None),
    };
    (
        v1::KeptAlive {
            group: asked.group,
            session,
            result: Some(result),
        },
        header,
    )
}

pub(super) async fn close(
    call: &Call<'_>,
    request: v1::CloseSessionRequest,
) -> Result<v1::CloseSessionReply, WireError> {
    let namespace = decode::namespace(request.scope.as_ref())?;
    let session = request
        .session
        .as_ref()
        .ok_or_else(|| WireError::invalid("session", "it must be given"))?;
    let id = SessionId(session.id);
    let secret = if request.force {
        // By force anybody may close a session of this namespace, but not of another.
        view(call, request.scope.as_ref(), id, request.timeout_ms).await?;
        None
    } else {
        Some(decode::session("session", session)?.secret)
    };
    let command = Command::CloseSession { session: id, secret };
    let (group, answer) = call
        .submit(&namespace, request.request, command, call.deadline(request.timeout_ms))
        .await?;
    match &answer.response {
        Response::Done(Done::SessionClosed { revision, removed }) => Ok(v1::CloseSessionReply {
            header: encode::header_of_answer(group, &answer),
            repeated: answer.repeated,
            revision: *revision,
            removed: *removed,
        }),
        Response::Failed(failure) => Err(of_failure(failure.clone())),
        Response::Done(other) => Err(unexpected(other)),
        Response::Refused(refusal) => Err(WireError::internal(format!("a close was refused: {refusal:?}"))),
    }
}

pub(super) async fn acknowledge(
    call: &Call<'_>,
    request: v1::AcknowledgeRequest,
) -> Result<v1::AcknowledgeReply, WireError> {
    let namespace = decode::namespace(request.scope.as_ref())?;
    let command = Command::Acknowledge {
        session: decode::required_session("session", request.session.as_ref())?,
        acknowledged: decode::acknowledged(request.below, request.also)?,
    };
    let (group, answer) = call
        .submit(&namespace, None, command, call.deadline(request.timeout_ms))
        .await?;
    match &answer.response {
        Response::Failed(failure) => Err(of_failure(failure.clone())),
        _ => Ok(v1::AcknowledgeReply {
            header: encode::header_of_answer(group, &answer),
        }),
    }
}

pub(super) async fn get(call: &Call<'_>, request: v1::GetSessionRequest) -> Result<v1::GetSessionReply, WireError> {
    let id = SessionId(request.session);
    let (group, read, view) = view(call, request.scope.as_ref(), id, request.timeout_ms).await?;
    Ok(v1::GetSessionReply {
        header: encode::header_of_read(group, &read),
        session: Some(encode::session_info(&view, read.behind_leader)),
    })
}

pub(super) async fn list(
    call: &Call<'_>,
    request: v1::ListSessionsRequest,
) -> Result<v1::ListSessionsReply, WireError> {
    let namespace = decode::namespace(request.scope.as_ref())?;
    let query = Query::Sessions {
        namespace: namespace.clone(),
        after: request.after.map(SessionId),
        limit: decode::page(request.limit),
    };
    let (group, read) = call
        .query(
            &namespace,
            &query,
            Reading::Linearizable,
            call.deadline(request.timeout_ms),
        )
        .await?;
    let header = encode::header_of_read(group, &read);
    let Found::Sessions { sessions, more } = &read.found else {
        return Err(of_service(unexpected_find(&read.found)));
    };
    let sessions = sessions
        .iter()
        .map(|view| encode::session_info(view, read.behind_leader));
    Ok(v1::ListSessionsReply {
        header,
        sessions: sessions.collect(),
        more: *more,
    })
}

/// A session of this namespace.
async fn view(
    call: &Call<'_>,
    scope: Option<&v1::Scope>,
    id: SessionId,
    timeout_ms: u64,
) -> Result<(GroupId, Read, SessionView), WireError> {
    let namespace = decode::namespace(scope)?;
    let (group, read) = call
        .query(
            &namespace,
            &Query::Session(id),
            Reading::Linearizable,
            call.deadline(timeout_ms),
        )
        .await?;
    match &read.found {
        Found::Session(Some(view)) if view.namespace == namespace => {
            let view = view.clone();
            Ok((group, read, view))
        }
        Found::Session(_) => Err(WireError::not_found("session", id.to_string())),
        other => Err(of_service(unexpected_find(other))),
    }
}
