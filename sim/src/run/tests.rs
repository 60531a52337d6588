//! Tests of whole runs.

use super::run;
use crate::setup::{Planted, Setup};

/// Seeds of one test run, if nothing else is asked for.
const SEEDS_DEFAULT: u64 = 6;
/// Seeds among which a planted defect is found.
const PLANTED_SEEDS: u64 = 10;
/// How more are asked for.
const SEEDS_VARIABLE: &str = "TENURE_SIM_SEEDS";

#[test]
fn the_same_seed_gives_the_same_output() {
    for seed in [1, 2] {
        let (first, second) = (run(Setup::of(seed)), run(Setup::of(seed)));
        for (number, (one, other)) in first.output.lines().zip(second.output.lines()).enumerate() {
            assert_eq!(one, other, "seed {seed}: line {} differs", number + 1);
        }
        assert_eq!(first, second);
    }
}

#[test]
fn the_same_seed_gives_three_nodes_the_same_output() {
    let setup = Setup::of(1).nodes(3);
    let (first, second) = (run(setup), run(setup));
    for (number, (one, other)) in first.output.lines().zip(second.output.lines()).enumerate() {
        assert_eq!(one, other, "line {} differs", number + 1);
    }
    assert_eq!(first, second);
}

#[test]
fn another_seed_gives_another_output() {
    assert_ne!(run(Setup::of(1)).output, run(Setup::of(2)).output);
}

#[test]
fn every_promise_is_kept_through_crashes() {
    let seeds = std::env::var(SEEDS_VARIABLE).map_or(SEEDS_DEFAULT, |seeds| seeds.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        let report = run(Setup::of(seed));
        assert!(report.violations.is_empty(), "{report}");
    }
}

#[test]
fn three_nodes_keep_every_promise_through_crashes_and_partitions() {
    let seeds = std::env::var(SEEDS_VARIABLE).map_or(SEEDS_DEFAULT, |seeds| seeds.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        let report = run(Setup::of(seed).nodes(3));
        assert!(report.violations.is_empty(), "{report}");
    }
}

#[test]
fn clocks_that_go_too_slowly_are_found() {
    let found = (0..PLANTED_SEEDS).any(|seed| {
        let violations = run(Setup::of(seed).with(Planted::SlowClocks)).violations;
        violations.iter().any(|what| what.contains("still rightly believes"))
    });
    assert!(found, "no seed showed two holders of one key");
}

#[test]
fn a_disk_that_lies_about_its_syncs_is_found() {
    let found = (0..PLANTED_SEEDS).any(|seed| !run(Setup::of(seed).with(Planted::LyingDisk)).violations.is_empty());
    assert!(found, "no seed showed a lost write");
}

#[test]
fn a_client_that_repeats_what_is_unknown_as_new_is_found() {
    let found = (0..PLANTED_SEEDS).any(|seed| {
        let violations = run(Setup::of(seed).with(Planted::RepeatsAsNew)).violations;
        violations.iter().any(|what| what.contains("is there twice"))
    });
    assert!(found, "no seed showed a record twice");
}

#[test]
fn a_node_whose_clock_goes_too_fast_is_found() {
    let found = (0..PLANTED_SEEDS).any(|seed| {
        let violations = run(Setup::of(seed).with(Planted::FastNode)).violations;
        violations
            .iter()
            .any(|what| what.contains("before its window was over"))
    });
    assert!(found, "no seed showed a message that was new too early");
}
