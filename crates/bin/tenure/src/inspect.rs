//! `tenure inspect`: what a stopped node's folder holds, and whether all of it is as it was written.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use tenure_storage::inspect::{Finding, GroupInspection, InspectError, Inspection, inspect};

use crate::args::server::Inspect;
use crate::exit::Failure;
use crate::logs;
use crate::output::{Answer, Decimal, Output, escaped, fields, table};
use crate::scratch::Scratch;

/// The exit status of a program that was stopped by a signal is this and the number of the signal.
const STOPPED_BY: i32 = 128;

/// `tenure inspect`.
///
/// # Errors
/// There is no such folder, it is in use, or it cannot be read. Something in it is damaged, which is said after what it
/// holds.
pub(crate) fn run(arguments: &Inspect, output: &mut Output) -> Result<(), Failure> {
    logs::of_a_command()?;
    let scratch = Scratch::new()?;
    let runtime = remove_on_signals(scratch.path())?;
    let inspection = inspect(&arguments.folder, scratch.path()).map_err(not_read)?;
    drop(runtime);
    drop(scratch);
    output.answer(&Report::new(&inspection))?;
    let damage = match inspection.damage.len() {
        0 => return Ok(()),
        1 => "1 thing in it is".to_owned(),
        more => format!("{more} things in it are"),
    };
    Err(Failure::Damaged {
        what: format!(
            "{} is damaged: {damage} not as it was written",
            arguments.folder.display()
        ),
        remedy:
            "restore it from a copy, or set it aside and start on an empty folder, which on a cluster of one loses \
                 everything in it"
                .to_owned(),
    })
}

/// Removes the scratch folder if the process is told to stop. Nothing of the real folder needs tidying.
pub(crate) fn remove_on_signals(scratch: &Path) -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no thread could be started: {error}"), "free some resources"))?;
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let scratch = scratch.to_owned();
        let _entered = runtime.enter();
        let mut signals = signal(kind)
            .map_err(|error| Failure::failed(format!("signals cannot be received: {error}"), "report it"))?;
        runtime.spawn(async move {
            if signals.recv().await.is_some() {
                // The process ends whether or not that works.
                let _ = std::fs::remove_dir_all(scratch);
                std::process::exit(STOPPED_BY + kind.as_raw_value());
            }
        });
    }
    Ok(runtime)
}

fn not_read(error: InspectError) -> Failure {
    let what = error.to_string();
    match error {
        InspectError::Absent { folder } => Failure::Missing {
            what: format!("a data folder in {}", folder.display()),
            remedy: "name the folder that --data-dir of the node named".to_owned(),
        },
        InspectError::Folder(tenure_storage::error::OpenError::Held { .. }) => {
            Failure::failed(what, "stop the node first, or ask it with `tenure cluster status`")
        }
        InspectError::Folder(tenure_storage::error::OpenError::Io { .. }) => {
            Failure::failed(what, "look at the disk and the rights to it")
        }
        InspectError::Copy { .. } => Failure::failed(what, "give it room, or set TMPDIR to a folder that has some"),
        InspectError::Folder(_) => Failure::failed("the folder cannot be read", what),
    }
}

/// What a folder holds.
#[derive(Serialize)]
struct Report {
    folder: String,
    format: u32,
    cluster: Option<String>,
    node: Option<Decimal>,
    folder_id: Option<String>,
    log: Option<LogFigures>,
    groups: Vec<Group>,
    notes: Vec<Found>,
    damage: Vec<Found>,
    ok: bool,
}

/// Figures of the log.
#[derive(Serialize)]
struct LogFigures {
    segments: usize,
    entries: u64,
    bytes: u64,
}

/// A group.
#[derive(Serialize)]
struct Group {
    group: u32,
    first_index: Option<Decimal>,
    last_index: Option<Decimal>,
    purged_index: Option<Decimal>,
    entries: Option<u64>,
    entry_bytes: Option<u64>,
    applied_index: Option<Decimal>,
    rows: Option<u64>,
    row_bytes: Option<u64>,
    digest: Option<String>,
    feed_oldest: Option<Decimal>,
    feed_last: Option<Decimal>,
    changes: Option<u64>,
}

/// Something that is not as it was written.
#[derive(Serialize)]
struct Found {
    part: &'static str,
    file: String,
    group: Option<u32>,
    offset: Option<Decimal>,
    what: String,
}

impl Report {
    fn new(inspection: &Inspection) -> Report {
        let found = |finding: &Finding| Found {
            part: finding.part.name(),
            file: relative(&finding.file, &inspection.folder),
            group: finding.group.map(|group| group.0),
            offset: finding.offset.map(Decimal),
            what: finding.what.clone(),
        };
        Report {
            folder: inspection.folder.display().to_string(),
            format: inspection.format,
            cluster: inspection.identity.map(|identity| format!("{:032x}", identity.cluster)),
            node: inspection.identity.map(|identity| Decimal(identity.node)),
            folder_id: inspection.identity.map(|identity| format!("{:032x}", identity.folder)),
            log: inspection.log.map(|log| LogFigures {
                segments: log.segments,
                entries: log.entries,
                bytes: log.bytes,
            }),
            groups: inspection.groups.iter().map(Group::new).collect(),
            notes: inspection.notes.iter().map(found).collect(),
            damage: inspection.damage.iter().map(found).collect(),
            ok: inspection.damage.is_empty(),
        }
    }
}

/// The name of a file within the folder.
fn relative(file: &Path, folder: &Path) -> String {
    let inside: PathBuf = file.strip_prefix(folder).unwrap_or(file).to_owned();
    inside.display().to_string()
}

impl Group {
    fn new(inspection: &GroupInspection) -> Group {
        let (log, state) = (inspection.log, inspection.state);
        Group {
            group: inspection.group.0,
            first_index: log.and_then(|log| log.first).map(Decimal),
            last_index: log.and_then(|log| log.last).map(Decimal),
            purged_index: log.and_then(|log| log.purged).map(Decimal),
            entries: log.map(|log| log.entries),
            entry_bytes: log.map(|log| log.bytes),
            applied_index: state.and_then(|state| state.applied).map(Decimal),
            rows: state.map(|state| state.rows),
            row_bytes: state.map(|state| state.bytes),
            digest: state.map(|state| format!("{:016x}", state.digest)),
            feed_oldest: state.map(|state| Decimal(state.feed_oldest)),
            feed_last: state.map(|state| Decimal(state.feed_last)),
            changes: state.map(|state| state.changes),
        }
    }

    fn cells(&self) -> [String; 11] {
        [
            self.group.to_string(),
            or_dash(self.first_index),
            or_dash(self.last_index),
            or_dash(self.purged_index),
            or_dash(self.entries),
            or_dash(self.applied_index),
            or_dash(self.rows),
            or_dash(self.row_bytes),
            or_dash(self.digest.as_deref()),
            match (self.feed_oldest, self.feed_last) {
                (Some(oldest), Some(last)) => format!("{oldest}..{last}"),
                _ => "-".to_owned(),
            },
            or_dash(self.changes),
        ]
    }
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

impl Found {
    fn line(&self, what: &str) -> String {
        let mut line = format!("{what}  {}", escaped(self.file.as_bytes()));
        if let Some(offset) = self.offset {
            line.push_str(&format!(" at offset {offset}"));
        }
        if let Some(group) = self.group {
            line.push_str(&format!(" (group {group})"));
        }
        line.push_str(&format!(": {}", escaped(self.what.as_bytes())));
        line
    }
}

impl Answer for Report {
    fn text(&self, line: &mut Vec<u8>) {
        let unknown = || "-".to_owned();
        let about = fields(&[
            ("folder", self.folder.clone()),
            ("format", self.format.to_string()),
            ("cluster", self.cluster.clone().unwrap_or_else(unknown)),
            ("node", or_dash(self.node)),
            ("folder id", self.folder_id.clone().unwrap_or_else(unknown)),
            (
                "log",
                self.log.as_ref().map_or_else(unknown, |log| {
                    let (segments, entries, bytes) = (log.segments, log.entries, log.bytes);
                    format!("{segments} segments, {entries} entries, {bytes} bytes")
                }),
            ),
        ]);
        let titles = [
            "GROUP", "FIRST", "LAST", "PURGED", "ENTRIES", "APPLIED", "ROWS", "BYTES", "DIGEST", "FEED", "CHANGES",
        ];
        let mut lines = vec![about, String::new()];
        lines.push(table(titles, self.groups.iter().map(Group::cells)));
        lines.extend(self.notes.iter().map(|found| found.line("note")));
        lines.extend(self.damage.iter().map(|found| found.line("damage")));
        lines.push(
            match self.ok {
                true => "ok  everything was read and is as it was written",
                false => "damaged",
            }
            .to_owned(),
        );
        line.extend(lines.join("\n").into_bytes());
    }
}
