//! Running other programs, one step after another, with a line on stderr when a step begins and when it ends.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::failure::Failure;
use crate::repository::Repository;

/// The cargo that started us, so that nested calls use the same toolchain.
pub(crate) fn cargo(repository: &Repository) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository.root()).stdin(Stdio::null());
    // Set by the cargo that runs us, about us: build scripts of others would take it for their own and rebuild.
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("CARGO_PKG_") || name_text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs one step that is part of a task; fails with the step's name when it fails.
pub(crate) fn step(name: &str, body: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    eprintln!("==> {name}");
    let begin = Instant::now();
    let result = body();
    let seconds = begin.elapsed().as_secs();
    match &result {
        Ok(()) => eprintln!("==> {name}: passed in {seconds} s"),
        Err(_) => eprintln!("==> {name}: FAILED after {seconds} s"),
    }
    result
}

/// The body of a step that may run or not.
pub(crate) type Body<'a> = Box<dyn FnOnce() -> Result<(), Failure> + 'a>;

/// Runs every body, also after a failure, and fails with the names of those that failed.
pub(crate) fn all(steps: Vec<(&str, Body<'_>)>) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for (name, body) in steps {
        if let Err(failure) = step(name, body) {
            eprintln!("{failure}");
            failed.push(name);
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed(format!("failed: {}", failed.join(", "))))
    }
}

/// Runs a program to its end; its output is ours.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let text = describe(command);
    eprintln!("    {text}");
    let status = command
        .status()
        .map_err(|error| Failure::Failed(format!("cannot start `{text}`: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Failed(format!("`{text}` failed: {status}")))
    }
}

/// Runs a program and returns its standard output; its stderr is ours.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let text = describe(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::Failed(format!("cannot start `{text}`: {error}")))?;
    if !output.status.success() {
        return Err(Failure::Failed(format!("`{text}` failed: {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|_| Failure::Failed(format!("`{text}` did not print UTF-8")))
}

/// Whether a program can be started and succeeds; prints nothing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a program whose stderr passes through us; returns the last line of it that `keep` accepts, and whether the
/// program succeeded.
pub(crate) fn run_and_keep_line(
    command: &mut Command,
    keep: impl Fn(&str) -> bool,
) -> Result<(Option<String>, Result<(), Failure>), Failure> {
    let text = describe(command);
    eprintln!("    {text}");
    let cannot = |error: std::io::Error| Failure::Failed(format!("cannot run `{text}`: {error}"));
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(cannot)?;
    let stderr = child.stderr.take().expect("stderr was asked to be a pipe");
    let mut kept = None;
    // Whole lines as bytes: a test may print what is not UTF-8.
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(cannot)? > 0 {
        // Nothing useful can be done when our own stderr is closed; the tests still run to their end.
        drop(std::io::stderr().write_all(&line));
        let line_text = String::from_utf8_lossy(&line);
        if keep(line_text.trim()) {
            kept = Some(line_text.trim().to_owned());
        }
        line.clear();
    }
    let status = child.wait().map_err(cannot)?;
    let outcome = if status.success() {
        Ok(())
    } else {
        Err(Failure::Failed(format!("`{text}` failed: {status}")))
    };
    Ok((kept, outcome))
}

/// The command line, as one would type it.
fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    if let Some((_, name)) = words[0].rsplit_once('/') {
        words[0] = name.to_owned();
    }
    words.extend(
        command
            .get_args()
            .map(|argument| argument.to_string_lossy().into_owned()),
    );
    words.join(" ")
}
