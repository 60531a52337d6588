//! Each word is found where it must not stand, and nowhere else.

use super::*;

const LIBRARY: &str = "crates/x/src/lib.rs";
const TEST: &str = "crates/x/tests/it/main.rs";

/// The lines that are found in a source.
fn lines(path: &str, text: &str) -> Vec<usize> {
    let findings = check(&[Source::read(path, text)], &[(path, text.to_owned())]);
    findings.into_iter().filter_map(|finding| finding.line).collect()
}

#[test]
fn notes_to_oneself_are_found_as_whole_words() {
    let (todo, hack) = (NOTES[1], NOTES[3]);
    assert_eq!(
        lines(
            LIBRARY,
            &format!("// {todo}: later\nlet a{todo} = 1;\nlet s = \"{hack}\";\n")
        ),
        [1, 3]
    );
    assert_eq!(
        lines(
            "docs/a.md",
            &format!("No `{todo}` is left.\n{todo}\n```\n{todo}\n```\n")
        ),
        [2]
    );
    assert_eq!(lines("a.toml", &format!("# {todo}\n")), [1]);
}

#[test]
fn macros_of_the_moment_are_found_in_code_only() {
    let text = format!(
        "fn f() {{\n    {}(1);\n    // {}(1)\n    my_{}();\n}}\n",
        MACROS[0], MACROS[0], MACROS[1]
    );
    assert_eq!(lines(LIBRARY, &text), [2]);
}

#[test]
fn a_match_that_nobody_looks_at_is_found() {
    let text = "fn f() -> bool {\n    matches!(a, B);\n    assert!(matches!(a, B));\n    let c = matches!(a, B);\n    matches!(a, B)\n}\n\
                fn g() {\n    if x {}\n    matches!(\n        a,\n        B(_)\n    );\n}\n";
    assert_eq!(lines(TEST, text), [2, 9]);
}

#[test]
fn ignored_tests_are_found() {
    let text = format!(
        "#[test]\n{}]\nfn a() {{}}\n#[test]\n{} = \"slow\"]\nfn b() {{}}\n#[cfg_attr(unix, ignore)]\nfn c() {{}}\n",
        concat!("#[", "ignore"),
        concat!("#[", "ignore"),
    );
    assert_eq!(lines(TEST, &text), [2, 5, 7]);
}

#[test]
fn unwrap_is_for_tests() {
    let text = format!(
        "fn f() {{\n    a{0};\n}}\n#[cfg(test)]\nmod tests {{\n    fn g() {{ a{0} }}\n}}\n",
        concat!(".unwrap", "()")
    );
    assert_eq!(lines(LIBRARY, &text), [2]);
    assert_eq!(lines(TEST, &text), Vec::<usize>::new());
    assert_eq!(lines("crates/x/src/machine/tests.rs", &text), Vec::<usize>::new());
}

#[test]
fn tests_do_not_sleep_but_may_wait() {
    let text = "use std::time::{Duration, sleep};\nfn a() {\n    std::thread::sleep(d);\n}\nfn wait_until_ready() {\n    \
                tokio::time::sleep(d).await;\n}\n";
    assert_eq!(lines(TEST, text), [1, 3]);
    assert_eq!(lines(LIBRARY, text), Vec::<usize>::new());
}

#[test]
fn places_outside_of_the_project_are_found_everywhere() {
    for place in OUTSIDE {
        assert_eq!(lines("docs/a.md", &format!("see `{place}x`\n")), [1], "{place}");
        assert_eq!(lines(LIBRARY, &format!("// see {place}x\n")), [1], "{place}");
    }
    assert_eq!(
        lines("docs/a.md", &format!("get jobs{}42\n", concat!("/", "work/"))),
        Vec::<usize>::new()
    );
}

#[test]
fn generated_files_are_left_alone() {
    assert_eq!(
        lines("crates/x/src/generated/a.rs", &format!("// {}\n", NOTES[0])),
        Vec::<usize>::new()
    );
}

#[test]
fn text_files_are_known_by_their_name() {
    for path in ["a.rs", "docs/b.md", ".ci/run", "x/transcripts/a.txt"] {
        assert!(is_text(path), "{path}");
    }
    for path in ["Cargo.lock", "LICENSE-MIT", "x/vectors/v1/entry.bin", ".gitignore"] {
        assert!(!is_text(path), "{path}");
    }
}
