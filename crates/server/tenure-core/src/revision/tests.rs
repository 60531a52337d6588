//! Blocks of revisions: order, holes, and what is ignored.

use super::*;

#[test]
fn revisions_only_rise_over_blocks_with_holes() {
    let mut revisions = Revisions::default();
    assert!(revisions.take(1));
    assert!(revisions.take(5 * BLOCK_REVISIONS));
    assert_eq!(revisions.consume(), 1);
    revisions.next = revisions.end - 1;
    assert_eq!(revisions.consume(), BLOCK_REVISIONS);
    assert_eq!(revisions.consume(), 5 * BLOCK_REVISIONS);
    assert_eq!(revisions.last(), 5 * BLOCK_REVISIONS);
}

#[test]
fn a_block_that_is_not_above_every_earlier_one_is_ignored() {
    let mut revisions = Revisions::default();
    assert!(revisions.take(10 * BLOCK_REVISIONS));
    assert!(!revisions.take(10 * BLOCK_REVISIONS));
    assert!(!revisions.take(3 * BLOCK_REVISIONS));
    assert!(!revisions.take(11 * BLOCK_REVISIONS - 1));
    assert!(revisions.take(11 * BLOCK_REVISIONS));
    assert!(!revisions.take(0));
    assert!(!revisions.take(u64::MAX));
    assert!(!revisions.take(i64::MAX as u64 - 5));
}

#[test]
fn the_next_block_is_asked_for_when_a_quarter_is_left() {
    let mut revisions = Revisions::default();
    assert!(revisions.is_low());
    assert!(revisions.take(1));
    assert!(!revisions.is_low());
    assert_eq!(revisions.consume(), 1);
    revisions.next = revisions.end - BLOCK_LOW_REVISIONS + 1;
    assert!(revisions.is_low());
}
