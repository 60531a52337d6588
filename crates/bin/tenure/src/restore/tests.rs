//! The age that a restore tells.

use super::*;

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
