//! Tenure's state machine: the rules, and nothing that can wait or tell the time.
//!
//! One invariant carries everything: **the same entries give the same bytes**. So there is no clock here, no
//! disk, no network, no randomness, no map with random order and no float. Whatever could differ between
//! replicas is a field of the entry.
//!
//! Read in this order: [`command`] (every mutation), [`machine`] (what an entry does, step by step),
//! [`session`], [`kv`], `stream` and `txn` (the rules), [`keyspace`] (every row on one page).

pub mod codec;
pub mod command;
pub mod effect;
pub mod home;
pub mod ids;
pub mod keyspace;
pub mod kv;
pub mod limits;
pub mod machine;
pub mod placement;
pub mod query;
pub mod recover;
pub mod refusal;
pub mod response;
pub mod restore;
pub mod revision;
pub mod session;
pub mod snapshot;
pub(crate) mod stream;
pub mod system;
pub mod table;
pub mod time;
pub(crate) mod txn;
