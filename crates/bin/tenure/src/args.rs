//! What can be said on the command line. The doc comments here are the help that users read.

pub(crate) mod cache;
pub(crate) mod cluster;
#[cfg(feature = "server")]
pub(crate) mod server;
pub(crate) mod session;

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::duration;
use crate::output::Format;

/// Serves leases, locks with fencing tokens and safe retries, and talks to who serves them
#[derive(Debug, Parser)]
#[command(name = "tenure", version)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes. A flag goes before the environment, and that before the default.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Nodes of the cluster; the first that answers is used
    #[arg(
        long,
        global = true,
        value_name = "HOST:PORT,…",
        env = "TENURE_ENDPOINTS",
        hide_env_values = true,
        default_value = "127.0.0.1:7400",
        value_delimiter = ','
    )]
    pub(crate) endpoints: Vec<String>,
    /// The tenant; `default` if none is chosen
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "TENURE_TENANT",
        hide_env_values = true
    )]
    pub(crate) tenant: Option<String>,
    /// The namespace within the tenant; `default` if none is chosen
    #[arg(
        short,
        long,
        global = true,
        value_name = "NAME",
        env = "TENURE_NAMESPACE",
        hide_env_values = true
    )]
    pub(crate) namespace: Option<String>,
    /// The time for a request over all endpoints, as in 250ms, 10s, 5m or 24h
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        env = "TENURE_TIMEOUT",
        hide_env_values = true,
        default_value = "5s",
        value_parser = duration::parse
    )]
    pub(crate) timeout: Duration,
    /// For people, or one JSON object a line for programs
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", value_enum)]
    pub(crate) output: Format,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a cluster on this machine with nothing to configure
    #[cfg(feature = "server")]
    Dev(server::Dev),
    /// Run one node of a cluster
    #[cfg(feature = "server")]
    Start(server::Start),
    /// Caches, their keys, and watching them
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    /// Sessions: open, keep, look at and end them
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Tenants
    #[command(subcommand)]
    Tenant(cluster::TenantCommand),
    /// Namespaces
    #[command(subcommand)]
    Namespace(cluster::NamespaceCommand),
    /// The cluster itself
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Print a script that completes commands in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[cfg(test)]
mod tests;
