//! Lets workers loose on a target for some time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::histogram::Histogram;
use crate::report::Report;
use crate::target::{EventKind, Failure, Target, Watcher};
use crate::work::Work;

/// Workers at most.
pub const WORKERS_MAX: usize = 10_000;
/// The TTL of what is claimed, unless its end is what is measured: nothing is left a minute after a measurement.
const TTL: Duration = Duration::from_secs(60);
/// The TTL whose end is measured; each worker's is a little longer than the last one's, so that they do not end at once.
const SHORT_TTL: Duration = Duration::from_millis(200);
/// How much longer, and for how many workers before it begins again.
const SHORT_TTL_STEP: (Duration, usize) = (Duration::from_millis(1), 64);
/// What is done at first is not counted: connections, caches and the processor's clock are cold.
const WARM_UP: Duration = Duration::from_millis(300);
/// A worker whose call failed waits so long, so that a system that is away is not asked as fast as it can refuse.
const AFTER_FAILURE: Duration = Duration::from_millis(10);
/// An event that has not come in this time counts as an error.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);
/// A record of a stream: 100 bytes.
const RECORD: [u8; 100] = [b'r'; 100];

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Workers, each with one operation under way.
    pub workers: usize,
    /// For how long is measured, after the warming up.
    pub duration: Duration,
}

/// Does one work over these connections, which the workers share evenly.
///
/// # Errors
/// There is no connection or no worker, or the target cannot do the work at all. What fails while it is measured is
/// counted in the report.
pub async fn run<T: Target>(work: Work, targets: &[Arc<T>], settings: Settings) -> Result<Report, Failure> {
    let Some(first) = targets.first() else {
        return Err(Failure::unexpected("there is no connection"));
    };
    if settings.workers == 0 || settings.workers > WORKERS_MAX {
        return Err(Failure::unexpected(format!("workers: from 1 to {WORKERS_MAX}")));
    }
    first.prepare(work).await?;
    // Two measurements at once, or one after another within the TTL, have keys of their own.
    let prefix = format!("bench/{:x}/", unique_number());
    let (events, mut watching) = if work.is_watched() {
        let (events, task) = follow(&**first, work, &prefix).await?;
        (Some(events), Some(task))
    } else {
        (None, None)
    };
    let begin = Instant::now() + WARM_UP;
    let mut workers = JoinSet::new();
    for number in 0..settings.workers {
        let worker = Worker {
            work,
            number,
            target: Arc::clone(&targets[number % targets.len()]),
            key: format!("{prefix}{number}"),
            made: 0,
            grant: None,
            events: events.clone(),
        };
        workers.spawn(worker.run(begin, begin + settings.duration));
    }
    let mut report = Report {
        work,
        workers: settings.workers,
        connections: targets.len(),
        measured: settings.duration,
        latencies: Histogram::new(),
        errors: 0,
        first_error: None,
    };
    while let Some(joined) = workers.join_next().await {
        let tally = joined.map_err(|error| Failure::unexpected(format!("a worker ended early: {error}")))??;
        report.latencies.merge(&tally.latencies);
        report.errors += tally.errors;
        report.first_error = report.first_error.or(tally.first_error);
    }
    if let Some(mut watching) = watching.take() {
        watching.abort_all();
    }
    Ok(report)
}

/// What one worker counted.
struct Tally {
    latencies: Histogram,
    errors: u64,
    first_error: Option<String>,
}

/// One worker.
struct Worker<T: Target> {
    work: Work,
    number: usize,
    target: Arc<T>,
    key: String,
    /// Keys that it has made so far, where each is a new one.
    made: u64,
    grant: Option<T::Grant>,
    events: Option<Arc<Events>>,
}

impl<T: Target> Worker<T> {
    /// Works until the end and counts what was finished from the beginning on.
    async fn run(mut self, begin: Instant, end: Instant) -> Result<Tally, Failure> {
        let mut tally = Tally {
            latencies: Histogram::new(),
            errors: 0,
            first_error: None,
        };
        self.set_up().await?;
        loop {
            let started = Instant::now();
            if started >= end {
                return Ok(tally);
            }
            let result = self.once(started).await;
            let now = Instant::now();
            let counts = now >= begin && now < end;
            match result {
                Ok(latency) if counts => tally.latencies.record(micros(latency)),
                Ok(_) => {}
                Err(failure @ Failure::NotMeasured { .. }) => return Err(failure),
                Err(failure) => {
                    if counts {
                        tally.errors += 1;
                        tally.first_error.get_or_insert_with(|| failure.to_string());
                    }
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    async fn set_up(&mut self) -> Result<(), Failure> {
        match self.work {
            Work::Renew => self.grant = Some(self.target.claim(&self.key, TTL).await?),
            Work::Get => self.target.put(&self.key, TTL).await?,
            _ => {}
        }
        Ok(())
    }

    /// One operation; returns its latency.
    async fn once(&mut self, started: Instant) -> Result<Duration, Failure> {
        match self.work {
            Work::Claim => {
                let grant = self.target.claim(&self.key, TTL).await?;
                self.target.release(&self.key, &grant).await?;
            }
            Work::Unique => {
                let key = self.next_key();
                self.target.claim(&key, TTL).await?;
            }
            Work::Renew => {
                let grant = self.grant.as_ref().ok_or_else(|| Failure::refused("nothing is held"))?;
                self.target.renew(&self.key, grant, TTL).await?;
            }
            Work::Get => self.target.get(&self.key).await?,
            Work::Publish => self.target.publish(&RECORD).await?,
            Work::Echo => self.target.echo().await?,
            Work::Watch => {
                let key = self.next_key();
                let (event, _expected) = self.expect(&key)?;
                self.target.put(&key, TTL).await?;
                let answered = Instant::now();
                return Ok(came(event).await?.saturating_duration_since(answered));
            }
            Work::Lateness => {
                let key = self.next_key();
                let (event, _expected) = self.expect(&key)?;
                let (step, steps) = SHORT_TTL_STEP;
                let ttl = SHORT_TTL + step * u32::try_from(self.number % steps).unwrap_or(0);
                self.target.claim(&key, ttl).await?;
                return Ok(came(event).await?.saturating_duration_since(started + ttl));
            }
        }
        Ok(started.elapsed())
    }

    fn next_key(&mut self) -> String {
        self.made += 1;
        format!("{}/{}", self.key, self.made)
    }

    fn expect(&self, key: &str) -> Result<(oneshot::Receiver<Instant>, Expected), Failure> {
        let events = self
            .events
            .as_ref()
            .ok_or_else(|| Failure::unexpected("nothing is watched"))?;
        Ok(events.expect(key))
    }
}

/// Waits for an event, for a while; returns when it came.
async fn came(event: oneshot::Receiver<Instant>) -> Result<Instant, Failure> {
    match tokio::time::timeout(EVENT_TIMEOUT, event).await {
        Ok(Ok(at)) => Ok(at),
        Ok(Err(_)) => Err(Failure::unexpected("the watch has ended")),
        Err(_) => Err(Failure::unexpected("no event came in time")),
    }
}

/// Who waits for the event of which key: one key a worker.
#[derive(Default)]
struct Events {
    waiting: Mutex<BTreeMap<String, oneshot::Sender<Instant>>>,
}

/// A key whose event is waited for, until this is dropped.
struct Expected {
    events: Arc<Events>,
    key: String,
}

impl Events {
    fn expect(self: &Arc<Events>, key: &str) -> (oneshot::Receiver<Instant>, Expected) {
        let (sender, receiver) = oneshot::channel();
        self.locked().insert(key.to_owned(), sender);
        let expected = Expected {
            events: Arc::clone(self),
            key: key.to_owned(),
        };
        (receiver, expected)
    }

    fn came(&self, keys: &mut Vec<String>, at: Instant) {
        let mut waiting = self.locked();
        for key in keys.drain(..) {
            if let Some(sender) = waiting.remove(&key) {
                // Who waited may have given up.
                let _ = sender.send(at);
            }
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, oneshot::Sender<Instant>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.events.locked().remove(&self.key);
    }
}

/// Begins to follow the keys of a measurement in a task of its own. If the watch ends, nobody's event comes any more.
async fn follow<T: Target>(target: &T, work: Work, prefix: &str) -> Result<(Arc<Events>, JoinSet<()>), Failure> {
    let kind = if work == Work::Lateness {
        EventKind::Expired
    } else {
        EventKind::Written
    };
    let mut watcher = target.watch(prefix).await?;
    let events = Arc::new(Events::default());
    let mut task = JoinSet::new();
    let told = Arc::clone(&events);
    task.spawn(async move {
        let mut keys = Vec::new();
        while watcher.next(kind, &mut keys).await.is_ok() {
            told.came(&mut keys, Instant::now());
        }
        told.locked().clear();
    });
    Ok((events, task))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A number that no other measurement has.
fn unique_number() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    micros(now) ^ (u64::from(std::process::id()) << 48)
}

#[cfg(test)]
mod tests;
