//! How many requests are under way, and how many have ended unknown.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_client::{Error, ErrorCode, Outcome};

/// Counts the requests of all clients of a run.
#[derive(Debug, Default)]
pub struct Tally {
    under_way: AtomicUsize,
    done: AtomicUsize,
    not_applied: AtomicUsize,
    no_room: AtomicUsize,
    unknown: AtomicUsize,
}

impl Tally {
    /// Makes a request and counts it.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn count<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let result = request.await;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        let counter = match &result {
            Ok(_) => &self.done,
            Err(error) if error.outcome() == Outcome::Unknown => &self.unknown,
            Err(error) if error.code() == ErrorCode::StorageFull => &self.no_room,
            Err(_) => &self.not_applied,
        };
        counter.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// How many are under way.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// How many had a verdict.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// How many were refused since a disk had no room for them.
    pub fn no_room(&self) -> usize {
        self.no_room.load(Ordering::SeqCst)
    }

    /// How many were not applied for another reason, as their clients were told.
    pub fn not_applied(&self) -> usize {
        self.not_applied.load(Ordering::SeqCst)
    }

    /// How many ended unknown.
    pub fn unknown(&self) -> usize {
        self.unknown.load(Ordering::SeqCst)
    }
}
