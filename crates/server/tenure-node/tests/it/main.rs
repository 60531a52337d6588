//! The node over real sockets: each door with a client that knows nothing of ours but the wire.

mod aside;
mod counters;
mod disk;
mod disk_damage;
mod follow;
mod follow_frames;
mod hostile;
mod http;
mod limits;
mod members;
mod metrics;
mod mux;
mod native;
mod overload;
mod overload_wire;
mod streams;
mod streams_door;
mod support;
mod txn;
