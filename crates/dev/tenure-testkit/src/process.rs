//! A node as a process of the real binary, on a folder and an address that it keeps over restarts.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;

use crate::child::{ChildProcess, binary};
use crate::ports::free_address;

/// How long a start may take. A start takes a small part of a second; this is for a machine that is very busy.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How often another port is tried if one was taken in between.
const PORTS_TRIED_MAX: u32 = 8;

/// A node, started by `tenure dev` or as one of a cluster by `tenure start`. It is killed when this is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    folder: PathBuf,
    address: SocketAddr,
    /// The command and its options, but for the folder and the address.
    command: Vec<OsString>,
    /// Put before the command, to start the node under a tracer.
    wrapper: Vec<OsString>,
    child: ChildProcess,
}

/// A node ended before it was ready.
#[derive(Debug)]
pub struct StartFailure {
    /// Its exit status; `None`: it did not end, and was killed.
    pub status: Option<ExitStatus>,
    /// Its standard error.
    pub stderr: String,
}

impl NodeProcess {
    /// Starts a node on a folder, on a free port, and waits until it is ready.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn start(folder: &Path) -> NodeProcess {
        NodeProcess::start_under(folder, &[])
    }

    /// The same under a program that runs another one in its own place, like a tracer.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn start_under(folder: &Path, wrapper: &[OsString]) -> NodeProcess {
        NodeProcess::start_as(&["dev".into()], folder, wrapper)
    }

    /// Starts a node of a cluster: the first one founds it, another one joins the nodes at these endpoints.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn start_of_cluster(folder: &Path, home_groups: u32, join: &[String]) -> NodeProcess {
        NodeProcess::start_of_cluster_with(folder, home_groups, join, &[])
    }

    /// The same with further options of `tenure start`.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn start_of_cluster_with(folder: &Path, home_groups: u32, join: &[String], options: &[&str]) -> NodeProcess {
        NodeProcess::start_of_cluster_under(folder, home_groups, join, options, &[])
    }

    /// The same under a program that runs another one in its own place.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn start_of_cluster_under(
        folder: &Path,
        home_groups: u32,
        join: &[String],
        options: &[&str],
        wrapper: &[OsString],
    ) -> NodeProcess {
        NodeProcess::start_as(&start_command(home_groups, join, options), folder, wrapper)
    }

    /// The same on an address that was chosen before.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn start_of_cluster_at(
        address: SocketAddr,
        folder: &Path,
        home_groups: u32,
        join: &[String],
        options: &[&str],
        wrapper: &[OsString],
    ) -> NodeProcess {
        let command = start_command(home_groups, join, options);
        match launch(&command, folder, address, wrapper) {
            Ok(child) => NodeProcess {
                folder: folder.to_owned(),
                address,
                command,
                wrapper: wrapper.to_vec(),
                child,
            },
            Err(failure) => panic!("the node did not start ({:?}):\n{}", failure.status, failure.stderr),
        }
    }

    fn start_as(command: &[OsString], folder: &Path, wrapper: &[OsString]) -> NodeProcess {
        for attempt in 1..=PORTS_TRIED_MAX {
            let address = free_address();
            match launch(command, folder, address, wrapper) {
                Ok(child) => {
                    return NodeProcess {
                        folder: folder.to_owned(),
                        address,
                        command: command.to_vec(),
                        wrapper: wrapper.to_vec(),
                        child,
                    };
                }
                Err(failure) => {
                    let taken = failure.stderr.to_lowercase().contains("in use");
                    assert!(
                        taken && attempt < PORTS_TRIED_MAX,
                        "the node did not start ({:?}):\n{}",
                        failure.status,
                        failure.stderr
                    );
                }
            }
        }
        unreachable!("the last attempt returns or panics")
    }

    /// Starts a node that is expected to refuse the folder.
    ///
    /// # Panics
    /// If it becomes ready.
    pub fn start_refused(folder: &Path) -> StartFailure {
        match launch(&["dev".into()], folder, free_address(), &[]) {
            Ok(_) => panic!("a node started on {}", folder.display()),
            Err(failure) => failure,
        }
    }

    /// Starts it again on its folder and address, after it was killed or has ended.
    ///
    /// # Panics
    /// If it does not become ready, or still runs.
    pub fn restart(&mut self) {
        assert!(self.child.try_status().is_some(), "the node still runs");
        match launch(&self.command, &self.folder, self.address, &self.wrapper) {
            Ok(child) => self.child = child,
            Err(failure) => panic!(
                "the node did not start again ({:?}):\n{}",
                failure.status, failure.stderr
            ),
        }
    }

    /// The same on another address, which it keeps from then on.
    ///
    /// # Panics
    /// If it does not become ready, or still runs.
    pub fn restart_elsewhere(&mut self) {
        self.address = free_address();
        self.restart();
    }

    /// Starts it again where it is expected to end by itself before it is ready.
    ///
    /// # Panics
    /// If it becomes ready, or still runs.
    pub fn restart_refused(&mut self) -> StartFailure {
        assert!(self.child.try_status().is_some(), "the node still runs");
        match launch(&self.command, &self.folder, self.address, &self.wrapper) {
            Ok(_) => panic!("the node of {} started again", self.folder.display()),
            Err(failure) => failure,
        }
    }

    /// Kills it (SIGKILL), and returns once it is gone.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Asks it to end (SIGTERM) and returns at once.
    pub fn ask_to_end(&self) {
        self.child.signal(Signal::TERM);
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// If it has not in that time.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        match self.child.wait(limit) {
            Some(status) => status,
            None => panic!("the node did not end in {limit:?}:\n{}", self.child.stderr()),
        }
    }

    /// Stops it where it is (SIGSTOP).
    pub fn pause(&self) {
        self.child.pause();
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.child.resume();
    }

    /// The status with which it has ended by itself, if it has in that time.
    pub fn ends_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.child.wait(limit)
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_status().is_none()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as clients are told.
    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The last lines of its standard error since its last start.
    pub fn stderr(&self) -> String {
        self.child.stderr()
    }
}

fn launch(
    command: &[OsString],
    folder: &Path,
    address: SocketAddr,
    wrapper: &[OsString],
) -> Result<ChildProcess, StartFailure> {
    let mut words: Vec<OsString> = wrapper.to_vec();
    words.push(binary().into());
    words.extend_from_slice(command);
    words.push("--listen".into());
    words.push(address.to_string().into());
    words.push("--data-dir".into());
    words.push(folder.into());
    let program = PathBuf::from(words.remove(0));
    let mut child = ChildProcess::start("the node", &program, words);
    match child.next_line(START_LIMIT) {
        Some(line) => {
            assert_eq!(line, format!("ready {address}"), "the only line that a node prints");
            Ok(child)
        }
        None => {
            // Its streams are closed or it hangs; either way it is given a moment to end by itself.
            let status = child.wait(Duration::from_secs(5));
            child.kill();
            let stderr = child.stderr();
            Err(StartFailure { status, stderr })
        }
    }
}

/// The command that starts a node of a cluster.
fn start_command(home_groups: u32, join: &[String], options: &[&str]) -> Vec<OsString> {
    let mut command: Vec<OsString> = vec!["start".into(), "--home-groups".into(), home_groups.to_string().into()];
    command.extend(options.iter().map(OsString::from));
    if !join.is_empty() {
        command.extend(["--join".into(), join.join(",").into()]);
    }
    command
}
