//! Committed files that a test compares with.
//!
//! With `TENURE_WRITE_FIXTURES=1` in the environment a comparison writes its file instead. That is for what is added:
//! a line that changes or goes is a break of the wire, and a reviewer sees it in the difference.

use std::path::PathBuf;

/// The content of a fixture.
pub(crate) fn read(name: &str) -> String {
    let path = path(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Asserts that `actual` is the fixture, line by line, so that the first difference is what one sees.
pub(crate) fn assert_equal(name: &str, actual: &str) {
    if std::env::var_os("TENURE_WRITE_FIXTURES").is_some() {
        std::fs::write(path(name), actual).expect("a fixture that can be written");
        return;
    }
    let expected = read(name);
    for (number, (expected, actual)) in expected.lines().zip(actual.lines()).enumerate() {
        assert_eq!(expected, actual, "{name}, line {}", number + 1);
    }
    assert_eq!(expected, actual, "{name} has another number of lines");
}

/// The bytes that a string of hexadecimal digits stands for.
pub(crate) fn from_hex(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "an odd number of digits");
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two hexadecimal digits"))
        .collect()
}

/// Bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}
