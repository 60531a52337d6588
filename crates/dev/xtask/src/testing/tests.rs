//! How the count of the tests is recognised, and what is missing is told.

use super::*;

#[test]
fn the_count_of_the_tests_is_recognised() {
    for line in [
        "Summary [   0.003s] 1 test run: 1 passed, 0 skipped",
        "Summary [  12.500s] 40 tests run: 39 passed (1 slow), 1 failed, 2 skipped",
        "Summary [   0.100s] 3/40 tests run: 2 passed, 1 failed, 0 skipped",
    ] {
        assert!(is_summary(line), "{line}");
    }
    for line in [
        "",
        "PASS [   0.003s] xtask tests::Summary",
        "error: test run failed",
        "Summary of it",
    ] {
        assert!(!is_summary(line), "{line}");
    }
}

#[test]
fn a_package_that_does_not_exist_is_not_installed() {
    assert!(!is_installed("no-such-package-of-debian"));
}

#[test]
fn nothing_to_install_needs_no_right() {
    install_debian_packages(&[]).unwrap();
}

#[test]
fn packages_and_filters_select_what_both_select() {
    let select = |words: &[&str]| select(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>());
    assert_eq!(select(&["renew", "--no-capture"]), ["renew", "--no-capture"]);
    assert_eq!(
        select(&["-p", "a", "renew", "--", "-p"]),
        ["-E", "(package(=a))", "renew", "--", "-p"]
    );
    let both = ["-E", "(package(=a) | package(=b)) & (test(/x=y/))"];
    assert_eq!(select(&["-p", "a", "--package=b", "-E", "test(/x=y/)"]), both);
}
