//! The only place where a failure of the service becomes an answer of our protocol.

use std::time::Duration;

use tenure_api::ErrorCode;
use tenure_api::v1::WireError;
use tenure_api::v1::wire_error::Detail;
use tenure_core::ids::SessionId;
use tenure_core::refusal::{Failure, Missing};
use tenure_replica::Unavailable;

use super::encode;
use crate::notify::WatchEnd;
use crate::service::ServiceError;
use crate::service::follow::FollowStop;
use crate::service::watch::WatchStop;

/// What the caller is told.
pub(super) fn of_service(error: ServiceError) -> WireError {
    match error {
        ServiceError::Failed(failure) => of_failure(failure),
        ServiceError::Unavailable { group, error } => of_unavailable(group.0, error),
        ServiceError::NamespaceUnknown(namespace) => WireError::not_found("namespace", namespace.to_string()),
        ServiceError::GroupUnknown(group) => WireError::not_found("group", group.0.to_string()),
        ServiceError::Busy { retry_after } => WireError::overloaded("the node is busy", micros(retry_after)),
        ServiceError::Behind { applied, asked } => WireError::behind(applied, asked),
        ServiceError::NotServing(why) => WireError::unavailable(why),
        ServiceError::StorageFull(room) => WireError::storage_full(room.free, room.reserve),
        ServiceError::Limit { which, value } => WireError::limit(which, value),
        ServiceError::Internal(what) => WireError::internal(what),
    }
}

/// What apply decided.
pub(super) fn of_failure(failure: Failure) -> WireError {
    match failure {
        Failure::SessionExpired {
            session,
            reason,
            revision,
        } => WireError::session_expired(session.0, encode::end_reason(reason), revision),
        Failure::SessionUnknown { session } => WireError::session_unknown(session.0),
        Failure::WrongSecret { session } => wrong_secret("session.secret", session),
        Failure::RequestForgotten { seq } => WireError::request_forgotten(seq),
        Failure::TooLate => WireError::too_late(),
        Failure::RequestReused => WireError::request_reused(),
        Failure::WindowFull { seqs, bytes } => WireError::window_full(seqs, bytes),
        Failure::NotFound {
            what: Missing::Cache(name),
        } => WireError::not_found("cache", name.to_string()),
        Failure::NotFound {
            what: Missing::Key(key),
        } => WireError::not_found("key", key),
        Failure::NotFound {
            what: Missing::Session(session),
        } => WireError::not_found("session", session.to_string()),
        Failure::NotFound {
            what: Missing::Stream(name),
        } => WireError::not_found("stream", name.to_string()),
        Failure::NotFound {
            what: Missing::Node(node),
        } => WireError::not_found("node", node.0.to_string()),
        Failure::WrongType { is } => WireError::wrong_type("the key", is),
        Failure::Invalid { field, rule } => WireError::invalid(field, rule),
        Failure::Limit { which, value } => WireError::limit(which, value),
        Failure::Overloaded { what, retry_after } => WireError::overloaded(what, retry_after.0),
        Failure::WrongGroup => WireError::internal("the command was proposed in a group that does not take it"),
    }
}

/// The secret in this field is not the session's.
pub(super) fn wrong_secret(field: &str, session: SessionId) -> WireError {
    WireError::invalid(field, format!("it is not that of session {session}"))
}

/// Why following a stream ended.
pub(super) fn of_follow(stop: FollowStop, stream: &str) -> WireError {
    match stop {
        FollowStop::Error(error) => of_service(error),
        FollowStop::Compacted { first } => records_gone(first),
        FollowStop::ObjectDeleted { revision } => object_gone(stream, revision),
        FollowStop::Stopped { why } => WireError::unavailable(format!("the group has stopped: {why}")),
    }
}

/// The records that were asked for are not kept any more; the first that are begin at `first`.
pub(super) fn records_gone(first: u64) -> WireError {
    let message = format!("records before offset {first} are not kept any more: go on from there");
    WireError::new(ErrorCode::Compacted, message).with_detail(Detail::ResumeFrom(first))
}

/// The life of an object that was meant is over; at which revision it ended is not always known, and then 0.
pub(super) fn object_gone(name: &str, revision: u64) -> WireError {
    match revision {
        0 => {
            let message = format!("that life of {name} is over: it was deleted, and may have been created again");
            WireError::new(ErrorCode::ObjectDeleted, message).with_detail(Detail::ObjectDeleted(0))
        }
        _ => WireError::object_deleted(name, revision),
    }
}

/// Why a watch ended.
pub(super) fn of_watch(stop: WatchStop, cache: &str) -> WireError {
    match stop {
        WatchStop::Error(error) => of_service(error),
        WatchStop::Ended(WatchEnd::Lagged { resume_from }) => WireError::lagged(resume_from),
        WatchStop::Ended(WatchEnd::Compacted { resume_from }) => WireError::compacted(resume_from),
        WatchStop::Ended(WatchEnd::ObjectDeleted { revision }) => object_gone(cache, revision),
        WatchStop::Ended(WatchEnd::Stopped { why }) => WireError::unavailable(format!("the group has stopped: {why}")),
    }
}

fn of_unavailable(group: u32, error: Unavailable) -> WireError {
    match error {
        // A node hands on what it does not lead, so that this only means that it could not.
        Unavailable::NotLeader { leader: Some(leader) } => {
            WireError::unavailable(format!("node {} leads group {group} and was not reached", leader.0))
        }
        Unavailable::NotLeader { leader: None } => WireError::unavailable("the group has no leader"),
        Unavailable::NoLeader => WireError::unavailable("the group has no leader"),
        Unavailable::Deadline => WireError::deadline(),
        Unavailable::Overloaded { retry_after } => {
            WireError::overloaded("too much is waiting in the group", micros(retry_after))
        }
        Unavailable::LeadershipLost => WireError::leadership_lost(),
        Unavailable::QuorumTimeout => WireError::quorum_timeout(),
        Unavailable::Stopped { why, proposed: false } => {
            WireError::unavailable(format!("group {group} has stopped: {why}"))
        }
        // Another node may have it, or will: there the same id tells what became of it.
        Unavailable::Stopped { why, proposed: true } => WireError::new(
            ErrorCode::LeadershipLost,
            format!("group {group} stopped under the request: {why}"),
        ),
        Unavailable::Internal(what) => WireError::internal(what.as_ref()),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
