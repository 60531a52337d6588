//! A thread of its own for blocking work, or no thread where there are none.
//!
//! Apply and write-behind block on the disk now and then. In production each has a lane; in the simulator
//! their work is done in place, so that a seed decides the order of everything.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::runtime::Tasks;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after another. The thread ends when the lane is dropped and its jobs are done.
pub(crate) struct Lane {
    jobs: Option<mpsc::Sender<Job>>,
}

/// The job did not end: it panicked, or the thread is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the work ended in a panic")]
pub(crate) struct JobLost;

impl Lane {
    /// Starts the thread, if there are threads.
    ///
    /// # Errors
    /// What the system said when it could not.
    pub(crate) fn start(tasks: &dyn Tasks, name: &str) -> io::Result<Lane> {
        if tasks.inline() {
            return Ok(Lane { jobs: None });
        }
        // Each user of a lane waits for its job before it hands in the next, so the channel needs no bound.
        let (sender, receiver) = mpsc::channel::<Job>();
        let work = move || {
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
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JobLost> {
        let Some(jobs) = &self.jobs else {
            return catch_unwind(AssertUnwindSafe(work)).map_err(|_| JobLost);
        };
        let (sender, receiver) = oneshot::channel();
        let job = move || {
            let _ = sender.send(work());
        };
        jobs.send(Box::new(job)).map_err(|_| JobLost)?;
        receiver.await.map_err(|_| JobLost)
    }
}

#[cfg(test)]
mod tests;
