//! Looking at the folder of a node that does not run, whole and without changing a byte of it.
//!
//! It is opened as a node would open it, with every check that this makes, but over [`frozen`]: what the opening
//! repairs and syncs stays in memory. The state's engine knows no such disk, so it opens a copy in a scratch folder,
//! in which the files that never change are links. Then every entry, every row and every change is read.
//!
//! The lock of the folder is held meanwhile, so no node starts on what is being looked at.

mod copy;
mod frozen;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::ids::{GroupId, Revision};
use tenure_core::table::{TableRead as _, Visit};
use xxhash_rust::xxh3::Xxh3;

use crate::disk::Disk;
use crate::error::OpenError;
use crate::feed::FeedError;
use crate::layout::{DataDir, FORMAT_VERSION, Identity};
use crate::log::{GroupLog, Log, LogOptions, WriterMode, strange_byte_of_mark};
use crate::state::{DiskEngine, DiskOptions, GroupState, Holds, StateEngine as _, StateError, all_set_aside};
use copy::Copied;
use frozen::Frozen;

/// Bytes of entries that are read at once.
const ENTRIES_BYTES: usize = 1 << 20;
/// Changes that are read at once, in number and in bytes.
const CHANGES: (usize, usize) = (10_000, 4 << 20);
/// Rows are looked up one by one too, one of so many, since that reads parts of the files that a scan does not.
const LOOK_UP_EVERY: u64 = 64;
/// No more damage is listed for a part of the folder.
const DAMAGE_MAX: usize = 100;

/// What a folder holds.
#[derive(Debug)]
pub struct Inspection {
    /// The folder.
    pub folder: PathBuf,
    /// The version of its format.
    pub format: u32,
    /// Whose it is; `None` if no node ever used it, or if that cannot be read.
    pub identity: Option<Identity>,
    /// Figures of the log; `None` if it could not be read.
    pub log: Option<LogFigures>,
    /// Every group of which anything was found, in order.
    pub groups: Vec<GroupInspection>,
    /// What is not as it was written and is repaired by the next start with nothing lost.
    pub notes: Vec<Finding>,
    /// What is not as it was written. Empty: everything was read and fits together.
    pub damage: Vec<Finding>,
}

/// Figures of the log of all groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFigures {
    /// Segments in use.
    pub segments: usize,
    /// Entries that are alive, of all groups.
    pub entries: u64,
    /// Their length, in bytes.
    pub bytes: u64,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInspection {
    /// Which one.
    pub group: GroupId,
    /// Its log; `None` if the log of the node cannot be read or has nothing of it.
    pub log: Option<GroupLogInspection>,
    /// Its state; `None` if it cannot be read.
    pub state: Option<GroupStateInspection>,
}

/// The log of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLogInspection {
    /// The first entry that is alive, or the next one if there is none.
    pub first: Option<u64>,
    /// The last entry.
    pub last: Option<u64>,
    /// Up to where entries were removed because the state has them.
    pub purged: Option<u64>,
    /// Entries that were read with their checksums.
    pub entries: u64,
    /// Their length, in bytes.
    pub bytes: u64,
}

/// The state of one group, with its change feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStateInspection {
    /// The last entry that is in it; `None` if none is.
    pub applied: Option<u64>,
    /// Rows that were read with their checksums.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// A digest of them. Replicas of a group that have applied the same entry have the same one; it says nothing of the log
    /// and of the feed, which may begin elsewhere.
    pub digest: u64,
    /// The first revision from which on the feed misses nothing.
    pub feed_oldest: u64,
    /// The last revision of the feed.
    pub feed_last: u64,
    /// Changes in the feed that were read and decoded.
    pub changes: u64,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// In which part of the folder.
    pub part: Part,
    /// In which file, as far as that is known; else the folder of the part.
    pub file: PathBuf,
    /// Of which group, as far as that is known.
    pub group: Option<GroupId>,
    /// Where in the file, in bytes, as far as that is known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// A part of a data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Who the node is.
    Identity,
    /// The Raft log.
    Log,
    /// The state.
    State,
    /// The change feed.
    Feed,
}

/// Nothing can be said of the folder.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is no data folder there.
    #[error("there is no data folder in {}", folder.display())]
    Absent {
        /// Where one was looked for.
        folder: PathBuf,
    },
    /// It is in use, of a format that is not known, or cannot be read.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// The copy of the state could not be made.
    #[error("cannot copy the state from {} to {}: {source}", from.display(), to.display())]
    Copy {
        /// What was copied.
        from: PathBuf,
        /// Where to.
        to: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
}

impl Part {
    /// Its name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Part::Identity => "identity",
            Part::Log => "log",
            Part::State => "state",
            Part::Feed => "feed",
        }
    }
}

/// Reads the folder of a node whole. Not a byte of it changes; `scratch` is an empty folder for a copy of what the
/// state's engine writes to, and the caller removes it afterwards.
///
/// # Errors
/// [`InspectError`]: nothing was read. Damage is no error but part of the answer.
pub fn inspect(folder: &Path, scratch: &Path) -> Result<Inspection, InspectError> {
    let has = |name: &str| folder.join(name).try_exists().unwrap_or(true);
    // The second is there before the first while a backup is restored.
    if !folder.is_dir() || !(has("FORMAT") || has("RESTORE")) {
        return Err(InspectError::Absent {
            folder: folder.to_owned(),
        });
    }
    let disk: Arc<dyn Disk> = Arc::new(Frozen::default());
    let data_dir = DataDir::open_on(disk.clone(), folder)?;
    let mut inspector = Inspector {
        folder,
        groups: BTreeMap::new(),
        notes: Vec::new(),
        damage: Vec::new(),
    };
    let identity = inspector.identity(&data_dir)?;
    let log = inspector.log(disk, &data_dir, identity.is_some())?;
    inspector.state(&data_dir.state_dir(), scratch)?;
    inspector.compare();
    Ok(Inspection {
        folder: folder.to_owned(),
        format: FORMAT_VERSION,
        identity,
        log,
        groups: inspector.groups.into_values().collect(),
        notes: inspector.notes,
        damage: inspector.damage,
    })
}

struct Inspector<'a> {
    folder: &'a Path,
    groups: BTreeMap<GroupId, GroupInspection>,
    notes: Vec<Finding>,
    damage: Vec<Finding>,
}

impl Inspector<'_> {
    fn group(&mut self, group: GroupId) -> &mut GroupInspection {
        self.groups.entry(group).or_insert(GroupInspection {
            group,
            log: None,
            state: None,
        })
    }

    fn found(&mut self, part: Part, group: Option<GroupId>, what: String) {
        let file = self.folder.join(match part {
            Part::Identity => "IDENTITY",
            Part::Log => "log",
            Part::State | Part::Feed => "state",
        });
        self.found_in(part, file, group, what);
    }

    fn found_in(&mut self, part: Part, file: PathBuf, group: Option<GroupId>, what: String) {
        let finding = Finding {
            part,
            file,
            group,
            offset: None,
            what,
        };
        let listed = self.damage.iter().filter(|other| other.part == part).count();
        if listed < DAMAGE_MAX && !self.damage.contains(&finding) {
            self.damage.push(finding);
        }
    }

    fn identity(&mut self, data_dir: &DataDir) -> Result<Option<Identity>, OpenError> {
        match data_dir.read_identity() {
            Ok(None) if data_dir.has_lost_identity()? => {
                let what = "it is missing, though a node has been here: put it back, or set the folder aside";
                self.found(Part::Identity, None, what.to_owned());
                Ok(None)
            }
            Ok(identity) => Ok(identity),
            Err(OpenError::IdentityDamaged { reason, .. }) => {
                self.found(Part::Identity, None, reason.to_owned());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Opening the log reads every record of it and checks what must follow from what.
    fn log(&mut self, disk: Arc<dyn Disk>, data_dir: &DataDir, is_used: bool) -> Result<Option<LogFigures>, OpenError> {
        let options = LogOptions {
            create: !is_used,
            ..LogOptions::default()
        };
        let dir = data_dir.log_dir();
        // Before it is opened, which writes it anew.
        let strange = strange_byte_of_mark(&*disk, &dir).map_err(OpenError::io("read the mark in", &dir))?;
        let log = match Log::open(disk, &dir, options, WriterMode::Inline) {
            Ok(log) => log,
            Err(OpenError::LogDamaged(damage)) => {
                let file = match damage.segment {
                    Some(segment) => dir.join(format!("{segment:010}.seg")),
                    None => dir.join("synced"),
                };
                self.damage.push(Finding {
                    part: Part::Log,
                    file,
                    group: damage.group,
                    offset: Some(damage.offset),
                    what: damage.reason,
                });
                return Ok(None);
            }
            Err(OpenError::LogMissing { .. }) => {
                let what = "there is no log, though the node has been here before";
                self.found(Part::Log, None, what.to_owned());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.notes.extend(strange.map(|(file, offset)| Finding {
            part: Part::Log,
            file,
            group: None,
            offset: Some(offset),
            what: "a note of how far the log is synced is not as it was written; the others were used".to_owned(),
        }));
        for group in log.groups() {
            let found = self.group_log(&log.group(group));
            self.group(group).log = Some(found);
        }
        let stats = log.stats();
        Ok(Some(LogFigures {
            segments: stats.segments,
            entries: stats.live_entries,
            bytes: stats.live_bytes,
        }))
    }

    fn group_log(&mut self, log: &GroupLog) -> GroupLogInspection {
        let state = log.state();
        let mut found = GroupLogInspection {
            first: state.first_index,
            last: state.last.map(|(index, _)| index),
            purged: state.purged.map(|(index, _)| index),
            entries: 0,
            bytes: 0,
        };
        let end = found.last.map_or(0, |last| last.saturating_add(1));
        let mut next = found.first.unwrap_or(0);
        while next < end {
            match log.read(next..end, ENTRIES_BYTES) {
                Ok(entries) if entries.is_empty() => {
                    let what = format!("entry {next} is missing");
                    self.found(Part::Log, Some(log.id()), what);
                    break;
                }
                Ok(entries) => {
                    next += entries.len() as u64;
                    found.entries += entries.len() as u64;
                    found.bytes += entries.iter().map(|(_, entry)| entry.len() as u64).sum::<u64>();
                }
                Err(error) => {
                    self.found(Part::Log, Some(log.id()), error.to_string());
                    break;
                }
            }
        }
        found
    }

    /// Opens a copy of the state and reads every row and every change.
    fn state(&mut self, from: &Path, scratch: &Path) -> Result<(), InspectError> {
        let copied = Copied::make(from, scratch).map_err(|source| InspectError::Copy {
            from: from.to_owned(),
            to: scratch.to_owned(),
            source,
        })?;
        if copied.is_empty() {
            if self
                .groups
                .values()
                .any(|group| group.log.is_some_and(|log| log.purged.is_some()))
            {
                let what = "there is no state, though the log was purged because the state had its entries";
                self.found(Part::State, None, what.to_owned());
            }
            return Ok(());
        }
        let options = DiskOptions {
            worker_threads: 1,
            ..DiskOptions::default()
        };
        // The log names the groups. A log that cannot be read names none, so there the folders do.
        let of_log: BTreeSet<GroupId> = self.groups.keys().copied().collect();
        let opened = guarded(scratch, || {
            let engine = DiskEngine::open(scratch, options)?;
            let groups = if of_log.is_empty() { engine.groups()? } else { of_log };
            Ok((engine, groups))
        });
        self.journals(&copied);
        self.feeds_set_aside(scratch, &copied);
        let (engine, groups) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.state_error(Part::State, None, &error, &copied);
                return Ok(());
            }
        };
        for group in groups {
            let read = guarded(scratch, || {
                let state = engine.group(group)?;
                Ok(self.group_state(group, &state, &copied))
            });
            match read {
                Ok(found) => self.group(group).state = found,
                Err(error) => self.state_error(Part::State, Some(group), &error, &copied),
            }
        }
        Ok(())
    }

    /// The opening moves the files of a feed away that cannot be opened, and an empty feed takes their place. Of a group
    /// whose rows were moved away its own opening tells.
    fn feeds_set_aside(&mut self, scratch: &Path, copied: &Copied) {
        // Those of earlier starts are in the copy as they are in the original.
        let (Ok(now), Ok(before)) = (all_set_aside(scratch), all_set_aside(copied.from())) else {
            return;
        };
        for (name, reason) in now {
            if let Some(Holds::Feed { group, .. }) = Holds::parse(&name)
                && before.get(&name) != Some(&reason)
            {
                let what = format!(
                    "{}; all changes in it are lost",
                    copied.in_words_of_the_original(&reason)
                );
                self.found(Part::Feed, Some(group), what);
            }
        }
    }

    /// The opening cuts a journal where it is not whole.
    fn journals(&mut self, copied: &Copied) {
        for (file, cut) in copied.cut_journals() {
            let finding = Finding {
                part: Part::State,
                file,
                group: None,
                offset: Some(cut.offset),
                what: if cut.is_torn {
                    "the last batch was not written whole; the next start cuts it off and applies the log again"
                } else {
                    "a batch is not whole and others lie behind it; a start would drop all of them and apply the log again"
                }
                .to_owned(),
            };
            if cut.is_torn {
                self.notes.push(finding);
            } else {
                self.damage.push(finding);
            }
        }
    }

    fn group_state(&mut self, group: GroupId, state: &GroupState, copied: &Copied) -> Option<GroupStateInspection> {
        let (mut rows, mut bytes, mut digest) = (0u64, 0u64, Xxh3::new());
        let read = state.image().and_then(|image| {
            image.scan(&[], &[0xff; 64], &mut |key, value| {
                // What this finds is what the scan has found, unless a read fails, which the image remembers.
                if rows.is_multiple_of(LOOK_UP_EVERY) {
                    image.get(key);
                }
                rows += 1;
                bytes += (key.len() + value.len()) as u64;
                for part in [key, value.as_ref()] {
                    digest.update(&(part.len() as u64).to_le_bytes());
                    digest.update(part);
                }
                Visit::Continue(())
            });
            image.verify()
        });
        if let Err(error) = read {
            self.state_error(Part::State, Some(group), &error, copied);
            return None;
        }
        let is_known = |found: &Finding| (found.part, found.group) == (Part::Feed, Some(group));
        if let Some(why) = state.lost_feed()
            && !self.damage.iter().any(is_known)
        {
            let why = copied.in_words_of_the_original(why);
            self.found(Part::Feed, Some(group), format!("{why}; all changes in it are lost"));
        }
        let (feed_oldest, feed_last) = (state.feed().oldest(), state.feed().last());
        let changes = self.feed(group, state, copied)?;
        Some(GroupStateInspection {
            applied: state.applied().map(|mark| mark.index),
            rows,
            bytes,
            digest: digest.digest(),
            feed_oldest: feed_oldest.0,
            feed_last: feed_last.0,
            changes,
        })
    }

    fn feed(&mut self, group: GroupId, state: &GroupState, copied: &Copied) -> Option<u64> {
        let mut from = state.feed().oldest();
        let mut count = 0;
        loop {
            match state.feed().read(from, CHANGES.0, CHANGES.1, &|_| true) {
                Ok(page) => {
                    count += page.changes.len() as u64;
                    if page.reached_end || page.next <= from {
                        return Some(count);
                    }
                    from = page.next;
                }
                Err(FeedError::State(error)) => {
                    self.state_error(Part::Feed, Some(group), &error, copied);
                    return None;
                }
                Err(error @ FeedError::Compacted { oldest: Revision(_) }) => {
                    self.found(Part::Feed, Some(group), error.to_string());
                    return None;
                }
            }
        }
    }

    fn state_error(&mut self, part: Part, group: Option<GroupId>, error: &StateError, copied: &Copied) {
        let (file, group, what) = match error {
            StateError::EngineDamaged { path, what } => (copied.original_of(path), group, what.clone()),
            StateError::Damaged { group, what } => (copied.from().to_owned(), Some(*group), what.to_string()),
            StateError::GroupFailed { group, cause } => (copied.from().to_owned(), Some(*group), cause.to_string()),
            StateError::EngineFailed { cause, .. } => (copied.from().to_owned(), group, cause.to_string()),
            other => (copied.from().to_owned(), group, other.to_string()),
        };
        self.found_in(part, file, group, copied.in_words_of_the_original(&what));
    }

    /// What lies between the log and the state must fit.
    fn compare(&mut self) {
        let mut misfits = Vec::new();
        for group in self.groups.values() {
            let (Some(log), Some(state)) = (group.log, group.state) else {
                continue;
            };
            let applied = state.applied.unwrap_or(0);
            if let Some(purged) = log.purged.filter(|purged| *purged > applied) {
                let what = format!("the state ends at entry {applied} and the log begins behind entry {purged}");
                misfits.push((group.group, what));
            }
            let last = log.last.or(log.purged).unwrap_or(0);
            if applied > last {
                let what = format!("the state has entry {applied}, which the log never had: it ends at {last}");
                misfits.push((group.group, what));
            }
        }
        for (group, what) in misfits {
            self.found(Part::State, Some(group), what);
        }
    }
}

/// Runs what reads files of the engine, whose reader may give up on damaged ones by a panic.
fn guarded<T>(folder: &Path, read: impl FnOnce() -> Result<T, StateError>) -> Result<T, StateError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Err(StateError::EngineDamaged {
            path: folder.to_owned(),
            what: "its reader gave up on it".to_owned(),
        })
    })
}

#[cfg(test)]
mod tests;
