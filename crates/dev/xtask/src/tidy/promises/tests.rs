//! A promise without a proof is found, and so is a proof that does not exist.

use super::*;

fn findings(page: &str) -> Vec<String> {
    let sources = [
        Source::read(
            "crates/server/tenure-core/src/wait/tests.rs",
            "#[test]\nfn the_queue_is_fair() {}\n",
        ),
        Source::read(
            "crates/server/tenure-core/tests/it/model.rs",
            "#[tokio::test]\nasync fn they_agree() {}\n",
        ),
        Source::read(
            "sim/src/meta.rs",
            "mod tests {\n#[test]\nfn same_seed_same_output() {}\n}\n",
        ),
        Source::read(
            "crates/x/src/lib.rs",
            "proptest! {\n    #[test]\n    fn any_bytes(x in 0..9) {}\n}\nfn no_test() {}\n",
        ),
    ];
    let paths = ["crates/server/tenure-core/tests/transcripts/wait/queue_is_fair.txt".to_owned()];
    let found = check(&[(PAGE, page.to_owned())], &paths, &sources);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn a_page_where_everything_is_proved_passes() {
    let page = "# Semantics\n\n- a bullet of the introduction\n\n## Locks\n\nSome words.\n\n- **Fair.** First come, first\n  served.\n  \
                Proved by `tenure-core::wait::tests::the_queue_is_fair`,\n  `wait/queue_is_fair.txt`.\n\n\
                - Model. Proved by `tenure-core::it::model::they_agree`, `tenure-core::they_agree`.\n\
                - Seeds. Proved by `sim::meta::tests::same_seed_same_output` and `x::any_bytes`.\n\n\
                ### Where it stops\n\n- Not over the moon.\n\n## Streams (not built)\n\n- one day\n";
    assert_eq!(findings(page), Vec::<String>::new());
}

#[test]
fn a_promise_without_a_proof_is_found() {
    let found = findings("## Locks\n\n- one\n- two. Proved by hand.\n\n### Order\n\n* three\n");
    assert_eq!(
        found,
        [
            "docs/semantics.md:3: a promise without `Proved by` and a test",
            "docs/semantics.md:4: `Proved by` names no test in backticks",
            "docs/semantics.md:8: a promise without `Proved by` and a test",
        ]
    );
}

#[test]
fn a_proof_that_does_not_exist_is_found() {
    for name in [
        "tenure-core::the_queue_was_fair",
        "tenure-core::queue_is_fair",
        "tenure-node::the_queue_is_fair",
        "tenure-core::model::the_queue_is_fair",
        "the_queue_is_fair",
        "x::no_test",
        "wait/queue_is_unfair.txt",
        "ueue_is_fair.txt",
    ] {
        let found = findings(&format!("## Locks\n\n- one. Proved by `{name}`.\n"));
        assert_eq!(found, [format!("docs/semantics.md:3: there is no test `{name}`")]);
    }
}

#[test]
fn a_subject_that_promises_nothing_is_found() {
    assert_eq!(findings("## Locks\n\nwords\n").len(), 1);
}

#[test]
fn the_page_must_exist() {
    assert_eq!(check(&[], &[], &[]).len(), 1);
}
