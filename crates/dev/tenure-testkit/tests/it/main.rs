//! What real processes must not lose, whatever happens to them.
//!
//! Each proof starts the real binary and does something to it, to its clients or to the network between them. They
//! run one at a time, print what they counted, and are bounded in time.

mod bulk;
mod client_failover;
mod clocks;
mod compaction;
mod cut_off;
mod damaged_disk;
mod disk;
mod expiry;
mod folder;
mod idle;
mod kill;
mod leases;
mod load;
mod loss;
mod lost_answers;
mod membership;
mod message_ids;
mod nemesis;
mod objects;
mod pause;
mod recover;
mod renewal;
mod repeat;
mod replicas;
mod support;
mod sync;
mod three_nodes;
mod trio;
mod watch;
mod wire;
