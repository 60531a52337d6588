//! The workspace's own settings: what `cargo run` starts, what `.cargo/config.toml` holds, whose lints apply.

use crate::failure::Failure;
use crate::finding::Finding;
use crate::metadata::Metadata;
use crate::repository::Repository;

/// The crate of the binary.
const BINARY: &str = "crates/bin/tenure";

/// Settings files of the workspace.
pub(crate) fn check(repository: &Repository) -> Result<Vec<Finding>, Failure> {
    let config = ".cargo/config.toml";
    let mut findings = cargo_config(config, &repository.read(config)?);
    for path in repository.files()? {
        // Fuzz targets and the simulation are workspaces of their own and inherit from nobody.
        if path.starts_with("crates/") && path.ends_with("/Cargo.toml") && !path.contains("/fuzz/") {
            findings.extend(lints(&path, &repository.read(&path)?));
        }
    }
    Ok(findings)
}

/// `cargo run` without further words starts the server.
pub(crate) fn default_member(metadata: &Metadata) -> Vec<Finding> {
    let defaults: Vec<&str> = metadata
        .packages
        .iter()
        .filter(|package| metadata.workspace_default_members.contains(&package.id))
        .map(|package| package.manifest_path.as_str())
        .collect();
    if matches!(defaults[..], [manifest] if manifest.ends_with(&format!("/{BINARY}/Cargo.toml"))) {
        return Vec::new();
    }
    vec![Finding::file(
        "Cargo.toml",
        format!("default-members must be [\"{BINARY}\"], so that `cargo run` starts it"),
    )]
}

/// Flags and settings there would apply to whoever builds us, and be lost where others build us.
fn cargo_config(path: &str, text: &str) -> Vec<Finding> {
    let lines = text
        .lines()
        .map(str::trim)
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter(|(_, line)| *line != "[alias]" && !line.starts_with("xtask = "))
        .map(|(index, line)| {
            Finding::line(
                path,
                index + 1,
                format!("`{line}`: this file holds the xtask alias alone"),
            )
        })
        .collect()
}

/// Every crate takes the lints of the workspace.
fn lints(path: &str, manifest: &str) -> Vec<Finding> {
    let inherits = manifest.split("[lints]").nth(1).is_some_and(|rest| {
        let section = rest.split("\n[").next().unwrap_or_default();
        section.lines().any(|line| line.replace(' ', "") == "workspace=true")
    });
    if inherits {
        Vec::new()
    } else {
        vec![Finding::file(
            path,
            "take the lints of the workspace: `[lints] workspace = true`",
        )]
    }
}

#[cfg(test)]
mod tests;
