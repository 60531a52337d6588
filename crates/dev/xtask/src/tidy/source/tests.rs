//! What the lexer must not be fooled by.

use super::*;

fn read(text: &str) -> Source {
    Source::read("crates/x/src/lib.rs", text)
}

#[test]
fn comments_and_strings_are_not_code() {
    let text = "let a = \"fn x() { // no\"; // fn y() {\nlet b = r#\"\"{\"#; /* /* { */ } */ let c = '{';\nlet d: &'a u8 = b\"\\\"{\";\n";
    let source = read(text);
    assert_eq!(source.code.len(), text.len());
    assert_eq!(source.code.matches('{').count(), 0, "{}", source.code);
    assert!(source.code.contains("let c = ' ';"), "{}", source.code);
    assert!(source.code.contains("let d: &'a u8 = b\""), "{}", source.code);
    assert!(source.comments.contains("// fn y() {"));
    assert!(!source.comments.contains("// no"));
}

#[test]
fn text_beyond_ascii_keeps_its_place() {
    let text = "// größer\nlet é = 'ß'; let s = \"→{\";\nfn f() {}\n";
    let source = read(text);
    assert_eq!(source.functions[0].first_line, 3);
    assert_eq!(source.code.len(), text.len());
    assert!(source.comments.contains("größer"));
}

#[test]
fn functions_have_their_lines() {
    let source = read("fn a(\n    x: [u8; 2],\n) -> fn(u8) {\n    {}\n}\ntrait T { fn declared(&self); fn b() {} }\n");
    let found: Vec<_> = source
        .functions
        .iter()
        .map(|f| (f.name.as_str(), f.first_line, f.last_line))
        .collect();
    assert_eq!(found, [("a", 1, 5), ("b", 6, 6)]);
}

#[test]
fn test_modules_and_test_functions_are_tests() {
    let source = read(
        "fn real() {}\n#[cfg(test)]\nmod checks {\n    #[tokio::test(start_paused = true)]\n    async fn it_works() {\n    }\n}\n\
         #[cfg(any(test, unix))]\nfn also_real() {}\nstruct S {\n    #[cfg(test)]\n    hook: u8,\n    other: u8,\n}\n",
    );
    let tests: Vec<usize> = (1..=14).filter(|line| source.is_test(*line)).collect();
    assert_eq!(tests, [2, 3, 4, 5, 6, 7, 11, 12]);
    assert_eq!(source.tests.len(), 1);
    assert_eq!(source.tests[0].name, "checks::it_works");
    assert_eq!(source.lines_without_tests(), 6);
}

#[test]
fn a_file_declared_for_tests_only_is_a_test() {
    let mut sources = vec![
        Source::read("crates/x/src/a.rs", "#[cfg(test)]\npub(crate) mod double;\n"),
        Source::read("crates/x/src/a/double.rs", "fn f() {}\n"),
        Source::read("crates/x/src/a/double/inner.rs", "fn f() {}\n"),
        Source::read("crates/x/src/a/doubled.rs", "fn f() {}\n"),
    ];
    spread_test_modules(&mut sources);
    let found: Vec<bool> = sources.iter().map(|source| source.is_test(1)).collect();
    assert_eq!(found, [true, true, true, false]);
}

#[test]
fn module_paths_are_those_of_the_test_runner() {
    for (path, expected) in [
        ("crates/x/src/lib.rs", ""),
        ("crates/x/src/machine/tests.rs", "machine::tests"),
        ("crates/x/tests/it/wait.rs", "it::wait"),
        ("crates/x/tests/it/main.rs", "it"),
        ("sim/src/meta.rs", "meta"),
    ] {
        assert_eq!(Source::read(path, "").module_path(), expected, "{path}");
    }
}
