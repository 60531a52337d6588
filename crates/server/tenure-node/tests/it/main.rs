//! The node over real sockets: each door with a client that knows nothing of ours but the wire.

mod http;
mod mux;
mod native;
mod support;
