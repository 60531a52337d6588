//! Each rule refuses what it is there for.

use super::*;

const RULES: &str = r#"
[graph]
targets = ["x86_64-unknown-linux-gnu"]
[licenses]
allow = ["MIT", "Apache-2.0"]
exceptions = [{ crate = "odd", allow = ["Zlib"] }]
[bans]
deny = [
  { crate = "openssl-sys", reason = "a C library" },
  { crate = "engine@<3.1.13", reason = "loses writes" },
]
skip = [{ crate = "rand@0.8.8", reason = "an old user" }]
"#;

fn package(name: &str, version: &str, license: &str) -> Package {
    Package {
        id: format!("{name}@{version}"),
        name: name.to_owned(),
        version: version.to_owned(),
        license: Some(license.to_owned()),
        source: Some(REGISTRY.to_owned()),
        manifest_path: String::new(),
        dependencies: Vec::new(),
    }
}

fn messages(packages: &[Package]) -> Vec<String> {
    let rules = Rules::read(RULES).unwrap();
    check(&rules, "Cargo.lock", packages)
        .into_iter()
        .map(|finding| finding.message)
        .collect()
}

#[test]
fn what_is_allowed_passes() {
    let packages = [
        package("bytes", "1.0.0", "MIT"),
        package("odd", "1.0.0", "Zlib"),
        package("engine", "3.1.13", "MIT/Apache-2.0"),
        package("rand", "0.8.8", "MIT"),
        package("rand", "0.9.5", "MIT"),
    ];
    assert_eq!(messages(&packages), Vec::<String>::new());
}

#[test]
fn a_licence_that_is_not_allowed_is_found() {
    for licence in ["GPL-3.0", "Zlib", "MIT AND GPL-3.0", "(MIT OR"] {
        assert_eq!(messages(&[package("bytes", "1.0.0", licence)]).len(), 1, "{licence}");
    }
    let unlicensed = Package {
        license: None,
        ..package("bytes", "1.0.0", "")
    };
    assert_eq!(messages(&[unlicensed]), ["bytes 1.0.0 names no licence"]);
}

#[test]
fn a_package_from_elsewhere_is_found() {
    let elsewhere = Package {
        source: Some("git+ssh://example.org/x".into()),
        ..package("bytes", "1.0.0", "MIT")
    };
    assert_eq!(
        messages(&[elsewhere]),
        ["bytes 1.0.0 comes from git+ssh://example.org/x"]
    );
}

#[test]
fn a_banned_crate_and_a_faulty_version_are_found() {
    assert_eq!(
        messages(&[
            package("openssl-sys", "0.9.0", "MIT"),
            package("engine", "3.1.9", "MIT")
        ]),
        [
            "openssl-sys 0.9.0 must not be used: a C library",
            "engine 3.1.9 must not be used: loses writes"
        ]
    );
}

#[test]
fn a_second_version_needs_a_reason() {
    let packages = [package("syn", "1.0.0", "MIT"), package("syn", "2.0.0", "MIT")];
    assert_eq!(
        messages(&packages),
        ["syn is there more than once: 1.0.0, 2.0.0; name all but one in bans.skip"]
    );
}

#[test]
fn a_rule_without_a_reason_is_refused() {
    assert!(Rules::read("[bans]\ndeny = [{ crate = \"a\" }]\n").is_err());
}

#[test]
fn rules_that_nothing_needs_are_named() {
    let rules = Rules::read(RULES).unwrap();
    let notes = unused(&rules, &[package("bytes", "1.0.0", "MIT")]);
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[test]
fn licence_expressions_are_read() {
    let mit = |name: &str| name == "MIT" || name == "Apache-2.0 WITH LLVM-exception";
    for (expression, expected) in [
        ("MIT", true),
        ("MIT / Apache-2.0", true),
        ("GPL-2.0 OR MIT", true),
        ("GPL-2.0 AND MIT", false),
        ("(GPL-2.0 OR MIT) AND MIT", true),
        ("Zlib OR GPL-2.0 AND MIT", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
    ] {
        assert_eq!(licence::satisfied(expression, &mit), Ok(expected), "{expression}");
    }
    assert_eq!(licence::names("(MIT OR A WITH B) AND C"), ["MIT", "A WITH B", "C"]);
}

#[test]
fn requirements_select_versions() {
    for (requirement, version, expected) in [
        ("", "1.0.0", true),
        ("1.2.3", "1.2.3", true),
        ("1.2.3", "1.2.4", false),
        ("<1.44.2", "1.9.9", true),
        ("<1.44.2", "1.44.2", false),
        (">=1, <1.4", "1.3.9+build", true),
        (">=1, <1.4", "1.4.0", false),
        ("<0.10.0-alpha.37", "0.10.0-alpha.9", true),
        ("<0.10.0-alpha.37", "0.10.0", false),
    ] {
        assert_eq!(
            Requirement::read(requirement).unwrap().covers(version),
            expected,
            "{requirement} {version}"
        );
    }
    assert!(Requirement::read("~1").is_err());
}
