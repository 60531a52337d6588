//! The Tenure server process as a library: whatever a binary or a simulator may start.
//!
//! - [`config`]: what a node is told before it starts.
//! - [`node`]: the order in which everything starts and stops; the only place that spawns long tasks.
//! - `service`: the one door: every protocol submits, queries and watches through it.
//! - `admission`: refuse early, and say when to come back.
//! - `notify`: from what was applied to those who watch on this node.
//! - `front`: the protocols: gRPC and HTTP on one address.
//! - `cluster`: founding and joining, where the nodes are, who votes in what, and the blocks of revisions.
//! - [`restore`]: from the file of a backup to the folder of the first node of a new cluster.
//! - [`space`]: free room on the disk, and what is refused when there is little.
//! - `observe`: metrics.

pub mod config;
pub mod node;
pub mod recover;
pub mod restore;
pub mod space;

mod admission;
mod cluster;
mod front;
mod notify;
mod observe;
mod service;

pub use config::{ConfigError, NodeConfig};
pub use node::{Node, StartError};
pub use tenure_replica::Runtime;
