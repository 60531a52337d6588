//! The floor that the clock says.

use super::*;

fn floor_of(now: u64) -> Result<u64, Failure> {
    revision_floor(None, now)
}

#[test]
fn the_floor_rises_with_every_second() {
    assert_eq!(floor_of(YEAR_2025_UNIX_SECS + 1).unwrap(), 1 << 32);
    let (now, then) = (floor_of(1_800_000_000).unwrap(), floor_of(1_800_000_001).unwrap());
    assert_eq!(then - now, REVISIONS_OF_A_SECOND);
    assert!(now < i64::MAX as u64 / 2, "there is room for decades");
    for wrong in [0, YEAR_2025_UNIX_SECS, u64::MAX] {
        assert!(floor_of(wrong).is_err(), "{wrong}");
        assert_eq!(revision_floor(Some(17), wrong).unwrap(), 17);
    }
}
