//! What renews the sessions of a client in the background.
//!
//! One driver for each client, on a thread with connections of its own in production, so that nothing the program does
//! on its workers can starve it. When to send what is decided by each session's schedule; the driver only carries it
//! out, many sessions in one message. It never waits for a call: an attempt is a future beside its timers.

mod driver;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use tenure_api::{Outcome, v1};

use crate::channel::Dialer;
use crate::error::Error;
use crate::pool::Pool;
use crate::runtime::KeepAliveOn;
use crate::runtime::system::TokioTasks;
use crate::session::{Kept, SessionKey};
use driver::Driver;

/// Sessions of one client that are kept alive.
pub(crate) const SESSIONS_MAX: usize = 100_000;
/// Sessions that were dropped and whose end is still to be told to the server; the others end by their TTL.
const FAREWELLS_MAX: usize = 1_024;

/// A short session has no time to wait long for a connection…
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// …or until one is tried again.
const BACKOFF_MAX: Duration = Duration::from_millis(100);

/// The keep-alive of a client. Nothing runs before the first session.
pub(crate) struct KeepAlive {
    endpoints: Vec<String>,
    only_given: bool,
    dialer: Dialer,
    running: Mutex<Option<Arc<Running>>>,
}

impl KeepAlive {
    pub(crate) fn new(endpoints: Vec<String>, only_given: bool, mut dialer: Dialer) -> KeepAlive {
        dialer.connect_timeout = dialer.connect_timeout.min(CONNECT_TIMEOUT_MAX);
        dialer.backoff_max = BACKOFF_MAX;
        KeepAlive {
            endpoints,
            only_given,
            dialer,
            running: Mutex::new(None),
        }
    }

    /// Renews this session from now on, until its registration is removed.
    ///
    /// # Errors
    /// There are too many, or no thread could be started. Nothing is renewed; the session ends by its TTL.
    pub(crate) fn add(&self, kept: Arc<Kept>) -> Result<Registration, Error> {
        let running = self.running()?;
        let mut inbox = running.inbox.lock();
        if inbox.live >= SESSIONS_MAX {
            return Err(Error::Busy {
                what: "sessions kept alive",
            });
        }
        inbox.live += 1;
        inbox.last_id += 1;
        let id = inbox.last_id;
        inbox.added.insert(id, kept);
        drop(inbox);
        running.inbox.changed.notify_one();
        Ok(Registration {
            id,
            running,
            removed: AtomicBool::new(false),
        })
    }

    /// The driver, started if there is none or the last one has died.
    fn running(&self) -> Result<Arc<Running>, Error> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(alive) = running.as_ref().filter(|running| !running.inbox.lock().over) {
            return Ok(Arc::clone(alive));
        }
        let inbox = Arc::new(Inbox::default());
        self.start(Arc::clone(&inbox))?;
        let fresh = Arc::new(Running { inbox });
        *running = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    fn start(&self, inbox: Arc<Inbox>) -> Result<(), Error> {
        let (endpoints, only_given, mut dialer) = (self.endpoints.clone(), self.only_given, self.dialer.clone());
        let pool = move |dialer| Pool::new(&endpoints, dialer).of_given_only(only_given);
        match dialer.runtime.keep_alive {
            KeepAliveOn::Task => {
                let tasks = Arc::clone(&dialer.runtime.tasks);
                tasks.spawn("tenure keep-alive", Driver::new(pool(dialer), inbox).run().boxed());
                Ok(())
            }
            KeepAliveOn::Thread => {
                let failed = |error: std::io::Error| Error::Unreachable {
                    why: format!("the keep-alive could not be started: {error}"),
                    outcome: Outcome::NotApplied,
                };
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(failed)?;
                let tasks = Arc::clone(&dialer.runtime.tasks);
                let work = move || {
                    dialer.runtime.tasks = Arc::new(TokioTasks::new(runtime.handle().clone()));
                    runtime.block_on(Driver::new(pool(dialer), inbox).run());
                };
                tasks.spawn_thread("tenure-keep-alive", Box::new(work)).map_err(failed)
            }
        }
    }
}

/// A driver that runs for as long as somebody holds this.
struct Running {
    inbox: Arc<Inbox>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.inbox.lock().stop = true;
        self.inbox.changed.notify_one();
    }
}

/// A session's place with the driver.
pub(crate) struct Registration {
    id: u64,
    running: Arc<Running>,
    removed: AtomicBool,
}

impl Registration {
    /// The session is not renewed any more; its end is told to the server if that is easily done.
    pub(crate) fn remove(&self, farewell: Option<(v1::Scope, SessionKey)>) {
        if self.removed.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut inbox = self.running.inbox.lock();
        inbox.live = inbox.live.saturating_sub(1);
        // One that the driver has not seen yet it need never see.
        if inbox.added.remove(&self.id).is_none() && !inbox.over {
            inbox.removed.push(self.id);
        }
        if inbox.farewells.len() < FAREWELLS_MAX && !inbox.over {
            inbox.farewells.extend(farewell);
        }
        drop(inbox);
        self.running.inbox.changed.notify_one();
    }
}

/// What the driver is to take up. Its lists are bounded by the sessions that exist, and by [`FAREWELLS_MAX`].
#[derive(Default)]
struct Inbox {
    inner: Mutex<InboxInner>,
    changed: Notify,
}

#[derive(Default)]
struct InboxInner {
    added: BTreeMap<u64, Arc<Kept>>,
    removed: Vec<u64>,
    farewells: Vec<(v1::Scope, SessionKey)>,
    last_id: u64,
    /// Sessions that are registered.
    live: usize,
    /// Nobody is left who could register a session.
    stop: bool,
    /// The driver has ended.
    over: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
