//! The one table of errors: every code with its outcome and what it becomes at each door.
//!
//! A door never decides for itself what an error means: gRPC, HTTP and the command line take status, number and exit
//! code from here. Codes are final: one may be added, none may change its name or its outcome.

use std::fmt;

use tonic::Code;

/// What an error or a refusal is about.
///
/// Names travel on the wire as text, so that a reader that is older than a code can still show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorCode {
    /// A guard did not hold.
    ConditionFailed,
    /// An object of this name exists with other settings.
    ExistsOtherwise,
    /// The stream does not end where the caller thought.
    WrongTail,
    /// A newer holder has been granted a higher token.
    StaleToken,
    /// The place in the queue was not reached in time.
    NotGranted,
    /// Waiting on would never have ended.
    Deadlock,
    /// A field breaks a rule.
    Invalid,
    /// The objects do not share a group, so no single step covers both.
    CrossGroup,
    /// The name belongs to an object of another type.
    WrongType,
    /// There is no such thing.
    NotFound,
    /// The session has ended; no attempt of this request was or will be run.
    SessionExpired,
    /// No such session is known, or not any more.
    SessionUnknown,
    /// The result was acknowledged and is gone.
    RequestForgotten,
    /// The one-shot request came after its `not_after`.
    TooLate,
    /// The number or id of the request was used for another command.
    RequestReused,
    /// The session keeps all the results it may.
    WindowFull,
    /// The request does not belong to the group that it was sent to.
    WrongGroup,
    /// An identity does not match: cluster, node, folder or incarnation.
    WrongCluster,
    /// The object was deleted.
    ObjectDeleted,
    /// The deadline passed before the request was taken up.
    Deadline,
    /// The replica has not applied what the caller has seen already.
    Behind,
    /// Free space is below the reserve.
    StorageFull,
    /// The changes that were asked for are not kept any more.
    Compacted,
    /// The watcher did not keep up, or its replica lost the changes in between.
    Lagged,
    /// A bound is reached.
    Limit,
    /// There is too much to do.
    Overloaded,
    /// The node does not lead the group and could not pass the request on.
    NotLeader,
    /// No node could serve the request.
    Unavailable,
    /// No majority confirmed in time.
    QuorumTimeout,
    /// The leadership under which the request was proposed ended.
    LeadershipLost,
    /// A defect of ours.
    Internal,
}

impl ErrorCode {
    /// Every code, in the order of the table.
    pub const ALL: [ErrorCode; 31] = [
        ErrorCode::ConditionFailed,
        ErrorCode::ExistsOtherwise,
        ErrorCode::WrongTail,
        ErrorCode::StaleToken,
        ErrorCode::NotGranted,
        ErrorCode::Deadlock,
        ErrorCode::Invalid,
        ErrorCode::CrossGroup,
        ErrorCode::WrongType,
        ErrorCode::NotFound,
        ErrorCode::SessionExpired,
        ErrorCode::SessionUnknown,
        ErrorCode::RequestForgotten,
        ErrorCode::TooLate,
        ErrorCode::RequestReused,
        ErrorCode::WindowFull,
        ErrorCode::WrongGroup,
        ErrorCode::WrongCluster,
        ErrorCode::ObjectDeleted,
        ErrorCode::Deadline,
        ErrorCode::Behind,
        ErrorCode::StorageFull,
        ErrorCode::Compacted,
        ErrorCode::Lagged,
        ErrorCode::Limit,
        ErrorCode::Overloaded,
        ErrorCode::NotLeader,
        ErrorCode::Unavailable,
        ErrorCode::QuorumTimeout,
        ErrorCode::LeadershipLost,
        ErrorCode::Internal,
    ];

    /// The name, as it stands on the wire, in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorCode::ConditionFailed => "condition_failed",
            ErrorCode::ExistsOtherwise => "exists_otherwise",
            ErrorCode::WrongTail => "wrong_tail",
            ErrorCode::StaleToken => "stale_token",
            ErrorCode::NotGranted => "not_granted",
            ErrorCode::Deadlock => "deadlock",
            ErrorCode::Invalid => "invalid",
            ErrorCode::CrossGroup => "cross_group",
            ErrorCode::WrongType => "wrong_type",
            ErrorCode::NotFound => "not_found",
            ErrorCode::SessionExpired => "session_expired",
            ErrorCode::SessionUnknown => "session_unknown",
            ErrorCode::RequestForgotten => "request_forgotten",
            ErrorCode::TooLate => "too_late",
            ErrorCode::RequestReused => "request_reused",
            ErrorCode::WindowFull => "window_full",
            ErrorCode::WrongGroup => "wrong_group",
            ErrorCode::WrongCluster => "wrong_cluster",
            ErrorCode::ObjectDeleted => "object_deleted",
            ErrorCode::Deadline => "deadline",
            ErrorCode::Behind => "behind",
            ErrorCode::StorageFull => "storage_full",
            ErrorCode::Compacted => "compacted",
            ErrorCode::Lagged => "lagged",
            ErrorCode::Limit => "limit",
            ErrorCode::Overloaded => "overloaded",
            ErrorCode::NotLeader => "not_leader",
            ErrorCode::Unavailable => "unavailable",
            ErrorCode::QuorumTimeout => "quorum_timeout",
            ErrorCode::LeadershipLost => "leadership_lost",
            ErrorCode::Internal => "internal",
        }
    }

    /// The code of this name; `None` for a name from a newer program.
    pub fn from_name(name: &str) -> Option<ErrorCode> {
        ErrorCode::ALL.into_iter().find(|code| code.name() == name)
    }

    /// What is known of the request's effect.
    pub const fn outcome(self) -> Outcome {
        match self {
            ErrorCode::ConditionFailed
            | ErrorCode::ExistsOtherwise
            | ErrorCode::WrongTail
            | ErrorCode::StaleToken
            | ErrorCode::NotGranted
            | ErrorCode::Deadlock => Outcome::Refused,
            ErrorCode::Invalid
            | ErrorCode::CrossGroup
            | ErrorCode::WrongType
            | ErrorCode::NotFound
            | ErrorCode::SessionExpired
            | ErrorCode::RequestReused
            | ErrorCode::WindowFull
            | ErrorCode::WrongGroup
            | ErrorCode::WrongCluster
            | ErrorCode::ObjectDeleted
            | ErrorCode::Deadline
            | ErrorCode::Behind
            | ErrorCode::StorageFull
            | ErrorCode::Compacted
            | ErrorCode::Lagged
            | ErrorCode::Limit
            | ErrorCode::Overloaded
            | ErrorCode::NotLeader
            | ErrorCode::Unavailable => Outcome::NotApplied,
            ErrorCode::SessionUnknown
            | ErrorCode::RequestForgotten
            | ErrorCode::TooLate
            | ErrorCode::QuorumTimeout
            | ErrorCode::LeadershipLost
            | ErrorCode::Internal => Outcome::Unknown,
        }
    }

    /// The gRPC status. A verdict is a normal answer, so its status is `Ok`.
    pub const fn grpc(self) -> Code {
        match self {
            ErrorCode::ConditionFailed
            | ErrorCode::ExistsOtherwise
            | ErrorCode::WrongTail
            | ErrorCode::StaleToken
            | ErrorCode::NotGranted
            | ErrorCode::Deadlock => Code::Ok,
            ErrorCode::Invalid | ErrorCode::CrossGroup | ErrorCode::RequestReused | ErrorCode::WrongGroup => {
                Code::InvalidArgument
            }
            ErrorCode::WrongType
            | ErrorCode::SessionExpired
            | ErrorCode::SessionUnknown
            | ErrorCode::RequestForgotten
            | ErrorCode::TooLate
            | ErrorCode::WrongCluster => Code::FailedPrecondition,
            ErrorCode::NotFound | ErrorCode::ObjectDeleted => Code::NotFound,
            ErrorCode::WindowFull | ErrorCode::StorageFull | ErrorCode::Limit | ErrorCode::Overloaded => {
                Code::ResourceExhausted
            }
            ErrorCode::Deadline => Code::DeadlineExceeded,
            ErrorCode::Behind | ErrorCode::NotLeader | ErrorCode::Unavailable => Code::Unavailable,
            ErrorCode::Compacted | ErrorCode::Lagged => Code::OutOfRange,
            ErrorCode::QuorumTimeout | ErrorCode::LeadershipLost => Code::Aborted,
            ErrorCode::Internal => Code::Internal,
        }
    }

    /// The HTTP status.
    pub const fn http(self) -> u16 {
        match self {
            ErrorCode::Invalid | ErrorCode::CrossGroup | ErrorCode::WrongGroup => 400,
            ErrorCode::NotFound => 404,
            ErrorCode::ConditionFailed
            | ErrorCode::ExistsOtherwise
            | ErrorCode::WrongTail
            | ErrorCode::NotGranted
            | ErrorCode::Deadlock
            | ErrorCode::WrongType => 409,
            ErrorCode::SessionExpired
            | ErrorCode::SessionUnknown
            | ErrorCode::RequestForgotten
            | ErrorCode::TooLate
            | ErrorCode::ObjectDeleted
            | ErrorCode::Compacted
            | ErrorCode::Lagged => 410,
            ErrorCode::StaleToken => 412,
            ErrorCode::Limit => 413,
            ErrorCode::WrongCluster => 421,
            ErrorCode::RequestReused => 422,
            ErrorCode::WindowFull => 429,
            ErrorCode::Internal => 500,
            ErrorCode::Behind | ErrorCode::Overloaded | ErrorCode::NotLeader | ErrorCode::Unavailable => 503,
            ErrorCode::Deadline | ErrorCode::QuorumTimeout | ErrorCode::LeadershipLost => 504,
            ErrorCode::StorageFull => 507,
        }
    }

    /// The exit status of the command line.
    pub const fn exit(self) -> u8 {
        match self {
            ErrorCode::Internal => 1,
            ErrorCode::Invalid
            | ErrorCode::CrossGroup
            | ErrorCode::RequestReused
            | ErrorCode::WrongGroup
            | ErrorCode::WrongCluster => 2,
            ErrorCode::WindowFull
            | ErrorCode::Deadline
            | ErrorCode::Behind
            | ErrorCode::StorageFull
            | ErrorCode::Overloaded
            | ErrorCode::NotLeader
            | ErrorCode::Unavailable => 3,
            ErrorCode::ConditionFailed
            | ErrorCode::ExistsOtherwise
            | ErrorCode::WrongTail
            | ErrorCode::StaleToken
            | ErrorCode::NotGranted
            | ErrorCode::Deadlock
            | ErrorCode::WrongType
            | ErrorCode::SessionExpired
            | ErrorCode::Compacted
            | ErrorCode::Lagged
            | ErrorCode::Limit => 4,
            ErrorCode::NotFound | ErrorCode::ObjectDeleted => 5,
            ErrorCode::SessionUnknown
            | ErrorCode::RequestForgotten
            | ErrorCode::TooLate
            | ErrorCode::QuorumTimeout
            | ErrorCode::LeadershipLost => 6,
        }
    }

    /// Whether the same request may get another answer a moment later or from another node, with nothing changed by
    /// the caller. Where the outcome is unknown, only a request with an identity may be sent again.
    pub const fn retryable(self) -> bool {
        match self {
            ErrorCode::WindowFull
            | ErrorCode::Behind
            | ErrorCode::Overloaded
            | ErrorCode::NotLeader
            | ErrorCode::Unavailable
            | ErrorCode::QuorumTimeout
            | ErrorCode::LeadershipLost => true,
            ErrorCode::ConditionFailed
            | ErrorCode::ExistsOtherwise
            | ErrorCode::WrongTail
            | ErrorCode::StaleToken
            | ErrorCode::NotGranted
            | ErrorCode::Deadlock
            | ErrorCode::Invalid
            | ErrorCode::CrossGroup
            | ErrorCode::WrongType
            | ErrorCode::NotFound
            | ErrorCode::SessionExpired
            | ErrorCode::SessionUnknown
            | ErrorCode::RequestForgotten
            | ErrorCode::TooLate
            | ErrorCode::RequestReused
            | ErrorCode::WrongGroup
            | ErrorCode::WrongCluster
            | ErrorCode::ObjectDeleted
            | ErrorCode::Deadline
            | ErrorCode::StorageFull
            | ErrorCode::Compacted
            | ErrorCode::Lagged
            | ErrorCode::Limit
            | ErrorCode::Internal => false,
        }
    }

    /// What the code means and what to do, in one line for the reference.
    pub const fn advice(self) -> &'static str {
        match self {
            ErrorCode::ConditionFailed => "A guard did not hold: read what stood in the way and decide anew.",
            ErrorCode::ExistsOtherwise => "An object of this name has other settings: use them, or another name.",
            ErrorCode::WrongTail => "The stream does not end where you thought: read on from its tail.",
            ErrorCode::StaleToken => "A newer holder has been granted a higher token: stop.",
            ErrorCode::NotGranted => "The place in the queue was not reached in time: ask again, or wait longer.",
            ErrorCode::Deadlock => "Waiting on would never have ended: release what you hold and begin again.",
            ErrorCode::Invalid => "A field breaks a rule: correct the request.",
            ErrorCode::CrossGroup => "The two objects do not share a group: no single step covers both.",
            ErrorCode::WrongType => "The name belongs to an object of another type: use another name.",
            ErrorCode::NotFound => "There is no such thing: create it first, or correct the name.",
            ErrorCode::SessionExpired => "The session has ended and this request never ran: open a new session.",
            ErrorCode::SessionUnknown => {
                "The session is not known any more, so its results are gone: look at the data before you go on."
            }
            ErrorCode::RequestForgotten => "The result was acknowledged and is gone: look at the data.",
            ErrorCode::TooLate => "The request came after its `not_after`: look at the data before you ask anew.",
            ErrorCode::RequestReused => "The number or id was used for another command: take a fresh one.",
            ErrorCode::WindowFull => "Too many results are kept for the session: acknowledge some.",
            ErrorCode::WrongGroup => "The request does not belong to this group: say hello again.",
            ErrorCode::WrongCluster => "The other side is not who you think: check the endpoints.",
            ErrorCode::ObjectDeleted => "The object was deleted, and with it every watch.",
            ErrorCode::Deadline => "The time given was over before the request was taken up: give more.",
            ErrorCode::Behind => "This replica has not applied what you have seen: try another, or wait.",
            ErrorCode::StorageFull => "Free space is below the reserve: free some; deletes still work.",
            ErrorCode::Compacted => "These changes are not kept any more: read the state, then watch from there.",
            ErrorCode::Lagged => "Changes were missed: read the state, then watch from there.",
            ErrorCode::Limit => "A bound is reached: do it in smaller parts.",
            ErrorCode::Overloaded => "There is too much to do: come back after the time said.",
            ErrorCode::NotLeader => "Another node leads the group: go there.",
            ErrorCode::Unavailable => "No node could serve the request: try again, or look at `cluster status`.",
            ErrorCode::QuorumTimeout => {
                "No majority confirmed in time: ask again under the same id, or without one look at the data first."
            }
            ErrorCode::LeadershipLost => {
                "The leader changed under it: ask again under the same id, or without one look at the data first."
            }
            ErrorCode::Internal => "A defect of Tenure: report it with the node's log.",
        }
    }

    /// What the code carries beside its message, in one line for the reference.
    pub const fn carries(self) -> &'static str {
        match self {
            ErrorCode::ConditionFailed => "version, created, holder, time left, value up to 4 KiB (else its length)",
            ErrorCode::ExistsOtherwise => "the settings it has",
            ErrorCode::WrongTail => "tail",
            ErrorCode::StaleToken => "current token",
            ErrorCode::NotGranted => "place it had, holder",
            ErrorCode::Deadlock => "cycle",
            ErrorCode::Invalid => "field, rule",
            ErrorCode::CrossGroup => "the two objects",
            ErrorCode::WrongType => "the type it has",
            ErrorCode::NotFound => "what",
            ErrorCode::SessionExpired => "session, reason and revision of its end",
            ErrorCode::SessionUnknown => "session",
            ErrorCode::RequestForgotten => "number of the request",
            ErrorCode::TooLate
            | ErrorCode::RequestReused
            | ErrorCode::Deadline
            | ErrorCode::QuorumTimeout
            | ErrorCode::LeadershipLost
            | ErrorCode::Internal => "",
            ErrorCode::WindowFull => "results and bytes kept",
            ErrorCode::WrongGroup => "the two groups",
            ErrorCode::WrongCluster => "both identities",
            ErrorCode::ObjectDeleted => "revision of the deletion",
            ErrorCode::Behind => "revision applied, revision asked",
            ErrorCode::StorageFull => "free, reserve",
            ErrorCode::Compacted | ErrorCode::Lagged => "revision to resume from",
            ErrorCode::Limit => "which, its value",
            ErrorCode::Overloaded => "what is short, when to come back",
            ErrorCode::NotLeader => "leader",
            ErrorCode::Unavailable => "why",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known of a request's effect when it was not done.
///
/// The order is that of badness: the outcome of a call is the worst over its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// A verdict: nothing changed.
    Refused,
    /// It was not applied, and this attempt never will be.
    NotApplied,
    /// It may or may not have been applied.
    Unknown,
}

impl Outcome {
    /// The name, as it stands in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Refused => "refused",
            Outcome::NotApplied => "not_applied",
            Outcome::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
