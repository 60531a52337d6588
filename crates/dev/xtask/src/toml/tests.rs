//! What is read, and what is refused rather than misread.

use super::*;

#[test]
fn tables_lists_and_inline_tables_are_read() {
    let value = parse(
        "# head\n[bans]\nmode = \"deny\" # why\nskip = [\n  # one\n  { crate = \"rand@0.8.8\", reason = 'a \"b\"' },\n]\n\
         [a.b]\nn = 1_000\nyes = true\n\n[[c.d]]\nx = 1\n[[c.d]]\nx = 2\n",
    )
    .unwrap();
    let bans = value.get("bans").unwrap();
    assert_eq!(bans.get("mode").unwrap().text(), Some("deny"));
    let skip = &bans.get("skip").unwrap().list().unwrap()[0];
    assert_eq!(skip.get("crate").unwrap().text(), Some("rand@0.8.8"));
    assert_eq!(skip.get("reason").unwrap().text(), Some("a \"b\""));
    assert_eq!(
        value.get("a").unwrap().get("b").unwrap().get("n"),
        Some(&Value::Number(1000))
    );
    let list = value.get("c").unwrap().get("d").unwrap().list().unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!(list[1].get("x"), Some(&Value::Number(2)));
}

#[test]
fn what_is_not_understood_is_an_error_with_its_line() {
    for (text, line) in [
        ("a = 1.5\n", "line 1"),
        ("a = \"x\"\nb = \"\"\"\n", "line 2"),
        ("a = 1 2\n", "line 1"),
        ("a = 1\na = 2\n", "line 2"),
        ("\n\na = [1, 2\nb = 3\n", "line 4"),
        ("a.b = 1\n", "line 1"),
        ("a = \"x\n", "line 1"),
        ("[a\n", "line 1"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(line), "{text:?}: {error}");
    }
}
