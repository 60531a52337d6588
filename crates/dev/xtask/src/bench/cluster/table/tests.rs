//! What the table says, and which numbers are not believed.

use super::*;
use crate::bench::{ALONE, SHARED};

fn measured(rate: u64, errors: u64) -> Measured {
    let line = format!("claim workers=64 connections=4: {rate} ops/s p50=7us p99=9us errors={errors}");
    Measured::read(&line).unwrap()
}

fn report() -> Report {
    let mut report = Report::new(3);
    let rounds = |rates: [u64; 3]| rates.map(|rate| measured(rate, 0)).to_vec();
    report
        .compared
        .push(Compared::new(System::Tenure, SHARED, rounds([30, 10, 20])));
    report
        .compared
        .push(Compared::new(System::Etcd, SHARED, rounds([9, 10, 11])));
    report
        .compared
        .push(Compared::new(System::ZooKeeper, ALONE, rounds([1, 1, 1])));
    report.counted.push(Counted {
        system: System::Etcd,
        measured: measured(100, 0),
        syncs: vec![50, 40, 0],
    });
    for millis in [900, 700, 1_100] {
        let line = format!("failover: {millis} ms attempts=3 kept=true");
        report.failovers.push(Failover::read(System::Etcd, &line).unwrap());
    }
    report
}

#[test]
fn the_middle_round_counts_and_ours_is_told_in_parts_of_each() {
    let text = report().to_string();
    for line in [
        "| 64 / 4 | tenure | 20 | 7 | 9 | - |",
        "| 64 / 4 | etcd | 10 | 7 | 9 | 2.00 |",
        "| 1 / 1 | zookeeper | 1 | 7 | 9 | - |",
        "| etcd | 100 | 50, 40, 0 | 4.00 |",
        "| etcd | 900 | 700, 900, 1100 | yes |",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
    report().verdict().unwrap();
}

#[test]
fn a_side_that_does_not_sync_on_more_than_half_is_not_believed() {
    let mut unsynced = report();
    unsynced.counted[0].syncs = vec![50, 0, 0];
    let failure = unsynced.verdict().expect_err("one node is not enough");
    assert!(failure.to_string().contains("etcd made no syncs"), "{failure}");
    unsynced.counted[0].syncs = vec![];
    unsynced.verdict().expect_err("nothing was counted");
}

#[test]
fn errors_and_lost_keys_are_not_believed() {
    let mut failed = report();
    failed
        .compared
        .push(Compared::new(System::ZooKeeper, SHARED, vec![measured(9, 1)]));
    failed.verdict().expect_err("an operation failed");
    let mut lost = report();
    lost.failovers[1].kept = false;
    lost.verdict().expect_err("a key was lost");
}

#[test]
fn only_the_line_of_a_failover_is_read() {
    for line in [
        "",
        "failover: x ms attempts=1 kept=true",
        "failover: 1 ms attempts=1",
        "claim: 1 ms",
    ] {
        assert_eq!(Failover::read(System::Etcd, line), None, "{line}");
    }
}
