//! The order of ends, and what is waited for.

use super::*;

fn key(name: &'static str) -> Item {
    Item::Key(Incarnation(1), Bytes::from_static(name.as_bytes()))
}

fn all() -> Deadlines {
    let mut deadlines = Deadlines::default();
    for (at, item) in [
        (30, Item::OneShot(OneShotId(1))),
        (20, Item::EndedSession(SessionId(2))),
        (20, key("b")),
        (20, key("a")),
        (20, Item::Session(SessionId(9))),
        (20, Item::Session(SessionId(4))),
        (10, Item::OneShot(OneShotId(2))),
    ] {
        deadlines.insert(Timestamp(at), item);
    }
    deadlines
}

/// Takes everything that is due, in order.
fn drain(deadlines: &mut Deadlines, now: u64, told: bool) -> Vec<Item> {
    let mut items = Vec::new();
    while let Some(item) = deadlines.first_due(Timestamp(now), told).cloned() {
        for at in [10, 20, 30] {
            if deadlines.of(&item).contains(&(Timestamp(at), item.clone())) {
                deadlines.remove(Timestamp(at), item.clone());
            }
        }
        items.push(item);
    }
    items
}

#[test]
fn what_is_due_comes_in_the_order_of_deadlines_and_then_of_kinds_and_numbers() {
    let mut deadlines = all();
    let expected = [
        Item::OneShot(OneShotId(2)),
        Item::Session(SessionId(4)),
        Item::Session(SessionId(9)),
        key("a"),
        key("b"),
        Item::EndedSession(SessionId(2)),
        Item::OneShot(OneShotId(1)),
    ];
    assert_eq!(drain(&mut deadlines, 31, true), expected);
    assert!(deadlines.is_empty());
}

#[test]
fn a_deadline_is_due_only_when_it_lies_before_the_time() {
    let mut deadlines = all();
    assert_eq!(drain(&mut deadlines, 10, true), []);
    assert_eq!(drain(&mut deadlines, 11, true), [Item::OneShot(OneShotId(2))]);
    assert_eq!(drain(&mut deadlines, 20, true), []);
}

#[test]
fn bookkeeping_can_be_taken_alone() {
    let mut deadlines = all();
    let expected = [
        Item::OneShot(OneShotId(2)),
        Item::EndedSession(SessionId(2)),
        Item::OneShot(OneShotId(1)),
    ];
    assert_eq!(drain(&mut deadlines, 31, false), expected);
    assert_eq!(deadlines.next_told(), Some(Timestamp(20)));
}

#[test]
fn nobody_waits_for_bookkeeping() {
    let mut deadlines = Deadlines::default();
    assert!(deadlines.is_empty());
    deadlines.insert(Timestamp(1), Item::EndedSession(SessionId(2)));
    assert_eq!(deadlines.next_told(), None);
    assert!(!deadlines.is_empty());
    deadlines.insert(Timestamp(9), key("a"));
    assert_eq!(deadlines.next_told(), Some(Timestamp(9)));
}

#[test]
#[should_panic(expected = "a deadline is removed as it was set")]
fn a_deadline_that_was_not_set_is_not_removed() {
    all().remove(Timestamp(11), key("a"));
}

#[test]
fn keys_are_counted_as_they_come_and_go() {
    let mut deadlines = all();
    assert_eq!(deadlines.keys(), 2);
    deadlines.remove(Timestamp(20), Item::Session(SessionId(9)));
    assert_eq!(deadlines.keys(), 2);
    deadlines.remove(Timestamp(20), key("a"));
    assert_eq!(deadlines.keys(), 1);
    drain(&mut deadlines, 30, true);
    assert_eq!(deadlines.keys(), 0);
}
