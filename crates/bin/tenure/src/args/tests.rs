//! What the parser takes, and the reference that is made from it.

#[cfg(feature = "server")]
mod reference;

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use super::cache::{CacheCommand, Put};
use super::counter::CounterCommand;
use super::session::SessionCommand;
use super::stream::{From, StreamCommand};
use super::{Arguments, Command};
use crate::output::Format;

fn parsed(words: &str) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(std::iter::once("tenure").chain(words.split_whitespace()))
}

fn put(words: &str) -> Put {
    match parsed(words).unwrap().command {
        Command::Cache(CacheCommand::Put(put)) => put,
        other => panic!("{other:?}"),
    }
}

fn refused(words: &str) -> ErrorKind {
    parsed(words).expect_err(words).kind()
}

#[test]
fn the_parser_does_not_contradict_itself() {
    Arguments::command().debug_assert();
}

#[test]
fn global_options_stand_before_or_behind_the_command() {
    for words in [
        "--output json --timeout 250ms -n prod --endpoints a:1,b:2 cache get c k",
        "cache get c k --output json --timeout 250ms --namespace prod --endpoints a:1,b:2",
        "cache --output json get --timeout 250ms c -n prod k --endpoints a:1 --endpoints b:2",
    ] {
        let global = parsed(words).unwrap().global;
        assert_eq!(global.output, Format::Json);
        assert_eq!(global.timeout, Duration::from_millis(250));
        assert_eq!(global.namespace.as_deref(), Some("prod"));
        assert_eq!(global.endpoints, ["a:1", "b:2"]);
    }
}

#[test]
fn a_put_has_at_most_one_condition() {
    let conditions = [
        "--if-absent",
        "--if-present",
        "--if-version 7",
        "--if-value x",
        "--if-created 3",
    ];
    for (index, one) in conditions.iter().enumerate() {
        assert!(parsed(&format!("cache put c k v {one}")).is_ok());
        for other in &conditions[index + 1..] {
            assert_eq!(
                refused(&format!("cache put c k v {one} {other}")),
                ErrorKind::ArgumentConflict
            );
        }
    }
}

#[test]
fn a_value_is_given_once_or_read_from_standard_input() {
    assert_eq!(put("cache put c k").value, None);
    assert_eq!(put("cache put c k v").value.unwrap(), "v");
    assert_eq!(put("cache put c k -5").value.unwrap(), "-5");
    assert_eq!(put("cache put c k -- --v").value.unwrap(), "--v");
    assert!(put("cache put c k --file f").file.is_some());
    assert_eq!(refused("cache put c k v --file f"), ErrorKind::ArgumentConflict);
}

#[test]
fn a_watch_has_one_beginning_and_one_target() {
    assert!(parsed("cache watch c --key k --from 3 --count 1").is_ok());
    assert_eq!(
        refused("cache watch c --from 3 --with-state"),
        ErrorKind::ArgumentConflict
    );
    assert_eq!(refused("cache watch c --key k --prefix p"), ErrorKind::ArgumentConflict);
    assert_eq!(refused("cache watch c --count 0"), ErrorKind::ValueValidation);
}

#[test]
fn a_session_is_closed_by_force_only_with_a_yes() {
    assert!(parsed("session close 7 --force --yes").is_ok());
    assert_eq!(refused("session close 7 --force"), ErrorKind::MissingRequiredArgument);
}

#[test]
fn a_session_has_a_ttl_of_its_own() {
    let Command::Session(SessionCommand::Open { ttl, .. }) = parsed("session open --ttl 5m").unwrap().command else {
        panic!("another command");
    };
    assert_eq!(ttl, Duration::from_secs(300));
    assert_eq!(refused("session open --ttl 5"), ErrorKind::ValueValidation);
}

#[test]
fn a_session_is_kept_while_a_command_runs_that_stands_behind_two_dashes() {
    let kept = parsed("session keep 7:ab -- job --token 5").unwrap().command;
    let Command::Session(SessionCommand::Keep { session, command }) = kept else {
        panic!("another command");
    };
    assert_eq!((session.as_str(), command.len()), ("7:ab", 3));
    assert_eq!(refused("session keep 7:ab"), ErrorKind::MissingRequiredArgument);
    assert_eq!(refused("session keep 7:ab job"), ErrorKind::UnknownArgument);
}

#[test]
fn no_time_at_all_is_refused() {
    assert_eq!(refused("cache ls --timeout 0s"), ErrorKind::ValueValidation);
}

#[test]
fn a_counter_takes_negative_numbers() {
    let Command::Counter(CounterCommand::Add { delta, .. }) = parsed("counter add c k -7").unwrap().command else {
        panic!("another command");
    };
    assert_eq!(delta, -7);
    assert_eq!(refused("counter add c k 1.5"), ErrorKind::ValueValidation);
    assert_eq!(
        refused("counter add c k 9223372036854775808"),
        ErrorKind::ValueValidation
    );
}

#[test]
fn keys_are_deleted_by_prefix_only_without_a_condition() {
    assert!(parsed("cache delete c --prefix p --yes").is_ok());
    assert!(parsed("cache delete c k --if-created 7").is_ok());
    assert_eq!(
        refused("cache delete c k --prefix p --yes"),
        ErrorKind::ArgumentConflict
    );
    assert_eq!(
        refused("cache delete c --prefix p --yes --if-version 1"),
        ErrorKind::ArgumentConflict
    );
    assert_eq!(
        refused("cache delete c k --if-version 1 --if-created 2"),
        ErrorKind::ArgumentConflict
    );
    assert_eq!(refused("cache delete c"), ErrorKind::MissingRequiredArgument);
}

#[test]
fn a_stream_is_read_from_a_name_or_a_number() {
    for (text, expected) in [
        ("earliest", From::Earliest),
        ("latest", From::Latest),
        ("17", From::Offset(17)),
    ] {
        let Command::Stream(StreamCommand::Read(read)) =
            parsed(&format!("stream read s --from {text}")).unwrap().command
        else {
            panic!("another command");
        };
        assert_eq!(read.from, expected);
    }
    assert_eq!(refused("stream read s --from now"), ErrorKind::ValueValidation);
    assert_eq!(
        refused("stream publish s x --seal --fence-token 1"),
        ErrorKind::ArgumentConflict
    );
    assert_eq!(refused("stream publish s --seal"), ErrorKind::MissingRequiredArgument);
}

#[test]
fn a_command_that_does_not_exist_is_a_wrong_argument() {
    for words in ["lock run x", "cache drop c", "stream drop s", "nonsense"] {
        assert_eq!(refused(words), ErrorKind::InvalidSubcommand, "{words}");
    }
}
