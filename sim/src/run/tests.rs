//! Tests of whole runs.

use super::run;
use crate::setup::{Planted, Setup, Speed};

/// Seeds of one test run, if nothing else is asked for.
const SEEDS_DEFAULT: u64 = 6;
/// Seeds among which a planted defect is found.
const PLANTED_SEEDS: u64 = 10;
/// A seed with which a leader is cut off while it is read and others write.
const NO_READ_INDEX_SEED: u64 = 1;
/// A seed with which the leadership changes while leases are about to end.
const LOST_TIME_SEED: u64 = 0;
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

/// The seeds of this test run.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var(SEEDS_VARIABLE).map_or(SEEDS_DEFAULT, |seeds| seeds.parse().expect("a number of seeds"))
}

fn keeps_every_promise(setup: Setup) {
    let report = run(setup);
    assert!(report.violations.is_empty(), "{report}");
}

#[test]
fn every_promise_is_kept_through_crashes() {
    for seed in seeds() {
        keeps_every_promise(Setup::of(seed));
    }
}

#[test]
fn three_nodes_keep_every_promise_through_crashes_and_partitions() {
    for seed in seeds() {
        keeps_every_promise(Setup::of(seed).nodes(3));
    }
}

#[test]
fn three_nodes_keep_every_promise_while_a_clock_goes_by_a_fifth_too_fast_or_too_slow() {
    for seed in seeds() {
        let node = usize::try_from(seed % 3).unwrap_or(0) + 1;
        let speed = if seed % 2 == 0 { Speed::Fast } else { Speed::Slow };
        keeps_every_promise(Setup::of(seed).nodes(3).skewed(node, speed));
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

/// Whether one of a few seeds, from this one on, shows that three nodes with a defect break this promise.
fn three_nodes_break(planted: Planted, first: u64, promise: &str) -> bool {
    let mut seeds = first..first + PLANTED_SEEDS;
    seeds.any(|seed| {
        let violations = run(Setup::of(seed).nodes(3).with(planted)).violations;
        violations.iter().any(|what| what.contains(promise))
    })
}

#[test]
fn a_leader_that_reads_without_asking_a_majority_is_found() {
    let found = three_nodes_break(Planted::NoReadIndex, NO_READ_INDEX_SEED, "no order explains");
    assert!(found, "no reader was told what had been written over before it asked");
}

#[test]
fn a_follower_that_does_not_take_over_the_leaders_time_is_found() {
    let found = three_nodes_break(Planted::LostTime, LOST_TIME_SEED, "still rightly believes");
    assert!(found, "nothing ended while its holder rightly believed in it");
}
