//! Tasks of simulated machines. There are no threads: blocking work is done in place.

use std::io;
use std::thread::JoinHandle;

use futures_util::future::BoxFuture;

/// Starts tasks on the machine that is running now. They end with it when it crashes.
#[derive(Debug)]
pub(crate) struct VirtualTasks;

impl tenure_replica::runtime::Tasks for VirtualTasks {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> tenure_replica::runtime::TaskHandle {
        let task = tokio::spawn(task);
        tenure_replica::runtime::TaskHandle::new(move || task.abort())
    }

    fn spawn_thread(&self, _name: &str, _work: Box<dyn FnOnce() + Send>) -> io::Result<Option<JoinHandle<()>>> {
        Ok(None)
    }

    fn inline(&self) -> bool {
        true
    }
}

impl tenure_client::runtime::Tasks for VirtualTasks {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> tenure_client::runtime::TaskHandle {
        let task = tokio::spawn(task);
        tenure_client::runtime::TaskHandle::new(move || task.abort())
    }

    fn spawn_thread(&self, _name: &str, _work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "there are no threads in a simulation",
        ))
    }
}
