//! Which crate may use which. Dev-dependencies are excepted: tests may use anything.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::metadata::Package;

/// Every crate of ours and the crates of ours that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("tenure-api", &[]),
    ("tenure-core", &[]),
    ("tenure-storage", &["tenure-core"]),
    ("tenure-replica", &["tenure-core", "tenure-storage"]),
    (
        "tenure-node",
        &["tenure-api", "tenure-core", "tenure-storage", "tenure-replica"],
    ),
    ("tenure-recipes", &[]),
    ("tenure-client", &["tenure-api", "tenure-recipes"]),
    (
        "tenure",
        &[
            "tenure-api",
            "tenure-bench",
            "tenure-client",
            "tenure-node",
            "tenure-storage",
        ],
    ),
    // The peers' own clients are options of it, which the binary does not choose.
    ("tenure-bench", &["tenure-client"]),
    ("tenure-testkit", &["tenure-api", "tenure-client", "tenure-recipes"]),
    (
        "tenure-sim",
        &[
            "tenure-api",
            "tenure-client",
            "tenure-core",
            "tenure-node",
            "tenure-recipes",
            "tenure-replica",
            "tenure-storage",
            "tenure-testkit",
        ],
    ),
    ("xtask", &[]),
];

/// What must be optional, so that a build without the feature leaves it out.
const OPTIONAL: &[(&str, &[&str], &str)] = &[
    (
        "tenure",
        &["tenure-node", "tenure-storage"],
        "without the feature `server` the binary is a client only",
    ),
    (
        "tenure-bench",
        &["prost", "redis", "rustix", "tonic", "tonic-prost"],
        "the product's binary measures itself and has no client of another system",
    ),
];

/// Crates of others that one crate of ours may use alone; the others go through its names. A `*` stands for any end.
const OWNED: &[(&str, &str, &str)] = &[
    (
        "openraft*",
        "tenure-replica",
        "its types move between releases and stay behind one crate",
    ),
    ("fjall", "tenure-storage", "only one crate touches the data folder"),
];

/// Crates of ours that may use these crates of others and nothing else.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    (
        "tenure-core",
        &["bytes", "postcard", "serde", "siphasher", "thiserror"],
        "the list is the proof that the machine has no clock, disk, network or randomness",
    ),
    ("xtask", &["serde", "serde_json"], "it is built before everything else"),
];

/// Crates of others that a crate of ours must not use.
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    (
        "tenure-storage",
        &["tokio", "futures-util", "tonic", "hyper", "axum"],
        "storage waits for nothing but the disk",
    ),
    (
        "tenure-recipes",
        &["tonic", "hyper", "prost", "axum"],
        "who uses the recipes over Redis must not build our client",
    ),
    (
        "tenure-client",
        &["axum", "metrics-exporter-prometheus"],
        "the client has no server in it",
    ),
];

/// What the rules look at in a crate of ours.
#[derive(Debug)]
pub(crate) struct Member {
    name: String,
    /// Relative to the root.
    manifest: String,
    /// Names of what it uses, without its dev-dependencies.
    uses: BTreeSet<String>,
    /// Those of them that are not optional.
    requires: BTreeSet<String>,
}

impl Member {
    /// Takes from a package what the rules look at.
    pub(crate) fn new(manifest: &str, package: &Package) -> Self {
        let normal = || {
            package
                .dependencies
                .iter()
                .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        };
        let required = normal().filter(|dependency| !dependency.optional);
        Member {
            name: package.name.clone(),
            manifest: manifest.to_owned(),
            uses: normal().map(|dependency| dependency.name.clone()).collect(),
            requires: required.map(|dependency| dependency.name.clone()).collect(),
        }
    }

    fn finding(&self, message: String) -> Finding {
        Finding::file(&self.manifest, message)
    }
}

/// Every arrow of every member of a workspace.
pub(crate) fn check(members: &[Member]) -> Vec<Finding> {
    let ours: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let mut findings = Vec::new();
    for member in members {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == member.name) else {
            let message = format!(
                "`{}` has no row in the table of arrows: say what it may use",
                member.name
            );
            findings.push(member.finding(message));
            continue;
        };
        for used in member.uses.iter().filter(|used| ours.contains(used.as_str())) {
            if !allowed.contains(&used.as_str()) {
                findings.push(member.finding(format!("`{}` must not use `{used}`", member.name)));
            }
        }
        findings.extend(others(member, &ours));
        for (name, optional, why) in OPTIONAL {
            for required in optional
                .iter()
                .filter(|used| member.name == *name && member.requires.contains(**used))
            {
                findings.push(member.finding(format!("`{name}` must have `{required}` as an option: {why}")));
            }
        }
    }
    findings.extend(sides(members));
    findings
}

/// Rules about crates of others.
fn others(member: &Member, ours: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for used in member.uses.iter().filter(|used| !ours.contains(used.as_str())) {
        let refuse = |why: &str| member.finding(format!("`{}` must not use `{used}`: {why}", member.name));
        for (pattern, owner, why) in OWNED {
            let matches = match pattern.strip_suffix('*') {
                Some(prefix) => used.starts_with(prefix),
                None => used == pattern,
            };
            if matches && member.name != *owner {
                findings.push(refuse(&format!("only `{owner}` may, {why}")));
            }
        }
        for (name, allowed, why) in ALLOWED {
            if member.name == *name && !allowed.contains(&used.as_str()) {
                findings.push(refuse(why));
            }
        }
        for (name, forbidden, why) in FORBIDDEN {
            if member.name == *name && forbidden.contains(&used.as_str()) {
                findings.push(refuse(why));
            }
        }
    }
    findings
}

/// The two arrows that never exist, whatever the table says: server to client, and back.
fn sides(members: &[Member]) -> Vec<Finding> {
    let in_folder = |folder: &str| -> Vec<&Member> {
        members
            .iter()
            .filter(|member| member.manifest.starts_with(folder))
            .collect()
    };
    let (server, client) = (in_folder("crates/server/"), in_folder("crates/client/"));
    let mut findings = Vec::new();
    for (from, to) in [(&server, &client), (&client, &server)] {
        for member in from.iter() {
            for used in to.iter().filter(|used| member.uses.contains(&used.name)) {
                let message = format!(
                    "`{}` must not use `{}`: they meet only in tenure-api",
                    member.name, used.name
                );
                findings.push(member.finding(message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests;
