//! Runs the binary: as a command until it ends, or as a server until it is stopped.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long anything may take before a test fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// How long between two looks at something that is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The binary, with none of its settings taken from the environment of the tests.
pub(crate) fn command() -> Command {
    let path = std::env::var_os("TENURE_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_tenure").into());
    let mut command = Command::new(path);
    for name in ["ENDPOINTS", "TENANT", "NAMESPACE", "TIMEOUT", "SESSION", "LOG"] {
        command.env_remove(format!("TENURE_{name}"));
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a command left when it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    /// Standard output as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("the output is text")
    }
}

/// Runs a command to its end, with this on its standard input.
pub(crate) fn run(command: &mut Command, input: &[u8]) -> Ran {
    let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    // A command that does not read its input may end before it is written.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let stdout = collect(child.stdout.take().expect("it is piped"));
    let stderr = collect(child.stderr.take().expect("it is piped"));
    let status = wait_for_end(&mut child);
    writer.join().expect("the writer does not panic");
    let stderr = stderr.join().expect("the reader does not panic");
    Ran {
        status: status.code().expect("it ended by itself"),
        stdout: stdout.join().expect("the reader does not panic"),
        stderr: String::from_utf8(stderr).expect("messages are text"),
    }
}

fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    })
}

/// Waits until a process has ended; one that does not end is killed.
pub(crate) fn wait_for_end(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return status;
        }
        if begun.elapsed() > LIMIT {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
            panic!("it did not end in {LIMIT:?}");
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Waits until this holds.
pub(crate) fn wait_until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "it did not come in {LIMIT:?}");
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Sends a signal to a process of ours.
pub(crate) fn send(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .expect("an id of a process");
    kill_process(id, signal).expect("it is our child");
}

/// Lines of a process as they come.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    /// Reads lines until the pipe ends or this is dropped.
    pub(crate) fn of(from: impl Read + Send + 'static) -> Lines {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for line in BufReader::new(from).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Lines(receiver)
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&self) -> Option<String> {
        match self.0.recv_timeout(LIMIT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line came in {LIMIT:?}"),
        }
    }
}

/// A server on a folder that outlives it.
pub(crate) struct Server {
    child: Child,
    lines: Lines,
    errors: thread::JoinHandle<Vec<u8>>,
    /// Where it listens.
    pub(crate) address: String,
}

impl Server {
    /// `tenure dev` on this folder, once it is ready.
    pub(crate) fn dev(folder: &Path) -> Server {
        let mut command = command();
        command
            .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder);
        Server::ready(&mut command)
    }

    /// Whatever this command serves, once it is ready.
    pub(crate) fn ready(command: &mut Command) -> Server {
        let mut child = command.spawn().expect("the binary starts");
        let lines = Lines::of(child.stdout.take().expect("it is piped"));
        let errors = collect(child.stderr.take().expect("it is piped"));
        let Some(line) = lines.next() else {
            wait_for_end(&mut child);
            let errors = errors.join().expect("the reader does not panic");
            panic!("it did not become ready: {}", String::from_utf8_lossy(&errors));
        };
        let address = line
            .strip_prefix("ready ")
            .expect("the first line says ready")
            .to_owned();
        Server {
            child,
            lines,
            errors,
            address,
        }
    }

    /// A command for this server.
    pub(crate) fn command<T: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = T>) -> Command {
        let mut command = command();
        command.env("TENURE_ENDPOINTS", &self.address).args(words);
        command
    }

    /// Runs a command against this server.
    pub(crate) fn run<T: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = T>) -> Ran {
        run(&mut self.command(words), b"")
    }

    /// Runs a command that must succeed and returns its output without the newline.
    pub(crate) fn done<T: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = T>) -> String {
        let ran = self.run(words);
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.text().trim_end().to_owned()
    }

    /// Sends it a signal.
    pub(crate) fn send(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Sends it a signal and returns its exit status, what it still wrote, and its log.
    pub(crate) fn stop(mut self, signal: Signal) -> (Option<i32>, Vec<String>, String) {
        send(&self.child, signal);
        let status = wait_for_end(&mut self.child).code();
        let rest = std::iter::from_fn(|| self.lines.next()).collect();
        let errors = std::mem::replace(&mut self.errors, thread::spawn(Vec::new));
        let errors = errors.join().expect("the reader does not panic");
        (status, rest, String::from_utf8(errors).expect("logs are text"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that goes on while the test does something else.
pub(crate) struct Running {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let mut child = command.spawn().expect("the binary starts");
        let stdout = child.stdout.take().map(BufReader::new);
        Running { child, stdout }
    }

    /// The next line; empty at the end. It waits for as long as the whole test may take.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout
            .as_mut()
            .expect("it was not closed")
            .read_line(&mut line)
            .expect("a pipe can be read");
        line.trim_end_matches('\n').to_owned()
    }

    /// Waits for a line on standard error that holds this. What comes on standard error until then is gone.
    pub(crate) fn wait_for_error(&mut self, part: &str) {
        let stderr = Lines::of(self.child.stderr.take().expect("asked once"));
        while let Some(line) = stderr.next() {
            if line.contains(part) {
                return;
            }
        }
        panic!("it ended without {part:?} on standard error");
    }

    /// Waits for its end; returns the exit status.
    pub(crate) fn status(&mut self) -> Option<i32> {
        wait_for_end(&mut self.child).code()
    }

    /// Reads its output no more.
    pub(crate) fn close_output(&mut self) {
        self.stdout = None;
    }

    /// Sends it a signal.
    pub(crate) fn send(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Waits for its end; returns the exit status and what it wrote on standard error.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let stderr = collect(self.child.stderr.take().expect("asked once"));
        let status = wait_for_end(&mut self.child).code();
        let stderr = stderr.join().expect("the reader does not panic");
        (status, String::from_utf8(stderr).expect("messages are text"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A temporary folder, and the data folder to be made in it.
pub(crate) fn folder() -> (TempDir, PathBuf) {
    let temporary = TempDir::new().expect("a temporary folder");
    let data = temporary.path().join("data");
    (temporary, data)
}

/// An address of this machine where nobody listens.
pub(crate) fn closed_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it has an address").to_string()
}
