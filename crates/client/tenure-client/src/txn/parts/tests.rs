//! Ranges of counters, as they are sent.

use std::ops::Bound;

use super::TxnGuard;

fn bounds(guard: TxnGuard) -> (Option<i64>, Option<i64>) {
    match guard {
        TxnGuard::Counter { min, max, .. } => (min, max),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_range_of_a_counter_is_sent_with_both_ends_included() {
    assert_eq!(bounds(TxnGuard::counter("c", "k", 1..)), (Some(1), None));
    assert_eq!(bounds(TxnGuard::counter("c", "k", ..=10)), (None, Some(10)));
    assert_eq!(bounds(TxnGuard::counter("c", "k", -3..7)), (Some(-3), Some(6)));
    assert_eq!(bounds(TxnGuard::counter("c", "k", ..)), (None, None));
    let above = (Bound::Excluded(4), Bound::Unbounded);
    assert_eq!(bounds(TxnGuard::counter("c", "k", above)), (Some(5), None));
}

#[test]
fn a_range_without_a_number_holds_of_none() {
    let nothing = (Some(i64::MAX), Some(i64::MIN));
    assert_eq!(bounds(TxnGuard::counter("c", "k", ..i64::MIN)), nothing);
    let above = (Bound::Excluded(i64::MAX), Bound::Unbounded);
    assert_eq!(bounds(TxnGuard::counter("c", "k", above)), nothing);
}
