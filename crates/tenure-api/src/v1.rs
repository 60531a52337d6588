//! Messages and services of `tenure.v1`, as generated, with the little that generated code cannot say.
//!
//! The generated file is committed, so that building needs neither `protoc` nor a build script. It is made by
//! `cargo run -p tenure-api --features codegen --bin tenure-api-codegen`.

use std::fmt;

use crate::error_code;

pub use generated::*;

/// The encoded descriptors of every file of `tenure.v1`, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/tenure.v1.bin");

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is not written by our rules, and which of them it breaks depends on the generator"
)]
mod generated {
    include!("generated/tenure.v1.rs");
}

/// Hides the secret, so that a request can be logged.
impl fmt::Debug for SessionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRef")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Hides the nonce, since opening again with it returns the secret.
impl fmt::Debug for OpenSessionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSessionRequest")
            .field("scope", &self.scope)
            .field("ttl_ms", &self.ttl_ms)
            .field("label", &self.label)
            .field("timeout_ms", &self.timeout_ms)
            .finish_non_exhaustive()
    }
}

impl From<error_code::Outcome> for Outcome {
    fn from(outcome: error_code::Outcome) -> Outcome {
        match outcome {
            error_code::Outcome::Refused => Outcome::Refused,
            error_code::Outcome::NotApplied => Outcome::NotApplied,
            error_code::Outcome::Unknown => Outcome::Unknown,
        }
    }
}

impl EndReason {
    /// The name, as it stands in JSON and in histories; `unknown` where none was said.
    pub const fn name(self) -> &'static str {
        match self {
            EndReason::Unspecified => "unknown",
            EndReason::Delete => "delete",
            EndReason::Expired => "expired",
            EndReason::Session => "session",
            EndReason::Closed => "closed",
            EndReason::Forced => "forced",
            EndReason::ObjectDeleted => "object_deleted",
        }
    }
}
