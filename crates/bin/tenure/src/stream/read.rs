//! `stream read`: a record a line, to the end of the stream or as records come.

use std::io::{self, Write as _};

use bytes::Bytes;
use serde::Serialize;

use tenure_api::v1::WireError;
use tenure_client::{Client, ReadFrom, Record, RecordPage, Stream};

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
    let mut page = page_from(stream, from, None, lines.left).await?;
    let (end, incarnation) = (page.tail, page.incarnation);
    loop {
        let next = page.next;
        let was_empty = page.records.is_empty();
        page.records.retain(|record| record.offset < end);
        if !lines.write(page.records, output)? || next >= end || was_empty {
            return Ok(());
        }
        page = page_from(stream, ReadFrom::Offset(next), Some(incarnation), lines.left).await?;
    }
}

/// A page from there on, or from behind the gap in which that lies.
async fn page_from(
    stream: &Stream,
    from: ReadFrom,
    incarnation: Option<u64>,
    left: u64,
) -> Result<RecordPage, Failure> {
    let read = |from| {
        let read = stream.read().from(from).limit(page_limit(left));
        match incarnation {
            Some(life) => read.incarnation(life),
            None => read,
        }
    };
    let error = match read(from).await {
        Ok(page) => return Ok(page),
        Err(error) => error,
    };
    let resume_from = error.server().and_then(WireError::resume_from);
    match (from, resume_from) {
        (ReadFrom::Offset(next), Some(behind)) if is_gap(stream, incarnation, next, behind).await? => {
            Ok(read(ReadFrom::Offset(behind)).await?)
        }
        _ => Err(error.into()),
    }
}

/// Whether what is missing between these offsets is a gap that a restore has left, which is said, and not records that were
/// to be read and have gone.
async fn is_gap(stream: &Stream, incarnation: Option<u64>, next: u64, behind: u64) -> Result<bool, Failure> {
    let state = stream.info().await?;
    if state.first > next || incarnation.is_some_and(|life| life != state.info.incarnation) {
        return Ok(false);
    }
    let last = behind.saturating_sub(1);
    // The records go on where nobody reads this.
    let _ = writeln!(
        io::stderr(),
        "a gap: offsets {next} to {last} were left out when the cluster was restored from a backup"
    );
    Ok(true)
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
        match records {
            Ok(records) => {
                lines.write(records, output)?;
            }
            Err(end) => {
                let (incarnation, next) = (following.incarnation(), following.next_offset());
                let behind = match end.resume_from() {
                    Some(behind) if is_gap(stream, Some(incarnation), next, behind).await? => behind,
                    _ => return Err(end.into_error().into()),
                };
                following = stream.follow().from_offset(behind).incarnation(incarnation).await?;
            }
        }
    }
    Ok(())
}
