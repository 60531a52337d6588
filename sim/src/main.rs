//! Runs the simulation for one seed, or for many.

use std::process::ExitCode;

use tenure_sim::Planted;

const USAGE: &str = "\
Usage: cargo run --profile ci -- [--seed N] [--seeds COUNT] [--plant DEFECT] [--trace FILTER]

--seed N        Runs this seed (0 if none is given) and prints everything that could be observed.
--seeds COUNT   Runs so many seeds, from --seed on, and prints those that broke a promise.
--plant DEFECT  Puts in a defect that is to be found: slow-clocks, lying-disk,
                repeats-as-new or fast-node.
--trace FILTER  Also prints what the node and the clients trace, to standard error, such as tenure_replica=debug.

Ends with status 1 if a promise was broken.";

/// What is asked for.
struct Options {
    seed: u64,
    seeds: Option<u64>,
    planted: Option<Planted>,
    trace: Option<String>,
}

fn main() -> ExitCode {
    let Some(options) = read(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Some(filter) = &options.trace {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .without_time()
            .init();
    }
    let Some(seeds) = options.seeds else {
        let report = tenure_sim::run_with(options.seed, options.planted);
        println!("{report}");
        return ExitCode::from(u8::from(!report.violations.is_empty()));
    };
    let mut broken = 0_u64;
    for seed in options.seed..options.seed.saturating_add(seeds) {
        let report = tenure_sim::run_with(seed, options.planted);
        for violation in &report.violations {
            println!("seed {seed}: {violation}");
        }
        broken += u64::from(!report.violations.is_empty());
    }
    println!("{seeds} seeds, {broken} of them broke a promise");
    ExitCode::from(u8::from(broken > 0))
}

/// Reads the arguments; `None` if they make no sense.
fn read(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        seed: 0,
        seeds: None,
        planted: None,
        trace: None,
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => options.seed = arguments.next()?.parse().ok()?,
            "--seeds" => options.seeds = Some(arguments.next()?.parse().ok()?),
            "--plant" => {
                options.planted = Some(match arguments.next()?.as_str() {
                    "slow-clocks" => Planted::SlowClocks,
                    "lying-disk" => Planted::LyingDisk,
                    "repeats-as-new" => Planted::RepeatsAsNew,
                    "fast-node" => Planted::FastNode,
                    _ => return None,
                });
            }
            "--trace" => options.trace = Some(arguments.next()?),
            _ => return None,
        }
    }
    Some(options)
}
