//! The arguments of what looks at the cluster, its tenants and its namespaces.

use clap::Subcommand;

/// The commands of `tenure tenant`.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// List the tenants
    Ls,
}

/// The commands of `tenure namespace`.
#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceCommand {
    /// List the namespaces of the tenant that was chosen, or of all tenants
    Ls,
}

/// The commands of `tenure cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show what the first reachable node knows; exit 0 if it serves, else 3
    Status,
}
