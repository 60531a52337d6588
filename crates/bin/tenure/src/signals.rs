//! Ends of commands that go on until they are stopped.

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Failure;

/// Ends the process with status 0 on Ctrl-C and on a polite request to stop. The worker thread does this, since the
/// command itself may be waiting for whoever reads its output.
///
/// # Errors
/// The machine gives no signals.
pub(crate) fn end_on_signals() -> Result<(), Failure> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind)
            .map_err(|error| Failure::failed(format!("signals cannot be received: {error}"), "report it"))?;
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                std::process::exit(0);
            }
        });
    }
    Ok(())
}
