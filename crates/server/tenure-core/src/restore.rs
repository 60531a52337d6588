//! What a restore makes of the rows of a backup: the rows of a group of a new cluster.
//!
//! What happened after the backup is lost, and nobody knows what it was. So whatever could be taken for knowledge of it is
//! left out or moved out of its way:
//!
//! - **Revisions** go on above a floor that lies above every one the old cluster can have handed out, so that tokens and
//!   versions rise. A group begins without a block and takes its first one there.
//! - **Sessions** are forgotten with what they own and with every remembered request. A repeat is answered
//!   `session_unknown`, which leaves its outcome open; `session_expired` would say that it never ran.
//! - **Cluster time** goes on by [`RESTORE_TIME_STEP`], and so does everything that has a time, so that every TTL, window
//!   and age is what it was. One-shot requests of the old cluster are then `too_late`, which leaves their outcome open too.
//! - **Streams** go on [`RESTORE_STREAM_GAP`] behind their tail, with a gap that readers are told of.
//! - **The cluster** has another id, and one node in another folder.
//!
//! Rows come from outside here, so nothing panics on them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::command::NodeRecord;
use crate::ids::{GroupId, Incarnation, NodeId, ObjectName};
use crate::keyspace::{self, ClusterRow, HeadRow, KEY_AT, KeyRow, MessageIdRow, RecordRow};
use crate::limits::{RESTORE_FLOOR_MAX, RESTORE_STREAM_GAP, RESTORE_TIME_STEP};
use crate::machine::GroupKind;
use crate::response::{CacheRecord, StreamRecord};
use crate::revision::Revisions;
use crate::time::Timestamp;

/// The one node of a cluster that was restored.
pub const RESTORED_NODE: NodeId = NodeId(1);
/// Where the time of the end stands in the key of a message id's end.
const UNTIL_AT: usize = 9;
/// Bytes of the key of a record and of a gap: kind, incarnation, offset.
const OFFSET_KEY_BYTES: usize = 17;

/// The cluster that a restore makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewCluster {
    /// Its id, never used before.
    pub cluster: u128,
    /// The folder of its first node, never used before.
    pub folder: u128,
    /// Its revisions begin here.
    pub floor: u64,
}

/// What a restore has made of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rows that the restored group has.
    pub rows: u64,
    /// Sessions that were forgotten.
    pub sessions: u64,
    /// Keys that went with the sessions that owned them.
    pub owned_keys: u64,
    /// Remembered requests that were forgotten.
    pub requests: u64,
    /// Streams that go on behind a gap.
    pub streams: u64,
    /// Of the system group: how many home groups the cluster has.
    pub home_groups: u32,
    /// Of the system group: the floor of revisions that the backup has.
    pub old_floor: u64,
}

/// The rows cannot be restored. Rows that were handed on before are of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A row is not what a machine writes.
    #[error("the row {} is damaged", .key.escape_ascii())]
    Damaged {
        /// Its key.
        key: Vec<u8>,
    },
    /// A row of a kind that this release does not know.
    #[error("the row {} is of a kind that this release does not know", .key.escape_ascii())]
    UnknownKind {
        /// Its key.
        key: Vec<u8>,
    },
    /// Rows are not in ascending order.
    #[error("its rows are not in order")]
    OutOfOrder,
    /// There is no row of the cluster among those of the system group.
    #[error("its system group was not founded")]
    NotFounded,
    /// The revisions of the new cluster would not lie above those of the old one.
    #[error("the revision floor {floor} does not lie above {known}, the highest that is known")]
    FloorTooLow {
        /// The floor that was asked for.
        floor: u64,
        /// The highest one that is known.
        known: u64,
    },
    /// There would soon be no revisions above the floor.
    #[error("the revision floor {floor} is above {RESTORE_FLOOR_MAX}, the highest that can be used")]
    FloorTooHigh {
        /// The floor that was asked for.
        floor: u64,
    },
    /// The system group knows no such node: it was removed, or never let in.
    #[error("node {} is none of the nodes that the system group knows", .node.0)]
    NotANode {
        /// The node.
        node: NodeId,
    },
    /// A time or an offset cannot go on any further.
    #[error("a number in the row {} is too high to go on", .key.escape_ascii())]
    TooHigh {
        /// Its key.
        key: Vec<u8>,
    },
}

/// Takes in the rows of one group of a backup in ascending order and hands on those of the restored group, in ascending
/// order too.
#[derive(Debug)]
pub struct GroupRestore {
    kind: GroupKind,
    new: NewCluster,
    order: Order,
    is_founded: bool,
    outcome: Outcome,
}

impl GroupRestore {
    /// For one group.
    ///
    /// # Errors
    /// [`RestoreError::FloorTooHigh`].
    pub fn new(kind: GroupKind, new: NewCluster) -> Result<GroupRestore, RestoreError> {
        let floor = check_floor(new.floor)?;
        let time = Timestamp(0) + RESTORE_TIME_STEP;
        let mut order = Order::default();
        order.add(keyspace::TIME.to_vec(), keyspace::encode(&time));
        match kind {
            GroupKind::Home => {
                let revisions = Revisions::restored(floor);
                order.add(keyspace::REVISIONS.to_vec(), keyspace::encode(&revisions));
            }
            GroupKind::System => {
                let node = NodeRecord {
                    id: RESTORED_NODE,
                    folder: new.folder,
                    // It says where it is reached when it starts.
                    address: String::new(),
                };
                order.add(keyspace::folder(new.folder), keyspace::encode(&node.id));
                order.add(keyspace::node(node.id), keyspace::encode(&node));
            }
        }
        Ok(GroupRestore {
            kind,
            new,
            order,
            is_founded: false,
            outcome: Outcome::default(),
        })
    }

    /// Takes in the next row, and hands on those that come before the next one.
    ///
    /// # Errors
    /// [`RestoreError`]; nothing more is to be taken in then.
    pub fn take(&mut self, key: &[u8], value: &[u8], sink: &mut dyn FnMut(Vec<u8>, Bytes)) -> Result<(), RestoreError> {
        self.order.next(key)?;
        let row = self.restored(key, value)?;
        self.order.hand_on(key, row, sink);
        Ok(())
    }

    /// Hands on the last rows.
    ///
    /// # Errors
    /// [`RestoreError::NotFounded`].
    pub fn finish(mut self, sink: &mut dyn FnMut(Vec<u8>, Bytes)) -> Result<Outcome, RestoreError> {
        if self.kind == GroupKind::System && !self.is_founded {
            return Err(RestoreError::NotFounded);
        }
        self.order.finish(sink);
        self.outcome.rows = self.order.rows;
        Ok(self.outcome)
    }

    /// What becomes of a row in its place; what is to stand elsewhere, or is another row's, is added.
    fn restored(&mut self, key: &[u8], value: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>, RestoreError> {
        let row = Row { key, value };
        let belongs = match key.first() {
            Some(b'T') => key == keyspace::TIME,
            Some(b'R') => key == keyspace::REVISIONS,
            Some(b'X') => true,
            Some(b'c') => self.kind == GroupKind::System && key == keyspace::CLUSTER,
            Some(b'n' | b'f' | b'd' | b'l' | b's') => self.kind == GroupKind::System,
            _ => self.kind == GroupKind::Home,
        };
        if !belongs {
            return Err(row.damaged());
        }
        match key.first() {
            Some(b'T') => self.time(&row).map(|()| None),
            Some(b'R') => self.revisions(&row).map(|()| None),
            Some(b'c') => self.cluster(&row).map(Some),
            Some(b'n') => row.read::<NodeRecord>().map(|_| None),
            Some(b'f' | b'l') => row.read::<NodeId>().map(|_| None),
            Some(b'd') => Ok(None),
            Some(b's') => row.same::<GroupId>().map(Some),
            Some(b'C') => row.same::<CacheRecord>().map(Some),
            Some(b'A') => row.same::<StreamRecord>().map(Some),
            Some(b'I') => row.of_life()?.same::<ObjectName>().map(Some),
            Some(b'W') => row.of_life().map(|row| Some(row.unchanged())),
            Some(b'J') => row.of_offset()?.same::<u64>().map(Some),
            Some(b'K') => self.key(row.behind_life()?),
            Some(b'H') => self.head(row.of_life()?).map(Some),
            Some(b'E') => row
                .of_offset()?
                .moved(|record: &mut RecordRow| Some(&mut record.time))
                .map(Some),
            Some(b'G') => row
                .behind_life()?
                .moved(|id: &mut MessageIdRow| Some(&mut id.until))
                .map(Some),
            Some(b'U') => row.moved_end().map(Some),
            Some(b'S') => {
                self.outcome.sessions += 1;
                Ok(None)
            }
            Some(b'Q' | b'X') => {
                self.outcome.requests += 1;
                Ok(None)
            }
            Some(b'N' | b'L' | b'O') => Ok(None),
            _ => Err(RestoreError::UnknownKind { key: key.to_vec() }),
        }
    }

    fn time(&mut self, row: &Row<'_>) -> Result<(), RestoreError> {
        let time = row.later(row.read()?)?;
        self.order.add(row.key.to_vec(), keyspace::encode(&time));
        Ok(())
    }

    fn revisions(&self, row: &Row<'_>) -> Result<(), RestoreError> {
        check_above_taken(self.new.floor, row)
    }

    fn cluster(&mut self, row: &Row<'_>) -> Result<(Vec<u8>, Bytes), RestoreError> {
        let mut cluster: ClusterRow = row.read()?;
        check_above_reserved(self.new.floor, &cluster)?;
        self.outcome.home_groups = cluster.home_groups;
        self.outcome.old_floor = cluster.floor;
        cluster.cluster = self.new.cluster;
        cluster.floor = self.new.floor;
        cluster.next_node = RESTORED_NODE.0 + 1;
        self.is_founded = true;
        Ok((row.key.to_vec(), keyspace::encode(&cluster)))
    }

    /// A key goes with the session that owns it.
    fn key(&mut self, row: &Row<'_>) -> Result<Option<(Vec<u8>, Bytes)>, RestoreError> {
        let key: KeyRow = row.read()?;
        if key.owner.is_some() {
            self.outcome.owned_keys += 1;
            return Ok(None);
        }
        if key.deadline.is_none() {
            return Ok(Some(row.unchanged()));
        }
        row.moved(|key: &mut KeyRow| key.deadline.as_mut()).map(Some)
    }

    /// A stream goes on behind a gap. One without any record needs no row of it: its first offset says the same.
    fn head(&mut self, row: &Row<'_>) -> Result<(Vec<u8>, Bytes), RestoreError> {
        let mut head = go_on_behind_a_gap(row, &mut self.order)?;
        head.first_time = row.later(head.first_time)?;
        head.ids_until = head.ids_until.map(|until| row.later(until)).transpose()?;
        self.outcome.streams += 1;
        Ok((row.key.to_vec(), keyspace::encode(&head)))
    }
}

/// Rows in their order, with those in their places that are added to them.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Rows that have no place yet.
    added: BTreeMap<Vec<u8>, Bytes>,
    last: Option<Vec<u8>>,
    /// How many were handed on.
    pub(crate) rows: u64,
}

impl Order {
    /// Adds a row, or replaces an added one. Its place is not behind the row that was handed on last.
    pub(crate) fn add(&mut self, key: Vec<u8>, value: Bytes) {
        self.added.insert(key, value);
    }

    /// Notes which row comes next.
    ///
    /// # Errors
    /// [`RestoreError::OutOfOrder`].
    pub(crate) fn next(&mut self, key: &[u8]) -> Result<(), RestoreError> {
        if self.last.as_deref().is_some_and(|last| last >= key) {
            return Err(RestoreError::OutOfOrder);
        }
        self.last = Some(key.to_vec());
        Ok(())
    }

    /// Hands on what was added up to this key, and what has become of the row there.
    pub(crate) fn hand_on(&mut self, key: &[u8], row: Option<(Vec<u8>, Bytes)>, sink: &mut dyn FnMut(Vec<u8>, Bytes)) {
        while let Some(next) = self.added.first_entry()
            && next.key().as_slice() <= key
        {
            let (key, value) = next.remove_entry();
            self.rows += 1;
            sink(key, value);
        }
        if let Some((key, value)) = row {
            self.rows += 1;
            sink(key, value);
        }
    }

    /// Hands on what was added behind the last row.
    pub(crate) fn finish(&mut self, sink: &mut dyn FnMut(Vec<u8>, Bytes)) {
        while let Some((key, value)) = self.added.pop_first() {
            self.rows += 1;
            sink(key, value);
        }
    }
}

/// Whether revisions can begin at a floor, whatever went before.
///
/// # Errors
/// [`RestoreError::FloorTooLow`], [`RestoreError::FloorTooHigh`].
pub(crate) fn check_floor(floor: u64) -> Result<u64, RestoreError> {
    match floor {
        0 => Err(RestoreError::FloorTooLow { floor, known: 0 }),
        floor if floor > RESTORE_FLOOR_MAX => Err(RestoreError::FloorTooHigh { floor }),
        floor => Ok(floor),
    }
}

/// Whether a floor lies above the blocks that a home group has taken.
///
/// # Errors
/// [`RestoreError::FloorTooLow`], or the row is damaged.
pub(crate) fn check_above_taken(floor: u64, row: &Row<'_>) -> Result<(), RestoreError> {
    check_at_least(floor, row.read::<Revisions>()?.top())
}

/// Whether a floor lies above what the system group has reserved.
///
/// # Errors
/// [`RestoreError::FloorTooLow`].
pub(crate) fn check_above_reserved(floor: u64, cluster: &ClusterRow) -> Result<(), RestoreError> {
    // That floor itself is not handed out yet, but a restore that went before may have begun at it.
    check_at_least(floor, cluster.floor.saturating_add(1))
}

fn check_at_least(floor: u64, at_least: u64) -> Result<(), RestoreError> {
    if floor < at_least {
        let known = at_least - 1;
        return Err(RestoreError::FloorTooLow { floor, known });
    }
    Ok(())
}

/// The head of a stream that goes on behind a gap, whose row is added if it needs one.
///
/// # Errors
/// The row is damaged or too high.
pub(crate) fn go_on_behind_a_gap(row: &Row<'_>, order: &mut Order) -> Result<HeadRow, RestoreError> {
    let mut head: HeadRow = row.read()?;
    if head.swept > head.first || head.first > head.tail {
        return Err(row.damaged());
    }
    let begin = head.tail;
    let end = begin.checked_add(RESTORE_STREAM_GAP).ok_or_else(|| row.too_high())?;
    head.tail = end;
    if head.first == begin {
        head.first = end;
    }
    if head.swept == begin {
        head.swept = end;
    } else {
        let incarnation = Incarnation(keyspace::number_in(row.key));
        order.add(keyspace::gap(incarnation, begin), keyspace::encode(&end));
    }
    Ok(head)
}

/// A row as it was.
pub(crate) struct Row<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Row<'_> {
    pub(crate) fn damaged(&self) -> RestoreError {
        RestoreError::Damaged { key: self.key.to_vec() }
    }

    pub(crate) fn too_high(&self) -> RestoreError {
        RestoreError::TooHigh { key: self.key.to_vec() }
    }

    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, RestoreError> {
        keyspace::try_decode(self.value).ok_or_else(|| self.damaged())
    }

    pub(crate) fn unchanged(&self) -> (Vec<u8>, Bytes) {
        (self.key.to_vec(), Bytes::copy_from_slice(self.value))
    }

    /// The same row, which is one.
    pub(crate) fn same<T: DeserializeOwned>(&self) -> Result<(Vec<u8>, Bytes), RestoreError> {
        self.read::<T>().map(|_| self.unchanged())
    }

    /// Its key is a kind and an incarnation.
    pub(crate) fn of_life(&self) -> Result<&Self, RestoreError> {
        (self.key.len() == KEY_AT).then_some(self).ok_or_else(|| self.damaged())
    }

    /// Its key is a kind, an incarnation, and more.
    pub(crate) fn behind_life(&self) -> Result<&Self, RestoreError> {
        (self.key.len() >= KEY_AT).then_some(self).ok_or_else(|| self.damaged())
    }

    /// Its key is a kind, an incarnation and an offset.
    pub(crate) fn of_offset(&self) -> Result<&Self, RestoreError> {
        let is_one = self.key.len() == OFFSET_KEY_BYTES;
        is_one.then_some(self).ok_or_else(|| self.damaged())
    }

    /// The same row with its time as much later as everything is.
    fn moved<T: DeserializeOwned + Serialize>(
        &self,
        time: impl FnOnce(&mut T) -> Option<&mut Timestamp>,
    ) -> Result<(Vec<u8>, Bytes), RestoreError> {
        let mut row: T = self.read()?;
        if let Some(time) = time(&mut row) {
            *time = self.later(*time)?;
        }
        Ok((self.key.to_vec(), keyspace::encode(&row)))
    }

    /// The end of a message id, whose time is part of the key.
    fn moved_end(&self) -> Result<(Vec<u8>, Bytes), RestoreError> {
        if self.key.len() < UNTIL_AT + 8 {
            return Err(self.damaged());
        }
        let until = self.later(Timestamp(keyspace::number_at(self.key, UNTIL_AT)))?;
        let mut key = self.key.to_vec();
        key[UNTIL_AT..UNTIL_AT + 8].copy_from_slice(&until.0.to_be_bytes());
        Ok((key, Bytes::copy_from_slice(self.value)))
    }

    fn later(&self, time: Timestamp) -> Result<Timestamp, RestoreError> {
        let later = time.0.checked_add(RESTORE_TIME_STEP.0);
        later.map(Timestamp).ok_or_else(|| self.too_high())
    }
}
