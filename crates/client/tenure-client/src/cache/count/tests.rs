//! Which values are counters.

use super::number;

#[test]
fn a_counter_is_the_one_decimal_text_of_its_number() {
    for value in [0, 1, -3, 42, i64::MAX, i64::MIN] {
        assert_eq!(number(value.to_string().as_bytes()), Some(value));
    }
    let others: [&[u8]; 9] = [
        b"",
        b"-",
        b"+1",
        b"01",
        b"-0",
        b" 1",
        b"1\n",
        b"9223372036854775808",
        b"\xff",
    ];
    for other in others {
        assert_eq!(number(other), None, "{}", other.escape_ascii());
    }
}
