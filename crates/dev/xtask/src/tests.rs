//! How commands are found, and what happens when they are not.

use super::*;

fn arguments(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

#[test]
fn an_unknown_command_is_wrong_usage() {
    let failure = dispatch(&arguments(&["frobnicate"])).expect_err("there is no such command");
    assert_eq!(failure.exit_code(), 2);
    assert!(failure.to_string().contains("frobnicate"), "{failure}");
}

#[test]
fn a_missing_command_is_wrong_usage() {
    assert_eq!(dispatch(&[]).expect_err("nothing to run").exit_code(), 2);
}

#[test]
fn every_command_has_help_that_names_it() {
    for command in COMMANDS {
        assert!(
            command.help.contains(&format!("cargo xtask {}", command.name)),
            "{}",
            command.name
        );
        dispatch(&arguments(&[command.name, "--help"])).unwrap();
    }
}

#[test]
fn commands_without_arguments_refuse_them() {
    let failure = dispatch(&arguments(&["tidy", "everything"])).expect_err("tidy takes no argument");
    assert_eq!(failure.exit_code(), 2);
}
