//! Who leads the groups, as each node says, and when it was last asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_client::StatusReply;

/// What the nodes say of the groups.
#[derive(Default)]
pub(crate) struct Leaders {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// What each node said last, and when it was asked for it. Nodes are counted as their machines are, not by id.
    said: BTreeMap<usize, (Duration, StatusReply)>,
}

impl Leaders {
    /// A node that was asked at this time says this.
    pub(crate) fn says(&self, node: usize, asked: Duration, status: StatusReply) {
        self.lock().said.insert(node, (asked, status));
    }

    /// The groups that a node said last that it leads, with their terms.
    pub(crate) fn terms_led_by(&self, node: usize) -> BTreeSet<(u32, u64)> {
        let inner = self.lock();
        let Some((_, status)) = inner.said.get(&node) else {
            return BTreeSet::new();
        };
        let led = status
            .groups
            .iter()
            .filter(|group| group.leader == Some(status.node_id));
        led.map(|group| (group.group, group.term)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
