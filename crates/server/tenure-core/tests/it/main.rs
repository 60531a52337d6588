//! Tests of the state machine from outside: what an entry does, byte for byte and promise by promise.

mod decoders;
mod determinism;
mod formats;
mod lab;
mod large_results;
mod many_message_ids;
mod model;
#[expect(unreachable_pub, reason = "the harness exports it, and this crate only includes it")]
#[path = "../../../../dev/tenure-testkit/src/mutations.rs"]
mod mutations;
mod naive;
mod recovers;
mod refusals;
mod restores;
mod scripts;
mod transcripts;
