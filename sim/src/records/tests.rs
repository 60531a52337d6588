//! The rules of streams find what breaks them.

use std::time::Duration;

use super::{Records, WINDOW};

fn kept(records: &[&str]) -> Vec<(u64, String)> {
    (0..).zip(records.iter().map(|data| (*data).to_owned())).collect()
}

#[test]
fn what_is_lost_doubled_or_never_asked_for_is_found() {
    let records = Records::new(WINDOW);
    records.appended("a", 0);
    records.unknown("b");
    records.refused("c");
    assert_eq!(records.settle(&kept(&["a", "b"])), Vec::<String>::new());
    assert_eq!(records.settle(&kept(&["a"])), Vec::<String>::new());
    assert_eq!(records.settle(&kept(&["b"])).len(), 1, "lost");
    assert_eq!(records.settle(&kept(&["a", "b", "b"])).len(), 1, "doubled");
    assert_eq!(records.settle(&kept(&["a", "c"])).len(), 1, "refused and there");
    assert_eq!(records.settle(&kept(&["a", "d"])).len(), 1, "never asked for");
    assert_eq!(
        records.settle(&[(1, "a".to_owned())]).len(),
        2,
        "a gap, and another place"
    );
}

#[test]
fn a_message_that_is_new_too_early_or_elsewhere_is_found() {
    let records = Records::new(WINDOW);
    let second = Duration::from_secs(1);
    assert_eq!(records.message("m", second, 2 * second, 7, true), None);
    assert_eq!(records.message("m", 2 * second, 3 * second, 7, false), None);
    assert!(records.message("m", 2 * second, 3 * second, 8, false).is_some());
    assert!(records.message("m", 3 * second, 4 * second, 9, true).is_some());
    assert_eq!(records.message("m", 3 * second, 5 * second + WINDOW, 10, true), None);
}
