//! What becomes of the rows of a group that has lost its majority for good and goes on from the one replica that is left.
//!
//! What the others had acknowledged and this replica never received is lost, and nobody knows what it was. Much less than
//! [after a backup](crate::restore), so what is known stays: sessions, what they own, and remembered requests. What could
//! be handed out a second time moves out of its way:
//!
//! - **Revisions** go on above a floor that lies above every one that was handed out. A home group begins without a block
//!   and takes its first one there.
//! - **Streams** go on [`RESTORE_STREAM_GAP`](crate::limits::RESTORE_STREAM_GAP) behind their tail, with a gap that readers
//!   are told of.
//! - **Nodes**, all but the one that is left, are out of the cluster as if each had been removed: neither their ids nor
//!   their folders ever come back. Ids go on [`RECOVER_NODES_STEP`] higher, since the lost nodes may have let in others.
//!
//! Nothing panics on a row, whatever it is.

use bytes::Bytes;

use crate::command::NodeRecord;
use crate::ids::NodeId;
use crate::keyspace::{self, ClusterRow};
use crate::limits::RECOVER_NODES_STEP;
use crate::machine::GroupKind;
use crate::restore::{
    Order, RestoreError, Row, check_above_reserved, check_above_taken, check_floor, go_on_behind_a_gap,
};
use crate::revision::Revisions;

/// Who goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The node that is left.
    pub node: NodeId,
    /// Its revisions begin here.
    pub floor: u64,
}

/// What has become of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rows that the group has.
    pub rows: u64,
    /// Streams that go on behind a gap.
    pub streams: u64,
    /// Of the system group: the nodes that are out of the cluster.
    pub removed: Vec<NodeRecord>,
}

/// Takes in the rows of one group in ascending order and hands on those of the recovered group, in ascending order too.
#[derive(Debug)]
pub struct GroupRecover {
    kind: GroupKind,
    survivor: Survivor,
    order: Order,
    is_founded: bool,
    is_node: bool,
    outcome: Outcome,
}

impl GroupRecover {
    /// For one group.
    ///
    /// # Errors
    /// [`RestoreError::FloorTooLow`], [`RestoreError::FloorTooHigh`].
    pub fn new(kind: GroupKind, survivor: Survivor) -> Result<GroupRecover, RestoreError> {
        let floor = check_floor(survivor.floor)?;
        let mut order = Order::default();
        if kind == GroupKind::Home {
            let revisions = Revisions::restored(floor);
            order.add(keyspace::REVISIONS.to_vec(), keyspace::encode(&revisions));
        }
        Ok(GroupRecover {
            kind,
            survivor,
            order,
            is_founded: false,
            is_node: false,
            outcome: Outcome::default(),
        })
    }

    /// Takes in the next row, and hands on those that come before the next one.
    ///
    /// # Errors
    /// [`RestoreError`]; nothing more is to be taken in then.
    pub fn take(&mut self, key: &[u8], value: &[u8], sink: &mut dyn FnMut(Vec<u8>, Bytes)) -> Result<(), RestoreError> {
        self.order.next(key)?;
        let row = Row { key, value };
        let row = match self.kind {
            GroupKind::Home => self.of_home(&row)?,
            GroupKind::System => self.of_system(&row)?,
        };
        self.order.hand_on(key, row, sink);
        Ok(())
    }

    /// Hands on the last rows.
    ///
    /// # Errors
    /// [`RestoreError::NotFounded`], [`RestoreError::NotANode`].
    pub fn finish(mut self, sink: &mut dyn FnMut(Vec<u8>, Bytes)) -> Result<Outcome, RestoreError> {
        if self.kind == GroupKind::System {
            if !self.is_founded {
                return Err(RestoreError::NotFounded);
            }
            if !self.is_node {
                let node = self.survivor.node;
                return Err(RestoreError::NotANode { node });
            }
        }
        self.order.finish(sink);
        self.outcome.rows = self.order.rows;
        Ok(self.outcome)
    }

    fn of_home(&mut self, row: &Row<'_>) -> Result<Option<(Vec<u8>, Bytes)>, RestoreError> {
        match row.key.first() {
            Some(b'R') if row.key == keyspace::REVISIONS => {
                check_above_taken(self.survivor.floor, row)?;
                // The one that was added takes its place.
                Ok(None)
            }
            Some(b'H') => {
                let head = go_on_behind_a_gap(row.of_life()?, &mut self.order)?;
                self.outcome.streams += 1;
                Ok(Some((row.key.to_vec(), keyspace::encode(&head))))
            }
            Some(b'c' | b'n' | b'f' | b'd' | b'l' | b's') => Err(row.damaged()),
            _ => Ok(Some(row.unchanged())),
        }
    }

    fn of_system(&mut self, row: &Row<'_>) -> Result<Option<(Vec<u8>, Bytes)>, RestoreError> {
        let own = self.survivor.node;
        match row.key.first() {
            Some(b'c') if row.key == keyspace::CLUSTER => self.cluster(row).map(Some),
            Some(b'n') => {
                let record: NodeRecord = row.read()?;
                if row.key != keyspace::node(record.id) {
                    return Err(row.damaged());
                }
                if record.id == own {
                    self.is_node = true;
                    return Ok(Some(row.unchanged()));
                }
                self.outcome.removed.push(record);
                Ok(None)
            }
            // As when a node is removed, the row of its folder stays.
            Some(b'd') => Ok((row.key == keyspace::drained(own)).then(|| row.unchanged())),
            Some(b'l') => Ok((row.read::<NodeId>()? == own).then(|| row.unchanged())),
            Some(b'T' | b'R' | b'X' | b'f' | b's') => Ok(Some(row.unchanged())),
            _ => Err(row.damaged()),
        }
    }

    fn cluster(&mut self, row: &Row<'_>) -> Result<(Vec<u8>, Bytes), RestoreError> {
        let mut cluster: ClusterRow = row.read()?;
        check_above_reserved(self.survivor.floor, &cluster)?;
        cluster.floor = self.survivor.floor;
        let next = cluster.next_node.checked_add(RECOVER_NODES_STEP);
        cluster.next_node = next.ok_or_else(|| row.too_high())?;
        self.is_founded = true;
        Ok((row.key.to_vec(), keyspace::encode(&cluster)))
    }
}
