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
    /// List the nodes: whether they are there, how many groups each leads and votes in, how far it is behind
    Nodes,
    /// List the groups: who leads, who votes, how far the replicas are behind
    Groups,
    /// Hand a group to another of its voters, which leads it from then on whenever it can
    TransferLeader {
        /// The group; 0 is the system group
        #[arg(value_name = "GROUP")]
        group: u32,
        /// The node that is to lead it
        #[arg(value_name = "NODE")]
        node: u64,
    },
    /// Have a node lead nothing and, where three others can, vote nowhere; waits up to a minute until that is so
    Drain {
        /// The node
        #[arg(value_name = "NODE")]
        node: u64,
        /// Let it lead and vote again
        #[arg(long)]
        undo: bool,
    },
    /// Take a node out of the cluster for good: its id and its folder never come back
    Remove {
        /// The node
        #[arg(value_name = "NODE")]
        node: u64,
        /// Yes, for good
        #[arg(long)]
        yes: bool,
    },
}
