//! Logs go to standard error, filtered by `TENURE_LOG`. Nothing that is logged holds a secret.

use tracing_subscriber::EnvFilter;

use crate::exit::Failure;

/// The environment variable that says what is logged, as in `info` or `warn,tenure_node=debug`.
const VARIABLE: &str = "TENURE_LOG";
/// What a server logs if nothing is said. The consensus library warns of every single message that a node which is gone did
/// not take.
#[cfg(feature = "server")]
const SERVER: &str = "warn,openraft=error,tenure=info,tenure_node=info,tenure_replica=info,tenure_storage=info";

/// Begins to log as a server does.
///
/// # Errors
/// `TENURE_LOG` cannot be read.
#[cfg(feature = "server")]
pub(crate) fn of_a_server() -> Result<(), Failure> {
    begin(Some(SERVER))
}

/// Begins to log as a command does: not at all unless `TENURE_LOG` asks for it.
///
/// # Errors
/// `TENURE_LOG` cannot be read.
pub(crate) fn of_a_command() -> Result<(), Failure> {
    begin(None)
}

fn begin(default: Option<&str>) -> Result<(), Failure> {
    let asked = std::env::var(VARIABLE).ok().filter(|asked| !asked.is_empty());
    let Some(directives) = asked.as_deref().or(default) else {
        return Ok(());
    };
    let filter = EnvFilter::builder()
        .parse(directives)
        .map_err(|error| Failure::settings(format!("{VARIABLE} cannot be read: {error}"), "correct or unset it"))?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // Where standard error is closed, saying so there would end a server by a panic.
        .log_internal_errors(false);
    logs.try_init()
        .map_err(|error| Failure::failed(format!("logs cannot be written: {error}"), "report it"))
}
