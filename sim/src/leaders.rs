//! Who leads the groups, as each node says, and when it was last asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_client::GroupInfo;

/// What the nodes say of the groups.
#[derive(Default)]
pub(crate) struct Leaders {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// What each node said last, and when it was asked for it.
    said: BTreeMap<usize, (Duration, Vec<GroupInfo>)>,
}

impl Leaders {
    /// A node that was asked at this time says this.
    pub(crate) fn says(&self, node: usize, asked: Duration, groups: Vec<GroupInfo>) {
        let mut inner = self.lock();
        inner.said.insert(node, (asked, groups));
    }

    /// The groups that a node said last that it leads, with their terms.
    pub(crate) fn terms_led_by(&self, node: usize) -> BTreeSet<(u32, u64)> {
        let inner = self.lock();
        let groups = inner.said.get(&node).map_or(&[][..], |(_, groups)| groups);
        let led = groups.iter().filter(|group| group.leader == Some(node as u64));
        led.map(|group| (group.group, group.term)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
