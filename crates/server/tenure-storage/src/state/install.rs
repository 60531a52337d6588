//! Replacing a group's state by a snapshot.

use bytes::Bytes;
use tenure_core::ids::Revision;
use tenure_core::snapshot::ImportError;
use tenure_core::table::{Table, TableRead, Visit};

use super::rows::{FEED_HEAD_KEY, MARK_KEY, RowSink, encode_mark, table_key};
use super::shared::Shared;
use super::{AppliedMark, StateError};
use crate::feed::segment::SegmentIndex;

/// See [`GroupState::install`](super::GroupState::install).
pub(crate) fn install(
    shared: &Shared,
    fill: impl FnOnce(&mut dyn Table) -> Result<(), ImportError>,
    mark: AppliedMark,
    revision: Revision,
) -> Result<(), StateError> {
    let _writer = shared.lock_writer();
    let feed = SegmentIndex::behind(revision.0);
    let old = shared.read_inner().rows.clone();
    let mut fill = Some(fill);
    let replaced = old.replace(&mut |sink| {
        debug_assert!(MARK_KEY < FEED_HEAD_KEY, "rows go in in ascending order");
        sink(MARK_KEY.to_vec(), encode_mark(&mark))?;
        let (head_key, head) = feed.head_row();
        sink(head_key, head)?;
        let fill = fill.take().expect("an engine asks for the rows once");
        let mut incoming = Incoming {
            sink,
            last: None,
            failure: None,
        };
        let filled = fill(&mut incoming);
        // A row that could not be taken is the cause, whatever the one who fills made of it.
        match incoming.failure {
            Some(failure) => Err(failure),
            None => Ok(filled?),
        }
    });
    let rows = replaced.map_err(|error| match error {
        StateError::Snapshot(_) => error,
        error => shared.fault.set(error),
    })?;
    let mut inner = shared.write_inner();
    inner.rows = rows;
    let forgotten = (std::mem::take(&mut inner.active), std::mem::take(&mut inner.sealed));
    inner.written = Some(mark.index);
    inner.durable = Some(mark.index);
    inner.applied = Some(mark);
    inner.feed = feed;
    drop(inner);
    // Memory and files of the old state are freed here, with the lock released.
    drop(forgotten);
    drop(old);
    Ok(())
}

/// The empty table that a snapshot is put into: rows go straight to the engine.
struct Incoming<'a, 'b> {
    sink: &'a mut RowSink<'b>,
    last: Option<Vec<u8>>,
    failure: Option<StateError>,
}

impl TableRead for Incoming<'_, '_> {
    fn get(&self, _key: &[u8]) -> Option<Bytes> {
        None
    }

    fn scan(&self, _from: &[u8], _to: &[u8], _visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) {}
}

impl Table for Incoming<'_, '_> {
    fn put(&mut self, key: Vec<u8>, value: Bytes) {
        if self.failure.is_some() {
            return;
        }
        let taken = match &self.last {
            Some(last) if *last >= key => Err(ImportError::Damaged("its rows are not in order").into()),
            _ => (self.sink)(table_key(&key), value),
        };
        self.failure = taken.err();
        self.last = Some(key);
    }

    fn delete(&mut self, _key: &[u8]) {
        self.failure
            .get_or_insert(ImportError::Damaged("it removes rows").into());
    }
}
