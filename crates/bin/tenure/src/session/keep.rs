//! `tenure session keep`: a session that lives as long as a command runs, and a command that runs as long as the
//! session lives.
//!
//! The command has a process group of its own, so that what it starts is stopped with it. It is started through this
//! program once more, which asks the system to be killed with whoever started it and then becomes the command: killing
//! the keeper leaves no job that nobody watches.

use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process_group, set_parent_process_death_signal, waitid,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use tenure_client::{Client, LostReason, Session};

use super::{key, patiently};
use crate::exit::Failure;

/// How long between two looks at the command and at whoever started this.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// A command that was told to stop is killed after this part of the session's TTL. When nobody confirms it, the holder
/// stops believing a fifth of the TTL before the server may give away what it holds.
const STOP_TTL_PARTS: u32 = 10;
/// And after this time at the latest.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);
/// The exit status of what a signal ended is that much above its number, as in a shell.
const SIGNAL_STATUS: i32 = 128;

/// Keeps a session while the command runs. The session is not ended by this: it is whoever's opened it.
///
/// # Errors
/// The session is not there, or cannot be confirmed: the command was not started. It was lost while the command ran, or
/// whoever started this has gone: the command was stopped. The command ended with another status than 0.
pub(super) async fn keep(text: &str, command: &[OsString], client: &Client) -> Result<(), Failure> {
    let key = key(text)?;
    let starter = getppid();
    let session = patiently(&key, client, async || client.import_session(text).await).await?;
    // Dropping it would end it on the server.
    let session = ManuallyDrop::new(session);
    let mut job = Job::start(command)?;
    let status = job.run(&session, starter).await?;
    let number = status
        .code()
        .unwrap_or_else(|| SIGNAL_STATUS + status.signal().unwrap_or_default());
    match u8::try_from(number).unwrap_or(u8::MAX) {
        0 => Ok(()),
        status => Err(Failure::Ended { status }),
    }
}

/// Becomes a command that is killed with the process that started this, which has the id `keeper`.
///
/// # Errors
/// The command cannot be run, or the keeper has gone already.
pub(crate) fn become_kept(keeper: i32, command: &[OsString]) -> Result<(), Failure> {
    // Without it the command is left only if the keeper is killed; that is no reason not to run it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid().is_some_and(|parent| parent.as_raw_pid() != keeper) {
        return Err(Failure::failed("who keeps the session has gone", "start it again"));
    }
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::settings("there is no command", "give one behind --"));
    };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::failed(
        format!("{} cannot be run: {error}", program.display()),
        "correct the command",
    ))
}

/// The command that runs.
struct Job {
    child: Child,
    group: Pid,
}

impl Job {
    fn start(command: &[OsString]) -> Result<Job, Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed(
                format!("the command could not be started: {error}"),
                "free some resources",
            )
        };
        let child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("kept-part")
            .arg(std::process::id().to_string())
            .arg("--")
            .args(command)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let group = Pid::from_child(&child);
        Ok(Job { child, group })
    }

    /// Waits until it has ended, and stops it if it must not go on.
    async fn run(&mut self, session: &Session, starter: Option<Pid>) -> Result<ExitStatus, Failure> {
        let unreceived = |error| Failure::failed(format!("signals cannot be received: {error}"), "report it");
        let mut interrupts = signal(SignalKind::interrupt()).map_err(unreceived)?;
        let mut terminations = signal(SignalKind::terminate()).map_err(unreceived)?;
        let mut lost = std::pin::pin!(session.lost());
        loop {
            if self.has_ended()? {
                return self.child.wait().map_err(unwatched);
            }
            tokio::select! {
                biased;
                reason = &mut lost => {
                    self.stop(session.ttl()).await?;
                    return Err(Failure::Lost { id: session.id(), why: why(reason) });
                }
                _ = interrupts.recv() => self.send(Signal::INT),
                _ = terminations.recv() => self.send(Signal::TERM),
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
            if getppid() != starter {
                self.stop(session.ttl()).await?;
                return Err(Failure::failed(
                    "whoever started this has gone, and the command was stopped",
                    "start it again",
                ));
            }
        }
    }

    /// Tells it to stop, and kills what is left of it in a while.
    async fn stop(&mut self, ttl: Duration) -> Result<(), Failure> {
        let end = Instant::now() + (ttl / STOP_TTL_PARTS).min(STOP_TIME_MAX);
        self.send(Signal::TERM);
        while !self.has_ended()? && Instant::now() < end {
            tokio::time::sleep_until(end.min(Instant::now() + LOOK_INTERVAL)).await;
        }
        self.send(Signal::KILL);
        self.child.wait().map_err(unwatched).map(drop)
    }

    /// Whether it has ended. It is not reaped by this, so that its group's id is nobody else's.
    fn has_ended(&self) -> Result<bool, Failure> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let found = waitid(WaitId::Pid(self.group), options).map_err(|error| unwatched(error.into()))?;
        Ok(found.is_some())
    }

    /// To it and to all that it started. There may be nobody left.
    fn send(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }
}

fn unwatched(error: std::io::Error) -> Failure {
    Failure::failed(
        format!("the command cannot be watched: {error}"),
        "look whether it runs",
    )
}

fn why(reason: LostReason) -> String {
    match reason {
        LostReason::Unconfirmed => "no renewal was confirmed in time".to_owned(),
        LostReason::Ended { revision, .. } => format!("it ended at revision {revision}"),
        LostReason::Unknown => "it is not known any more".to_owned(),
        LostReason::Closed => "it was closed".to_owned(),
    }
}
