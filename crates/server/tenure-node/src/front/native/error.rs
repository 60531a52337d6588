//! The only place where a failure of the service becomes an answer of our protocol.

use std::time::Duration;

use tenure_api::v1::WireError;
use tenure_core::refusal::{Failure, Missing};
use tenure_replica::Unavailable;

use super::encode;
use crate::notify::WatchEnd;
use crate::service::ServiceError;
use crate::service::watch::WatchStop;

/// What the caller is told.
pub(super) fn of_service(error: ServiceError) -> WireError {
    match error {
        ServiceError::Failed(failure) => of_failure(failure),
        ServiceError::Unavailable { group, error } => of_unavailable(group.0, error),
        ServiceError::NamespaceUnknown(namespace) => WireError::not_found("namespace", namespace.to_string()),
        ServiceError::Busy { retry_after } => WireError::overloaded("the node is busy", micros(retry_after)),
        ServiceError::Behind { applied, asked } => WireError::behind(applied, asked),
        ServiceError::NotServing(why) => WireError::unavailable(why),
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
        Failure::WrongSecret { session } => {
            WireError::invalid("session.secret", format!("it is not that of session {session}"))
        }
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
        Failure::Invalid { field, rule } => WireError::invalid(field, rule),
        Failure::Limit { which, value } => WireError::limit(which, value),
        Failure::Overloaded { what, retry_after } => WireError::overloaded(what, retry_after.0),
        Failure::WrongGroup => WireError::internal("the command was proposed in a group that does not take it"),
    }
}

/// Why a watch ended.
pub(super) fn of_watch(stop: WatchStop, cache: &str) -> WireError {
    match stop {
        WatchStop::Error(error) => of_service(error),
        WatchStop::Ended(WatchEnd::Lagged { resume_from }) => WireError::lagged(resume_from),
        WatchStop::Ended(WatchEnd::Compacted { resume_from }) => WireError::compacted(resume_from),
        WatchStop::Ended(WatchEnd::ObjectDeleted { revision }) => WireError::object_deleted(cache, revision),
        WatchStop::Ended(WatchEnd::Stopped { why }) => WireError::unavailable(format!("the group has stopped: {why}")),
    }
}

fn of_unavailable(group: u32, error: Unavailable) -> WireError {
    match error {
        Unavailable::NotLeader { .. } => WireError::not_leader(group, None),
        Unavailable::NoLeader => WireError::unavailable("the group has no leader"),
        Unavailable::Deadline => WireError::deadline(),
        Unavailable::Overloaded { retry_after } => {
            WireError::overloaded("too much is waiting in the group", micros(retry_after))
        }
        Unavailable::LeadershipLost => WireError::leadership_lost(),
        Unavailable::QuorumTimeout => WireError::quorum_timeout(),
        Unavailable::Stopped { why, proposed: false } => {
            WireError::unavailable(format!("the group has stopped: {why}"))
        }
        Unavailable::Stopped { why, proposed: true } => {
            WireError::internal(format!("the group stopped under the request: {why}"))
        }
        Unavailable::Internal(what) => WireError::internal(what.as_ref()),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
