//! The arguments of what serves.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The arguments of `tenure dev`.
#[derive(Args, Debug)]
pub(crate) struct Dev {
    /// The folder for everything that must not be forgotten
    #[arg(long, value_name = "DIR", default_value = "./tenure-data")]
    pub(crate) data_dir: PathBuf,
    /// Where to listen; port 0 takes a free one, and `ready` tells which
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7400")]
    pub(crate) listen: String,
    /// How many nodes. More than one run as processes of their own, the first at ADDR and the others at free ports, in
    /// folders of their own under DIR
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) nodes: u32,
}

/// The arguments of `tenure start`.
#[derive(Args, Debug)]
pub(crate) struct Start {
    /// The folder for everything that must not be forgotten
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The one address, for clients and nodes; port 0 takes a free one, and `ready` tells which
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: String,
    /// Where others reach this node, if that is not where it listens
    #[arg(long, value_name = "ADDR")]
    pub(crate) advertise: Option<String>,
    /// Nodes of the cluster to join, which are asked for up to a minute to let this one in. Without it an empty folder
    /// founds a cluster. Ignored on a folder in use
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',')]
    pub(crate) join: Vec<String>,
    /// How many home groups a new cluster has, for good: namespaces are spread over them
    #[arg(long, value_name = "N", default_value_t = tenure_node::config::HOME_GROUPS_START)]
    pub(crate) home_groups: u32,
    /// How many entries of each group's log are kept for nodes that are behind; one that lacks more gets the whole state
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) log_entries_kept: u64,
    /// The process that started this one, with which it ends
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) with_parent: Option<u32>,
    /// A file of settings; this version takes none
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) config: Option<PathBuf>,
    /// Listen beyond loopback although nothing there is authenticated or encrypted
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// The arguments of `tenure inspect`.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// The data folder of a node that does not run
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// The arguments of `tenure backup`.
#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// The folder for the backup, which is made if there is none
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Take the place of the backup that is in the folder
    #[arg(long)]
    pub(crate) replace: bool,
}

/// The arguments of `tenure restore`.
#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// The folder that `tenure backup` was given, or the file in it
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,
    /// The data folder of the new cluster's first node: empty, or none yet
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Where revisions begin, in place of what this machine's clock says
    #[arg(long, value_name = "N")]
    pub(crate) revision_floor: Option<u64>,
}

/// The arguments of `tenure recover`.
#[derive(Args, Debug)]
pub(crate) struct Recover {
    /// The data folder of the one node that is left, which does not run
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The group that has lost its majority, 0 for the system group; all groups if none is named
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<u32>,
    /// Where revisions go on, in place of what this machine's clock says
    #[arg(long, value_name = "N")]
    pub(crate) revision_floor: Option<u64>,
    /// Yes, do it; without it only what is there and what would be lost is printed, and the status is 2
    #[arg(long)]
    pub(crate) yes: bool,
}

/// What `tenure demo` starts as processes of their own.
#[derive(Debug, Subcommand)]
pub(crate) enum DemoPart {
    /// A resource that takes writes over TCP and refuses tokens lower than the highest it has seen
    Resource,
    /// A writer that claims a key, writes to the resource, and writes once more when it is told to
    Writer {
        /// The node
        #[arg(long)]
        node: String,
        /// The resource
        #[arg(long)]
        resource: String,
        /// How long its session lives
        #[arg(long)]
        ttl_ms: u64,
    },
}
