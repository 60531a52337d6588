//! A thread of its own for blocking work, or no thread where there are none.
//!
//! Apply and write-behind block on the disk now and then. In production each has a lane; in the simulator
//! their work is done in place, so that a seed decides the order of everything.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use tenure_storage::priority;
use tokio::sync::oneshot;

use crate::runtime::Tasks;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after another, each to its end. The thread ends when the lane is dropped and its jobs are done.
pub struct Lane {
    jobs: Option<mpsc::Sender<Job>>,
}

/// The job did not end: it panicked, or the thread is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the work ended in a panic")]
pub struct JobLost;

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("inline", &self.jobs.is_none()).finish()
    }
}

impl Lane {
    /// Starts the thread, if there are threads.
    ///
    /// # Errors
    /// What the system said when it could not.
    pub fn start(tasks: &dyn Tasks, name: &str) -> io::Result<Lane> {
        Lane::start_with(tasks, name, || {})
    }

    /// Starts a thread that gives way to others, and so do the threads that its jobs start.
    ///
    /// # Errors
    /// What the system said when it could not.
    pub fn start_in_background(tasks: &dyn Tasks, name: &str) -> io::Result<Lane> {
        Lane::start_with(tasks, name, priority::give_way)
    }

    fn start_with(tasks: &dyn Tasks, name: &str, first: fn()) -> io::Result<Lane> {
        if tasks.inline() {
            return Ok(Lane { jobs: None });
        }
        // Each user of a lane waits for its job before it hands in the next, and users are bounded where they come from, so
        // the channel needs no bound.
        let (sender, receiver) = mpsc::channel::<Job>();
        let work = move || {
            first();
            for job in receiver {
                // A lost job is told to whoever waits for it, by its dropped channel.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        };
        let started = tasks.spawn_thread(name, Box::new(work))?;
        Ok(Lane {
            jobs: started.map(|_detached| sender),
        })
    }

    /// Does the work and waits for it. The work goes on if the waiting is given up.
    ///
    /// # Errors
    /// [`JobLost`] if it panicked.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JobLost> {
        let Some(jobs) = &self.jobs else {
            return Lane::run_here(work);
        };
        let (sender, receiver) = oneshot::channel();
        let job = move || {
            let _ = sender.send(work());
        };
        jobs.send(Box::new(job)).map_err(|_| JobLost)?;
        receiver.await.map_err(|_| JobLost)
    }

    /// Does the work on the calling thread.
    ///
    /// # Errors
    /// [`JobLost`] if it panicked.
    pub fn run_here<T>(work: impl FnOnce() -> T) -> Result<T, JobLost> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|_| JobLost)
    }
}

#[cfg(test)]
mod tests;
