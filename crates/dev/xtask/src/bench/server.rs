//! Servers that are measured: started on folders of their own, and ended when they are dropped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// How long a server may take to serve.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often is looked whether something has happened.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// The calls that make data durable.
const SYNC_CALLS: &str = "trace=fsync,fdatasync,sync_file_range,msync,sync,syncfs";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Tenure,
    Redis,
    Etcd,
    ZooKeeper,
}

impl System {
    pub(crate) fn name(self) -> &'static str {
        match self {
            System::Tenure => "tenure",
            System::Redis => "redis",
            System::Etcd => "etcd",
            System::ZooKeeper => "zookeeper",
        }
    }
}

/// A server that serves. Dropping it ends it.
pub(crate) struct Server {
    pub(crate) system: System,
    pub(super) child: Child,
    pub(super) address: String,
}

impl Server {
    /// Starts a server on an empty folder. With a trace its calls that sync are written there, a line for each.
    pub(crate) fn start(
        system: System,
        program: &Path,
        folder: &Path,
        trace: Option<&Path>,
    ) -> Result<Server, Failure> {
        empty(folder)?;
        let mut command = watched(program, trace);
        command.stdin(Stdio::null());
        match system {
            System::Tenure => ours(command, folder, &[]),
            System::Redis => redis(command, folder),
            System::Etcd | System::ZooKeeper => {
                Err(Failure::Failed(format!("{} is started as a cluster", system.name())))
            }
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn spawn(system: System, command: &mut Command) -> Result<Server, Failure> {
        let child = command
            .spawn()
            .map_err(|error| Failure::Failed(format!("cannot start {}: {error}", system.name())))?;
        Ok(Server {
            system,
            child,
            address: String::new(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It is thrown away with what it has written. It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A command that starts a program, watched by strace if its syncs are counted.
pub(super) fn watched(program: &Path, trace: Option<&Path>) -> Command {
    let Some(trace) = trace else {
        return Command::new(program);
    };
    let mut command = Command::new("strace");
    // The counter is the child of the server, so that the process that we have started is the server.
    command.args(["-D", "-f", "--seccomp-bpf", "-qq", "-e", SYNC_CALLS, "-o"]);
    command.arg(trace).arg(program);
    command
}

/// Starts a node of ours that founds a cluster, or joins the one that these nodes are of.
pub(super) fn ours(mut command: Command, folder: &Path, join: &[&str]) -> Result<Server, Failure> {
    command
        .args(["start", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder);
    if !join.is_empty() {
        command.args(["--join", &join.join(",")]);
    }
    command.env("TENURE_LOG", "error").stdout(Stdio::piped());
    let mut server = Server::spawn(System::Tenure, &mut command)?;
    let stdout = server.child.stdout.take().expect("it was asked to be a pipe");
    let mut line = String::new();
    // If it does not start it ends, and the pipe with it.
    let read = BufReader::new(stdout).read_line(&mut line);
    match (read, line.trim().strip_prefix("ready ")) {
        (Ok(_), Some(address)) => address.clone_into(&mut server.address),
        _ => return Err(Failure::Failed(format!("our server is not ready: {line:?}"))),
    }
    Ok(server)
}

fn redis(mut command: Command, folder: &Path) -> Result<Server, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener
        .and_then(|listener| listener.local_addr())
        .map_err(|error| Failure::Failed(format!("no port is free: {error}")))?;
    command
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--dir"])
        .arg(folder)
        .args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""])
        .args(["--daemonize", "no", "--loglevel", "warning"])
        .stdout(Stdio::null());
    let mut server = Server::spawn(System::Redis, &mut command)?;
    server.address = address.to_string();
    let limit = Instant::now() + START_TIMEOUT;
    while !answers(&server.address) {
        let ended = server.child.try_wait().is_ok_and(|status| status.is_some());
        if ended || Instant::now() > limit {
            return Err(Failure::Failed("redis-server does not answer".to_owned()));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(server)
}

/// Whether a Redis answers there.
fn answers(address: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG\r\n")
    };
    ask().unwrap_or(false)
}

/// Makes a folder that has nothing in it.
pub(super) fn empty(folder: &Path) -> Result<(), Failure> {
    let cannot = |error| Failure::Failed(format!("cannot make {}: {error}", folder.display()));
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(cannot)?;
    }
    std::fs::create_dir_all(folder).map_err(cannot)
}

/// How many calls a trace has that made data durable. A call that another thread's call interrupted has two lines, and
/// only the first has the bracket.
pub(crate) fn syncs(trace: &Path) -> Result<u64, Failure> {
    let text = std::fs::read_to_string(trace)
        .map_err(|error| Failure::Failed(format!("strace wrote no trace, so syncs cannot be counted: {error}")))?;
    Ok(count_syncs(&text))
}

pub(super) fn count_syncs(trace: &str) -> u64 {
    let is_begun =
        |line: &&str| line.contains("sync(") || line.contains("sync_file_range(") || line.contains("syncfs(");
    trace.lines().filter(is_begun).count() as u64
}

/// Runs a program and returns what it prints; one that takes longer than this is ended.
pub(crate) fn output_within(command: &mut Command, limit: Duration) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |what: String| Failure::Failed(format!("{name} {what}"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_INTERVAL),
            unfinished => {
                drop(child.kill());
                drop(child.wait());
                return Err(failed(format!("did not end in {limit:?}: {unfinished:?}")));
            }
        }
    };
    // A few lines, which the pipe holds.
    let mut text = String::new();
    let mut stdout = child.stdout.take().expect("it was asked to be a pipe");
    stdout
        .read_to_string(&mut text)
        .map_err(|error| failed(format!("did not print text: {error}")))?;
    if status.success() {
        Ok(text)
    } else {
        Err(failed(format!("failed: {status}")))
    }
}
