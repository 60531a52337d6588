//! Tenure's data folder: the Raft log, the state, the change feed.
//!
//! Synchronous, without network and without a runtime: the disk, the clock and the threads are handed in. This is
//! the only crate that touches the data folder, and it owns the formats in it.

pub mod backup;
pub mod disk;
pub mod error;
pub mod feed;
pub mod inspect;
pub mod layout;
pub mod log;
pub mod mem;
pub mod priority;
pub mod state;
