//! The engine on disk: one fjall database a node, one keyspace a group, and one that says which keyspace that is.
//!
//! The keyspace `groups` holds, for each group, the number of the life that counts; the rows of life 3 of group 7 lie
//! in keyspace `group-7-3`. A snapshot is written into the keyspace of a new life, then one synced batch makes that
//! number count, then the keyspace of the old life is deleted; a crash in between leaves a keyspace that no number
//! leads to, which is deleted at the next start. Keyspaces are never cleared and keep keys with their values: both
//! have been the ground of faults in the engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};
use tenure_core::ids::GroupId;
use tenure_core::table::Visit;

use super::journal::cut_torn_tail;
use super::rows::{GroupRows, RowBatch, RowRead, RowSink};
use super::{GroupState, StateEngine, StateError};
use crate::feed::FeedLimits;

/// The keyspace that tells which life of a group counts.
const GROUPS_KEYSPACE: &str = "groups";
/// Its row that holds the format of everything in the database.
const FORMAT_KEY: &[u8] = b"format";
/// The format that this release writes, and the only one that it reads.
const FORMAT: u64 = 1;
/// What the names of the groups' keyspaces begin with.
const KEYSPACE_PREFIX: &str = "group-";

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
    database: Database,
    pointers: Keyspace,
    options: DiskOptions,
    /// The highest number of a life ever seen here, of any group.
    last_life: Mutex<u64>,
}

/// The rows of one life of a group.
struct FjallRows {
    store: Arc<Store>,
    group: GroupId,
    keyspace: Keyspace,
}

/// The rows of a life at one moment.
struct FjallSnapshot {
    group: GroupId,
    keyspace: Keyspace,
    snapshot: Snapshot,
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
    /// [`StateError::UnknownFormat`] if a later release wrote the folder; [`StateError::EngineFailed`] if it cannot be
    /// read or written, or is open elsewhere. The node cannot start on it.
    pub fn open(folder: &Path, options: DiskOptions) -> Result<DiskEngine, StateError> {
        cut_torn_tail(folder).map_err(StateError::engine_failed)?;
        let database = Database::builder(folder)
            .max_journaling_size(options.journal_bytes)
            .cache_size(options.cache_bytes)
            .worker_threads(options.worker_threads)
            .open()
            .map_err(StateError::engine_failed)?;
        let pointers = database
            .keyspace(GROUPS_KEYSPACE, KeyspaceCreateOptions::default)
            .map_err(StateError::engine_failed)?;
        check_format(&pointers)?;
        let last_life = delete_orphans(&database, &pointers)?;
        // After a kill the tail of the journal may be in the page cache only.
        database
            .persist(PersistMode::SyncAll)
            .map_err(StateError::engine_failed)?;
        let store = Store {
            database,
            pointers,
            options,
            last_life: Mutex::new(last_life),
        };
        Ok(DiskEngine {
            store: Arc::new(store),
            groups: Arc::default(),
        })
    }
}

impl StateEngine for DiskEngine {
    fn group(&self, group: GroupId) -> Result<GroupState, StateError> {
        let mut groups = self.groups.lock().expect("opening a group does not panic");
        if let Some(state) = groups.get(&group) {
            return Ok(state.clone());
        }
        let keyspace = self.store.keyspace_of(group)?;
        let rows = FjallRows {
            store: self.store.clone(),
            group,
            keyspace,
        };
        let state = GroupState::open(group, Arc::new(rows), self.store.options.feed)?;
        groups.insert(group, state.clone());
        Ok(state)
    }

    fn begin_anew(&self, group: GroupId) -> Result<GroupState, StateError> {
        let mut groups = self.groups.lock().expect("opening a group does not panic");
        if let Some(old) = groups.remove(&group) {
            old.close();
        }
        let old = self.store.counting_name(group)?;
        let (life, keyspace) = self.store.new_keyspace(group)?;
        self.store.point(group, life, PersistMode::SyncAll)?;
        if let Some(name) = old.filter(|name| self.store.database.keyspace_exists(name)) {
            match self.store.database.keyspace(&name, KeyspaceCreateOptions::default) {
                Ok(old) => self.store.delete_keyspace(old),
                Err(error) => tracing::warn!(name, %error, "an old keyspace stays until the next start"),
            }
        }
        let rows = FjallRows {
            store: self.store.clone(),
            group,
            keyspace,
        };
        let state = GroupState::open(group, Arc::new(rows), self.store.options.feed)?;
        groups.insert(group, state.clone());
        Ok(state)
    }

    fn sync_all(&self) -> Result<(), StateError> {
        self.store
            .database
            .persist(PersistMode::SyncAll)
            .map_err(StateError::engine_failed)
    }
}

impl Store {
    /// The keyspace of the life that counts; the first one if the group is new.
    fn keyspace_of(&self, group: GroupId) -> Result<Keyspace, StateError> {
        match self.counting_name(group)? {
            Some(name) if self.database.keyspace_exists(&name) => self
                .database
                .keyspace(&name, KeyspaceCreateOptions::default)
                .map_err(StateError::engine_failed),
            Some(_) => Err(StateError::Damaged {
                group,
                what: "its keyspace is missing",
            }),
            None => {
                let (life, keyspace) = self.new_keyspace(group)?;
                self.point(group, life, PersistMode::Buffer)?;
                Ok(keyspace)
            }
        }
    }

    /// The name of the keyspace that counts, whether or not there is one.
    fn counting_name(&self, group: GroupId) -> Result<Option<String>, StateError> {
        let pointer = self
            .pointers
            .get(pointer_key(group))
            .map_err(StateError::engine_failed)?;
        let Some(pointer) = pointer else {
            return Ok(None);
        };
        // A number that is none leads to a keyspace that does not exist.
        Ok(Some(keyspace_name(group, life_of_pointer(&pointer).unwrap_or(0))))
    }

    /// Makes a life the one that counts.
    fn point(&self, group: GroupId, life: u64, mode: PersistMode) -> Result<(), StateError> {
        let mut batch = self.database.batch().durability(Some(mode));
        batch.insert(&self.pointers, pointer_key(group), life.to_be_bytes());
        batch.commit().map_err(StateError::engine_failed)
    }

    /// An empty keyspace for a life that does not count yet. It is always made before an older one is deleted, so the
    /// engine never uses the number of a deleted keyspace again, of which its journals may still hold rows.
    fn new_keyspace(&self, group: GroupId) -> Result<(u64, Keyspace), StateError> {
        let mut last_life = self.last_life.lock().expect("nothing panics under this lock");
        *last_life += 1;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(self.options.memtable_bytes);
        let keyspace = self
            .database
            .keyspace(&keyspace_name(group, *last_life), options)
            .map_err(|error| StateError::group_failed(group, error))?;
        Ok((*last_life, keyspace))
    }

    /// Deletes a keyspace that does not count. One that stays is deleted at the next start.
    fn delete_keyspace(&self, keyspace: Keyspace) {
        let name = keyspace.name().to_string();
        if let Err(error) = self.database.delete_keyspace(keyspace) {
            tracing::warn!(name, %error, "an old keyspace stays until the next start");
        }
    }
}

impl FjallRows {
    fn failed(&self, error: fjall::Error) -> StateError {
        StateError::group_failed(self.group, error)
    }
}

impl RowRead for FjallRows {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        let value = self.keyspace.get(key).map_err(|error| self.failed(error))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) -> Result<(), StateError> {
        scan_keyspace(&self.store.database.snapshot(), &self.keyspace, from, to, visit)
            .map_err(|error| self.failed(error))
    }
}

impl GroupRows for FjallRows {
    fn write(&self, rows: RowBatch) -> Result<(), StateError> {
        let mut batch = self.store.database.batch().durability(Some(PersistMode::Buffer));
        for (key, value) in rows {
            match value {
                Some(value) => batch.insert(&self.keyspace, key, value.as_ref()),
                None => batch.remove(&self.keyspace, key),
            }
        }
        batch.commit().map_err(StateError::engine_failed)
    }

    fn sync(&self) -> Result<(), StateError> {
        self.store
            .database
            .persist(PersistMode::SyncAll)
            .map_err(StateError::engine_failed)
    }

    fn snapshot(&self) -> Box<dyn RowRead> {
        let snapshot = self.store.database.snapshot();
        Box::new(FjallSnapshot {
            group: self.group,
            keyspace: self.keyspace.clone(),
            snapshot,
        })
    }

    fn replace(
        &self,
        fill: &mut dyn FnMut(&mut RowSink<'_>) -> Result<(), StateError>,
    ) -> Result<Arc<dyn GroupRows>, StateError> {
        let (life, keyspace) = self.store.new_keyspace(self.group)?;
        let filled = self.fill_keyspace(&keyspace, fill);
        if let Err(error) = filled {
            self.store.delete_keyspace(keyspace);
            return Err(error);
        }
        self.store.point(self.group, life, PersistMode::SyncAll)?;
        // Only now does nothing lead to the old life any more. Its files go when its last reader does.
        self.store.delete_keyspace(self.keyspace.clone());
        Ok(Arc::new(FjallRows {
            store: self.store.clone(),
            group: self.group,
            keyspace,
        }))
    }
}

impl FjallRows {
    /// Writes the rows straight into files, which are synced when this returns.
    fn fill_keyspace(
        &self,
        keyspace: &Keyspace,
        fill: &mut dyn FnMut(&mut RowSink<'_>) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        let mut ingestion = keyspace.start_ingestion().map_err(|error| self.failed(error))?;
        fill(&mut |key, value| ingestion.write(key, value.as_ref()).map_err(|error| self.failed(error)))?;
        ingestion.finish().map_err(|error| self.failed(error))
    }
}

impl RowRead for FjallSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        let value = self
            .snapshot
            .get(&self.keyspace, key)
            .map_err(|error| StateError::group_failed(self.group, error))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &Bytes) -> Visit) -> Result<(), StateError> {
        scan_keyspace(&self.snapshot, &self.keyspace, from, to, visit)
            .map_err(|error| StateError::group_failed(self.group, error))
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

/// Writes the format into a new database, and refuses an old one with another.
fn check_format(pointers: &Keyspace) -> Result<(), StateError> {
    match pointers.get(FORMAT_KEY).map_err(StateError::engine_failed)? {
        None => pointers
            .insert(FORMAT_KEY, FORMAT.to_be_bytes())
            .map_err(StateError::engine_failed),
        Some(bytes) => match life_of_pointer(&bytes) {
            Some(FORMAT) => Ok(()),
            found => Err(StateError::UnknownFormat {
                found: found.unwrap_or(u64::MAX),
            }),
        },
    }
}

/// Deletes the keyspaces of lives that do not count. Returns the highest number of a life.
fn delete_orphans(database: &Database, pointers: &Keyspace) -> Result<u64, StateError> {
    let mut last_life = 0;
    for name in database.list_keyspace_names() {
        let Some((group, life)) = parse_keyspace_name(&name) else {
            continue;
        };
        last_life = last_life.max(life);
        let pointer = pointers.get(pointer_key(group)).map_err(StateError::engine_failed)?;
        if pointer.as_deref().and_then(life_of_pointer) != Some(life) {
            let keyspace = database
                .keyspace(&name, KeyspaceCreateOptions::default)
                .map_err(StateError::engine_failed)?;
            database.delete_keyspace(keyspace).map_err(StateError::engine_failed)?;
        }
    }
    Ok(last_life)
}

fn pointer_key(group: GroupId) -> [u8; 4] {
    group.0.to_be_bytes()
}

fn life_of_pointer(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

fn keyspace_name(group: GroupId, life: u64) -> String {
    format!("{KEYSPACE_PREFIX}{}-{life}", group.0)
}

fn parse_keyspace_name(name: &str) -> Option<(GroupId, u64)> {
    let (group, life) = name.strip_prefix(KEYSPACE_PREFIX)?.split_once('-')?;
    Some((GroupId(group.parse().ok()?), life.parse().ok()?))
}
