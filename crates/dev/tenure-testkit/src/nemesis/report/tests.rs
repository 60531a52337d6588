//! What ends is counted to the fault before it.

use std::future::pending;
use std::task::{Context, Waker};

use super::super::{Fault, Report, Tally};

#[test]
fn what_ends_is_counted_to_the_fault_that_struck_last() {
    let (mut report, tally) = (Report::default(), Tally::default());
    let mut context = Context::from_waker(Waker::noop());
    let mut done = std::pin::pin!(tally.count(async { Ok(()) }));
    let mut under_way = std::pin::pin!(tally.count(pending::<Result<(), _>>()));
    report.strike(Fault::Kill, &tally);
    assert!(under_way.as_mut().poll(&mut context).is_pending());
    report.strike(Fault::Freeze, &tally);
    assert!(done.as_mut().poll(&mut context).is_ready());
    report.settle(&tally);
    assert_eq!(report.strikes(), 2);
    let text = report.to_string();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["freeze", "1", "1", "1", "0", "0", "0"], "{text}");
    assert_eq!(rows[2], ["kill", "1", "0", "0", "0", "0", "0"], "{text}");
}
