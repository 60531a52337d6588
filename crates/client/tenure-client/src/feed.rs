//! What a connection's reader has read for one watch or one following and nobody has taken yet: bounded, and never
//! waited for, so that a slow taker holds up nobody else.

pub(crate) mod subscription;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prost::Message;
use tokio::sync::Notify;

use tenure_api::v1::{FollowEvent, WatchEvent, WireError};

/// Messages that wait.
const MESSAGES_MAX: usize = 1_024;
/// Bytes that wait. One message more always has room, however large.
const BYTES_MAX: usize = 4 << 20;

/// The buffer of one watch or one following.
#[derive(Default)]
pub(crate) struct FeedBuffer {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    events: VecDeque<FeedEvent>,
    bytes: usize,
    end: Option<FeedEnd>,
}

/// One message of a feed.
#[derive(Debug)]
pub(crate) enum FeedEvent {
    Watch(WatchEvent),
    Follow(FollowEvent),
}

impl FeedEvent {
    fn encoded_len(&self) -> usize {
        match self {
            FeedEvent::Watch(event) => event.encoded_len(),
            FeedEvent::Follow(event) => event.encoded_len(),
        }
    }
}

/// Why nothing follows in a buffer.
#[derive(Clone, Debug)]
pub(crate) enum FeedEnd {
    /// Nobody took what was there: the rest has to be asked for again.
    Overflow,
    /// The connection broke.
    Broken(String),
    /// The client itself ended it.
    Cancelled,
    /// The node says why.
    Server(Box<WireError>),
}

/// What a buffer gives.
#[derive(Debug)]
pub(crate) enum FeedItem {
    Event(FeedEvent),
    End(FeedEnd),
}

impl FeedBuffer {
    pub(crate) fn new() -> FeedBuffer {
        FeedBuffer::default()
    }

    /// Puts an event in. If there is no room, what is there is kept, the end is noted behind it, and the answer is
    /// `false`: nothing more is to be put in.
    pub(crate) fn push(&self, event: FeedEvent) -> bool {
        let mut inner = self.lock();
        if inner.end.is_some() {
            return false;
        }
        let fits = inner.events.len() < MESSAGES_MAX && inner.bytes < BYTES_MAX;
        if fits {
            inner.bytes += event.encoded_len();
            inner.events.push_back(event);
        } else {
            inner.end = Some(FeedEnd::Overflow);
        }
        drop(inner);
        self.changed.notify_one();
        fits
    }

    /// Nothing follows. The first end stays.
    pub(crate) fn end(&self, end: FeedEnd) {
        self.lock().end.get_or_insert(end);
        self.changed.notify_one();
    }

    /// The next event; behind the last one, why none follows. Dropping the future loses nothing.
    pub(crate) async fn next(&self) -> FeedItem {
        loop {
            {
                let mut inner = self.lock();
                if let Some(event) = inner.events.pop_front() {
                    inner.bytes = inner.bytes.saturating_sub(event.encoded_len());
                    return FeedItem::Event(event);
                }
                if let Some(end) = &inner.end {
                    return FeedItem::End(end.clone());
                }
            }
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
