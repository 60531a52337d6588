//! Ports for nodes that come back on the same address.
//!
//! They lie below the range from which the kernel takes ports for outgoing connections: a client that knocks at a
//! port of that range while its node is down may be given the very port, and is then connected to itself.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port of the range.
const FIRST: u16 = 18_000;
/// How many ports it has; the kernel's own range begins at 32,768 unless somebody has changed it.
const COUNT: u16 = 14_000;

/// A port of the loopback address that nobody listens on at the moment.
///
/// # Panics
/// If there is none.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Tests of other processes run at the same time: each begins somewhere else.
    let process = u16::try_from(std::process::id() % 1_400).expect("less than 1,400") * 10;
    for _ in 0..COUNT {
        let offset = (process + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + offset));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("every port from {FIRST} on is taken");
}
