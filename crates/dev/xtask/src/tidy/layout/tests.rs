//! Each misplaced or misnamed file is found.

use super::*;

fn messages(path: &str, text: &str) -> Vec<String> {
    check(&[Source::read(path, text)])
        .into_iter()
        .map(|finding| finding.to_string())
        .collect()
}

#[test]
fn a_file_begins_with_its_doc() {
    assert_eq!(
        messages("crates/x/src/a.rs", "#![cfg(test)]\n\n//! What it is for.\n"),
        Vec::<String>::new()
    );
    for text in [
        "",
        "fn f() {}\n",
        "// no doc\n",
        "//!\nfn f() {}\n",
        "use a;\n//! late\n",
    ] {
        assert_eq!(messages("crates/x/src/a.rs", text).len(), 1, "{text:?}");
    }
    assert_eq!(
        messages("crates/x/src/generated/a.rs", "fn f() {}\n"),
        Vec::<String>::new()
    );
}

#[test]
fn modules_have_telling_names() {
    let doc = "//! Doc.\n";
    for path in [
        "crates/x/src/a/mod.rs",
        "crates/x/src/utils.rs",
        "crates/x/tests/it/common/a.rs",
        "crates/types/src/a.rs",
    ] {
        assert_eq!(messages(path, doc).len(), 1, "{path}");
    }
    assert_eq!(
        messages("crates/x/src/a.rs", "//! Doc.\nmod misc {\n}\nmod mine {}\n").len(),
        1
    );
}

#[test]
fn a_crate_has_one_test_binary() {
    let doc = "//! Doc.\n";
    for path in [
        "crates/x/tests/locks.rs",
        "crates/x/tests/locks/main.rs",
        "crates/x/tests/it.rs",
    ] {
        assert_eq!(messages(path, doc).len(), 1, "{path}");
    }
    for path in [
        "crates/x/tests/it/main.rs",
        "crates/x/tests/it/locks.rs",
        "crates/x/src/a/tests/b.rs",
    ] {
        assert_eq!(messages(path, doc), Vec::<String>::new(), "{path}");
    }
}
