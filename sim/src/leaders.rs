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

    /// The node that leads a group in the highest term of which any node says that it leads in it, and that term.
    #[cfg(test)]
    pub(crate) fn leader_of(&self, group: u32) -> Option<(usize, u64)> {
        let nodes: Vec<usize> = self.lock().said.keys().copied().collect();
        let led = nodes.into_iter().flat_map(|node| {
            let terms = self.terms_led_by(node).into_iter();
            terms.filter_map(move |(led, term)| (led == group).then_some((node, term)))
        });
        led.max_by_key(|(_, term)| *term)
    }

    /// Whether every one of so many nodes knows of as many voters of a group.
    #[cfg(test)]
    pub(crate) fn all_vote(&self, nodes: usize, group: u32) -> bool {
        let inner = self.lock();
        let votes = |status: &StatusReply| {
            let found = status.groups.iter().find(|info| info.group == group);
            found.is_some_and(|info| info.voters.len() == nodes)
        };
        inner.said.len() == nodes && inner.said.values().all(|(_, status)| votes(status))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
