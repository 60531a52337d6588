//! Tests of the ledger: a broken promise is found, and an unknown outcome is none.

use std::collections::BTreeMap;

use super::Ledger;

fn there(facts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    facts
        .iter()
        .map(|(key, version)| ((*key).to_owned(), *version))
        .collect()
}

#[test]
fn a_run_in_which_everything_was_kept_has_no_violations() {
    let ledger = Ledger::default();
    ledger.fact_written("a", 5);
    ledger.fact_unknown("b");
    ledger.fact_unknown("c");
    ledger.fact_seen("a", 5);
    ledger.fact_seen("b", 6);
    ledger.counted(true);
    ledger.counted(false);
    ledger.settle(&there(&[("a", 5), ("b", 6)]), 2);
    assert_eq!(ledger.violations(), Vec::<String>::new());
}

#[test]
fn a_write_that_was_acknowledged_and_is_gone_is_found() {
    let ledger = Ledger::default();
    ledger.fact_written("a", 5);
    ledger.settle(&there(&[]), 0);
    assert_eq!(ledger.violations(), ["a was acknowledged as version 5 and is gone"]);
}

#[test]
fn a_change_that_a_watch_missed_or_repeated_is_found() {
    let ledger = Ledger::default();
    ledger.fact_written("a", 5);
    ledger.fact_written("b", 6);
    ledger.fact_seen("b", 6);
    ledger.fact_seen("b", 6);
    ledger.settle(&there(&[("a", 5), ("b", 6)]), 0);
    let expected = ["a watch showed b twice", "a is there and no watch showed it"];
    assert_eq!(ledger.violations(), expected);
}

#[test]
fn a_counter_beyond_what_may_have_been_counted_is_found() {
    for counter in [0, 3] {
        let ledger = Ledger::default();
        ledger.counted(true);
        ledger.counted(false);
        ledger.settle(&there(&[]), counter);
        assert_eq!(ledger.violations().len(), 1, "counter {counter}");
    }
}
