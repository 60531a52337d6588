//! A child process that ends when the test ends, however it ends.
//!
//! It is killed when its handle is dropped. A test that is itself killed drops nothing, so the child is started by
//! `setpriv`, which asks the kernel to kill it with its parent. The kernel means the parent's thread, so all children
//! are started by one thread that lives as long as the process.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Lines of standard error that are kept for the failure message.
const STDERR_LINES_MAX: usize = 400;
/// Lines of standard output that wait to be read.
const STDOUT_LINES_MAX: usize = 1_024;
/// How long the last lines of a child that has ended may take to be read.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(2);
/// How often an exit is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Where a program is that starts another one so that it ends with its parent.
const SETPRIV: &str = "/usr/bin/setpriv";

/// A running child with its standard streams.
#[derive(Debug)]
pub struct ChildProcess {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: mpsc::Receiver<String>,
    stderr: Arc<Mutex<VecDeque<String>>>,
    /// Reads standard error until that is closed.
    stderr_reader: JoinHandle<()>,
    status: Option<ExitStatus>,
}

impl ChildProcess {
    /// Starts a program. `name` is what failure messages call it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start<A: AsRef<OsStr>>(name: &str, program: &Path, arguments: impl IntoIterator<Item = A>) -> ChildProcess {
        let mut command = if Path::new(SETPRIV).exists() {
            let mut command = Command::new(SETPRIV);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(arguments);
        for (variable, _) in std::env::vars_os() {
            // What the person who runs the tests has chosen for a cluster of theirs is not meant for this one.
            if variable.to_string_lossy().starts_with("TENURE_") {
                command.env_remove(variable);
            }
        }
        command.env("RUST_BACKTRACE", "1");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = start_on_lasting_thread(command)
            .unwrap_or_else(|error| panic!("{name}: {} cannot be started: {error}", program.display()));
        let stdin = child.stdin.take();
        let (lines, stdout) = mpsc::sync_channel(STDOUT_LINES_MAX);
        let output = child.stdout.take().expect("standard output is piped");
        std::thread::spawn(move || {
            // A full channel makes the child wait; a closed one means that nobody reads any more.
            let _ = read_lines(output).try_for_each(|line| lines.send(line));
        });
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let (errors, kept) = (
            child.stderr.take().expect("standard error is piped"),
            Arc::clone(&stderr),
        );
        let stderr_reader = std::thread::spawn(move || {
            for line in read_lines(errors) {
                let mut kept = locked(&kept);
                if kept.len() == STDERR_LINES_MAX {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
        ChildProcess {
            name: name.to_owned(),
            child,
            stdin,
            stdout,
            stderr,
            stderr_reader,
            status: None,
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its standard output; `None` if it has closed that or the time is over.
    pub fn next_line(&self, limit: Duration) -> Option<String> {
        self.stdout.recv_timeout(limit).ok()
    }

    /// Writes a line to its standard input.
    ///
    /// # Panics
    /// If it does not take it.
    pub fn write_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("standard input is piped");
        let written = stdin
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| stdin.flush());
        if let Err(error) = written {
            panic!("{} does not take {line:?}: {error}\n{}", self.name, self.stderr());
        }
    }

    /// The last lines of its standard error; all of it once it has ended.
    pub fn stderr(&self) -> String {
        let asked = Instant::now();
        // Somebody whom it has started may still have its standard error.
        while self.status.is_some() && !self.stderr_reader.is_finished() && asked.elapsed() < LAST_WORDS_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
        let kept = locked(&self.stderr);
        kept.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it has ended.
    pub fn signal(&self, signal: Signal) {
        assert!(self.status.is_none(), "{} has ended", self.name);
        kill_process(Pid::from_child(&self.child), signal)
            .unwrap_or_else(|error| panic!("{}: {signal:?} cannot be sent: {error}", self.name));
    }

    /// Stops it where it is (SIGSTOP) until [`resume`](ChildProcess::resume). Returns once it stands still.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        let started = Instant::now();
        while !stopped() {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "{} does not stop",
                self.name
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Lets it go on after [`pause`](ChildProcess::pause) (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it (SIGKILL) and returns once it is gone.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            self.status = self.child.wait().ok();
        }
    }

    /// The status with which it ended, if it has.
    pub fn try_status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Waits until it has ended; `None` if it has not in that time.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.try_status() {
                return Some(status);
            }
            if started.elapsed() >= limit {
                return None;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- {} said:\n{}---", self.name, self.stderr());
        }
    }
}

/// The binary under test: `TENURE_BIN`, else the one that a build of the profile `ci` leaves in the target folder.
///
/// # Panics
/// If there is none.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("TENURE_BIN") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "TENURE_BIN names {}, which is no file", path.display());
        return path;
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .expect("this crate lies three folders below the workspace");
    let path = workspace.join("target/ci/tenure");
    assert!(
        path.is_file(),
        "there is no {}: run `cargo xtask test`, which builds it",
        path.display()
    );
    path
}

/// Starts a child from the one thread that never ends before the process does.
fn start_on_lasting_thread(command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static STARTER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (jobs, waiting) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, answer) in waiting {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(jobs)
    });
    let (answer, started) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts children has ended");
    locked(starter).send((command, answer)).map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}

fn read_lines(source: impl io::Read) -> impl Iterator<Item = String> {
    let mut source = BufReader::new(source);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        let read = source.read_until(b'\n', &mut line).ok()?;
        (read > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
