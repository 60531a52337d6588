//! The page that lists every command, made from the parser, so that it never says anything else than `--help`.

use std::fmt::Write as _;
use std::path::Path;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::super::Arguments;

/// The page, from the folder of this crate.
const PAGE: &str = "../../../docs/reference/commands.md";

const BEGINNING: &str = "\
# Commands

<!-- Generated from the parser by a test of the `tenure` crate; with UPDATE_SNAPSHOTS=1 it writes this file anew. -->

One binary serves and talks to a cluster. Answers go to standard output; logs and errors go to standard error.

With `--output json` each answer is one JSON object on a line. Versions, revisions, tokens and ids of sessions are
decimal strings there, since they exceed what a double holds; lengths of time in `…_ms` are numbers. A key or a value
that is not UTF-8 stands under `key_base64` or `value_base64` instead of `key` or `value`; so does a record of a stream,
as a value.

In text, keys, and the values that `cache watch` prints, have control characters, backslashes and bytes that are not
UTF-8 escaped (`\\n`, `\\x1b`, `\\\\`), so that each stays on its line. `cache get` and `stream read` print a value
byte by byte, and a newline after it; where columns stand beside it (`--with-meta`, `--with-offsets`) it is escaped, too.

A refusal, such as a condition that does not hold, is a line on standard error that begins `refused:` and names what
stood in the way; in JSON it is an object with `\"applied\": false` on standard output. An error, wrong usage included,
is a line `tenure: what happened: what to do`; in JSON an object with `error`, `code`, `outcome` and `exit` on standard
error. The codes are in [errors.md](errors.md).

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | any other failure |
| 2 | usage or settings |
| 3 | no node could serve it in time and nothing was applied: unreachable, overloaded, no quorum, disk full |
| 4 | refused: a condition did not hold, it exists otherwise, the token is old, the tail is another |
| 4 | an error that stays one: `session_expired`, `wrong_type`, `limit`, `compacted`, `lagged` |
| 5 | does not exist, or not any more |
| 6 | outcome unknown: it may or may not have been applied |

After 6 look at the data before you ask again: another call has another request id, so it may do the same a second time.
With `--if-absent`, `--if-version`, `--if-offset` or `--dedup-id` it cannot, and what refuses it then may be what the
first call has done.

The answer of `txn` is JSON in either format. Its exit status is 0 if `then` was done. It is 4 if a guard did not hold: then
the answer has `failed_guard`, the place of that guard from 0, and `else` was done, with all that it writes. It is 4 without
`failed_guard` if nothing was done: an operation was refused, as `code` in the answer says, or one of the errors above was
met. `tenure txn --help` shows how a transaction is written. It has at most 128 guards and operations, both branches
together, with 2 MiB of keys, values and records, and reads at most 1 MiB; a branch writes a key at most once and appends to
a stream at most once.

`session keep` exits as the command that it runs does, with 128 and its number for a signal. Of its own it exits with 4 if
the session is lost, with 1 if whoever started it is gone, and with the status of the error if the session cannot be
confirmed at the beginning; the command has then been stopped or was never started. It does not end the session. The
command has a process group of its own, which gets the signals that stop `session keep`. If `session keep` itself is
killed by `kill -9`, the command is killed with it (on Linux), but not what the command has started.

A position that is still to come is no error: `cache watch --from` waits until the revision is reached, `stream read` from
behind the end prints nothing, and with `--follow` waits for that offset. A number that was mistyped waits for ever.

A mutation carries a request id of its own, so that it happens exactly once however often it had to be sent.

Durations are whole numbers above 0 with a unit: `250ms`, `10s`, `5m`, `24h`. Options that end in `-ms` take a plain
number. A flag goes before the environment, and that before the default.

`TENURE_LOG` says what is logged, as in `TENURE_LOG=warn,tenure_node=debug`. Without it a server logs what concerns its
operator, and a command logs nothing.
";

#[test]
fn the_reference_says_what_help_says() {
    let mut root = Arguments::command();
    root.build();
    let mut page = BEGINNING.to_owned();
    page.push_str("\n## Options of every command\n");
    let global: Vec<&Arg> = root
        .get_arguments()
        .filter(|argument| argument.is_global_set())
        .collect();
    page.push_str(&arguments(&global));
    for command in root.get_subcommands() {
        section(&mut page, command);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == written,
        "{} is out of date: run this test with UPDATE_SNAPSHOTS=1",
        path.display()
    );
}

/// A command, or the commands below it.
fn section(page: &mut String, command: &Command) {
    if command.get_name() == "help" || command.is_hide_set() {
        return;
    }
    if command.has_subcommands() {
        for command in command.get_subcommands() {
            section(page, command);
        }
        return;
    }
    let name = command.get_bin_name().unwrap();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let about = command.get_about().unwrap();
    write!(page, "\n## `{name}`\n\n{about}.\n\n```\n{usage}\n```\n").unwrap();
    let own: Vec<&Arg> = command.get_arguments().filter(|argument| is_own(argument)).collect();
    if !own.is_empty() {
        page.push_str(&arguments(&own));
    }
}

fn is_own(argument: &Arg) -> bool {
    !argument.is_global_set() && !argument.is_hide_set() && argument.get_id() != "help"
}

fn arguments(list: &[&Arg]) -> String {
    let mut text = "\n| argument | environment | default | meaning |\n|---|---|---|---|\n".to_owned();
    for argument in list {
        let environment = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
        let defaults: Vec<_> = argument
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
        let default = (takes_value && !defaults.is_empty()).then(|| format!("`{}`", defaults.join(",")));
        let meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
        writeln!(
            text,
            "| `{}` | {} | {} | {meaning}{} |",
            form(argument).replace('|', "\\|"),
            environment.unwrap_or_default(),
            default.unwrap_or_default(),
            values(argument),
        )
        .unwrap();
    }
    text
}

/// How an argument is written.
fn form(argument: &Arg) -> String {
    let value = argument
        .get_value_names()
        .map(|names| names.join(" "))
        .unwrap_or_default();
    let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let short = argument
        .get_short()
        .map(|short| format!("-{short}, "))
        .unwrap_or_default();
    match argument.get_long() {
        Some(long) if takes_value => format!("{short}--{long} {value}"),
        Some(long) => format!("{short}--{long}"),
        None if argument.is_required_set() => value,
        None => format!("[{value}]"),
    }
}

/// The values to choose from, if they are few.
fn values(argument: &Arg) -> String {
    let possible: Vec<PossibleValue> = argument.get_possible_values();
    let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    if !takes_value || possible.is_empty() {
        return String::new();
    }
    let names: Vec<String> = possible.iter().map(|value| format!("`{}`", value.get_name())).collect();
    format!(": {}", names.join(", "))
}
