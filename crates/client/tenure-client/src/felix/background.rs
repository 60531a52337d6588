//! Appending records for which nobody waits: a queue of bounded length, emptied in order by one task.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use tenure_api::Outcome;
use tenure_api::limits::{APPEND_BYTES_MAX, APPEND_RECORDS_MAX, VALUE_BYTES_MAX};

use super::{Needed, creating};
use crate::client::Client;
use crate::error::Error;

/// Batches that wait.
const BATCHES_MAX: usize = 1_024;
/// Bytes of records that wait.
const BYTES_MAX: usize = 8 << 20;
/// What a record costs beside its bytes.
const RECORD_BYTES: usize = 64;

/// The queue of one client; it costs nothing until it is used.
#[derive(Default)]
pub(super) struct Background {
    queue: OnceLock<Queue>,
}

struct Queue {
    batches: mpsc::Sender<Batch>,
    room: Arc<Semaphore>,
    /// How many batches were put in…
    begun: AtomicU64,
    /// …and how many of them are over.
    over: watch::Receiver<u64>,
}

/// Records for one stream.
struct Batch {
    client: Client,
    stream: String,
    records: Vec<Vec<u8>>,
    bytes: usize,
    /// How many batches of callers it is made of.
    count: u64,
    room: Vec<OwnedSemaphorePermit>,
}

impl Background {
    /// Puts a batch into the queue, once there is room for it.
    ///
    /// # Errors
    /// It is larger than an append may be.
    pub(super) async fn append(&self, client: Client, stream: &str, records: Vec<Vec<u8>>) -> Result<(), Error> {
        let bytes: usize = records.iter().map(|record| record.len()).sum();
        let too_large = records.len() > APPEND_RECORDS_MAX
            || bytes > APPEND_BYTES_MAX
            || records.iter().any(|record| record.len() > VALUE_BYTES_MAX);
        if too_large {
            let rule = format!(
                "at most {APPEND_RECORDS_MAX} records, each of at most {VALUE_BYTES_MAX} bytes, {APPEND_BYTES_MAX} \
                 together"
            );
            return Err(Error::Invalid { what: "records", rule });
        }
        let queue = self.queue.get_or_init(|| Queue::start(&client));
        let cost = u32::try_from(bytes + records.len() * RECORD_BYTES).expect("an append is smaller than 4 GiB");
        let closed = || Error::Busy {
            what: "unacknowledged records",
        };
        let room = Arc::clone(&queue.room).acquire_many_owned(cost).await;
        let room = vec![room.map_err(|_| closed())?];
        let place = queue.batches.reserve().await.map_err(|_| closed())?;
        // It is counted before it is there, so whoever sees it in the queue sees it in the count.
        queue.begun.fetch_add(1, Ordering::SeqCst);
        place.send(Batch {
            client,
            stream: stream.to_owned(),
            records,
            bytes,
            count: 1,
            room,
        });
        Ok(())
    }

    /// Waits until everything that is in the queue now is over.
    ///
    /// # Errors
    /// It was not within this time.
    pub(super) async fn settled(&self, timeout: Duration) -> Result<(), Error> {
        let Some(queue) = self.queue.get() else {
            return Ok(());
        };
        let begun = queue.begun.load(Ordering::SeqCst);
        let mut over = queue.over.clone();
        let settling = over.wait_for(|over| *over >= begun);
        match tokio::time::timeout(timeout, settling).await {
            // The task has ended with its runtime: nothing is on its way any more.
            Ok(Ok(_) | Err(_)) => Ok(()),
            Err(_) => Err(Error::NoAnswer {
                why: "records that were published before it are still on their way".to_owned(),
                outcome: Outcome::NotApplied,
            }),
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").finish_non_exhaustive()
    }
}

impl Queue {
    fn start(client: &Client) -> Queue {
        let (batches, waiting) = mpsc::channel(BATCHES_MAX);
        let (done, over) = watch::channel(0);
        let task = empty(waiting, done).boxed();
        client.runtime().tasks.spawn("tenure unacknowledged records", task);
        Queue {
            batches,
            room: Arc::new(Semaphore::new(BYTES_MAX)),
            begun: AtomicU64::new(0),
            over,
        }
    }
}

/// Appends what is in the queue until nobody can put anything in any more and it is empty.
async fn empty(mut waiting: mpsc::Receiver<Batch>, over: watch::Sender<u64>) {
    let mut following = None;
    loop {
        let mut batch = match following.take() {
            Some(batch) => batch,
            None => match waiting.recv().await {
                Some(batch) => batch,
                None => return,
            },
        };
        // What waits behind it for the same stream goes with it.
        while let Ok(next) = waiting.try_recv() {
            if let Err(other) = batch.join(next) {
                following = Some(*other);
                break;
            }
        }
        let Batch { client, stream, .. } = &batch;
        let needed = [Needed::Stream(stream)];
        let appending = creating(client, &needed, || client.stream(stream).append(&batch.records));
        if let Err(error) = appending.await.and_then(|verdict| verdict.done()) {
            tracing::warn!(%error, stream, records = batch.records.len(), "unacknowledged records are lost");
        }
        over.send_modify(|over| *over += batch.count);
    }
}

impl Batch {
    /// Takes another batch into this one if it is for the same stream and both are one append's worth; else gives it
    /// back.
    fn join(&mut self, other: Batch) -> Result<(), Box<Batch>> {
        let same = self.stream == other.stream
            && self.client.tenant_name() == other.client.tenant_name()
            && self.client.namespace_name() == other.client.namespace_name();
        let fits = self.records.len() + other.records.len() <= APPEND_RECORDS_MAX
            && self.bytes + other.bytes <= APPEND_BYTES_MAX;
        if !(same && fits) {
            return Err(Box::new(other));
        }
        self.records.extend(other.records);
        self.bytes += other.bytes;
        self.count += other.count;
        self.room.extend(other.room);
        Ok(())
    }
}
