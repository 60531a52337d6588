//! The bytes of answers, counted from before they are read until they are written to the connection. Whatever may be large
//! takes room for its largest size first, and then keeps what it really takes: so a client that asks for much and reads
//! nothing waits before anything is read for it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::Extensions;
use hyper::body::{Body, Frame, SizeHint};
use tenure_api::limits::{KEY_BYTES_MAX, RECORDS_BYTES_MAX, VALUE_BYTES_MAX};
use tenure_core::query::Query;
use tokio::sync::SemaphorePermit;

use super::connection::{CONNECTION_ANSWER_BYTES_MAX, CONNECTION_LONG_READS_MAX, Connection, Waiting};
use crate::admission::RETRY_AFTER;

/// The largest answer about one key.
const KEY_ANSWER_BYTES: usize = VALUE_BYTES_MAX + 2 * KEY_BYTES_MAX;
/// The largest page of keys or of records, with what is around each. Only a single row goes over the mark.
pub(crate) const PAGE_ANSWER_BYTES: usize = RECORDS_BYTES_MAX + (256 << 10);
/// A page of anything else.
const ROWS_ANSWER_BYTES: usize = 512 << 10;
/// What a transaction that reads takes while it waits to be applied. Few read so much; one that reads more counts for what
/// it is once it is answered.
pub(crate) const TXN_ANSWER_BYTES: usize = 256 << 10;

// Beside the long reads of a connection there is room for a key, and for the few records that a live follower reads.
const _: () = assert!(PAGE_ANSWER_BYTES >= KEY_ANSWER_BYTES);
const _: () = assert!((CONNECTION_LONG_READS_MAX + 1) * PAGE_ANSWER_BYTES <= CONNECTION_ANSWER_BYTES_MAX);

/// Room for the answer to a read, at most; 0 for what is always small.
pub(crate) fn answer_bytes_of(query: &Query) -> usize {
    match query {
        Query::Get { .. } => KEY_ANSWER_BYTES,
        Query::List { .. } | Query::Records { .. } => PAGE_ANSWER_BYTES,
        Query::Session(_) | Query::Sessions { .. } | Query::Caches(_) | Query::Streams(_) | Query::Namespaces => {
            ROWS_ANSWER_BYTES
        }
        Query::Cache(_) | Query::Home(_) | Query::Nodes | Query::Cluster | Query::Stream(_) => 0,
    }
}

/// The node has so many answers waiting that it reads nothing large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeFull;

/// The room of one call, or of one subscription: what is taken for an answer that is being made, until it is handed on.
#[derive(Debug)]
pub(crate) struct Room {
    connection: Arc<Connection>,
    held: Mutex<Option<AnswerShare>>,
}

impl Room {
    /// Room on this connection, none of which is taken yet.
    pub(crate) fn new(connection: Arc<Connection>) -> Room {
        Room {
            connection,
            held: Mutex::new(None),
        }
    }

    /// The room of the call that has these extensions.
    pub(crate) fn of(extensions: &Extensions) -> Arc<Room> {
        let made = || Arc::new(Room::new(Connection::of(extensions)));
        extensions.get::<Arc<Room>>().cloned().unwrap_or_else(made)
    }

    /// The connection.
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Takes room for an answer of at most so many bytes, once the connection has it. Nothing is lost when the future is
    /// dropped before it is ready.
    ///
    /// # Errors
    /// [`NodeFull`]; then nothing was taken.
    pub(crate) async fn take(&self, bytes: usize) -> Result<(), NodeFull> {
        if bytes == 0 || self.locked().as_ref().is_some_and(|held| held.bytes >= bytes) {
            return Ok(());
        }
        self.give_back();
        let share = self.connection.wait_for_answer(bytes).await?;
        self.put(share);
        Ok(())
    }

    /// Takes room like [`Room::take`] for one that waits for its turn whatever the node has waiting.
    pub(crate) async fn take_patiently(&self, bytes: usize) {
        while self.take(bytes).await.is_err() {
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    /// The turn for a long read, to be kept until that is done; to be had before the room for its answer. Room that is held
    /// is given back first: whoever has the turn may wait for it.
    pub(crate) async fn long_read(&self) -> Option<SemaphorePermit<'_>> {
        self.give_back();
        let _waiting = Waiting::new(&self.connection);
        // It is never closed.
        self.connection.long_reads.acquire().await.ok()
    }

    /// Gives back what is not handed on.
    pub(crate) fn give_back(&self) {
        drop(self.locked().take());
    }

    /// The share of an answer that has this size, which counts whether or not room was taken for it.
    pub(crate) fn hand_on(&self, bytes: usize) -> AnswerShare {
        match &mut *self.locked() {
            Some(held) => held.split(bytes),
            None => self.connection.count_answer(bytes),
        }
    }

    /// The share of the whole answer, which has this size; what was taken beyond that is given back.
    pub(crate) fn hand_on_all(&self, bytes: usize) -> AnswerShare {
        let share = self.hand_on(bytes);
        self.give_back();
        share
    }

    /// Keeps a share until its bytes are handed on.
    pub(crate) fn put(&self, share: AnswerShare) {
        match &mut *self.locked() {
            Some(held) => held.join(share),
            held => *held = Some(share),
        }
    }

    /// A lock whose holder cannot have left it half changed.
    fn locked(&self) -> MutexGuard<'_, Option<AnswerShare>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of an answer, which count until this is dropped.
#[derive(Debug)]
pub(crate) struct AnswerShare {
    connection: Arc<Connection>,
    bytes: usize,
}

impl AnswerShare {
    /// Bytes that are counted already.
    pub(super) fn new(connection: Arc<Connection>, bytes: usize) -> AnswerShare {
        AnswerShare { connection, bytes }
    }

    /// Splits so many bytes off; those that are missing are counted now.
    fn split(&mut self, bytes: usize) -> AnswerShare {
        let taken = bytes.min(self.bytes);
        self.bytes -= taken;
        let mut share = AnswerShare::new(self.connection.clone(), taken);
        if bytes > taken {
            share.join(self.connection.count_answer(bytes - taken));
        }
        share
    }

    fn join(&mut self, mut other: AnswerShare) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// So many bytes are held no more.
    fn release(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if bytes > 0 {
            self.connection.uncount_answers(bytes);
        }
    }
}

impl Drop for AnswerShare {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

/// The body of an answer. Each piece of it counts until it was written to the connection, or is dropped with it.
pub(crate) struct AnswerBody {
    inner: axum::body::Body,
    room: Arc<Room>,
}

impl AnswerBody {
    /// This body, whose bytes are handed on from this room.
    pub(crate) fn new(inner: axum::body::Body, room: Arc<Room>) -> AnswerBody {
        AnswerBody { inner, room }
    }
}

impl Body for AnswerBody {
    type Data = AnswerBytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<AnswerBytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(context));
        let room = &self.room;
        let counted = |bytes: Bytes| AnswerBytes {
            share: room.hand_on(bytes.len()),
            bytes,
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(counted))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A piece of a body, which HTTP/2 holds until the window of its peer has room for it.
#[derive(Debug)]
pub(crate) struct AnswerBytes {
    bytes: Bytes,
    share: AnswerShare,
}

impl Buf for AnswerBytes {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.share.connection.note_written();
        self.share.release(count);
    }
}

#[cfg(test)]
mod tests;
