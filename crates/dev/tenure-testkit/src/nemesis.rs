//! Faults over a cluster of real processes, one after another, drawn from a seed.
//!
//! [`Schedule`] says what goes wrong and for how long: the same seed says the same. [`Prey`] is the cluster to which it is
//! done: its nodes reach each other through [`Wires`], which can lose or hold back what one node sends to another, one way or
//! both. Clients go to the nodes directly, so a node that is cut off still has its clients, as in most partitions. [`Tally`]
//! counts the requests that are under way when a fault strikes, and those that end unknown; [`Report`] says so for each kind
//! of fault.

mod prey;
mod report;
mod schedule;
mod tally;
mod wires;

pub use prey::{Means, Prey, wait_for};
pub use report::Report;
pub use schedule::{Fault, Schedule, Step, Victim};
pub use tally::Tally;
pub use wires::{Wires, Wiring};
