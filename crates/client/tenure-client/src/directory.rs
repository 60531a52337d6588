//! What a client has learned of its cluster: which one it is, who leads what, the newest revision and time of each
//! group.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use tenure_api::v1::{Header, HelloReply, LeaderHint};

use crate::error::Error;

/// Groups of which something is remembered. A cluster has fewer; an answer that names more is not believed.
const GROUPS_MAX: usize = 65_536;

/// Addresses that are remembered. A cluster has at most 64 nodes.
const ADDRESSES_MAX: usize = 64;
/// Endpoints whose own names are remembered: more are not in use.
const NAMES_MAX: usize = 128;

/// What has been learned. One for each client, shared by all its connections.
#[derive(Default)]
pub(crate) struct Directory {
    known: Mutex<Known>,
    /// Rises whenever the addresses change.
    addresses_version: AtomicU64,
}

#[derive(Default)]
struct Known {
    cluster: Option<Bytes>,
    leaders: BTreeMap<u32, LeaderHint>,
    /// Where nodes are reached, as the last of them that was asked has said.
    addresses: Vec<String>,
    /// What nodes that were reached at an endpoint call themselves.
    names: BTreeMap<String, String>,
    groups: BTreeMap<u32, Seen>,
}

/// The newest that has been seen of a group.
#[derive(Clone, Copy)]
struct Seen {
    revision: u64,
    time_us: u64,
    /// When the time was seen, on the boot-time clock.
    at: Duration,
}

impl Directory {
    /// The cluster that this client means; empty as long as it has met none.
    pub(crate) fn cluster(&self) -> Bytes {
        self.known().cluster.clone().unwrap_or_default()
    }

    /// Takes note of a hello; the first one says which cluster is meant.
    ///
    /// # Errors
    /// [`Error::WrongCluster`]: it comes from another cluster. Nothing of it was noted.
    pub(crate) fn met(&self, endpoint: &str, hello: &HelloReply, now: Duration) -> Result<(), Error> {
        let mut known = self.known();
        let expected = known.cluster.get_or_insert_with(|| hello.cluster_id.clone());
        if *expected != hello.cluster_id {
            return Err(Error::WrongCluster {
                endpoint: endpoint.to_owned(),
                expected: hexadecimal(expected),
                actual: hexadecimal(&hello.cluster_id),
            });
        }
        for hint in &hello.leaders {
            known.led(hint);
        }
        if hello.namespace_exists {
            known.saw(hello.home_group, hello.revision, hello.time_us, now);
        }
        Ok(())
    }

    /// Takes note of what a node that was reached at this endpoint says of itself and of the others.
    pub(crate) fn reached(&self, endpoint: &str, hello: &HelloReply) {
        let mut known = self.known();
        if let Some(name) = hello.endpoints.first() {
            let known_by = &mut known.names;
            if known_by.len() < NAMES_MAX || known_by.contains_key(endpoint) {
                known_by.insert(endpoint.to_owned(), name.clone());
            }
        }
        if hello.endpoints.is_empty() {
            return;
        }
        let mut addresses: Vec<String> = hello.endpoints.iter().take(ADDRESSES_MAX).cloned().collect();
        // Each node names itself first.
        addresses.sort_unstable();
        addresses.dedup();
        if known.addresses != addresses {
            known.addresses = addresses;
            self.addresses_version.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The endpoint at which the node is reached that calls itself this, if it is another one.
    pub(crate) fn reached_at(&self, name: &str) -> Option<String> {
        let known = self.known();
        let mut names = known.names.iter();
        let found = names.find(|(endpoint, known)| *known == name && *endpoint != name);
        found.map(|(endpoint, _)| endpoint.clone())
    }

    /// How often the addresses have changed.
    pub(crate) fn addresses_version(&self) -> u64 {
        self.addresses_version.load(Ordering::Relaxed)
    }

    /// Where nodes are reached that are not reached at another endpoint already, and the number of this list.
    pub(crate) fn addresses(&self) -> (u64, Vec<String>) {
        let known = self.known();
        let is_reached = |address: &String| {
            let mut names = known.names.iter();
            names.any(|(endpoint, name)| name == address && endpoint != address)
        };
        let addresses = known.addresses.iter().filter(|address| !is_reached(address));
        (self.addresses_version(), addresses.cloned().collect())
    }

    /// Takes note of where an answer came from.
    pub(crate) fn saw(&self, header: Option<&Header>, now: Duration) {
        if let Some(header) = header {
            self.known().saw(header.group, header.revision, header.time_us, now);
        }
    }

    /// Takes note of a revision that a watch has reached.
    pub(crate) fn saw_revision(&self, group: u32, revision: u64) {
        if let Some(seen) = self.known().groups.get_mut(&group) {
            seen.revision = seen.revision.max(revision);
        }
    }

    /// Takes note of who leads a group.
    pub(crate) fn led(&self, hint: &LeaderHint) {
        self.known().led(hint);
    }

    /// Who leads a group, as far as is known.
    pub(crate) fn leader(&self, group: u32) -> Option<LeaderHint> {
        self.known().leaders.get(&group).cloned()
    }

    /// The highest revision seen of a group; 0 if none was.
    pub(crate) fn revision(&self, group: u32) -> u64 {
        self.known().groups.get(&group).map_or(0, |seen| seen.revision)
    }

    /// The group's time in microseconds as it should be now, and how long ago it was told; `None` if it never was.
    pub(crate) fn time_us(&self, group: u32, now: Duration) -> Option<(u64, Duration)> {
        let seen = self.known().groups.get(&group).copied()?;
        let age = now.saturating_sub(seen.at);
        Some((
            seen.time_us
                .saturating_add(u64::try_from(age.as_micros()).unwrap_or(u64::MAX)),
            age,
        ))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn led(&mut self, hint: &LeaderHint) {
        // A node that is cut off from the others names one that led before.
        if self
            .leaders
            .get(&hint.group)
            .is_some_and(|known| known.term > hint.term)
        {
            return;
        }
        if self.leaders.len() < GROUPS_MAX || self.leaders.contains_key(&hint.group) {
            self.leaders.insert(hint.group, hint.clone());
        }
    }

    fn saw(&mut self, group: u32, revision: u64, time_us: u64, at: Duration) {
        if let Some(seen) = self.groups.get_mut(&group) {
            seen.revision = seen.revision.max(revision);
            seen.time_us = time_us;
            seen.at = at;
        } else if self.groups.len() < GROUPS_MAX {
            self.groups.insert(group, Seen { revision, time_us, at });
        }
    }
}

/// The group in which one namespace lives, as a hello has told it: other answers may come from other groups.
#[derive(Debug, Default)]
pub(crate) struct Home {
    group: Mutex<Option<u32>>,
}

impl Home {
    /// Takes note of a hello that was said for the namespace.
    pub(crate) fn told(&self, hello: &HelloReply) {
        if hello.namespace_exists {
            *self.locked() = Some(hello.home_group);
        }
    }

    /// The group, if it is known.
    pub(crate) fn group(&self) -> Option<u32> {
        *self.locked()
    }

    fn locked(&self) -> MutexGuard<'_, Option<u32>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
