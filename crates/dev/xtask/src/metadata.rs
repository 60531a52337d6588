//! The part of `cargo metadata` that the checks read.

use serde::Deserialize;

use crate::failure::Failure;
use crate::repository::Repository;
use crate::steps;

/// What cargo says about a workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) workspace_default_members: Vec<String>,
    pub(crate) target_directory: String,
}

/// One package, of ours or of others.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A line of a dependency table.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    pub(crate) optional: bool,
}

/// The packages of the workspace alone. Needs neither network nor a lock file.
///
/// `folder` is the workspace's folder relative to the root; empty for the product.
pub(crate) fn members(repository: &Repository, folder: &str) -> Result<Metadata, Failure> {
    read(repository, folder, &["--no-deps", "--offline"])
}

/// The packages of the workspace and all that they use on `targets`, as the committed lock file says.
pub(crate) fn everything(repository: &Repository, folder: &str, targets: &[String]) -> Result<Metadata, Failure> {
    let mut arguments = vec!["--locked", "--all-features"];
    for target in targets {
        arguments.extend(["--filter-platform", target]);
    }
    read(repository, folder, &arguments)
}

fn read(repository: &Repository, folder: &str, arguments: &[&str]) -> Result<Metadata, Failure> {
    let mut command = steps::cargo(repository);
    command
        .current_dir(repository.root().join(folder))
        .args(["metadata", "--format-version", "1"])
        .args(arguments);
    let text = steps::output(&mut command)?;
    serde_json::from_str(&text).map_err(|error| Failure::Failed(format!("cannot read cargo metadata: {error}")))
}
