//! How bytes, numbers and tables look.

use std::ffi::OsString;

use serde::Serialize;

use super::{Blob, Decimal, Format, MaybeBlob, escaped, fields, json, table};

#[derive(Serialize)]
struct Sample<'a> {
    version: Decimal,
    holder: Option<Decimal>,
    #[serde(flatten)]
    key: Blob<&'a [u8]>,
    #[serde(flatten)]
    value: MaybeBlob<&'a [u8]>,
}

fn sample(key: &[u8], value: Option<&[u8]>) -> String {
    let value = MaybeBlob(value.map(Blob::value));
    let sample = Sample {
        version: Decimal(u64::MAX),
        holder: None,
        key: Blob::key(key),
        value,
    };
    String::from_utf8(json(&sample).unwrap()).unwrap()
}

#[test]
fn large_numbers_are_strings_and_the_order_is_that_of_the_fields() {
    assert_eq!(
        sample(b"k", Some(b"v")),
        r#"{"version":"18446744073709551615","holder":null,"key":"k","value":"v"}"#
    );
}

#[test]
fn bytes_that_are_no_text_are_base64_under_another_name() {
    assert_eq!(
        sample(b"\xff", Some(b"\xfe\xfd")),
        r#"{"version":"18446744073709551615","holder":null,"key_base64":"/w==","value_base64":"/v0="}"#
    );
}

#[test]
fn bytes_that_are_missing_leave_nothing() {
    assert_eq!(
        sample(b"\"\n", None),
        r#"{"version":"18446744073709551615","holder":null,"key":"\"\n"}"#
    );
}

#[test]
fn listings_stay_on_their_lines_and_tell_bytes_apart() {
    for (bytes, text) in [
        (&b"plain key"[..], "plain key"),
        (b"{\"a\":'b'}", "{\"a\":'b'}"),
        ("schlüssel ☂".as_bytes(), "schlüssel ☂"),
        (b"a\nb\tc\rd", "a\\nb\\tc\\rd"),
        (b"a\\nb", "a\\\\nb"),
        (b"\x00\x1b[2J\x7f", "\\x00\\x1b[2J\\x7f"),
        (b"\xff\xc3", "\\xff\\xc3"),
        ("\u{85}\u{202e}".as_bytes(), "\\u{85}\\u{202e}"),
        (b"", ""),
    ] {
        assert_eq!(escaped(bytes), text);
    }
}

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let rows = [["1", "a long one", ""], ["22", "b\nc", "x"]].map(|row| row.map(str::to_owned));
    let text = table(["ID", "NAME", "END"], rows.into_iter());
    assert_eq!(text, "ID  NAME        END\n1   a long one\n22  b\\nc        x\n");
}

#[test]
fn fields_line_up() {
    let text = fields(&[("id", "7".to_owned()), ("label", "host\u{1b}".to_owned())]);
    assert_eq!(text, "id     7\nlabel  host\\x1b");
}

#[test]
fn the_wish_for_json_is_seen_in_arguments_that_cannot_be_parsed() {
    let wanted = |words: &[&str]| Format::wanted_by(&words.iter().map(OsString::from).collect::<Vec<_>>());
    assert_eq!(wanted(&["tenure", "--output", "json", "nonsense"]), Format::Json);
    assert_eq!(wanted(&["tenure", "nonsense", "--output=json"]), Format::Json);
    assert_eq!(wanted(&["tenure", "nonsense", "--output"]), Format::Text);
    assert_eq!(wanted(&["tenure", "--output", "text", "json"]), Format::Text);
}
