//! `cache watch`: every change on a line of its own, as it happens.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use tenure_client::{Change, ChangeKind, Client, Entry, WatchItem};

use crate::args::cache::Watch;
use crate::duration::whole_ms;
use crate::exit::Failure;
use crate::output::{Answer, Blob, Decimal, MaybeBlob, Output, escaped};
use crate::signals;

/// A line of `cache watch`.
#[derive(Serialize)]
struct Line {
    revision: Decimal,
    reason: &'static str,
    #[serde(flatten)]
    key: Blob<Bytes>,
    #[serde(flatten)]
    value: MaybeBlob<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_version: Option<Decimal>,
}

impl Line {
    fn of_state(entry: Entry, revision: u64) -> Line {
        Line {
            revision: Decimal(revision),
            reason: "state",
            key: Blob::key(entry.key),
            value: MaybeBlob(Some(Blob::value(entry.value))),
            version: Some(Decimal(entry.version)),
            created: Some(Decimal(entry.created)),
            holder: entry.owner_session.map(Decimal),
            ttl_ms: entry.remaining.map(whole_ms),
            previous_version: None,
        }
    }

    fn of_change(change: Change) -> Line {
        let mut line = Line {
            revision: Decimal(change.revision),
            reason: "put",
            key: Blob::key(change.key),
            value: MaybeBlob(None),
            version: None,
            created: None,
            holder: None,
            ttl_ms: None,
            previous_version: change.previous_version.map(Decimal),
        };
        match change.kind {
            ChangeKind::Put {
                value,
                version,
                created,
                owner_session,
                ttl,
            } => {
                line.value = MaybeBlob(Some(Blob::value(value)));
                line.version = Some(Decimal(version));
                line.created = Some(Decimal(created));
                line.holder = owner_session.map(Decimal);
                line.ttl_ms = ttl.map(|ttl: Duration| whole_ms(ttl));
            }
            ChangeKind::Removed { reason } => line.reason = reason.name(),
        }
        line
    }
}

impl Answer for Line {
    /// Values are escaped as keys are, so that a change is a line.
    fn text(&self, line: &mut Vec<u8>) {
        line.extend(escaped(&self.key.bytes).into_bytes());
        line.push(b'\t');
        match &self.value.0 {
            Some(value) => line.extend(escaped(&value.bytes).into_bytes()),
            None => line.extend_from_slice(b"(deleted)"),
        }
    }
}

/// `cache watch`. It ends after so many lines, or by a signal with status 0.
pub(super) async fn watch(arguments: Watch, client: &Client, output: &mut Output) -> Result<(), Failure> {
    signals::end_on_signals()?;
    let mut watch = client.cache(arguments.cache).watch();
    if let Some(key) = arguments.key {
        watch = watch.key(key.as_bytes());
    } else if let Some(prefix) = arguments.prefix {
        watch = watch.prefix(prefix.as_bytes());
    }
    if let Some(revision) = arguments.from {
        watch = watch.from(revision);
    }
    if arguments.with_state {
        watch = watch.with_state();
    }
    let mut watch = watch.await?;
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while let Some(item) = watch.next().await {
        let lines: Vec<Line> = match item.map_err(|end| end.into_error())? {
            WatchItem::State { entries, revision, .. } => entries
                .into_iter()
                .map(|entry| Line::of_state(entry, revision))
                .collect(),
            WatchItem::Changes { changes, .. } => changes.into_iter().map(Line::of_change).collect(),
            WatchItem::Progress { .. } => Vec::new(),
        };
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(lines.len());
        output.answers(&lines[..wanted])?;
        left -= wanted as u64;
        if left == 0 {
            return Ok(());
        }
    }
    Ok(())
}
