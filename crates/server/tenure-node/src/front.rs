//! The protocols. A front end is three steps and nothing else: decode and validate, ask the service, encode.
//! Each has its own place where an error becomes that protocol's answer.

pub(crate) mod answers;
pub(crate) mod connection;
mod errors;
pub(crate) mod http;
pub(crate) mod listen;
pub(crate) mod native;
pub(crate) mod seats;
