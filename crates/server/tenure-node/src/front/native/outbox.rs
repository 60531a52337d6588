//! The answers that wait to be written to one stream: bounded by number, by bytes, and by time. A client that reads
//! nothing for [`STALL_MAX`] while answers wait for room loses its connection, and with it all that it held here.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::task::AtomicWaker;
use prost::Message;
use tenure_api::v1::ServerFrame;
use tonic::Status;

use crate::front::answers::{AnswerShare, Room};
use crate::front::connection::{Connection, STALL_MAX};

/// Answers that wait to be written to one stream.
const ANSWERS_MAX: usize = 256;

/// Where answers are put. Clones put them into the same stream, which ends when all are dropped and all is written.
pub(super) struct Outbox {
    shared: Arc<Shared>,
}

/// Where one subscription puts what it tells, until it is closed. Nothing of it is put behind its end, however far its
/// task had come: whether it is open is looked at in the same step in which a frame is put into the queue.
#[derive(Clone)]
pub(super) struct Telling {
    outbox: Outbox,
    /// Changed only while the queue is locked.
    open: Arc<AtomicBool>,
}

/// The other end, as it is written to the connection.
pub(super) struct Written {
    shared: Arc<Shared>,
}

/// Nothing is written any more: the client is gone, or does not read, or the subscription was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

struct Shared {
    /// The room of the stream's body: what is taken out of the queue is kept there until it is written.
    room: Arc<Room>,
    queue: Mutex<Queue>,
    reader: AtomicWaker,
}

struct Queue {
    frames: VecDeque<(ServerFrame, AnswerShare)>,
    writers: usize,
    /// Frames taken so far.
    taken: u64,
    gone: bool,
}

/// A new stream, whose body has this room.
pub(super) fn open(room: Arc<Room>) -> (Outbox, Written) {
    let shared = Arc::new(Shared {
        room,
        queue: Mutex::new(Queue {
            frames: VecDeque::new(),
            writers: 1,
            taken: 0,
            gone: false,
        }),
        reader: AtomicWaker::new(),
    });
    (Outbox { shared: shared.clone() }, Written { shared })
}

impl Outbox {
    /// Puts an answer behind those that wait, once there is room.
    ///
    /// # Errors
    /// [`Gone`]; then the answer was dropped.
    pub(super) async fn send(&self, frame: ServerFrame) -> Result<(), Gone> {
        self.shared.send(frame, None, None).await
    }

    /// Puts an answer behind those that wait that has its share of the connection's room already.
    ///
    /// # Errors
    /// [`Gone`]; then the answer was dropped.
    pub(super) async fn send_counted(&self, frame: ServerFrame, share: AnswerShare) -> Result<(), Gone> {
        self.shared.send(frame, Some(share), None).await
    }

    /// Where a subscription of this stream puts what it tells.
    pub(super) fn telling(&self) -> Telling {
        Telling {
            outbox: self.clone(),
            open: Arc::new(AtomicBool::new(true)),
        }
    }

    /// The connection that it belongs to.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.shared.room.connection()
    }
}

impl Telling {
    /// The connection that it belongs to.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.outbox.connection()
    }

    /// Puts an event, which has its share of the connection's room already, behind those that wait.
    ///
    /// # Errors
    /// [`Gone`], also if it was closed before; then the event was dropped.
    pub(super) async fn send(&self, frame: ServerFrame, share: AnswerShare) -> Result<(), Gone> {
        let of = Some((&*self.open, false));
        self.outbox.shared.send(frame, Some(share), of).await
    }

    /// Puts the end behind the events that wait, once there is room, and closes in the same step.
    ///
    /// # Errors
    /// [`Gone`], also if it was closed before; then the end was dropped.
    pub(super) async fn send_last(&self, frame: ServerFrame) -> Result<(), Gone> {
        self.outbox.shared.send(frame, None, Some((&*self.open, true))).await
    }

    /// Closes: from now on nothing is put into the stream here. Returns whether it was open until now, that is, whether
    /// the end is still to be told.
    pub(super) fn close(&self) -> bool {
        let _queue = self.outbox.shared.locked();
        self.open.swap(false, Ordering::Relaxed)
    }
}

impl Clone for Outbox {
    fn clone(&self) -> Outbox {
        self.shared.locked().writers += 1;
        Outbox {
            shared: self.shared.clone(),
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let mut queue = self.shared.locked();
        queue.writers -= 1;
        if queue.writers == 0 {
            drop(queue);
            self.shared.reader.wake();
        }
    }
}

impl Stream for Written {
    type Item = Result<ServerFrame, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Before the look, so that no answer that comes in between is missed.
        self.shared.reader.register(context.waker());
        let mut queue = self.shared.locked();
        if let Some((frame, share)) = queue.frames.pop_front() {
            queue.taken += 1;
            drop(queue);
            self.shared.room.put(share);
            return Poll::Ready(Some(Ok(frame)));
        }
        if queue.writers == 0 || queue.gone {
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    /// Puts a frame into the queue once there is room: if a subscription is named, only while that is open, which then is
    /// closed if the frame is its last.
    async fn send(
        &self,
        frame: ServerFrame,
        mut share: Option<AnswerShare>,
        of: Option<(&AtomicBool, bool)>,
    ) -> Result<(), Gone> {
        // What has its share was measured for it.
        let bytes = share.as_ref().map_or_else(|| frame.encoded_len(), |_| 0);
        let mut frame = Some(frame);
        let mut seen = 0;
        let mut limit = std::pin::pin!(tokio::time::sleep(STALL_MAX));
        loop {
            let mut room = std::pin::pin!(self.connection().room.notified());
            // Before the look, so that no answer that is written in between is missed.
            room.as_mut().enable();
            let Some(taken) = self.push(&mut frame, bytes, &mut share, of)? else {
                return Ok(());
            };
            if taken != seen {
                // The client reads, if slowly.
                seen = taken;
                limit.set(tokio::time::sleep(STALL_MAX));
            }
            tokio::select! {
                () = room => {}
                () = &mut limit => {
                    self.give_up();
                    return Err(Gone);
                }
            }
        }
    }

    /// Puts a frame into the queue if there is room; else returns how many were taken out of it so far. A stream with
    /// nothing waiting always has room for one, so that no other stream can stop it.
    fn push(
        &self,
        frame: &mut Option<ServerFrame>,
        bytes: usize,
        share: &mut Option<AnswerShare>,
        of: Option<(&AtomicBool, bool)>,
    ) -> Result<Option<u64>, Gone> {
        let mut queue = self.locked();
        if queue.gone || of.is_some_and(|(open, _)| !open.load(Ordering::Relaxed)) {
            return Err(Gone);
        }
        if queue.frames.len() >= ANSWERS_MAX {
            return Ok(Some(queue.taken));
        }
        let has_room = share.take().or_else(|| self.connection().try_answer(bytes));
        let alone = || queue.frames.is_empty().then(|| self.connection().count_answer(bytes));
        let Some(share) = has_room.or_else(alone) else {
            return Ok(Some(queue.taken));
        };
        if let Some(frame) = frame.take() {
            queue.frames.push_back((frame, share));
        }
        if let Some((open, true)) = of {
            open.store(false, Ordering::Relaxed);
        }
        drop(queue);
        self.reader.wake();
        Ok(None)
    }

    /// The client does not read: what waits is dropped, and the connection closed.
    fn give_up(&self) {
        self.end();
        self.connection().close_stalled();
    }

    /// Nothing is written any more, and what waits is dropped.
    fn end(&self) {
        let dropped = {
            let mut queue = self.locked();
            queue.gone = true;
            std::mem::take(&mut queue.frames)
        };
        drop(dropped);
        self.reader.wake();
    }

    fn connection(&self) -> &Arc<Connection> {
        self.room.connection()
    }

    /// A lock whose holder cannot have left it half changed.
    fn locked(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
