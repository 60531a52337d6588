//! The line that programs read.

use super::*;

#[test]
fn the_line_is_the_one_that_programs_read() {
    let mut latencies = Histogram::new();
    (0..10).for_each(|_| latencies.record(7));
    let report = Report {
        work: Work::Claim,
        workers: 64,
        connections: 4,
        measured: Duration::from_secs(2),
        latencies,
        errors: 1,
        first_error: Some("refused".to_owned()),
    };
    let line = "claim workers=64 connections=4: 5 ops/s p50=7us p99=7us errors=1";
    assert_eq!(report.to_string(), line);
}
