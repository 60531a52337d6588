//! Reads of streams.

use crate::home;
use crate::ids::ObjectName;
use crate::keyspace::{self, HeadRow, RecordRow};
use crate::limits::{PAGE_BYTES_MAX, PAGE_ROWS_MAX};
use crate::query::{Found, ReadFrom, RecordView, StreamView};
use crate::refusal::Failure;
use crate::response::StreamRecord;
use crate::stream::Gaps;
use crate::table::{TableRead, Visit};

/// One stream.
pub(super) fn stream(table: &dyn TableRead, name: &ObjectName) -> Result<StreamView, Failure> {
    let record = home::stream(table, name)?;
    let head = head(table, &record);
    Ok(StreamView {
        record,
        first: head.first,
        tail: head.tail,
        bytes: head.bytes_written - head.bytes_gone,
        token: head.token,
    })
}

/// A page of records, which ends before the next gap. From an offset in a gap nothing is found, and the first offset that
/// can be read is said to be the one behind the gap.
pub(super) fn records(
    table: &dyn TableRead,
    gaps: &Gaps,
    name: &ObjectName,
    from: ReadFrom,
    limit: usize,
) -> Result<Found, Failure> {
    let record = home::stream(table, name)?;
    let HeadRow { mut first, tail, .. } = head(table, &record);
    let incarnation = record.incarnation;
    let begin = match from {
        ReadFrom::Earliest => first,
        ReadFrom::Latest => tail,
        ReadFrom::Offset(offset) => offset.max(first),
    };
    let mut until = tail;
    if let Some(gap) = gaps.at_or_behind(incarnation, begin) {
        until = until.min(gap.start);
        if gap.start <= begin {
            first = gap.end;
        }
    }
    let limit = limit.clamp(1, PAGE_ROWS_MAX);
    let (mut records, mut bytes) = (Vec::new(), 0);
    let (from, to) = (
        keyspace::record(incarnation, begin),
        keyspace::record(incarnation, until),
    );
    table.scan(&from, &to, &mut |key, value| {
        if records.len() == limit || (bytes > 0 && bytes + value.len() > PAGE_BYTES_MAX) {
            return Visit::Break(());
        }
        let row: RecordRow = keyspace::decode(key, value);
        bytes += value.len();
        records.push(RecordView {
            offset: keyspace::number_at(key, 9),
            data: row.data,
            time: row.time,
            token: row.token,
        });
        Visit::Continue(())
    });
    Ok(Found::Records {
        records,
        first,
        tail,
        incarnation,
    })
}

fn head(table: &dyn TableRead, record: &StreamRecord) -> HeadRow {
    keyspace::read(table, &keyspace::head(record.incarnation)).expect("a stream that lives has a head")
}
