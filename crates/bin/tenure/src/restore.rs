//! `tenure restore`: from a backup to the folder of the first node of a new cluster.

use std::io::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use tenure_node::Runtime;
use tenure_node::restore::{Progress, RestoreError, RestoreOptions, Restored, RowsError, restore};
use tenure_storage::backup::{BackupError, GroupHead};
use tenure_storage::error::OpenError;

use crate::args::server::Restore;
use crate::backup::{FILE, unix_secs};
use crate::exit::Failure;
use crate::floor::revision_floor;
use crate::logs;
use crate::output::{Answer, Decimal, Output};
use crate::start::open_on_disk;

/// What happened after the backup, of which nothing is known.
const LOST: [&str; 4] = [
    "every write, grant and record that was acknowledged after the backup was read is lost",
    "who held what then is not known: whatever checks fencing tokens refuses those holders once it has seen a new token",
    "a request of the old cluster that is repeated now is answered session_unknown or too_late: whether it was done is open",
    "the old cluster is not stopped by this: see to it that none of its nodes runs any more",
];

/// `tenure restore`.
///
/// # Errors
/// The backup is not whole or cannot be restored, and nothing was written; or the folder could not be written, and then it
/// cannot be started.
pub(crate) fn run(arguments: &Restore, output: &mut Output) -> Result<(), Failure> {
    logs::of_a_command()?;
    let now = unix_secs();
    let floor = revision_floor(arguments.revision_floor, now)?;
    let from = match arguments.from.is_dir() {
        true => arguments.from.join(FILE),
        false => arguments.from.clone(),
    };
    let options = RestoreOptions {
        from,
        data_dir: arguments.data_dir.clone(),
        floor,
    };
    let progress = &mut |progress: Progress| match progress {
        Progress::Checked(group) => say("checked", &group),
        Progress::Written(group) => say("written", &group),
    };
    // Nothing here waits, but the system's world is that of a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no runtime could be started: {error}"), "free some resources"))?;
    let entered = runtime.enter();
    let restored = restore(&options, &Runtime::system(), open_on_disk(), progress).map_err(not_restored);
    drop(entered);
    let restored = restored?;
    output.answer(&Report::new(&options, &restored, now))
}

fn say(what: &str, group: &GroupHead) {
    // The restore goes on where nobody reads it.
    let _ = writeln!(io::stderr(), "group {}: {what}", group.group);
}

fn not_restored(error: RestoreError) -> Failure {
    let what = error.to_string();
    let another = "take another backup";
    match error {
        RestoreError::NoFile { path, error } if error.kind() == io::ErrorKind::NotFound => Failure::Missing {
            what: format!("the backup {}", path.display()),
            remedy: "name the folder that `tenure backup` was given".to_owned(),
        },
        RestoreError::File {
            error: BackupError::Damaged { .. } | BackupError::Truncated { .. },
            ..
        }
        | RestoreError::Groups { .. } => Failure::Damaged {
            what,
            remedy: another.to_owned(),
        },
        RestoreError::Rows {
            error: RowsError::FloorTooLow { .. },
            ..
        } => Failure::settings(
            what,
            "set this machine's clock, or name a higher one with --revision-floor",
        ),
        RestoreError::Rows {
            error: RowsError::FloorTooHigh { .. },
            ..
        } => Failure::settings(what, "name a lower one with --revision-floor"),
        RestoreError::Rows {
            error: RowsError::UnknownKind { .. },
            ..
        } => Failure::failed(what, "use the release that wrote it, or a newer one"),
        RestoreError::Rows { .. } => Failure::Damaged {
            what,
            remedy: another.to_owned(),
        },
        // These say what to do.
        RestoreError::Folder(OpenError::NotEmpty { .. }) => Failure::Arguments { what },
        RestoreError::Folder(_) | RestoreError::State(_) => {
            Failure::failed(what, "look at the disk, remove the folder and restore again")
        }
        RestoreError::File { .. } | RestoreError::NoFile { .. } => Failure::failed(what, another),
    }
}

/// What was restored and what was not.
#[derive(Serialize)]
struct Report {
    data_dir: String,
    cluster: String,
    of_cluster: String,
    revision_floor: Decimal,
    backup_age_secs: Option<Decimal>,
    groups: Vec<Group>,
    lost: [&'static str; 4],
}

/// A group.
#[derive(Serialize)]
struct Group {
    group: u32,
    backup_revision: Decimal,
    backup_applied_index: Decimal,
    rows: Decimal,
    sessions_forgotten: Decimal,
    keys_of_sessions_removed: Decimal,
    requests_forgotten: Decimal,
    streams_with_a_gap: Decimal,
}

impl Report {
    fn new(options: &RestoreOptions, restored: &Restored, now: u64) -> Report {
        let groups = restored.groups.iter().map(|(head, outcome)| Group {
            group: head.group,
            backup_revision: Decimal(head.revision),
            backup_applied_index: Decimal(head.applied),
            rows: Decimal(outcome.rows),
            sessions_forgotten: Decimal(outcome.sessions),
            keys_of_sessions_removed: Decimal(outcome.owned_keys),
            requests_forgotten: Decimal(outcome.requests),
            streams_with_a_gap: Decimal(outcome.streams),
        });
        Report {
            data_dir: options.data_dir.display().to_string(),
            cluster: format!("{:032x}", restored.cluster),
            of_cluster: format!("{:032x}", restored.backup.cluster),
            revision_floor: Decimal(options.floor),
            backup_age_secs: now.checked_sub(restored.backup.begun_unix_secs).map(Decimal),
            groups: groups.collect(),
            lost: LOST,
        }
    }

    fn sum(&self, of: impl Fn(&Group) -> Decimal) -> u64 {
        self.groups.iter().map(|group| of(group).0).sum()
    }
}

impl Answer for Report {
    fn text(&self, line: &mut Vec<u8>) {
        let age = match self.backup_age_secs {
            Some(age) => format!("{} old", length(Duration::from_secs(age.0))),
            None => "of an unknown age: this machine's clock stands before its beginning".to_owned(),
        };
        let mut text = format!(
            "restored {}: {} rows of {} groups as cluster {}, revisions from {}\n\
             backup of cluster {}, {age}\n\
             forgotten: {} sessions with {} keys, {} remembered requests; streams with a gap: {}",
            self.data_dir,
            self.sum(|group| group.rows),
            self.groups.len(),
            self.cluster,
            self.revision_floor,
            self.of_cluster,
            self.sum(|group| group.sessions_forgotten),
            self.sum(|group| group.keys_of_sessions_removed),
            self.sum(|group| group.requests_forgotten),
            self.sum(|group| group.streams_with_a_gap),
        );
        for lost in self.lost {
            text.push_str(&format!("\nnot known: {lost}"));
        }
        line.extend(text.into_bytes());
    }
}

/// A length of time for people, its two largest units.
fn length(length: Duration) -> String {
    let secs = length.as_secs();
    let units = [
        (secs / 86_400, "d"),
        (secs / 3_600 % 24, "h"),
        (secs / 60 % 60, "min"),
        (secs % 60, "s"),
    ];
    let from = units.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    let shown = units[from..]
        .iter()
        .take(2)
        .map(|(count, unit)| format!("{count} {unit}"));
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
