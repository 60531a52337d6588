//! One number has one text.

use super::*;

#[test]
fn a_counter_is_the_shortest_decimal_text_of_a_number() {
    for number in [0, 1, -1, 42, i64::MAX, i64::MIN] {
        assert_eq!(parse(number.to_string().as_bytes()), Some(number));
    }
    for text in [
        "",
        "+1",
        "01",
        "-0",
        "00",
        " 1",
        "1 ",
        "1.0",
        "0x1",
        "-",
        "9223372036854775808",
        "\u{661}",
    ] {
        assert_eq!(parse(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(parse(b"\xff"), None);
}
