//! Measuring a cluster from here: `tenure bench`.
//!
//! The workers share this program's threads, so on the node's own machine they take from it what they need.

use std::sync::Arc;

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use tenure_bench::target::tenure::{Place, Tenure};
use tenure_bench::{Report, Settings};

use crate::args::Global;
use crate::args::bench::Bench;
use crate::connect::DEFAULT_NAME;
use crate::exit::Failure;
use crate::logs;
use crate::output::{Answer, Output};

/// `tenure bench`: a line for each work, when it is measured.
///
/// # Errors
/// The cluster cannot be reached, or cannot do a work at all. What fails while it is measured is counted.
pub(crate) fn run(global: &Global, arguments: &Bench, output: &mut Output) -> Result<(), Failure> {
    logs::of_a_command()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no thread could be started: {error}"), "free some resources"))?;
    let result = runtime.block_on(measure(global, arguments, output));
    // What is left are connections, and nobody waits for them.
    runtime.shutdown_background();
    result
}

async fn measure(global: &Global, arguments: &Bench, output: &mut Output) -> Result<(), Failure> {
    let place = Place {
        endpoints: global
            .endpoints
            .iter()
            .map(|endpoint| endpoint.trim().to_owned())
            .collect(),
        tenant: global.tenant.as_deref().unwrap_or(DEFAULT_NAME).to_owned(),
        namespace: global.namespace.as_deref().unwrap_or(DEFAULT_NAME).to_owned(),
        timeout: global.timeout,
    };
    let clients = Tenure::connect(&place, arguments.connections).await?;
    let clients: Vec<Arc<Tenure>> = clients.into_iter().map(Arc::new).collect();
    // Whatever comes of it, and whoever stops it, nothing is left behind.
    let measured = tokio::select! {
        biased;
        measured = each_work(arguments, &clients, output) => measured,
        stopped = stopped() => stopped,
    };
    let cleaned = match clients.first() {
        Some(client) => client.clean_up().await,
        None => Ok(()),
    };
    measured.and(cleaned.map_err(Failure::from))
}

/// Waits until somebody stops this.
async fn stopped() -> Result<(), Failure> {
    let unreceived = |error| Failure::failed(format!("signals cannot be received: {error}"), "report it");
    let mut interrupts = signal(SignalKind::interrupt()).map_err(unreceived)?;
    let mut terminations = signal(SignalKind::terminate()).map_err(unreceived)?;
    tokio::select! {
        _ = interrupts.recv() => {}
        _ = terminations.recv() => {}
    }
    Err(Failure::failed(
        "the measurement was stopped before its end",
        "start it again",
    ))
}

async fn each_work(arguments: &Bench, clients: &[Arc<Tenure>], output: &mut Output) -> Result<(), Failure> {
    let settings = Settings {
        workers: arguments.workers,
        duration: arguments.duration(),
    };
    for work in arguments.works() {
        let report = tenure_bench::run(*work, clients, settings).await?;
        output.answer(&Measured::new(&report))?;
        if let Some(error) = &report.first_error {
            eprintln!("tenure: the first of {} errors of {work}: {error}", report.errors);
        }
    }
    Ok(())
}

/// What came out, as it is printed.
#[derive(Serialize)]
struct Measured {
    work: &'static str,
    workers: usize,
    connections: usize,
    ops_per_second: u64,
    p50_us: u64,
    p99_us: u64,
    errors: u64,
    #[serde(skip)]
    line: String,
}

impl Measured {
    fn new(report: &Report) -> Measured {
        Measured {
            work: report.work.name(),
            workers: report.workers,
            connections: report.connections,
            ops_per_second: report.rate(),
            p50_us: report.p50_us(),
            p99_us: report.p99_us(),
            errors: report.errors,
            line: report.to_string(),
        }
    }
}

impl Answer for Measured {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(self.line.as_bytes());
    }
}

impl From<tenure_bench::Failure> for Failure {
    fn from(failure: tenure_bench::Failure) -> Failure {
        match failure {
            tenure_bench::Failure::Tenure(error) => error.into(),
            other => Failure::failed(other.to_string(), "see `tenure bench --help`"),
        }
    }
}
