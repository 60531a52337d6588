//! The ratchet holds in both directions.

use super::*;

const LIST: &str = "ratchet.txt";
const PATH: &str = "crates/x/src/a.rs";

fn function_of(lines: usize) -> String {
    format!("fn f() {{\n{}}}\n", "    x();\n".repeat(lines - 2))
}

/// Findings about lengths alone: the number of exceptions is tested by itself.
fn messages(text: &str, list: &str) -> Vec<String> {
    let findings = check(&[Source::read(PATH, text)], LIST, list);
    findings
        .iter()
        .map(ToString::to_string)
        .filter(|text| !text.contains("are allowed"))
        .collect()
}

#[test]
fn a_function_at_the_limit_passes_and_a_longer_one_is_found() {
    assert_eq!(messages(&function_of(70), ""), Vec::<String>::new());
    let found = messages(&function_of(71), "");
    assert_eq!(
        found,
        ["crates/x/src/a.rs:1: `f` has 71 lines, 70 is the limit: split it by subject"]
    );
}

#[test]
fn a_file_is_measured_without_its_tests() {
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    // line\n".repeat(500));
    assert_eq!(
        messages(&format!("{}{tests}", "// line\n".repeat(800)), ""),
        Vec::<String>::new()
    );
    assert_eq!(messages(&format!("{}{tests}", "// line\n".repeat(801)), "").len(), 1);
}

#[test]
fn an_exception_may_stay_but_not_grow() {
    let list = format!("# why\nfunction {PATH} f 90\n");
    assert_eq!(messages(&function_of(90), &list), Vec::<String>::new());
    assert!(messages(&function_of(91), &list)[0].contains("grew from 90"));
}

#[test]
fn an_exception_that_shrank_must_be_lowered() {
    let list = format!("function {PATH} f 90\n");
    assert_eq!(
        messages(&function_of(80), &list),
        [format!(
            "ratchet.txt:1: `function {PATH} f` is shorter now: lower it to 80"
        )]
    );
    assert!(messages(&function_of(70), &list)[0].contains("remove the line"));
    assert!(messages("", &list)[0].contains("does not exist"));
}

#[test]
fn the_list_cannot_get_longer() {
    let list: String = (0..=EXCEPTIONS_MAX)
        .map(|index| format!("file crates/x/src/{index}.rs 900\n"))
        .collect();
    let findings = check(&[], LIST, &list);
    assert!(
        findings.iter().any(|finding| finding.message.contains("are allowed")),
        "{findings:?}"
    );
}

#[test]
fn a_line_that_cannot_be_read_is_found() {
    assert_eq!(messages("", "file a many\n").len(), 1);
}
