//! Test harness: real processes of the real binary, what can go wrong around them, and what they must not lose.
//!
//! A proof starts nodes with [`NodeProcess`], puts a [`Proxy`] between them and their clients, records what the
//! clients were told in a [`History`], and gives it to the rules of [`check`], which know nothing of processes and
//! can be used on any history. The proofs are this crate's integration tests.
//!
//! What cannot be set up is a failed test, so the harness panics with a reason rather than return errors.

pub mod check;
mod child;
mod cluster;
mod disks;
pub mod history;
pub mod mutations;
pub mod nemesis;
pub mod objects;
pub mod observe;
mod ports;
mod process;
mod proxy;
mod wait;

pub use child::{ChildProcess, binary};
pub use cluster::Cluster;
pub use disks::Disks;
pub use history::{Call, Event, EventKind, Failure, Guarded, History, Operation, ReadValue, Told};
pub use process::{NodeProcess, StartFailure};
pub use proxy::{Direction, Proxy};
pub use wait::{TICK, eventually, eventually_some, wait_unchanged};
