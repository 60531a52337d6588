//! The heartbeats of all groups of a node, at one time.
//!
//! The consensus library looks at each group's clock fifty times a second, to send a heartbeat every fifth time or to find
//! that its leader is silent. With hundreds of groups that is most of what a node does that nobody asks anything. So here
//! one task looks at all of them when a heartbeat is due: those that this node leads send theirs, which share their
//! frames and wake-ups, and the library looks by itself only where a leader is missed.

use std::sync::Weak;
use std::time::Duration;

use futures_util::{FutureExt, poll};
use openraft::async_runtime::WatchReceiver;

use super::{Inner, Member, lock};
use crate::leadership::{self, Role};
use crate::replica::Timings;

/// The time between two looks while there is no group.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The shortest time between two looks.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(1);

/// Runs as long as somebody has the node's peers.
pub(super) async fn run(peers: Weak<Inner>) {
    loop {
        let Some(peers) = peers.upgrade() else { return };
        let members: Vec<Member> = lock(&peers.groups).values().cloned().collect();
        drop(peers);
        for member in &members {
            member.look().await;
        }
        let period = members.iter().map(|member| member.timings.heartbeat).min();
        drop(members);
        tokio::time::sleep(period.map_or(LOOK_EVERY, |period| period.max(LOOK_EVERY_MIN))).await;
    }
}

impl Member {
    /// Sends the group's heartbeat if it is led here, and has the library look at its clock if its leader may be missed. Never
    /// waits for the group.
    async fn look(&self) {
        let role = leadership::role(&self.raft, &self.shared);
        let heard = *lock(&self.shared.leader_heard);
        let silent = heard.map(|heard| openraft::Instant::elapsed(&heard));
        self.raft
            .runtime_config()
            .tick(needs_ticks(role, silent, &self.timings));
        let leads = self.raft.server_metrics().borrow_watched().state.is_leader();
        if !leads || role == Role::Waits || leadership::is_alone(&self.raft, role) {
            return;
        }
        let raft = self.raft.clone();
        let mut beat = async move {
            // A group that has ended has no heartbeat.
            let _ = raft.trigger().heartbeat().await;
        }
        .boxed();
        // The runtime's bound on what a task does at a time would hold up the groups behind the first hundred.
        if poll!(tokio::task::unconstrained(&mut beat)).is_pending() {
            // It must not be given up: the library waits in it for its own end.
            self.shared.runtime.tasks.spawn("heartbeat", beat);
        }
    }
}

/// Whether the library is to look at a group's clock until the next look here. `silent` is for how long its leader was not
/// heard, if it ever was.
fn needs_ticks(role: Role, silent: Option<Duration>, timings: &Timings) -> bool {
    match role {
        // The heartbeats are sent from here.
        Role::Leads(_) | Role::Begins => false,
        Role::Waits => true,
        // The next look may be late by half of its time. No election is due earlier than this after a heartbeat.
        Role::Follows(_) => silent.is_none_or(|silent| silent + timings.heartbeat * 3 / 2 >= timings.election_min),
    }
}

#[cfg(test)]
mod tests {
    //! Where the library looks at a group's clock.

    use tenure_core::ids::NodeId;

    use super::*;

    #[test]
    fn ticks_are_needed_where_a_leader_is_missed_or_may_be_before_the_next_look() {
        let timings = Timings {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(300),
            ..Timings::default()
        };
        let follows = Role::Follows(NodeId(2));
        let after = |millis| Some(Duration::from_millis(millis));
        let cases = [
            (Role::Leads(1), None, false),
            (Role::Leads(1), after(9_000), false),
            (Role::Begins, None, false),
            (Role::Waits, after(0), true),
            (follows, None, true),
            (follows, after(0), false),
            (follows, after(149), false),
            (follows, after(150), true),
            (follows, after(9_000), true),
        ];
        for (role, silent, needed) in cases {
            assert_eq!(needs_ticks(role, silent, &timings), needed, "{role:?}, {silent:?}");
        }
        let seldom = Timings {
            heartbeat: Duration::from_millis(250),
            ..timings
        };
        assert!(needs_ticks(follows, after(0), &seldom), "the next look is too late");
    }
}
