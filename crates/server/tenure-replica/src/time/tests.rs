//! The anchor's rules, on a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::time::Timestamp;

use super::TimeKeeper;
use crate::runtime::Clock;

#[derive(Default)]
struct HandClock {
    nanoseconds: AtomicU64,
}

impl HandClock {
    fn pass(&self, duration: Duration) {
        self.nanoseconds
            .fetch_add(u64::try_from(duration.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::SeqCst))
    }
}

fn clock_at(seconds: u64) -> Arc<HandClock> {
    let clock = Arc::new(HandClock::default());
    clock.pass(Duration::from_secs(seconds));
    clock
}

#[test]
fn at_the_opening_the_later_of_log_and_state_belongs_to_now() {
    let clock = clock_at(1_000);
    let from_log = TimeKeeper::open(clock.clone(), Some((7, Timestamp(5_000))), Timestamp(3_000));
    assert_eq!(from_log.now(), Timestamp(5_000));
    let from_state = TimeKeeper::open(clock.clone(), Some((7, Timestamp(5_000))), Timestamp(9_000));
    assert_eq!(from_state.now(), Timestamp(9_000));
    let empty = TimeKeeper::open(clock.clone(), None, Timestamp(0));
    clock.pass(Duration::from_millis(2));
    assert_eq!(empty.now(), Timestamp(2_000));
    assert_eq!(from_log.now(), Timestamp(7_000));
}

#[test]
fn a_busy_leader_loses_nothing_against_its_clock() {
    let clock = clock_at(50);
    let keeper = TimeKeeper::open(clock.clone(), None, Timestamp(0));
    // A hundred thousand entries, each 17.3 µs after the one before and appended 300 µs after its stamping.
    for index in 0..100_000 {
        clock.pass(Duration::from_nanos(17_300));
        let stamp = keeper.now();
        clock.pass(Duration::from_micros(300));
        keeper.appended_own(index, stamp);
    }
    let passed = clock.now() - Duration::from_secs(50);
    let lost = u64::try_from(passed.as_micros()).unwrap() - keeper.now().0;
    assert!(lost <= 1, "lost {lost} µs of {passed:?}");
}

#[test]
fn an_entry_of_another_leader_sets_the_anchor_to_the_instant_of_its_append() {
    let clock = clock_at(10);
    let keeper = TimeKeeper::open(clock.clone(), None, Timestamp(500));
    clock.pass(Duration::from_secs(9));
    // Even when it is earlier than this replica's own estimate: there is one line, the leader's.
    keeper.appended_foreign(3, Timestamp(1_000));
    assert_eq!(keeper.now(), Timestamp(1_000));
    clock.pass(Duration::from_micros(10));
    assert_eq!(keeper.now(), Timestamp(1_010));
}

#[test]
fn cutting_the_log_back_leaves_the_anchor_alone() {
    let clock = clock_at(10);
    let keeper = TimeKeeper::open(clock.clone(), None, Timestamp(0));
    keeper.appended_foreign(3, Timestamp(1_000));
    keeper.cut(None);
    clock.pass(Duration::from_micros(10));
    assert_eq!(keeper.now(), Timestamp(1_010));
}

#[test]
fn a_replica_that_installs_a_snapshot_is_on_the_snapshots_line() {
    let clock = clock_at(10);
    let keeper = TimeKeeper::open(clock.clone(), Some((3, Timestamp(1_000))), Timestamp(0));
    clock.pass(Duration::from_secs(1));
    keeper.installed(9, Timestamp(400_000));
    assert_eq!(keeper.now(), Timestamp(400_000));
}

#[test]
fn a_later_stamped_entry_that_stays_in_the_log_outweighs_a_snapshot() {
    let clock = clock_at(10);
    let keeper = TimeKeeper::open(clock.clone(), None, Timestamp(0));
    keeper.appended_foreign(12, Timestamp(9_000));
    keeper.installed(9, Timestamp(400));
    assert_eq!(keeper.now(), Timestamp(9_000));
    // Once it was cut off, it does not.
    keeper.cut(None);
    keeper.installed(9, Timestamp(400));
    assert_eq!(keeper.now(), Timestamp(400));
}

#[test]
fn waiting_ends_when_the_time_is_reached() {
    let clock = clock_at(10);
    let keeper = TimeKeeper::open(clock.clone(), None, Timestamp(1_000));
    clock.pass(keeper.wait_until_reached(Timestamp(1_500)));
    assert_eq!(keeper.now(), Timestamp(1_500));
    assert_eq!(keeper.wait_until_reached(Timestamp(0)), Duration::ZERO);
}
