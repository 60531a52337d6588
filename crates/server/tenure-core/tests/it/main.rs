//! Tests of the state machine from outside: what an entry does, byte for byte and promise by promise.

mod determinism;
mod formats;
mod lab;
mod model;
mod naive;
mod refusals;
mod scripts;
mod transcripts;
