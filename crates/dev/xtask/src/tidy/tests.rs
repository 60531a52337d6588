//! The repository keeps its own rules.

use super::*;

#[test]
fn the_repository_is_tidy() {
    let findings = check(&Repository::find().unwrap()).unwrap();
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}
