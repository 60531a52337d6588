//! Each arrow that must not exist is found.

use super::*;
use crate::metadata::Dependency;

/// A crate of ours that uses others as options.
fn member(manifest: &str, uses: &[&str]) -> Member {
    let name = manifest.split('/').nth_back(1).unwrap().to_owned();
    let uses = uses.iter().map(|used| used.to_string()).collect();
    Member {
        name,
        manifest: manifest.to_owned(),
        uses,
        requires: BTreeSet::new(),
    }
}

fn messages(members: &[Member]) -> Vec<String> {
    check(members).into_iter().map(|finding| finding.message).collect()
}

#[test]
fn the_arrows_of_the_table_pass() {
    let members: Vec<Member> = ARROWS
        .iter()
        .map(|(name, allowed)| member(&format!("crates/{name}/Cargo.toml"), allowed))
        .collect();
    assert_eq!(messages(&members), Vec::<String>::new());
}

#[test]
fn an_arrow_that_is_not_in_the_table_is_found() {
    for (from, to) in [
        ("tenure-core", "tenure-api"),
        ("tenure-storage", "tenure-replica"),
        ("tenure-recipes", "tenure-client"),
        ("tenure-testkit", "tenure-node"),
        ("xtask", "tenure-core"),
    ] {
        let found = messages(&[member(&format!("crates/{from}/Cargo.toml"), &[to])]);
        assert_eq!(found, [format!("`{from}` must not use `{to}`")]);
    }
}

#[test]
fn a_crate_without_a_row_is_found() {
    assert_eq!(messages(&[member("crates/tenure-common/Cargo.toml", &[])]).len(), 1);
}

#[test]
fn engines_have_one_owner() {
    for (name, engine, count) in [
        ("tenure-replica", "openraft-rt", 0),
        ("tenure-node", "openraft", 1),
        ("tenure-node", "openraft-rt-tokio", 1),
        ("tenure-storage", "fjall", 0),
        ("tenure-replica", "fjall", 1),
        ("tenure-storage", "tokio", 1),
        ("tenure-recipes", "tonic", 1),
    ] {
        assert_eq!(
            messages(&[member(&format!("crates/{name}/Cargo.toml"), &[engine])]).len(),
            count,
            "{name} {engine}"
        );
    }
}

#[test]
fn the_core_uses_what_is_listed_and_nothing_else() {
    assert_eq!(
        messages(&[member("crates/tenure-core/Cargo.toml", &["bytes", "serde"])]),
        Vec::<String>::new()
    );
    for used in ["tokio", "rand", "tracing"] {
        assert_eq!(
            messages(&[member("crates/tenure-core/Cargo.toml", &[used])]).len(),
            1,
            "{used}"
        );
    }
}

#[test]
fn server_and_client_never_use_each_other() {
    let members = [
        member("crates/server/tenure-node/Cargo.toml", &["tenure-client"]),
        member("crates/client/tenure-client/Cargo.toml", &["tenure-node"]),
    ];
    let found = messages(&members);
    assert_eq!(
        found
            .iter()
            .filter(|message| message.contains("they meet only in"))
            .count(),
        2,
        "{found:?}"
    );
}

#[test]
fn tests_may_use_anything() {
    let dependency = |name: &str, kind: Option<&str>| Dependency {
        name: name.into(),
        kind: kind.map(str::to_owned),
        optional: false,
    };
    let package = Package {
        id: String::new(),
        name: "tenure-core".into(),
        version: String::new(),
        license: None,
        source: None,
        manifest_path: String::new(),
        dependencies: vec![
            dependency("rand", Some("dev")),
            dependency("cc", Some("build")),
            dependency("bytes", None),
        ],
    };
    let found = messages(&[Member::new("crates/server/tenure-core/Cargo.toml", &package)]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("`cc`"), "{found:?}");
}

#[test]
fn the_binary_can_be_built_without_the_server() {
    let optional = member("crates/tenure/Cargo.toml", &["tenure-node"]);
    let required = Member {
        requires: optional.uses.clone(),
        ..member("crates/tenure/Cargo.toml", &["tenure-node"])
    };
    assert_eq!(messages(&[optional]), Vec::<String>::new());
    assert_eq!(messages(&[required]).len(), 1);
}
