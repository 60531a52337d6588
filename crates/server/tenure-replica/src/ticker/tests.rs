//! When a tick is proposed.

use tenure_core::time::Timestamp;

use super::{TickView, next_tick};

const SECOND: u64 = 1_000_000;

#[test]
fn without_deadlines_there_is_no_tick() {
    assert_eq!(
        next_tick(&TickView {
            applied_time: Timestamp(5),
            ..TickView::default()
        }),
        None
    );
}

#[test]
fn a_tick_comes_in_the_first_microsecond_behind_the_deadline() {
    let view = TickView {
        next_deadline: Some(Timestamp(7 * SECOND)),
        has_deadlines: true,
        applied_time: Timestamp(SECOND),
        ..TickView::default()
    };
    assert_eq!(next_tick(&view), Some(Timestamp(7 * SECOND + 1)));
}

#[test]
fn an_entry_in_flight_that_is_late_enough_spares_the_tick_and_an_earlier_one_does_not() {
    let view = TickView {
        next_deadline: Some(Timestamp(7 * SECOND)),
        has_deadlines: true,
        applied_time: Timestamp(SECOND),
        proposed: Some(Timestamp(7 * SECOND + 1)),
        ..TickView::default()
    };
    assert_eq!(next_tick(&view), None);
    let view = TickView {
        proposed: Some(Timestamp(7 * SECOND)),
        ..view
    };
    assert_eq!(next_tick(&view), Some(Timestamp(7 * SECOND + 1)));
}

#[test]
fn a_far_deadline_is_a_tick_every_ten_seconds() {
    let view = TickView {
        next_deadline: Some(Timestamp(3_600 * SECOND)),
        has_deadlines: true,
        applied_time: Timestamp(SECOND),
        ..TickView::default()
    };
    assert_eq!(next_tick(&view), Some(Timestamp(11 * SECOND)));
    let only_bookkeeping = TickView {
        next_deadline: None,
        ..view
    };
    assert_eq!(next_tick(&only_bookkeeping), Some(Timestamp(11 * SECOND)));
}

#[test]
fn due_work_that_was_left_is_gone_on_with_at_once() {
    let view = TickView {
        more_due: true,
        applied_time: Timestamp(SECOND),
        ..TickView::default()
    };
    assert_eq!(next_tick(&view), Some(Timestamp(0)));
    let in_flight = TickView {
        proposed: Some(Timestamp(2 * SECOND)),
        ..view
    };
    assert_eq!(next_tick(&in_flight), None, "the entry in flight goes on with it");
}

#[test]
fn a_deadline_that_stays_though_it_is_past_makes_no_hot_loop() {
    let view = TickView {
        next_deadline: Some(Timestamp(SECOND)),
        has_deadlines: true,
        applied_time: Timestamp(2 * SECOND),
        ..TickView::default()
    };
    assert_eq!(next_tick(&view), Some(Timestamp(2 * SECOND + 100_000)));
}
