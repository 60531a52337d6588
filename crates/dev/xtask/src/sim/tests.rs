//! How the arguments are divided.

use super::*;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

#[test]
fn seeds_are_ours_and_the_rest_is_for_the_test_runner() {
    for given in [
        &["--seeds", "7", "renew", "--no-capture"][..],
        &["renew", "--seeds=7", "--no-capture"][..],
    ] {
        let (seeds, rest) = split(&words(given)).unwrap();
        assert_eq!(seeds, Some(7));
        assert_eq!(rest, ["renew", "--no-capture"]);
    }
    assert_eq!(split(&[]).unwrap(), (None, Vec::new()));
}

#[test]
fn a_number_of_seeds_that_makes_no_sense_is_wrong_usage() {
    for given in [&["--seeds"][..], &["--seeds", "many"][..], &["--seeds=0"][..]] {
        assert_eq!(split(&words(given)).expect_err("no number").exit_code(), 2, "{given:?}");
    }
}
