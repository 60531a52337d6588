//! What Tenure's client and server share, and nothing else: it is all that they may agree on.
//!
//! - [`v1`]: the messages and services of the wire, generated from `proto/tenure/v1`.
//! - [`error_code`]: the one table of errors, from which every door takes its statuses.
//! - [`details`]: an error with what it carries, to and from a gRPC status.
//! - [`limits`]: the bounds of the wire.

pub mod details;
pub mod error_code;
pub mod limits;
pub mod v1;

pub use details::MalformedError;
pub use error_code::{ErrorCode, Outcome};
