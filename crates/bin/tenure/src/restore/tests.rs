//! The floor and the age that a restore tells.

use super::*;

#[test]
fn the_floor_rises_with_every_second() {
    assert_eq!(floor_of(YEAR_2025_UNIX_SECS + 1).unwrap(), 1 << 32);
    let (now, then) = (floor_of(1_800_000_000).unwrap(), floor_of(1_800_000_001).unwrap());
    assert_eq!(then - now, REVISIONS_OF_A_SECOND);
    assert!(now < i64::MAX as u64 / 2, "there is room for decades");
    for wrong in [0, YEAR_2025_UNIX_SECS, u64::MAX] {
        assert!(floor_of(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_age_is_told_in_its_two_largest_units() {
    for (secs, told) in [
        (0, "0 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3_600, "1 h 0 min"),
        (90_061, "1 d 1 h"),
    ] {
        assert_eq!(length(Duration::from_secs(secs)), told);
    }
}
