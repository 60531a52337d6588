//! Reads that may take long, done where they hold up nothing that is short: on a few lanes of their own. A read takes the
//! lane with the fewest reads, so one that is long holds up another only when every lane has one.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tenure_core::ids::Revision;
use tenure_core::query::{Found, Query};
use tenure_core::time::Timestamp;
use tenure_replica::Lane;
use tenure_replica::runtime::Tasks;

use super::{Group, Service, ServiceError, Unavailable};

/// Lanes of a node. More would only take the cores from the requests; with fewer, two or three long listings would hold up
/// every watch that reads its state.
const LANES: usize = 4;

/// The lanes. Each starts with the first read that it is given.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    lanes: [OnceLock<Lane>; LANES],
    reads: Arc<Mutex<[usize; LANES]>>,
}

/// A read that counts on its lane until this is dropped.
struct Share {
    reads: Arc<Mutex<[usize; LANES]>>,
    place: usize,
}

impl Aside {
    /// Does a read on the lane with the fewest, and waits for it. Whoever waits for each of its reads before the next gets
    /// them in order. One that nobody waits for any more when its turn comes is not done.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        tasks: &dyn Tasks,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ServiceError> {
        let share = self.take();
        let lane = self.lane(tasks, share.place)?;
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        let work = move || {
            let _share = share;
            (is_wanted.strong_count() > 0).then(read)
        };
        let done = lane.run(work).await;
        drop(wanted);
        let lost = |why: &str| ServiceError::Internal(format!("a read was lost: {why}"));
        match done {
            Ok(found) => found.ok_or_else(|| lost("it was given up")),
            Err(error) => Err(lost(&error.to_string())),
        }
    }

    fn take(&self) -> Share {
        let mut reads = locked(&self.reads);
        let place = (0..LANES).min_by_key(|place| reads[*place]).unwrap_or_default();
        reads[place] += 1;
        Share {
            reads: self.reads.clone(),
            place,
        }
    }

    fn lane(&self, tasks: &dyn Tasks, place: usize) -> Result<&Lane, ServiceError> {
        if let Some(lane) = self.lanes[place].get() {
            return Ok(lane);
        }
        let lane = Lane::start(tasks, &format!("read-aside-{place}"))
            .map_err(|error| ServiceError::Internal(format!("no thread for reading: {error}")))?;
        // If another has started it meanwhile, this one ends at once.
        Ok(self.lanes[place].get_or_init(|| lane))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        locked(&self.reads)[self.place] -= 1;
    }
}

impl Service {
    /// Does a read that may block for long where it holds up no other request.
    pub(crate) async fn read_aside<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ServiceError> {
        self.0.aside.run(&*self.0.runtime.tasks, read).await
    }

    /// Reads the applied state: in place what is a few rows, and aside what may be a page.
    pub(super) async fn read_applied(
        &self,
        group: &Group,
        query: &Query,
        deadline: Duration,
    ) -> Result<(Found, Revision, Timestamp), ServiceError> {
        let unavailable = |error| ServiceError::Unavailable { group: group.id, error };
        if !may_be_long(query) {
            return group.replica.query(query).map_err(unavailable);
        }
        let (replica, query) = (group.replica.clone(), query.clone());
        let read = self.read_aside(move || replica.query(&query));
        match tokio::time::timeout(deadline.saturating_sub(self.now()), read).await {
            Ok(read) => read?.map_err(unavailable),
            Err(_) => Err(unavailable(Unavailable::Deadline)),
        }
    }

    /// Reads a page of the applied state aside, for as long as that takes.
    pub(super) async fn read_page(&self, group: &Group, query: Query) -> Result<Found, ServiceError> {
        let (replica, id) = (group.replica.clone(), group.id);
        let read = self.read_aside(move || replica.query(&query)).await?;
        let (found, ..) = read.map_err(|error| ServiceError::Unavailable { group: id, error })?;
        Ok(found)
    }
}

/// Whether a read may visit many rows, whatever it finds.
pub(super) fn may_be_long(query: &Query) -> bool {
    match query {
        Query::List { .. }
        | Query::Caches(_)
        | Query::Namespaces
        // It tells the keys that the session owns.
        | Query::Session(_)
        | Query::Sessions { .. }
        | Query::Streams(_)
        | Query::Records { .. } => true,
        Query::Get { .. }
        | Query::Cache(_)
        | Query::Home(_)
        | Query::Nodes
        | Query::Cluster
        | Query::Stream(_) => false,
    }
}

/// A lock whose holder cannot have left it half changed.
fn locked(reads: &Mutex<[usize; LANES]>) -> MutexGuard<'_, [usize; LANES]> {
    reads.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
