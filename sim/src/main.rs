//! Runs the simulation for one seed, or for many.

use std::process::ExitCode;

use tenure_sim::{Planted, Report, Setup, Skew, Speed};

const USAGE: &str = "\
Usage: cargo run --profile ci -- [--seed N] [--seeds COUNT] [--nodes COUNT] [--skew NODE:fast|slow]
                                 [--plant DEFECT] [--trace FILTER]

--seed N        Runs this seed (0 if none is given) and prints everything that could be observed.
--seeds COUNT   Runs so many seeds, from --seed on, and prints those that broke a promise.
--nodes COUNT   Runs a cluster of so many nodes; one if none is given.
--skew NODE:fast
                Lets the clock of this node, counted from 1, go by a fifth too fast, or, with slow, too slow.
--plant DEFECT  Puts in a defect that is to be found: slow-clocks, lying-disk,
                repeats-as-new, fast-node, no-read-index or lost-time.
--trace FILTER  Also prints what the node and the clients trace, to standard error, such as tenure_replica=debug.

Ends with status 1 if a promise was broken.";

/// What is asked for.
struct Options {
    setup: Setup,
    seeds: Option<u64>,
    trace: Option<String>,
}

impl Options {
    fn run(&self, seed: u64) -> Report {
        tenure_sim::run(Setup { seed, ..self.setup })
    }
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
        let report = options.run(options.setup.seed);
        println!("{report}");
        return ExitCode::from(u8::from(!report.violations.is_empty()));
    };
    let mut broken = 0_u64;
    let first = options.setup.seed;
    for seed in first..first.saturating_add(seeds) {
        let report = options.run(seed);
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
        setup: Setup::of(0),
        seeds: None,
        trace: None,
    };
    while let Some(argument) = arguments.next() {
        let value = arguments.next()?;
        match argument.as_str() {
            "--seed" => options.setup.seed = value.parse().ok()?,
            "--seeds" => options.seeds = Some(value.parse().ok()?),
            "--nodes" => options.setup.nodes = value.parse().ok().filter(|nodes| (1..=9).contains(nodes))?,
            "--skew" => options.setup.skew = Some(skew(&value)?),
            "--plant" => options.setup.planted = Some(Planted::ALL.into_iter().find(|kind| kind.name() == value)?),
            "--trace" => options.trace = Some(value),
            _ => return None,
        }
    }
    Some(options)
}

fn skew(value: &str) -> Option<Skew> {
    let (node, speed) = value.split_once(':')?;
    let node = node.parse().ok()?;
    let speed = match speed {
        "fast" => Speed::Fast,
        "slow" => Speed::Slow,
        _ => return None,
    };
    Some(Skew { node, speed })
}
