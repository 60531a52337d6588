//! The engine on disk: one fjall database a node, two keyspaces a group, and one that says which those are.
//!
//! The keyspace `groups` holds, for each group, the number of the life that counts; the rows of life 3 of group 7 lie
//! in keyspace `group-7-3`, and the segments of its change feed in `feed-7-3-4`, so that damage in what is only history
//! never costs the state. A snapshot is written into the keyspaces of a new life, then one synced batch makes that
//! number count, then the keyspaces of the old life are deleted; a crash in between leaves keyspaces that no number
//! leads to, which are deleted at the next start. Keyspaces are never cleared and keep keys with their values: both
//! have been the ground of faults in the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::{AbstractTree as _, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};
use tenure_core::ids::GroupId;
use tenure_core::table::Visit;

use super::inspect::{describe, inspect, is_damage, leave_note, why_set_aside};
use super::names::Holds;
use super::reclaim::reclaim;
use super::rows::{GroupRows, RowBatch, RowRead, RowSink, is_of_feed};
use super::{GroupState, StateEngine, StateError};
use crate::error::is_lack_of_descriptors;
use crate::feed::FeedLimits;

/// The engine itself never finds that a keyspace has enough in memory. It would ask its threads for a table with every
/// batch until one of them has begun; the line in which it asks holds a thousand, and they write into the same line, so
/// all of them would wait for themselves when writers have filled it, and no memory would become a table any more.
const NEVER_FULL: u64 = u64::MAX;
/// What an overlay holds is written into a journal, then into a table, and then merged with others.
const WRITES_OF_AN_OVERLAY: u64 = 3;
/// What memory holds is in a journal already.
const WRITES_OF_MEMORY: u64 = 2;
/// A table of this many bytes is followed by another. Four make the first level, so what one merge rewrites, and has
/// to have room for beside what it reads, stays small however large the state is.
const TABLE_BYTES: u64 = 16 << 20;
/// With how many older tables a merge works: the newest ones with the first level, which has four and now and then twice as
/// many, or one of a level with those of the next that it overlaps, which is ten times as large.
const OLDER_TABLES_OF_A_MERGE: u64 = 13;
/// Merges whose old files may still be there at once: one is being made, and what the one before has replaced goes
/// with the next table.
const MERGES_AT_ONCE: usize = 2;
/// The keyspace that tells which life of a group counts.
const GROUPS_KEYSPACE: &str = "groups";
/// Its row that holds the format of everything in the database.
const FORMAT_KEY: &[u8] = b"format";
/// The format that this release writes. It reads the one before too, in which segments lay with the rows: there the
/// feeds begin anew.
const FORMAT: u64 = 2;
const FORMAT_BEFORE: u64 = 1;
/// What is said of files on which the engine's reader panicked.
const READER_GAVE_UP: &str = "its reader gave up on it";
/// No node has more groups.
const GROUPS_MAX: usize = 65_536;

/// How much memory and disk the engine takes.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Bytes of a group's rows in memory before they become a file.
    pub memtable_bytes: u64,
    /// Bytes of the journals before memory is made into files so that they can go; at least 64 MiB.
    pub journal_bytes: u64,
    /// Bytes of blocks of files kept in memory, for all groups.
    pub cache_bytes: u64,
    /// Threads that write and merge files, for all groups.
    pub worker_threads: usize,
    /// How much the change feed of each group keeps.
    pub feed: FeedLimits,
}

/// Keeps the groups' rows in a folder. Clones are the same engine. The folder is free for another one when the last
/// handle is gone, those of its groups and their images included.
#[derive(Clone)]
pub struct DiskEngine {
    store: Arc<Store>,
    groups: Arc<Mutex<BTreeMap<GroupId, GroupState>>>,
}

/// The database with what is needed to make keyspaces in it.
struct Store {
    folder: PathBuf,
    database: Database,
    pointers: Keyspace,
    options: DiskOptions,
    /// The highest number in any name of a keyspace ever seen here, of any group.
    last_number: Mutex<u64>,
    /// Held while keyspaces are deleted, so that none comes back because it is asked for by its name meanwhile.
    deleting: Mutex<()>,
}

/// The rows of one life of a group.
struct FjallRows {
    store: Arc<Store>,
    group: GroupId,
    life: u64,
    /// All rows but those of the segments of the feed.
    keyspace: Keyspace,
    /// The segments of the feed, and what is known of them.
    feed: Keyspace,
}

/// The rows of a life at one moment.
struct FjallSnapshot {
    store: Arc<Store>,
    group: GroupId,
    keyspace: Keyspace,
    snapshot: Snapshot,
}

/// A read that failed, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", folder.display())]
struct ReadFailed {
    folder: PathBuf,
    source: fjall::Error,
}

/// The engine refuses everything since some work of its own failed, of which it does not tell.
#[derive(Debug, thiserror::Error)]
#[error(
    "a write or a merge of its files failed earlier, because the disk is full, file descriptors ran out or a file is \
     damaged; see that there is room, then start the node again, which looks through every file and sets apart what is \
     damaged"
)]
struct Poisoned;

/// The same, and now no file can be opened either.
#[derive(Debug, thiserror::Error)]
#[error("a write or a merge of its files failed earlier, and no more files can be opened: {source}")]
struct PoisonedForLack {
    source: std::io::Error,
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        DiskOptions {
            memtable_bytes: 16 << 20,
            journal_bytes: 128 << 20,
            cache_bytes: 64 << 20,
            worker_threads: 2,
            feed: FeedLimits::default(),
        }
    }
}

impl DiskEngine {
    /// Opens the engine in `folder`, which is made if it does not exist. What the folder then holds is durable.
    ///
    /// # Errors
    /// [`StateError::UnknownFormat`] if a later release wrote the folder; [`StateError::EngineDamaged`] if a file that
    /// all groups share is damaged; [`StateError::EngineFailed`] if the folder cannot be read or written, or is open
    /// elsewhere. The node cannot start on it. Damage of single groups shows when those are opened.
    pub fn open(folder: &Path, options: DiskOptions) -> Result<DiskEngine, StateError> {
        let opening = |error| engine_failed(folder, "opened", error);
        let inspected = inspect(folder)?;
        let builder = Database::builder(folder)
            .max_journaling_size(options.journal_bytes)
            .cache_size(options.cache_bytes)
            .worker_threads(options.worker_threads);
        let database = catch_unwind(AssertUnwindSafe(|| builder.open()))
            .map_err(|_| StateError::EngineDamaged {
                path: folder.to_owned(),
                what: READER_GAVE_UP.to_owned(),
            })?
            .map_err(opening)?;
        let pointers = database
            .keyspace(GROUPS_KEYSPACE, KeyspaceCreateOptions::default)
            .map_err(opening)?;
        check_format(folder, &pointers)?;
        let last_number = delete_orphans(folder, &database, &pointers)?.max(inspected.last_number);
        // After a kill the tail of the journal may be in the page cache only.
        database.persist(PersistMode::SyncAll).map_err(opening)?;
        let store = Store {
            folder: folder.to_owned(),
            database,
            pointers,
            options,
            last_number: Mutex::new(last_number),
            deleting: Mutex::default(),
        };
        Ok(DiskEngine {
            store: Arc::new(store),
            groups: Arc::default(),
        })
    }
}

impl DiskEngine {
    /// The groups of which there is anything, those included whose rows are damaged.
    pub(crate) fn groups(&self) -> Result<BTreeSet<GroupId>, StateError> {
        let mut groups = BTreeSet::new();
        for row in self.store.pointers.iter() {
            let key = row.key().map_err(|error| self.store.failed("read", error))?;
            // The row of the format has a longer key.
            let number = <[u8; 4]>::try_from(key.as_ref()).ok().map(u32::from_be_bytes);
            groups.extend(number.map(GroupId));
            if groups.len() > GROUPS_MAX {
                let (path, what) = (self.store.pointers.path(), "it names too many groups");
                return Err(StateError::EngineDamaged {
                    path: path.to_owned(),
                    what: what.to_owned(),
                });
            }
        }
        Ok(groups)
    }

    /// The groups that were opened. A panic of the engine's reader while one is opened leaves them as they were.
    fn opened(&self) -> MutexGuard<'_, BTreeMap<GroupId, GroupState>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateEngine for DiskEngine {
    fn group(&self, group: GroupId) -> Result<GroupState, StateError> {
        let mut groups = self.opened();
        if let Some(state) = groups.get(&group) {
            return Ok(state.clone());
        }
        let rows = self.store.rows_of(group)?;
        let state = GroupState::open(group, Arc::new(rows), self.store.options.feed)?;
        groups.insert(group, state.clone());
        Ok(state)
    }

    fn begin_anew(&self, group: GroupId) -> Result<GroupState, StateError> {
        let mut groups = self.opened();
        if let Some(old) = groups.remove(&group) {
            old.close();
        }
        let rows = self.store.new_rows(group)?;
        self.store.point(group, rows.life, PersistMode::SyncAll)?;
        self.store.delete_other_lives(group, rows.life);
        let state = GroupState::open(group, Arc::new(rows), self.store.options.feed)?;
        groups.insert(group, state.clone());
        Ok(state)
    }

    fn sync_all(&self) -> Result<(), StateError> {
        self.store.sync()
    }

    fn owed(&self) -> u64 {
        let (mut overlays, mut merges) = (0, Vec::new());
        for state in self.opened().values() {
            overlays += state.pending().bytes as u64;
            merges.extend(state.shared.read_inner().rows.rooms_of_merges());
        }
        merges.sort_unstable_by(|a, b| b.cmp(a));
        let merges = merges.iter().take(MERGES_AT_ONCE).sum();
        let memory = self.store.database.write_buffer_size().saturating_mul(WRITES_OF_MEMORY);
        overlays
            .saturating_mul(WRITES_OF_AN_OVERLAY)
            .saturating_add(memory)
            .saturating_add(merges)
    }

    fn give_back(&self, room: &dyn Fn() -> Option<u64>) -> Result<(), StateError> {
        let keyspaces = self.store.keyspaces()?;
        let touch = || {
            // It says what it said before.
            let pointers = &self.store.pointers;
            pointers.insert(FORMAT_KEY, FORMAT.to_be_bytes())?;
            Ok(pointers.clone())
        };
        let work = || reclaim(&self.store.database, &keyspaces, &touch, room);
        let done = catch_unwind(AssertUnwindSafe(work));
        match done {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                if matches!(&error, fjall::Error::Storage(cause) if is_damage(cause)) {
                    let _ = leave_note(&self.store.folder);
                }
                Err(self.store.failed("merged", error))
            }
            Err(_) => {
                let _ = leave_note(&self.store.folder);
                Err(StateError::EngineDamaged {
                    path: self.store.folder.clone(),
                    what: READER_GAVE_UP.to_owned(),
                })
            }
        }
    }
}

impl Store {
    /// The rows of the life that counts; of the first one if the group is new.
    fn rows_of(self: &Arc<Store>, group: GroupId) -> Result<FjallRows, StateError> {
        let Some(life) = self.counting_life(group)? else {
            let rows = self.new_rows(group)?;
            self.point(group, rows.life, PersistMode::Buffer)?;
            return Ok(rows);
        };
        let name = Holds::Rows { group, life }.to_string();
        if !self.database.keyspace_exists(&name) {
            let what = why_set_aside(&self.folder, &name);
            return Err(StateError::damaged(
                group,
                what.unwrap_or_else(|| "its keyspace is missing".to_owned()),
            ));
        }
        let keyspace = self.open_keyspace(&name)?;
        let feed = match self.newest_feed(group, life) {
            Some(name) => self.open_keyspace(&name)?,
            // It was set aside because it is damaged, or is from a release that kept it with the rows.
            None => self.new_feed(group, life)?,
        };
        Ok(FjallRows {
            store: self.clone(),
            group,
            life,
            keyspace,
            feed,
        })
    }

    /// Empty rows of a life that does not count yet. They are always made before older ones are deleted, so the engine
    /// never uses the number of a deleted keyspace again, of which its journals may still hold rows.
    fn new_rows(self: &Arc<Store>, group: GroupId) -> Result<FjallRows, StateError> {
        let life = self.next_number();
        let keyspace = self.open_keyspace(&Holds::Rows { group, life }.to_string())?;
        let feed = self.new_feed(group, life)?;
        Ok(FjallRows {
            store: self.clone(),
            group,
            life,
            keyspace,
            feed,
        })
    }

    /// An empty feed, which counts from now on if the life does.
    fn new_feed(&self, group: GroupId, life: u64) -> Result<Keyspace, StateError> {
        let number = self.next_number();
        self.open_keyspace(&Holds::Feed { group, life, number }.to_string())
    }

    /// The name of the feed that counts in this life.
    fn newest_feed(&self, group: GroupId, life: u64) -> Option<String> {
        let of_life = |name: &str| match Holds::parse(name) {
            Some(Holds::Feed {
                group: owner,
                life: of,
                number,
            }) if owner == group && of == life => Some(number),
            _ => None,
        };
        let names = self.database.list_keyspace_names();
        let number = names.iter().filter_map(|name| of_life(name)).max()?;
        Some(Holds::Feed { group, life, number }.to_string())
    }

    /// The number of the life that counts; `None` if the group is new. A number that is none is that of no keyspace.
    fn counting_life(&self, group: GroupId) -> Result<Option<u64>, StateError> {
        let pointer = self
            .pointers
            .get(pointer_key(group))
            .map_err(|error| self.failed("read", error))?;
        Ok(pointer.map(|pointer| life_of_pointer(&pointer).unwrap_or(0)))
    }

    /// Makes a life the one that counts.
    fn point(&self, group: GroupId, life: u64, mode: PersistMode) -> Result<(), StateError> {
        let mut batch = self.database.batch().durability(Some(mode));
        batch.insert(&self.pointers, pointer_key(group), life.to_be_bytes());
        batch.commit().map_err(|error| self.failed("written", error))
    }

    /// A keyspace by its name, made if there is none.
    fn open_keyspace(&self, name: &str) -> Result<Keyspace, StateError> {
        let options = || {
            let merges = Leveled::default().with_table_target_size(TABLE_BYTES);
            KeyspaceCreateOptions::default()
                .max_memtable_size(NEVER_FULL)
                .compaction_strategy(Arc::new(merges))
        };
        self.database
            .keyspace(name, options)
            .map_err(|error| self.failed("written", error))
    }

    /// Has a keyspace's memory made into a table when there is enough of it.
    fn seal_full_memory(&self, keyspace: &Keyspace) -> Result<(), StateError> {
        if keyspace.tree.active_memtable().size() > self.options.memtable_bytes {
            keyspace
                .rotate_memtable()
                .map_err(|error| self.failed("written", error))?;
        }
        Ok(())
    }

    /// Every keyspace, those included that no group has opened.
    fn keyspaces(&self) -> Result<Vec<Keyspace>, StateError> {
        let _none_goes = self.deleting();
        let names = self.database.list_keyspace_names();
        names.iter().map(|name| self.open_keyspace(name)).collect()
    }

    fn deleting(&self) -> MutexGuard<'_, ()> {
        self.deleting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_number(&self) -> u64 {
        let mut last_number = self.last_number.lock().expect("nothing panics under this lock");
        *last_number += 1;
        *last_number
    }

    /// Deletes the keyspaces of every other life of a group.
    fn delete_other_lives(&self, group: GroupId, counting: u64) {
        for name in self.database.list_keyspace_names() {
            let is_old = match Holds::parse(&name) {
                Some(Holds::Rows { group: owner, life } | Holds::Feed { group: owner, life, .. }) => {
                    owner == group && life != counting
                }
                None => false,
            };
            if !is_old {
                continue;
            }
            match self.database.keyspace(&name, KeyspaceCreateOptions::default) {
                Ok(old) => self.delete_keyspace(old),
                Err(error) => tracing::warn!(%name, %error, "an old keyspace stays until the next start"),
            }
        }
    }

    /// Deletes a keyspace that does not count. One that stays is deleted at the next start.
    fn delete_keyspace(&self, keyspace: Keyspace) {
        let _alone = self.deleting();
        let name = keyspace.name().to_string();
        if let Err(error) = self.database.delete_keyspace(keyspace) {
            tracing::warn!(name, %error, "an old keyspace stays until the next start");
        }
    }

    fn sync(&self) -> Result<(), StateError> {
        self.database
            .persist(PersistMode::SyncAll)
            .map_err(|error| self.failed("synced", error))
    }

    fn failed(&self, action: &'static str, error: fjall::Error) -> StateError {
        engine_failed(&self.folder, action, error)
    }

    /// A failed read of a keyspace. If bytes are gone or wrong, the next start looks through everything.
    fn read_failed(&self, group: GroupId, keyspace: &Keyspace, error: fjall::Error) -> StateError {
        let folder = keyspace.path();
        match &error {
            fjall::Error::Storage(cause) if is_damage(cause) => {
                // What it could not do is in the log.
                let _ = leave_note(&self.folder);
                StateError::damaged(group, format!("{}: {}", folder.display(), describe(cause)))
            }
            _ => {
                let folder = folder.to_owned();
                StateError::group_failed(group, ReadFailed { folder, source: error })
            }
        }
    }
}

impl FjallRows {
    /// The keyspace in which a row lies.
    fn keyspace_of(&self, key: &[u8]) -> &Keyspace {
        if is_of_feed(key) { &self.feed } else { &self.keyspace }
    }

    /// Writes the rows straight into files, which are synced when this returns.
    fn fill_keyspace(
        &self,
        keyspace: &Keyspace,
        fill: &mut dyn FnMut(&mut RowSink<'_>) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        let failed = |error| self.store.failed("written", error);
        let mut ingestion = keyspace.start_ingestion().map_err(failed)?;
        fill(&mut |key, value| ingestion.write(key, value.as_ref()).map_err(failed))?;
        ingestion.finish().map_err(failed)
    }
}

impl RowRead for FjallRows {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        let keyspace = self.keyspace_of(key);
        let value = keyspace
            .get(key)
            .map_err(|error| self.store.read_failed(self.group, keyspace, error))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) -> Result<(), StateError> {
        let keyspace = self.keyspace_of(from);
        scan_keyspace(&self.store.database.snapshot(), keyspace, from, to, visit)
            .map_err(|error| self.store.read_failed(self.group, keyspace, error))
    }
}

impl GroupRows for FjallRows {
    fn write(&self, rows: RowBatch) -> Result<(), StateError> {
        let mut batch = self.store.database.batch().durability(Some(PersistMode::Buffer));
        for (key, value) in rows {
            let keyspace = self.keyspace_of(&key);
            match value {
                Some(value) => batch.insert(keyspace, key, value.as_ref()),
                None => batch.remove(keyspace, key),
            }
        }
        batch.commit().map_err(|error| self.store.failed("written", error))?;
        [&self.keyspace, &self.feed]
            .into_iter()
            .try_for_each(|keyspace| self.store.seal_full_memory(keyspace))
    }

    fn sync(&self) -> Result<(), StateError> {
        self.store.sync()
    }

    fn rooms_of_merges(&self) -> Vec<u64> {
        [&self.keyspace, &self.feed].map(room_of_merge).to_vec()
    }

    fn snapshot(&self) -> Box<dyn RowRead> {
        let snapshot = self.store.database.snapshot();
        Box::new(FjallSnapshot {
            store: self.store.clone(),
            group: self.group,
            keyspace: self.keyspace.clone(),
            snapshot,
        })
    }

    fn replace(
        &self,
        fill: &mut dyn FnMut(&mut RowSink<'_>) -> Result<(), StateError>,
    ) -> Result<Arc<dyn GroupRows>, StateError> {
        let rows = self.store.new_rows(self.group)?;
        let filled = self.fill_keyspace(&rows.keyspace, fill);
        if let Err(error) = filled {
            self.store.delete_keyspace(rows.keyspace);
            self.store.delete_keyspace(rows.feed);
            return Err(error);
        }
        self.store.point(self.group, rows.life, PersistMode::SyncAll)?;
        // Only now does nothing lead to the old life any more. Its files go when its last reader does.
        self.store.delete_keyspace(self.keyspace.clone());
        self.store.delete_keyspace(self.feed.clone());
        Ok(Arc::new(rows))
    }

    fn without_feed(&self) -> Result<Arc<dyn GroupRows>, StateError> {
        let feed = self.store.new_feed(self.group, self.life)?;
        self.store.delete_keyspace(self.feed.clone());
        Ok(Arc::new(FjallRows {
            store: self.store.clone(),
            group: self.group,
            life: self.life,
            keyspace: self.keyspace.clone(),
            feed,
        }))
    }
}

impl RowRead for FjallSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        let value = self
            .snapshot
            .get(&self.keyspace, key)
            .map_err(|error| self.store.read_failed(self.group, &self.keyspace, error))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) -> Result<(), StateError> {
        scan_keyspace(&self.snapshot, &self.keyspace, from, to, visit)
            .map_err(|error| self.store.read_failed(self.group, &self.keyspace, error))
    }
}

fn scan_keyspace(
    snapshot: &Snapshot,
    keyspace: &Keyspace,
    from: &[u8],
    to: &[u8],
    visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit,
) -> Result<(), fjall::Error> {
    for row in snapshot.range(keyspace, from..to) {
        let (key, value) = row.into_inner()?;
        if visit(&key, &Bytes::copy_from_slice(&value)).is_break() {
            break;
        }
    }
    Ok(())
}

/// What all groups share failed. Damage that the engine met by itself is looked for at the next start.
fn engine_failed(folder: &Path, action: &'static str, error: fjall::Error) -> StateError {
    match error {
        fjall::Error::Poisoned => match leave_note(folder) {
            Err(source) if is_lack_of_descriptors(&source) => {
                StateError::engine_failed(action, PoisonedForLack { source })
            }
            _ => StateError::engine_failed(action, Poisoned),
        },
        other => StateError::engine_failed(action, other),
    }
}

/// Writes the format into a new database, raises the one before, and refuses another.
fn check_format(folder: &Path, pointers: &Keyspace) -> Result<(), StateError> {
    let opening = |error| engine_failed(folder, "opened", error);
    let row = pointers.get(FORMAT_KEY).map_err(opening)?;
    let found = row.map(|bytes| life_of_pointer(&bytes).unwrap_or(u64::MAX));
    match found {
        Some(FORMAT) => Ok(()),
        None | Some(FORMAT_BEFORE) => pointers.insert(FORMAT_KEY, FORMAT.to_be_bytes()).map_err(opening),
        Some(found) => Err(StateError::UnknownFormat { found }),
    }
}

/// Deletes the keyspaces of lives that do not count, and all feeds of a life but the newest. Returns the highest number
/// in any name.
fn delete_orphans(folder: &Path, database: &Database, pointers: &Keyspace) -> Result<u64, StateError> {
    let opening = |error| engine_failed(folder, "opened", error);
    let names = database.list_keyspace_names();
    let held: Vec<Holds> = names.iter().filter_map(|name| Holds::parse(name)).collect();
    for holds in &held {
        let (Holds::Rows { group, life } | Holds::Feed { group, life, .. }) = holds;
        let pointer = pointers.get(pointer_key(*group)).map_err(opening)?;
        let counts = pointer.as_deref().and_then(life_of_pointer) == Some(*life);
        let is_older_feed = held.iter().any(|other| match (holds, other) {
            (Holds::Feed { number, .. }, Holds::Feed { number: newer, .. }) => {
                number < newer && matches!(other, Holds::Feed { group: g, life: l, .. } if g == group && l == life)
            }
            _ => false,
        });
        if !counts || is_older_feed {
            let keyspace = database
                .keyspace(&holds.to_string(), KeyspaceCreateOptions::default)
                .map_err(opening)?;
            database.delete_keyspace(keyspace).map_err(opening)?;
        }
    }
    Ok(held.into_iter().map(Holds::number).max().unwrap_or(0))
}

/// Bytes, about, that the largest merge of a keyspace writes before it gives any back.
fn room_of_merge(keyspace: &Keyspace) -> u64 {
    let tables = keyspace.l0_table_count() as u64 + OLDER_TABLES_OF_A_MERGE;
    keyspace.disk_space().min(tables.saturating_mul(TABLE_BYTES))
}

fn pointer_key(group: GroupId) -> [u8; 4] {
    group.0.to_be_bytes()
}

fn life_of_pointer(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}
