//! From the global options to a client, and the runtime that a command runs on.

use tenure_client::{Client, RequestMode};

use crate::args::Global;
use crate::exit::Failure;
use crate::logs;

/// The tenant and the namespace if none is chosen.
pub(crate) const DEFAULT_NAME: &str = "default";

/// Runs a command with a client of the cluster that was chosen. Nothing has been sent when it begins.
///
/// There is one worker thread besides the one that runs the command: it goes on when the command waits for whoever
/// reads its output.
///
/// # Errors
/// Those of the command; the options are no settings of a client.
pub(crate) fn run(global: &Global, command: impl AsyncFnOnce(Client) -> Result<(), Failure>) -> Result<(), Failure> {
    logs::of_a_command()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no thread could be started: {error}"), "free some resources"))?;
    let result = runtime.block_on(async { command(client(global)?).await });
    // What is left are connections, and nobody waits for them.
    runtime.shutdown_background();
    result
}

fn client(global: &Global) -> Result<Client, Failure> {
    // One mutation and then the end: a request id of its own makes it happen exactly once in one commit.
    let client = Client::builder()
        .endpoints(global.endpoints.iter().map(|endpoint| endpoint.trim()))
        .tenant(global.tenant.as_deref().unwrap_or(DEFAULT_NAME))
        .namespace(global.namespace.as_deref().unwrap_or(DEFAULT_NAME))
        .timeout(global.timeout)
        .request_mode(RequestMode::OneShot)
        .build()?;
    Ok(client)
}
