//! Which texts are lengths of time, and which are not.

use std::time::Duration;

use super::{display, parse};

#[test]
fn each_unit_is_read() {
    for (text, milliseconds) in [
        ("1ms", 1),
        ("250ms", 250),
        ("10s", 10_000),
        ("5m", 300_000),
        ("24h", 86_400_000),
        ("007s", 7_000),
    ] {
        assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
}

#[test]
fn anything_else_is_refused() {
    for text in [
        "", "s", "10", "-1s", "+1s", "1.5s", "10 s", " 10s", "10s ", "10S", "1d", "1h30m", "١s", "10µs", "0s", "000ms",
    ] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn what_cannot_be_counted_is_refused_and_does_not_wrap() {
    assert!(parse("99999999999999999999s").is_err());
    assert!(parse("18446744073709551615h").is_err());
    assert_eq!(parse("18446744073709551615ms"), Ok(Duration::from_millis(u64::MAX)));
}

#[test]
fn a_length_is_never_shown_longer_than_it_is() {
    assert_eq!(display(Duration::ZERO), "0ms");
    assert_eq!(display(Duration::from_micros(999_999)), "999ms");
    assert_eq!(display(Duration::from_millis(1_000)), "1.0s");
    assert_eq!(display(Duration::from_millis(9_999)), "9.9s");
    assert_eq!(display(Duration::from_secs(86_400)), "86400.0s");
}
