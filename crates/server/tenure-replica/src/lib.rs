//! Agreement: one log and one machine a group, over the consensus library, whose types stay in this crate.
//!
//! Read [`replica`] first (what a group can be asked), then `proposer` (how a request becomes part of an entry),
//! `time` (what an entry is stamped with), `apply` (what it does).
//!
//! Care with outcomes: only a refusal before the append, and what the machine answers, prove that a request was
//! not applied. Everything else that fails is unknown, and the session's request number is what makes asking
//! again safe.

mod administer;
mod apply;
mod effects;
mod error;
mod forward;
mod lane;
mod leadership;
mod log_adapter;
mod machine_adapter;
mod membership;
mod network;
#[cfg(feature = "deterministic")]
pub mod planted;
mod proposer;
mod queue;
mod raft_types;
mod read;
mod recover;
pub mod replica;
pub mod runtime;
mod shared;
mod snapshot_adapter;
mod ticker;
mod time;
mod write_behind;

pub use administer::{Progress, ReplicaProgress};
pub use effects::{EffectSink, EntrySize};
pub use error::{OpenError, Outcome, Unavailable};
pub use lane::{JobLost, Lane};
pub use membership::MembershipError;
pub use network::{Doorkeeper, JoinAsked, Joined, PeerIdentity, PeerRecord, PeerService, Peers, join};
pub use queue::{QueueLimits, namespace_of, request_bytes};
pub use read::ReadPoint;
pub use recover::{OfflineReplica, OfflineView, RecoverError};
pub use replica::{Replica, ReplicaOptions, ReplicaStatus, Timings};
pub use runtime::Runtime;
pub use snapshot_adapter::restored_mark;
pub use write_behind::PurgeLimits;

#[cfg(test)]
mod suite;
