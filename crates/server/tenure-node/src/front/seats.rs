//! The places for connections. Those of clients never take the places of other nodes: beyond the clients' number a
//! connection is taken for a moment, in which it shows that it is another node's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::limits::NODES_MAX;
use tokio::sync::watch;

/// Connections of other nodes. A node has one or two to each other one.
pub(crate) const PEERS_MAX: usize = 256;
const _: () = assert!(PEERS_MAX > 3 * NODES_MAX);
/// Connections beyond the clients' number of which it is not known yet whose they are.
const UNPROVEN_MAX: usize = 16;

/// The places of a node.
#[derive(Debug)]
pub(crate) struct Seats {
    clients_max: usize,
    clients: watch::Sender<usize>,
    unproven: AtomicUsize,
    peers: AtomicUsize,
}

/// The place of one connection, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    kind: Mutex<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Client,
    Unproven,
    Peer,
}

impl Seats {
    /// Places for so many clients; `clients` tells how many are taken.
    pub(crate) fn new(clients_max: usize, clients: watch::Sender<usize>) -> Arc<Seats> {
        Arc::new(Seats {
            clients_max,
            clients,
            unproven: AtomicUsize::new(0),
            peers: AtomicUsize::new(0),
        })
    }

    /// A place, if there is one.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Seat> {
        let is_client = self.clients.send_if_modified(|clients| {
            let has_room = *clients < self.clients_max;
            *clients += usize::from(has_room);
            has_room
        });
        let kind = match is_client {
            true => Kind::Client,
            false if take_one(&self.unproven, UNPROVEN_MAX) => Kind::Unproven,
            false => return None,
        };
        Some(Seat {
            seats: self.clone(),
            kind: Mutex::new(kind),
        })
    }

    fn give_back(&self, kind: Kind) {
        match kind {
            Kind::Client => self.clients.send_modify(|clients| *clients -= 1),
            Kind::Unproven => {
                self.unproven.fetch_sub(1, Ordering::Relaxed);
            }
            Kind::Peer => {
                self.peers.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Seat {
    /// Whether it is not known yet whose the connection is, and it must be soon.
    pub(crate) fn is_unproven(&self) -> bool {
        *self.locked() == Kind::Unproven
    }

    /// Takes note of a request, and says whether the connection may go on.
    pub(crate) fn asked(&self, by_peer: bool) -> bool {
        let mut kind = self.locked();
        match (*kind, by_peer) {
            (Kind::Client, false) | (Kind::Peer, _) => true,
            (Kind::Unproven, false) => false,
            (Kind::Client | Kind::Unproven, true) => {
                if take_one(&self.seats.peers, PEERS_MAX) {
                    self.seats.give_back(*kind);
                    *kind = Kind::Peer;
                }
                *kind != Kind::Unproven
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, Kind> {
        self.kind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let kind = *self.locked();
        self.seats.give_back(kind);
    }
}

fn take_one(taken: &AtomicUsize, at_most: usize) -> bool {
    let more = |taken: usize| (taken < at_most).then_some(taken + 1);
    taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_their_places_and_none_of_those_of_nodes() {
        let (sender, clients) = watch::channel(0);
        let seats = Seats::new(2, sender);
        let taken: Vec<_> = (0..2).filter_map(|_| seats.take()).collect();
        assert!(taken.iter().all(|seat| !seat.is_unproven() && seat.asked(false)));
        let client = seats.take().expect("it may be a node's");
        assert!(client.is_unproven() && !client.asked(false), "one client too many");
        let node = seats.take().expect("it may be a node's");
        assert!(node.asked(true) && node.asked(false) && !node.is_unproven());
        assert_eq!(*clients.borrow(), 2);
        drop((taken, node, client));
        assert_eq!(*clients.borrow(), 0);
        assert_eq!(seats.unproven.load(Ordering::Relaxed), 0);
        assert_eq!(seats.peers.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_node_gives_a_clients_place_back_and_too_many_unproven_are_refused() {
        let (sender, clients) = watch::channel(0);
        let seats = Seats::new(1, sender);
        let node = seats.take().expect("there is room");
        assert!(node.asked(true));
        assert_eq!(*clients.borrow(), 0);
        let client = seats.take().expect("there is room");
        let unproven: Vec<_> = std::iter::from_fn(|| seats.take()).collect();
        assert_eq!(unproven.len(), UNPROVEN_MAX);
        drop((client, unproven));
        assert!(seats.take().is_some_and(|seat| !seat.is_unproven()));
    }
}
