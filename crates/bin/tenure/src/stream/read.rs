//! `stream read`: a record a line, to the end of the stream or as records come.

use bytes::Bytes;
use serde::Serialize;

use tenure_client::{Client, ReadFrom, Record, Stream};

use crate::args::stream::{From, Read};
use crate::exit::Failure;
use crate::output::{Answer, Blob, Decimal, Output, escaped};
use crate::signals;

/// A line of `stream read`.
#[derive(Serialize)]
struct Line {
    offset: Decimal,
    #[serde(flatten)]
    value: Blob<Bytes>,
    time_us: Decimal,
    fence_token: Option<Decimal>,
    #[serde(skip)]
    with_offset: bool,
}

impl Line {
    fn new(record: Record, with_offset: bool) -> Line {
        Line {
            offset: Decimal(record.offset),
            value: Blob::value(record.data),
            time_us: Decimal(u64::try_from(record.time.as_micros()).unwrap_or(u64::MAX)),
            fence_token: record.fence_token.map(Decimal),
            with_offset,
        }
    }
}

impl Answer for Line {
    /// The record as it is; where an offset stands before it, escaped as in listings, so that each stays on its line.
    fn text(&self, line: &mut Vec<u8>) {
        if self.with_offset {
            line.extend(format!("{}\t{}", self.offset, escaped(&self.value.bytes)).into_bytes());
        } else {
            line.extend_from_slice(&self.value.bytes);
        }
    }
}

/// `stream read`.
pub(super) async fn read(arguments: Read, client: &Client, output: &mut Output) -> Result<(), Failure> {
    signals::end_on_signals()?;
    let stream = client.stream(arguments.stream);
    let from = match arguments.from {
        From::Earliest => ReadFrom::Earliest,
        From::Latest => ReadFrom::Latest,
        From::Offset(offset) => ReadFrom::Offset(offset),
    };
    let lines = Lines {
        left: arguments.limit.unwrap_or(u64::MAX),
        with_offsets: arguments.with_offsets,
    };
    if arguments.follow {
        follow(&stream, from, lines, output).await
    } else {
        read_to_the_end(&stream, from, lines, output).await
    }
}

/// What is still wanted.
struct Lines {
    left: u64,
    with_offsets: bool,
}

impl Lines {
    /// Writes records as far as they are wanted. `false`: no more are.
    fn write(&mut self, records: Vec<Record>, output: &mut Output) -> Result<bool, Failure> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(records.len());
        let with_offsets = self.with_offsets;
        let lines = records
            .into_iter()
            .take(wanted)
            .map(|record| Line::new(record, with_offsets));
        output.answers(&lines.collect::<Vec<_>>())?;
        self.left -= wanted as u64;
        Ok(self.left > 0)
    }
}

/// Up to what the end was when the first page was read: a stream that is written to all the time ends, too.
async fn read_to_the_end(
    stream: &Stream,
    from: ReadFrom,
    mut lines: Lines,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut page = stream.read().from(from).limit(page_limit(lines.left)).await?;
    let (end, incarnation) = (page.tail, page.incarnation);
    loop {
        let next = page.next;
        let was_empty = page.records.is_empty();
        page.records.retain(|record| record.offset < end);
        if !lines.write(page.records, output)? || next >= end || was_empty {
            return Ok(());
        }
        let read = stream.read().from_offset(next).incarnation(incarnation);
        page = read.limit(page_limit(lines.left)).await?;
    }
}

/// Asking for no record would be asking for a whole page. One record shows that the stream exists.
fn page_limit(left: u64) -> u32 {
    u32::try_from(left).unwrap_or(u32::MAX).max(1)
}

async fn follow(stream: &Stream, from: ReadFrom, mut lines: Lines, output: &mut Output) -> Result<(), Failure> {
    let mut following = stream.follow().from(from).await?;
    while lines.left > 0 {
        let Some(records) = following.next_batch().await else {
            return Ok(());
        };
        lines.write(records.map_err(|end| end.into_error())?, output)?;
    }
    Ok(())
}
