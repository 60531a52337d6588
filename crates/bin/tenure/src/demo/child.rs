//! Processes that a story starts: this same program, ended by their ids when the story ends, however it ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::Wrong;
use crate::exit::Failure;

/// How long a line of a process is waited for.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);
/// Lines that a process may be ahead.
const LINES_MAX: usize = 16;

/// A process that ends when this is dropped.
pub(super) struct Part {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Option<Receiver<String>>,
}

/// Ends this process when the one that started it ends, even if that is killed.
pub(super) fn end_with_parent() {
    // Without it a process is left only if the demo is killed; that is no reason not to play.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

impl Part {
    /// Starts this program with these arguments.
    pub(super) fn start(words: &[&str]) -> Result<Part, Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed(
                format!("a process could not be started: {error}"),
                "free some resources",
            )
        };
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("demo-part")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let mut part = Part {
            child,
            stdin,
            lines: None,
        };
        let (sender, lines) = sync_channel(LINES_MAX);
        std::thread::Builder::new()
            .name("demo-part".to_owned())
            .spawn(move || {
                for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
                    let Ok(line) = line else { return };
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            })
            .map_err(failed)?;
        part.lines = Some(lines);
        Ok(part)
    }

    /// What stands behind this word in the next line that the process prints.
    pub(super) async fn said(&mut self, word: &str) -> Result<String, Wrong> {
        let lines = self
            .lines
            .take()
            .ok_or_else(|| Wrong::Story("two wait for one process".to_owned()))?;
        let waited = tokio::task::spawn_blocking(move || (lines.recv_timeout(LINE_TIMEOUT), lines)).await;
        let (line, lines) = waited.map_err(|error| Wrong::Story(error.to_string()))?;
        self.lines = Some(lines);
        let line = line.map_err(|_| Wrong::Story(format!("a process did not say {word:?}")))?;
        line.strip_prefix(word)
            .map(|rest| rest.trim_start().to_owned())
            .ok_or_else(|| Wrong::Story(format!("a process said {line:?} and not {word:?}")))
    }

    /// Gives the process a line.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), Wrong> {
        let stdin = self
            .stdin
            .as_mut()
            .ok_or_else(|| Wrong::Story("a process cannot be told anything".to_owned()))?;
        writeln!(stdin, "{line}").map_err(|error| Wrong::Story(format!("a process cannot be told anything: {error}")))
    }

    /// Stops the process where it is.
    pub(super) fn pause(&self) -> Result<(), Wrong> {
        self.send(Signal::STOP)
    }

    /// Lets it go on.
    pub(super) fn resume(&self) -> Result<(), Wrong> {
        self.send(Signal::CONT)
    }

    fn send(&self, signal: Signal) -> Result<(), Wrong> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Wrong::Story("a process has no id".to_owned()))?;
        kill_process(id, signal).map_err(|error| Wrong::Story(format!("a process cannot be stopped: {error}")))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
