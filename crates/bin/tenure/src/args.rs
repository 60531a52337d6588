//! What can be said on the command line. The doc comments here are the help that users read.

pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod cluster;
pub(crate) mod counter;
#[cfg(feature = "server")]
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod stream;

use std::ffi::OsString;
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

/// How a transaction is written, and what became of it.
const TXN_HELP: &str = r#"An example, which takes an apple if there is one and the order is new:

  {"guards": [{"cache": "stock", "key": "apples", "min": 1},
              {"cache": "stock", "key": "order-17", "absent": true}],
   "then":   [{"add": {"cache": "stock", "key": "apples", "delta": -1}},
              {"put": {"cache": "stock", "key": "order-17", "value": "one apple"}},
              {"publish": {"stream": "orders", "records": ["order-17 placed"]}}],
   "else":   [{"get": {"cache": "stock", "key": "order-17"}}]}

Guards:
  {"cache", "key", and one of "absent": true, "present": true, "version", "created", "value", or "min" and "max"}
  {"stream", "tail"}
  {"session", "alive": true}

Operations:
  {"put": {"cache", "key", "value", "ttl_ms", "session"}}    the last two may be left out
  {"delete": {"cache", "key"}}
  {"add": {"cache", "key", "delta", "ttl_ms"}}
  {"publish": {"stream", "records", "if_offset", "fence_token", "dedup_id"}}
  {"get": {"cache", "key"}}

Bytes that are no text stand in "key_base64", "value_base64" and "records_base64". Numbers from 2^53 on are strings.
At most 128 guards and operations, both branches together, with 2 MiB of keys, values and records. A branch writes a
key at most once and appends to a stream at most once.

Exit status:
  0  all guards held, and "then" was done
  4  with "failed_guard" in the answer: that guard, counted from 0, did not hold, and "else" was done
     without it nothing was done: an operation of the branch was refused ("code" says why), or an error on standard
     error says so: a counter that is none, a session that has ended, a limit
  2, 3, 5, 6 and 1 as everywhere"#;

/// What a backup is.
#[cfg(feature = "server")]
const BACKUP_HELP: &str = r"Each group is read as it was at one revision, which holds every write that was acknowledged before; the groups one
after another. The file is `backup.tenure` in the folder, and has that name only once it is whole, read back and synced.
It holds everything in clear, secrets of sessions included.";

/// What a restore cannot bring back.
#[cfg(feature = "server")]
const RESTORE_HELP: &str = r"The file is read and checked whole before anything is written. What comes of it is another cluster: it has another id
and one node, which `tenure start --data-dir DIR` runs. What happened after the backup is lost, so:

  tokens, versions and revisions go on above every one that was handed out before
  sessions are forgotten with their keys and with all remembered requests; a repeat is `session_unknown`
  a call without a session that the old cluster may have taken is `too_late`
  streams go on 4294967296 behind their tail, and who reads across the gap is told
  a watch from a revision before the restore is `compacted`

Revisions begin at the seconds since 2025 on this machine's clock, times 4294967296, which must lie above every
revision of the backup. See to it that the old cluster runs nowhere any more.";

/// What a recovery is for, and what it costs.
#[cfg(feature = "server")]
const RECOVER_HELP: &str = r"For the day on which more than half of a group's voters are lost for good. As long as they may come back, wait for them:
then nothing is lost. Of several folders that are left take the one whose log goes furthest (LAST, and before that its
TERM), and none of the others ever again.

The folder is read whole first, and what was found is printed; with --yes the node then votes alone in what is recovered:

  what the folder's log holds stays, with sessions and remembered requests; what never reached this node is lost
  tokens, versions and revisions go on above every one that was handed out before, and a watch from before is `compacted`
  streams go on 4294967296 behind their tail, and who reads across the gap is told
  with the system group, every other node is out of the cluster for good: neither its id nor its folder comes back

Then `tenure start` runs the node as before, and fresh nodes join it with --join. Revisions go on at the seconds since 2025
on this machine's clock, times 4294967296. A group in which the node votes alone already is left as it is, so a recovery
that was cut short is simply done again. With --group, one group is recovered and the cluster keeps its nodes: remove the
lost ones with `tenure cluster remove`.";

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
    /// Play four stories of leases and tokens on a node of their own, in less than half a minute
    #[cfg(feature = "server")]
    Demo,
    /// Read the folder of a stopped node, whole and without changing it; exit 1 if anything is damaged
    #[cfg(feature = "server")]
    Inspect(server::Inspect),
    /// Write everything that a cluster holds into one file, while it serves
    #[cfg(feature = "server")]
    #[command(after_help = BACKUP_HELP)]
    Backup(server::Backup),
    /// Make the folder of the first node of a new cluster from a backup; no node runs meanwhile
    #[cfg(feature = "server")]
    #[command(after_help = RESTORE_HELP)]
    Restore(server::Restore),
    /// Let groups that have lost their majority for good go on from the one node that is left, which does not run
    #[cfg(feature = "server")]
    #[command(after_help = RECOVER_HELP)]
    Recover(server::Recover),
    /// Caches, their keys, and watching them
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    /// Counters, which are keys of a cache that hold a number
    #[command(subcommand)]
    Counter(counter::CounterCommand),
    /// Streams: records in order that writers append under a fencing token
    #[command(subcommand)]
    Stream(stream::StreamCommand),
    /// Run a transaction: JSON from standard input; exit 0 if `then` ran
    #[command(after_help = TXN_HELP)]
    Txn,
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
    /// Measure a cluster from here, with a line for each work, and remove again what that made
    Bench(bench::Bench),
    /// What `tenure demo` starts as processes of its own
    #[cfg(feature = "server")]
    #[command(subcommand, hide = true)]
    DemoPart(server::DemoPart),
    /// What `tenure session keep` starts: it becomes the command
    #[command(hide = true)]
    KeptPart {
        /// The process that keeps the session
        keeper: i32,
        /// The command with its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Print a script that completes commands in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[cfg(test)]
mod tests;
