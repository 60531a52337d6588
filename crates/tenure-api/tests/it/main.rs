//! What must not change, and what must come back as it went.

mod decoders;
mod errors;
mod fixtures;
mod messages;
#[expect(unreachable_pub, reason = "the harness exports it, and this crate only includes it")]
#[path = "../../../dev/tenure-testkit/src/mutations.rs"]
mod mutations;
mod schema;
