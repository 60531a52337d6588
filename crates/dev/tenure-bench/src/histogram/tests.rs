//! Values come back within what is promised, at both ends of the range too.

use super::*;

#[test]
fn every_value_comes_back_within_two_per_cent() {
    let mut value_us: u64 = 0;
    while value_us < u64::from(u32::MAX) {
        let mut histogram = Histogram::new();
        histogram.record(value_us);
        let found = histogram.per_mille(500);
        assert!(
            found <= value_us && found * 1_016 / 1_000 + 1 >= value_us,
            "{value_us}: {found}"
        );
        value_us = value_us + value_us / 7 + 1;
    }
}

#[test]
fn the_longest_values_count_as_the_longest() {
    let mut histogram = Histogram::new();
    histogram.record(u64::MAX);
    histogram.record(u64::from(u32::MAX));
    assert_eq!(histogram.total(), 2);
    assert!(histogram.per_mille(1_000) > 4_000_000_000);
}

#[test]
fn the_middle_and_the_tail_are_found() {
    let (mut one, mut other) = (Histogram::new(), Histogram::new());
    (1..=99).for_each(|value_us| one.record(value_us));
    other.record(100);
    one.merge(&other);
    let found = [0, 500, 990, 1_000].map(|per_mille| one.per_mille(per_mille));
    assert_eq!(found, [1, 50, 99, 100]);
}

#[test]
fn nothing_counted_is_zero() {
    assert_eq!(Histogram::new().per_mille(990), 0);
}
