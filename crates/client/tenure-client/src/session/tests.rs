//! The text form of a session.

use super::SessionKey;

#[test]
fn a_key_survives_its_text_form_and_hides_its_secret_when_debugged() {
    let key = SessionKey::new(42, [0xab; 16]);
    let text = key.to_string();
    assert_eq!(text, "42:abababababababababababababababab");
    assert_eq!(text.parse::<SessionKey>().unwrap(), key);
    assert!(!format!("{key:?}").contains("abab"));
}

#[test]
fn text_that_is_no_key_is_refused() {
    for text in [
        "",
        "42",
        "42:",
        ":abab",
        "x:abababababababababababababababab",
        "42:+babababababababababababababaab",
    ] {
        assert!(text.parse::<SessionKey>().is_err(), "{text:?}");
    }
}
