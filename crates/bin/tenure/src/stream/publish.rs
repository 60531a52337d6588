//! `stream publish`: a batch of arguments, or the lines of standard input in batches as they come.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc::{Receiver, channel};

use tenure_api::limits::{APPEND_BYTES_MAX, APPEND_RECORDS_MAX, VALUE_BYTES_MAX};
use tenure_client::{Appended, Client, Stream, Verdict};

use crate::args::stream::Publish;
use crate::exit::Failure;
use crate::input;
use crate::output::{Answer, Decimal, Output};

/// How long a batch that is not full waits for another line.
const LINGER: Duration = Duration::from_millis(10);
/// Lines that were read and are not in a batch yet. With the longest lines they take 64 MiB.
const LINES_MAX: usize = 64;
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// `stream publish`: one line for each batch.
#[derive(Serialize)]
struct Published {
    applied: bool,
    offset: Option<Decimal>,
    last: Option<Decimal>,
    count: u64,
    tail: Decimal,
    duplicate: bool,
}

impl Published {
    fn new(appended: Appended) -> Published {
        Published {
            applied: true,
            offset: (appended.count > 0).then_some(Decimal(appended.first)),
            last: (appended.count > 0).then(|| Decimal(appended.next() - 1)),
            count: appended.count,
            tail: Decimal(appended.next()),
            duplicate: appended.duplicate,
        }
    }
}

impl Answer for Published {
    fn text(&self, line: &mut Vec<u8>) {
        let text = match (self.offset, self.last) {
            (Some(offset), Some(last)) if offset == last => format!("offset {offset}"),
            (Some(offset), Some(last)) => format!("offsets {offset}-{last}"),
            _ => format!("sealed at {}", self.tail),
        };
        line.extend(text.into_bytes());
    }
}

/// What all batches of a call share.
struct Publisher<'a> {
    stream: Stream,
    next: Option<u64>,
    fence_token: Option<u64>,
    dedup_id: Option<Vec<u8>>,
    output: &'a mut Output,
}

/// `stream publish`.
pub(super) async fn publish(arguments: Publish, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let mut publisher = Publisher {
        stream: client.stream(&arguments.stream),
        next: arguments.if_offset,
        fence_token: arguments.fence_token,
        dedup_id: arguments.dedup_id.map(|id| id.into_vec()),
        output,
    };
    if arguments.seal {
        return publisher.publish(Vec::new()).await;
    }
    if !arguments.data.is_empty() {
        let records = arguments.data.iter().map(|data| data.as_bytes().to_vec());
        return publisher.publish(records.collect()).await;
    }
    // Only looked at: the thread that reads it takes a lock of its own.
    drop(input::open("a record")?);
    let mut lines = Lines::of_standard_input()?;
    let Some(mut batch) = lines.batch(publisher.dedup_id.is_some()).await? else {
        return Err(Failure::settings(
            "standard input has no line, so there is no record",
            "give records as arguments or as lines",
        ));
    };
    if publisher.dedup_id.is_some() && !lines.have_ended().await? {
        return Err(Failure::settings(
            format!(
                "standard input does not fit into one batch, and --dedup-id names one: at most {APPEND_RECORDS_MAX} \
                 lines and {APPEND_BYTES_MAX} bytes"
            ),
            "publish it in parts, each with an id of its own",
        ));
    }
    loop {
        publisher.publish(batch).await?;
        match lines.batch(false).await? {
            Some(next) => batch = next,
            None => return Ok(()),
        }
    }
}

impl Publisher<'_> {
    /// Publishes one batch. With an expected offset the next batch must follow it at once.
    async fn publish(&mut self, records: Vec<Vec<u8>>) -> Result<(), Failure> {
        let mut append = self.stream.append(records);
        if let Some(offset) = self.next {
            append = append.if_offset(offset);
        }
        if let Some(token) = self.fence_token {
            append = append.fence_token(token);
        }
        if let Some(id) = &self.dedup_id {
            append = append.message_id(id);
        }
        match append.await? {
            Verdict::Done(appended) => {
                self.next = self.next.map(|_| appended.next());
                let duplicate = appended.duplicate;
                self.output.answer(&Published::new(appended))?;
                if duplicate && !self.output.is_json() {
                    // Who closed standard error does not want to know.
                    let _ = writeln!(io::stderr(), "appended before under this --dedup-id: nothing was added");
                }
                Ok(())
            }
            Verdict::Refused(refusal) => Err(refusal.into()),
        }
    }
}

/// The lines of standard input, which a thread reads.
struct Lines {
    lines: Receiver<io::Result<Vec<u8>>>,
    /// The line that did not fit into the batch before.
    kept: Option<Vec<u8>>,
}

impl Lines {
    fn of_standard_input() -> Result<Lines, Failure> {
        let (sender, lines) = channel(LINES_MAX);
        let read = move || {
            let mut reader = BufReader::with_capacity(BUFFER_BYTES, io::stdin());
            loop {
                let line = read_line(&mut reader);
                let is_last = !matches!(line, Ok(Some(_)));
                let Some(line) = line.transpose() else { return };
                if sender.blocking_send(line).is_err() || is_last {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("standard-input".to_owned())
            .spawn(read)
            .map_err(|error| Failure::failed(format!("no thread could be started: {error}"), "free some resources"))?;
        Ok(Lines { lines, kept: None })
    }

    /// The next batch: what has come, as far as it fits. A batch that is `patient` waits for the end of the input.
    /// `None`: the input has ended.
    async fn batch(&mut self, patient: bool) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let first = match self.kept.take() {
            Some(line) => line,
            None => match self.next().await? {
                Some(line) => line,
                None => return Ok(None),
            },
        };
        let mut bytes = first.len();
        let mut batch = vec![first];
        while batch.len() < APPEND_RECORDS_MAX {
            let next = if patient {
                self.next().await?
            } else {
                match tokio::time::timeout(LINGER, self.next()).await {
                    Ok(next) => next?,
                    Err(_) => break,
                }
            };
            let Some(line) = next else { break };
            if bytes + line.len() > APPEND_BYTES_MAX {
                self.kept = Some(line);
                break;
            }
            bytes += line.len();
            batch.push(line);
        }
        Ok(Some(batch))
    }

    /// Whether nothing follows. Waits until that is known.
    async fn have_ended(&mut self) -> Result<bool, Failure> {
        if self.kept.is_none() {
            self.kept = self.next().await?;
        }
        Ok(self.kept.is_none())
    }

    async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let unreadable = |error| {
            Failure::failed(
                format!("cannot read standard input: {error}"),
                "check where it comes from",
            )
        };
        self.lines.recv().await.transpose().map_err(unreadable)
    }
}

/// The next line without its end; of one that is too long so much that the node names the limit.
fn read_line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = reader.take(VALUE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok((read > 0).then_some(line))
}
