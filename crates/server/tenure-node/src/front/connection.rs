//! What one connection may take of the node, so that a client that floods, or does not read, hurts itself only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::Extensions;
use tokio::sync::{Notify, Semaphore};

use super::answers::{AnswerShare, NodeFull};

/// Requests under way over the multiplexed streams of one connection.
pub(crate) const CONNECTION_REQUESTS_MAX: usize = 8_192;
/// Bytes of those requests. A single larger one is taken when it is alone.
pub(crate) const CONNECTION_REQUEST_BYTES_MAX: usize = 32 << 20;
/// Watchers of one connection: a quarter of those of a node.
pub(crate) const CONNECTION_WATCHERS_MAX: usize = 2_500;
/// Bytes of answers that wait to be written to one connection.
pub(crate) const CONNECTION_ANSWER_BYTES_MAX: usize = 4 << 20;
/// Reads of one connection under way that may be long, so that its short ones find room beside them.
pub(crate) const CONNECTION_LONG_READS_MAX: usize = 2;
/// Bytes of answers that wait to be written to all connections. Beyond it nothing large is read, and each multiplexed stream
/// may still have one waiting.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;
/// How long answers wait without any being written, before the connection is closed.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(10);
/// How often a connection is looked at while answers wait.
const STALL_LOOK_EVERY: Duration = Duration::from_secs(2);

/// What all connections of a node have taken.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    answer_bytes: AtomicUsize,
    streams: AtomicUsize,
    /// Connections that were closed because their client did not read.
    stalled: AtomicU64,
}

impl Connections {
    /// Bytes of answers that wait to be written.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.answer_bytes.load(Ordering::Relaxed)
    }

    /// Multiplexed streams that are open.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Connections that were closed because their client did not read.
    pub(crate) fn stalled(&self) -> u64 {
        self.stalled.load(Ordering::Relaxed)
    }
}

/// What one connection has taken.
#[derive(Debug)]
pub(crate) struct Connection {
    all: Arc<Connections>,
    requests: AtomicUsize,
    request_bytes: AtomicUsize,
    watchers: AtomicUsize,
    /// Bytes of answers that are made or wait to be written, also of those for which there was no room.
    answer_bytes: AtomicUsize,
    /// The bytes that are left for answers. Whoever waits for some gets them in turn.
    answer_room: Semaphore,
    pub(super) long_reads: Semaphore,
    /// Bytes of answers that were counted when none was left.
    answers_beyond: AtomicUsize,
    /// Those that wait for room or for a turn, and whether anybody had to since all answers were last written.
    waiting: AtomicUsize,
    is_pressed: AtomicBool,
    /// Counts the pieces of answers that were written.
    written: AtomicU64,
    /// Told when the first answer waits.
    answering: Notify,
    /// Told whenever an answer was written.
    pub(crate) room: Notify,
    is_closing: AtomicBool,
    closing: Notify,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection::new(Arc::default())
    }
}

impl Connection {
    /// A connection that has taken nothing yet.
    pub(crate) fn new(all: Arc<Connections>) -> Connection {
        Connection {
            all,
            requests: AtomicUsize::default(),
            request_bytes: AtomicUsize::default(),
            watchers: AtomicUsize::default(),
            answer_bytes: AtomicUsize::default(),
            answer_room: Semaphore::new(CONNECTION_ANSWER_BYTES_MAX),
            long_reads: Semaphore::new(CONNECTION_LONG_READS_MAX),
            answers_beyond: AtomicUsize::default(),
            waiting: AtomicUsize::default(),
            is_pressed: AtomicBool::default(),
            written: AtomicU64::default(),
            answering: Notify::default(),
            room: Notify::default(),
            is_closing: AtomicBool::default(),
            closing: Notify::default(),
        }
    }

    /// The connection over which a request came. One that came over none is alone.
    pub(crate) fn of(extensions: &Extensions) -> Arc<Connection> {
        extensions.get::<Arc<Connection>>().cloned().unwrap_or_default()
    }

    /// Takes a request of so many bytes on, or returns `None` if the connection has as much under way as it may.
    pub(crate) fn take_request(self: &Arc<Self>, bytes: usize) -> Option<RequestShare> {
        // Counted first: then what the check lets through is never more than the bound.
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        let bytes_before = self.request_bytes.fetch_add(bytes, Ordering::Relaxed);
        let share = RequestShare {
            connection: self.clone(),
            bytes,
        };
        let fits = bytes_before == 0 || bytes_before.saturating_add(bytes) <= CONNECTION_REQUEST_BYTES_MAX;
        (before < CONNECTION_REQUESTS_MAX && fits).then_some(share)
    }

    /// Takes a watcher on, or returns `None` if the connection has as many as it may.
    pub(crate) fn take_watcher(self: &Arc<Self>) -> Option<WatcherShare> {
        let before = self.watchers.fetch_add(1, Ordering::Relaxed);
        let share = WatcherShare(self.clone());
        (before < CONNECTION_WATCHERS_MAX).then_some(share)
    }

    /// Counts an open stream until this is dropped.
    pub(crate) fn take_stream(&self) -> StreamShare {
        self.all.streams.fetch_add(1, Ordering::Relaxed);
        StreamShare(self.all.clone())
    }

    /// Takes room for an answer of at most so many bytes, once all that came before have got theirs and there is enough.
    ///
    /// # Errors
    /// [`NodeFull`]; then nothing was taken.
    pub(super) async fn wait_for_answer(self: &Arc<Self>, bytes: usize) -> Result<AnswerShare, NodeFull> {
        let bytes = bytes.min(CONNECTION_ANSWER_BYTES_MAX);
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Some(share) = self.try_answer(bytes) {
            return Ok(share);
        }
        if self.all.answer_bytes().saturating_add(bytes) > ANSWER_BYTES_MAX {
            return Err(NodeFull);
        }
        let _waiting = Waiting::new(self);
        let Ok(permit) = self.answer_room.acquire_many(wanted).await else {
            // It is never closed.
            return Err(NodeFull);
        };
        permit.forget();
        self.count(bytes);
        let share = AnswerShare::new(self.clone(), bytes);
        // Counted first, as above.
        (self.all.answer_bytes() <= ANSWER_BYTES_MAX)
            .then_some(share)
            .ok_or(NodeFull)
    }

    /// Takes room for an answer of so many bytes, if there is enough now.
    pub(crate) fn try_answer(self: &Arc<Self>, bytes: usize) -> Option<AnswerShare> {
        let wanted = u32::try_from(bytes).ok()?;
        self.answer_room.try_acquire_many(wanted).ok()?.forget();
        self.count(bytes);
        let share = AnswerShare::new(self.clone(), bytes);
        (self.all.answer_bytes() <= ANSWER_BYTES_MAX).then_some(share)
    }

    /// Counts an answer that waits, whether or not there is room.
    pub(crate) fn count_answer(self: &Arc<Self>, bytes: usize) -> AnswerShare {
        let taken = self.answer_room.forget_permits(bytes);
        self.answers_beyond.fetch_add(bytes - taken, Ordering::Relaxed);
        self.count(bytes);
        AnswerShare::new(self.clone(), bytes)
    }

    fn count(&self, bytes: usize) {
        self.all.answer_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.answer_bytes.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.answering.notify_one();
        }
    }

    /// Counts answers that wait no more. Their room is free once those beyond the bound have theirs.
    pub(super) fn uncount_answers(&self, bytes: usize) {
        self.answer_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.all.answer_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let less = |beyond: usize| Some(beyond.saturating_sub(bytes));
        let beyond = self
            .answers_beyond
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .unwrap_or_default();
        self.answer_room.add_permits(bytes.saturating_sub(beyond));
        self.room.notify_waiters();
    }

    /// Something was written: the client reads, if slowly.
    pub(super) fn note_written(&self) {
        self.written.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the connection, with everything that it holds: its client does not read.
    pub(crate) fn close_stalled(&self) {
        if !self.is_closing.swap(true, Ordering::Relaxed) {
            self.all.stalled.fetch_add(1, Ordering::Relaxed);
        }
        self.closing.notify_one();
    }

    /// Closes the connection, with everything that it holds: there is no place for it.
    pub(crate) fn close(&self) {
        self.closing.notify_one();
    }

    /// Closes the connection once answers waited for [`STALL_MAX`] without any being written, while others wanted their
    /// room, here or on the node. A client that takes its time and is in nobody's way keeps its connection.
    pub(crate) async fn watch_for_stall(&self) {
        loop {
            self.answering.notified().await;
            let mut stalled = Duration::ZERO;
            let mut seen = self.written.load(Ordering::Relaxed);
            while self.answer_bytes.load(Ordering::Relaxed) > 0 && stalled < STALL_MAX {
                tokio::time::sleep(STALL_LOOK_EVERY).await;
                let written = self.written.load(Ordering::Relaxed);
                if written != seen {
                    (seen, stalled) = (written, Duration::ZERO);
                    continue;
                }
                let pressed = self.is_pressed.load(Ordering::Relaxed) || self.all.answer_bytes() > ANSWER_BYTES_MAX / 2;
                stalled = match pressed {
                    true => stalled + STALL_LOOK_EVERY,
                    false => Duration::ZERO,
                };
            }
            if stalled >= STALL_MAX {
                return self.close_stalled();
            }
            // All is written. Those that wait now may give up before the next stall is over, and still had to wait.
            let is_pressed = self.waiting.load(Ordering::Relaxed) > 0;
            self.is_pressed.store(is_pressed, Ordering::Relaxed);
        }
    }

    /// Completes when the connection is to be closed.
    pub(crate) async fn closing(&self) {
        self.closing.notified().await;
    }
}

/// Somebody waits for room until this is dropped.
pub(super) struct Waiting<'a>(&'a Connection);

impl Waiting<'_> {
    pub(super) fn new(connection: &Connection) -> Waiting<'_> {
        connection.is_pressed.store(true, Ordering::Relaxed);
        connection.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(connection)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct RequestShare {
    connection: Arc<Connection>,
    bytes: usize,
}

impl Drop for RequestShare {
    fn drop(&mut self) {
        self.connection.requests.fetch_sub(1, Ordering::Relaxed);
        self.connection.request_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A watcher that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct WatcherShare(Arc<Connection>);

impl Drop for WatcherShare {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct StreamShare(Arc<Connections>);

impl Drop for StreamShare {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_takes_so_many_requests_and_bytes_and_no_more() {
        let connection = Arc::new(Connection::default());
        let shares: Vec<_> = (0..CONNECTION_REQUESTS_MAX)
            .map(|_| connection.take_request(1_000).expect("it is within both bounds"))
            .collect();
        assert!(connection.take_request(1).is_none());
        drop(shares);
        let large = connection.take_request(2 * CONNECTION_REQUEST_BYTES_MAX);
        assert!(large.is_some(), "a single one is taken whatever its size");
        assert!(connection.take_request(1).is_none());
        drop(large);
        assert!(connection.take_request(1).is_some());
    }

    #[test]
    fn a_connection_has_a_quarter_of_the_watchers() {
        let connection = Arc::new(Connection::default());
        let shares: Vec<_> = std::iter::from_fn(|| connection.take_watcher()).collect();
        assert_eq!(shares.len(), CONNECTION_WATCHERS_MAX);
        assert_eq!(4 * CONNECTION_WATCHERS_MAX, crate::notify::WATCHERS_MAX);
        drop(shares);
        assert!(connection.take_watcher().is_some());
    }
}
