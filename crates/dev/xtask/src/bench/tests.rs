//! What is read from other programs, and which numbers are not believed.

use super::*;
use server::count_syncs;

fn measured(rate: u64) -> Measured {
    let line = format!("claim workers=64 connections=4: {rate} ops/s p50=7us p99=9us errors=0");
    Measured::read(&line).unwrap()
}

fn options(words: &[&str]) -> Result<Options, Failure> {
    parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
}

#[test]
fn the_line_of_a_measurement_is_read() {
    let read = measured(123);
    assert_eq!(
        (read.work.as_str(), read.rate, read.p50_us, read.p99_us, read.errors),
        ("claim", 123, 7, 9, 0)
    );
    for line in [
        "",
        "ready 127.0.0.1:7400",
        "claim: 1 ops/s",
        "claim workers=1: x ops/s p50=1us p99=1us errors=0",
    ] {
        assert_eq!(Measured::read(line), None, "{line}");
    }
}

#[test]
fn interrupted_calls_are_counted_once() {
    let trace = "\
7 fdatasync(9) = 0
7 fdatasync(9 <unfinished ...>
8 fsync(3) = 0
7 <... fdatasync resumed>) = 0
8 sync_file_range(3, 0, 0, 2) = 0
";
    assert_eq!(count_syncs(trace), 4);
}

#[test]
fn the_round_with_the_middle_rate_counts() {
    let rounds = |rates: [u64; 3]| rates.map(measured).to_vec();
    let comparison = Comparison::new("claim", SHARED, rounds([9, 1, 5]), rounds([10, 11, 10]));
    let report = table::Report {
        comparisons: vec![comparison],
        ..table::Report::default()
    };
    let text = report.to_string();
    assert!(
        text.contains("| claim | 64 / 4 | 5 | 7 | 9 | 10 | 7 | 9 | 0.50 |"),
        "{text}"
    );
    report.verdict().unwrap();
}

#[test]
fn a_side_that_does_not_sync_is_not_believed() {
    let counted = |syncs| Counted {
        system: System::Redis,
        measured: measured(1_000),
        syncs,
    };
    let report = |syncs| table::Report {
        counted: vec![counted(syncs)],
        ..table::Report::default()
    };
    report(1).verdict().unwrap();
    let failure = report(0).verdict().expect_err("nothing was synced");
    assert!(failure.to_string().contains("redis made no syncs"), "{failure}");
}

#[test]
fn errors_are_not_believed() {
    let failed = Measured {
        errors: 1,
        ..measured(1)
    };
    let report = table::Report {
        comparisons: vec![Comparison::new("claim", SHARED, vec![failed], vec![measured(1)])],
        ..table::Report::default()
    };
    assert!(report.verdict().is_err());
}

#[test]
fn options_are_read_and_others_refused() {
    assert_eq!(
        options(&[]).unwrap(),
        Options {
            seconds: SECONDS,
            quick: false,
            nodes: None,
            profile: PROFILE.to_owned(),
        }
    );
    assert_eq!(
        options(&["--quick", "--seconds", "2"]).unwrap(),
        Options {
            seconds: 2,
            quick: true,
            nodes: None,
            profile: PROFILE.to_owned(),
        }
    );
    let three = options(&["--nodes", "3", "--profile", "ci"]).unwrap();
    assert_eq!((three.nodes, three.profile.as_str()), (Some(3), "ci"));
    for words in [
        &["--seconds"][..],
        &["--seconds", "0"],
        &["--seconds", "x"],
        &["--nodes", "2"],
        &["--profile"],
        &["claim"],
    ] {
        assert_eq!(options(words).expect_err("it is refused").exit_code(), 2, "{words:?}");
    }
}
