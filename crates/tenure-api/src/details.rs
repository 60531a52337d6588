//! An error with what it carries: built by the server, put into a gRPC status, read back by the client.
//!
//! A unary call carries the encoded [`WireError`] in the trailer [`ERROR_TRAILER`]; a frame of the multiplexed stream
//! carries it as it is. `grpc-status-details-bin` is left alone, since generic tools expect another message in it.

use bytes::Bytes;
use prost::Message;
use tonic::metadata::{BinaryMetadataKey, MetadataValue};
use tonic::{Code, Status};

use crate::error_code::{ErrorCode, Outcome};
use crate::limits;
use crate::v1::wire_error::{
    Behind, Detail, Invalid, Limit, Mismatch, NotFound, SessionExpired, StorageFull, WindowFull,
};
use crate::v1::{self, EndReason, LeaderHint, SessionEnd, WireError};

/// The trailer that carries an encoded [`WireError`].
pub const ERROR_TRAILER: &str = "tenure-error-bin";

// As it is, an error is small enough to be the error of a `Result`.
const _: () = assert!(size_of::<WireError>() < 128);

/// A status carried bytes that are no error of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trailer {ERROR_TRAILER} does not hold an error: the outcome is unknown")]
pub struct MalformedError;

impl WireError {
    /// An error of this code, with the outcome that belongs to it and nothing else. A long message is cut.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> WireError {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(limits::ERROR_MESSAGE_BYTES_MAX));
        WireError {
            code: code.name().to_owned(),
            message,
            outcome: v1::Outcome::from(code.outcome()).into(),
            retry_after_us: None,
            leader: None,
            detail: None,
        }
    }

    /// A field breaks a rule.
    pub fn invalid(field: impl Into<String>, rule: impl Into<String>) -> WireError {
        let (field, rule) = (field.into(), rule.into());
        WireError::new(ErrorCode::Invalid, format!("{field}: {rule}"))
            .with_detail(Detail::Invalid(Box::new(Invalid { field, rule })))
    }

    /// The two objects do not share a group.
    pub fn cross_group(first: impl Into<String>, second: impl Into<String>) -> WireError {
        let (asked, actual) = (first.into(), second.into());
        let message = format!("{asked} and {actual} do not share a group: use two requests");
        WireError::new(ErrorCode::CrossGroup, message)
            .with_detail(Detail::Mismatch(Box::new(Mismatch { asked, actual })))
    }

    /// The name belongs to an object of this type.
    pub fn wrong_type(name: &str, actual: impl Into<String>) -> WireError {
        let actual = actual.into();
        WireError::new(ErrorCode::WrongType, format!("{name} is a {actual}: use another name"))
            .with_detail(Detail::WrongType(actual))
    }

    /// There is no such thing: `kind` is `namespace`, `cache`, `key`, `session`, `group` or `node`.
    pub fn not_found(kind: impl Into<String>, name: impl Into<Bytes>) -> WireError {
        let (kind, name) = (kind.into(), name.into());
        WireError::new(
            ErrorCode::NotFound,
            format!("{kind} {} does not exist", name.escape_ascii()),
        )
        .with_detail(Detail::NotFound(Box::new(NotFound { kind, name })))
    }

    /// The session has ended, and no attempt of this request was or will be run.
    pub fn session_expired(session: u64, reason: EndReason, revision: u64) -> WireError {
        let message = format!(
            "session s-{session} ended ({}) at revision {revision}: open a new one",
            reason.name()
        );
        let ended = Some(SessionEnd {
            reason: reason.into(),
            revision,
        });
        WireError::new(ErrorCode::SessionExpired, message)
            .with_detail(Detail::SessionExpired(SessionExpired { session, ended }))
    }

    /// The session is not known, so nothing is known of an earlier attempt.
    pub fn session_unknown(session: u64) -> WireError {
        WireError::new(
            ErrorCode::SessionUnknown,
            format!("session s-{session} is not known: look at the data"),
        )
        .with_detail(Detail::SessionUnknown(session))
    }

    /// The result of this request was acknowledged and is gone.
    pub fn request_forgotten(seq: u64) -> WireError {
        WireError::new(
            ErrorCode::RequestForgotten,
            format!("the result of request {seq} was acknowledged and is gone"),
        )
        .with_detail(Detail::RequestForgotten(seq))
    }

    /// The one-shot request came after its `not_after`.
    pub fn too_late() -> WireError {
        WireError::new(
            ErrorCode::TooLate,
            "the request came after its not_after: look at the data before asking anew",
        )
    }

    /// The number or id was used for another command.
    pub fn request_reused() -> WireError {
        WireError::new(
            ErrorCode::RequestReused,
            "the request's number was used for another command: take a fresh one",
        )
    }

    /// The session keeps all the results it may.
    pub fn window_full(seqs: u64, bytes: u64) -> WireError {
        let message = format!("{seqs} results of {bytes} bytes are kept for the session: acknowledge some");
        WireError::new(ErrorCode::WindowFull, message).with_detail(Detail::WindowFull(WindowFull { seqs, bytes }))
    }

    /// The request belongs to another group.
    pub fn wrong_group(asked: u32, actual: u32) -> WireError {
        let message = format!("the request was sent to group g-{asked} and belongs to g-{actual}: say hello again");
        let (asked, actual) = (asked.to_string(), actual.to_string());
        WireError::new(ErrorCode::WrongGroup, message)
            .with_detail(Detail::Mismatch(Box::new(Mismatch { asked, actual })))
    }

    /// An identity does not match. `what` names it for people: `cluster`, `node`, `incarnation`.
    pub fn wrong_cluster(what: &str, asked: impl Into<String>, actual: impl Into<String>) -> WireError {
        let (asked, actual) = (asked.into(), actual.into());
        let message = format!("{what} {asked} was asked for and this is {actual}: check the endpoints");
        WireError::new(ErrorCode::WrongCluster, message)
            .with_detail(Detail::Mismatch(Box::new(Mismatch { asked, actual })))
    }

    /// The object was deleted at this revision; 0 if that is not known any more.
    pub fn object_deleted(name: &str, revision: u64) -> WireError {
        WireError::new(
            ErrorCode::ObjectDeleted,
            format!("{name} was deleted at revision {revision}"),
        )
        .with_detail(Detail::ObjectDeleted(revision))
    }

    /// The deadline passed before the request was taken up.
    pub fn deadline() -> WireError {
        WireError::new(
            ErrorCode::Deadline,
            "the time given was over before the request was taken up: give it more",
        )
    }

    /// This replica has not applied what the caller has seen.
    pub fn behind(applied: u64, asked: u64) -> WireError {
        let message = format!("revision {applied} is applied here and {asked} was asked for: try another node");
        WireError::new(ErrorCode::Behind, message).with_detail(Detail::Behind(Behind { applied, asked }))
    }

    /// Free space is below the reserve.
    pub fn storage_full(free_bytes: u64, reserve_bytes: u64) -> WireError {
        let message = format!("{free_bytes} bytes are free and {reserve_bytes} are kept free: free some space");
        WireError::new(ErrorCode::StorageFull, message).with_detail(Detail::StorageFull(StorageFull {
            free_bytes,
            reserve_bytes,
        }))
    }

    /// The changes that were asked for are not kept any more; the first that are begin at `resume_from`.
    pub fn compacted(resume_from: u64) -> WireError {
        let message = format!("changes before revision {resume_from} are not kept any more: read the state anew");
        WireError::new(ErrorCode::Compacted, message).with_detail(Detail::ResumeFrom(resume_from))
    }

    /// Changes were missed; a watch can go on from `resume_from`.
    pub fn lagged(resume_from: u64) -> WireError {
        let message = format!("the watch did not keep up: resume from revision {resume_from}");
        WireError::new(ErrorCode::Lagged, message).with_detail(Detail::ResumeFrom(resume_from))
    }

    /// A bound is reached.
    pub fn limit(which: impl Into<String>, value: u64) -> WireError {
        let which = which.into();
        WireError::new(ErrorCode::Limit, format!("{which}: at most {value}"))
            .with_detail(Detail::Limit(Limit { which, value }))
    }

    /// There is too much to do; come back after so many microseconds.
    pub fn overloaded(what: impl Into<String>, retry_after_us: u64) -> WireError {
        let what = what.into();
        let mut error = WireError::new(ErrorCode::Overloaded, format!("{what}: come back later"));
        error.retry_after_us = Some(retry_after_us);
        error.with_detail(Detail::Reason(what))
    }

    /// Another node leads the group, if it is known which one.
    pub fn not_leader(group: u32, leader: Option<LeaderHint>) -> WireError {
        let message = match &leader {
            Some(hint) => format!(
                "group g-{group} is led by node {} at {}: go there",
                hint.node_id, hint.address
            ),
            None => format!("group g-{group} has no known leader: try again"),
        };
        WireError::new(ErrorCode::NotLeader, message).with_leader(leader)
    }

    /// No node could serve the request.
    pub fn unavailable(why: impl Into<String>) -> WireError {
        let why = why.into();
        WireError::new(ErrorCode::Unavailable, why.clone()).with_detail(Detail::Reason(why))
    }

    /// No majority confirmed in time: it may still be applied.
    pub fn quorum_timeout() -> WireError {
        WireError::new(
            ErrorCode::QuorumTimeout,
            "no majority confirmed in time: ask again under the same id",
        )
    }

    /// The leadership under which the request was proposed ended: it may still be applied.
    pub fn leadership_lost() -> WireError {
        WireError::new(
            ErrorCode::LeadershipLost,
            "the leader changed under the request: ask again under the same id",
        )
    }

    /// A defect of ours.
    pub fn internal(message: impl Into<String>) -> WireError {
        WireError::new(ErrorCode::Internal, message)
    }

    /// The same error with this detail.
    #[must_use]
    pub fn with_detail(mut self, detail: Detail) -> WireError {
        self.detail = Some(detail);
        self
    }

    /// The same error with a hint at the leader.
    #[must_use]
    pub fn with_leader(mut self, leader: Option<LeaderHint>) -> WireError {
        self.leader = leader.map(Box::new);
        self
    }

    /// The code; `None` if it is newer than this program. Then [`WireError::known_outcome`] still holds.
    pub fn error_code(&self) -> Option<ErrorCode> {
        ErrorCode::from_name(&self.code)
    }

    /// What is known of the request's effect: what the error says; unknown where it says nothing, or says something
    /// that this program does not know.
    pub fn known_outcome(&self) -> Outcome {
        match v1::Outcome::try_from(self.outcome) {
            Ok(v1::Outcome::Refused) => Outcome::Refused,
            Ok(v1::Outcome::NotApplied) => Outcome::NotApplied,
            Ok(v1::Outcome::Unknown | v1::Outcome::Unspecified) | Err(_) => Outcome::Unknown,
        }
    }

    /// The revision from which a watch that ended with this error can go on.
    pub fn resume_from(&self) -> Option<u64> {
        match self.detail {
            Some(Detail::ResumeFrom(revision)) => Some(revision),
            _ => None,
        }
    }

    /// The gRPC status that carries this error whole. Of an error that is too long for a trailer the detail is left
    /// out; code, outcome and message always travel.
    ///
    /// A verdict has no status, as it is a normal answer: a code whose status is `Ok` becomes `Internal` here, so that
    /// a server that mixes them up is noticed and not taken for a success.
    pub fn to_status(&self) -> Status {
        let code = match self.error_code().map(ErrorCode::grpc) {
            Some(Code::Ok) | None => Code::Internal,
            Some(code) => code,
        };
        let mut carried = self.clone();
        carried
            .message
            .truncate(carried.message.floor_char_boundary(limits::ERROR_MESSAGE_BYTES_MAX));
        if carried.encoded_len() > limits::ERROR_TRAILER_BYTES_MAX {
            carried.detail = None;
            carried.leader = None;
        }
        let mut status = Status::new(code, carried.message.clone());
        let trailer = MetadataValue::from_bytes(&carried.encode_to_vec());
        status
            .metadata_mut()
            .insert_bin(BinaryMetadataKey::from_static(ERROR_TRAILER), trailer);
        status
    }

    /// The error that a status carries; `Ok(None)` if it carries none, so that it does not come from a node of ours
    /// but from the transport or something in between.
    ///
    /// # Errors
    ///
    /// [`MalformedError`] if the trailer is there and cannot be read. The outcome is unknown then.
    pub fn from_status(status: &Status) -> Result<Option<WireError>, MalformedError> {
        let Some(trailer) = status.metadata().get_bin(ERROR_TRAILER) else {
            return Ok(None);
        };
        let encoded = trailer.to_bytes().map_err(|_| MalformedError)?;
        if encoded.len() > limits::ERROR_TRAILER_BYTES_MAX {
            return Err(MalformedError);
        }
        WireError::decode(encoded).map(Some).map_err(|_| MalformedError)
    }
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Status {
        error.to_status()
    }
}
