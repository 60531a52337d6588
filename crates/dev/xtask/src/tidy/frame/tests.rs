//! Settings that do not belong are found.

use super::*;

#[test]
fn the_cargo_config_holds_the_alias_alone() {
    assert_eq!(
        cargo_config("c", "# why\n[alias]\nxtask = \"run -p xtask --\"\n"),
        Vec::new()
    );
    let found = cargo_config("c", "[alias]\nxtask = \"run\"\n[build]\nrustflags = [\"-Dwarnings\"]\n");
    assert_eq!(
        found.iter().filter_map(|finding| finding.line).collect::<Vec<_>>(),
        [3, 4]
    );
}

#[test]
fn a_crate_without_the_lints_of_the_workspace_is_found() {
    assert_eq!(
        lints("c", "[package]\n\n[lints]\nworkspace = true\n\n[dependencies]\n"),
        Vec::new()
    );
    assert_eq!(
        lints("c", "[package]\n[lints]\n\n[dependencies]\nworkspace = true\n").len(),
        1
    );
    assert_eq!(lints("c", "[package]\nversion.workspace = true\n").len(), 1);
}

#[test]
fn the_binary_is_the_default_member() {
    let metadata = |default: &str| Metadata {
        packages: ["/r/crates/bin/tenure", "/r/crates/tenure-api"]
            .map(|folder| crate::metadata::Package {
                id: folder.to_owned(),
                name: String::new(),
                version: String::new(),
                license: None,
                source: None,
                manifest_path: format!("{folder}/Cargo.toml"),
                dependencies: Vec::new(),
            })
            .into(),
        workspace_members: Vec::new(),
        workspace_default_members: vec![default.to_owned()],
        target_directory: String::new(),
    };
    assert_eq!(default_member(&metadata("/r/crates/bin/tenure")), Vec::new());
    assert_eq!(default_member(&metadata("/r/crates/tenure-api")).len(), 1);
}
