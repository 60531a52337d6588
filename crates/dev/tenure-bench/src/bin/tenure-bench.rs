//! Measures one system under one work after another and prints a line for each.
//!
//! `cargo xtask bench` starts the systems and runs this against them in turns.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rustix::process::{Pid, Signal, kill_process};

use tenure_bench::target::etcd::Etcd;
use tenure_bench::target::redis::Redis;
use tenure_bench::target::tenure::{Place, Tenure};
use tenure_bench::target::zookeeper::ZooKeeper;
use tenure_bench::{Failure, Settings, Target, Work, failover, floor, run};

/// The same as the product's, and for every system the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The time for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Measures a system under some works
#[derive(Debug, Parser)]
struct Arguments {
    /// What is measured
    system: System,
    /// The works, each for itself
    works: Vec<Work>,
    /// Where the system listens: nodes of one cluster, of which the first is asked as long as it answers
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:7400"
    )]
    endpoint: Vec<String>,
    /// Workers, each with one operation under way
    #[arg(long, default_value_t = 64)]
    workers: usize,
    /// Connections that the workers share
    #[arg(long, default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    connections: usize,
    /// For how long each work is measured
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Measure no work: kill this process, the leader, and measure how long it takes until the next claim succeeds
    #[arg(long, value_name = "PID", conflicts_with = "works")]
    kill: Option<i32>,
    /// For `disk`: the folder in which a file is written
    #[arg(long, default_value = ".")]
    folder: PathBuf,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum System {
    /// Our server
    Tenure,
    /// Redis, as durable as it was set up
    Redis,
    /// etcd, which syncs what it answers
    Etcd,
    /// ZooKeeper, which syncs what it answers
    Zookeeper,
    /// No server: an append with its sync in a file of the folder
    Disk,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Half of the cores: what is measured needs the others.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads((cores / 2).max(1))
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(measure(&arguments)),
        Err(error) => Err(told(error)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("tenure-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let (addresses, connections) = (&arguments.endpoint, arguments.connections);
    // A holder asks anew before long.
    let timeout = arguments.kill.map_or(CALL_TIMEOUT, |_| failover::CALL_TIMEOUT);
    match arguments.system {
        System::Tenure => {
            let place = Place {
                endpoints: addresses.clone(),
                tenant: "default".to_owned(),
                namespace: "default".to_owned(),
                timeout,
            };
            all(Tenure::connect(&place, connections).await?, arguments).await
        }
        System::Redis => {
            let address = addresses.first().map_or("", String::as_str);
            all(Redis::connect(address, timeout, connections).await?, arguments).await
        }
        System::Etcd => all(Etcd::connect(addresses, timeout, connections).await?, arguments).await,
        System::Zookeeper => all(ZooKeeper::connect(addresses, timeout, connections).await?, arguments).await,
        System::Disk => {
            let duration = Duration::from_secs(arguments.seconds);
            let latencies = floor::appends_with_sync(&arguments.folder, duration).map_err(told)?;
            println!(
                "sync workers=1 connections=0: {} ops/s p50={}us p99={}us errors=0",
                latencies.total() / arguments.seconds.max(1),
                latencies.per_mille(500),
                latencies.per_mille(990)
            );
            Ok(())
        }
    }
}

async fn all<T: Target>(targets: Vec<T>, arguments: &Arguments) -> Result<(), Failure> {
    if let Some(process) = arguments.kill {
        let holder = targets.first().ok_or_else(|| told("there is no connection"))?;
        let seen = failover::measure(holder, &std::process::id().to_string(), || kill(process)).await?;
        println!("{seen}");
        return Ok(());
    }
    let targets: Vec<Arc<T>> = targets.into_iter().map(Arc::new).collect();
    let settings = Settings {
        workers: arguments.workers,
        duration: Duration::from_secs(arguments.seconds),
    };
    for work in &arguments.works {
        let report = run(*work, &targets, settings).await?;
        println!("{report}");
        if let Some(error) = report.first_error {
            eprintln!("tenure-bench: the first error: {error}");
        }
    }
    Ok(())
}

/// Ends a process without letting it do anything more.
fn kill(process: i32) -> io::Result<()> {
    let process = Pid::from_raw(process).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(process, Signal::KILL)?)
}

fn told(error: impl fmt::Display) -> Failure {
    Failure::Unexpected {
        what: error.to_string(),
    }
}
