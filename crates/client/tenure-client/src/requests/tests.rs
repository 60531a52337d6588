//! Numbers and their acknowledgements.

use super::{SINGLES_MAX, Window};

#[test]
fn numbers_begin_at_one_and_nothing_is_acknowledged_while_the_first_is_in_use() {
    let mut window = Window::default();
    assert_eq!(window.acknowledgements(), (1, vec![]));
    assert_eq!(window.begin(), 1);
    assert_eq!(window.begin(), 2);
    assert_eq!(window.acknowledgements(), (1, vec![]));
}

#[test]
fn what_is_finished_in_order_moves_the_low_mark() {
    let mut window = Window::default();
    for seq in 1..=3 {
        assert_eq!(window.begin(), seq);
        window.finish(seq);
    }
    assert_eq!(window.acknowledgements(), (4, vec![]));
    assert!(window.finished.is_empty());
}

#[test]
fn what_is_finished_out_of_order_is_acknowledged_singly_until_the_low_mark_passes_it() {
    let mut window = Window::default();
    for _ in 0..4 {
        window.begin();
    }
    window.finish(2);
    window.finish(4);
    assert_eq!(window.acknowledgements(), (1, vec![2, 4]));
    window.acknowledged(&[2]);
    assert_eq!(window.acknowledgements(), (1, vec![4]));
    window.finish(1);
    assert_eq!(window.acknowledgements(), (3, vec![4]));
    window.finish(3);
    assert_eq!(window.acknowledgements(), (5, vec![]));
}

#[test]
fn finishing_twice_changes_nothing() {
    let mut window = Window::default();
    window.begin();
    window.finish(1);
    window.begin();
    window.finish(1);
    assert_eq!(window.acknowledgements(), (2, vec![]));
}

#[test]
fn the_singles_of_one_request_are_bounded() {
    let mut window = Window::default();
    for _ in 0..500 {
        window.begin();
    }
    for seq in 2..=500 {
        window.finish(seq);
    }
    assert_eq!(window.acknowledgements().1.len(), SINGLES_MAX);
}
