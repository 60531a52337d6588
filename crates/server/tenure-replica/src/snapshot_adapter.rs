//! What a snapshot is to the consensus library: the state as it was, or the bytes that came from a peer.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use openraft::RaftSnapshotBuilder;

use tenure_core::ids::NodeId;
use tenure_storage::state::{AppliedMark, Image};

use crate::apply::Applier;
use crate::lane::Lane;
use crate::raft_types::{self, AppliedState, Membership, Snapshot, StoredMembership, TypeConfig};
use crate::shared::Told;

/// The rows of a snapshot. An image costs nothing until somebody asks for its bytes, so a snapshot that only
/// lets the log be purged is free; it keeps files from being freed, so it is dropped as soon as possible.
pub(crate) enum SnapshotData {
    /// The state as it was.
    Image(Box<Image>),
    /// The bytes that [`tenure_core::snapshot::export`] wrote.
    Bytes(Vec<u8>),
}

impl SnapshotData {
    /// The whole snapshot as bytes, in memory. Blocks.
    ///
    /// # Errors
    /// What the state said, if a row of the image could not be read.
    pub(crate) fn into_bytes(self) -> Result<Vec<u8>, String> {
        match self {
            SnapshotData::Bytes(bytes) => Ok(bytes),
            SnapshotData::Image(image) => {
                let mut bytes = Vec::new();
                let exported = tenure_core::snapshot::export(image.as_ref(), &mut |chunk| {
                    bytes.extend_from_slice(chunk);
                    Ok::<(), std::convert::Infallible>(())
                });
                match exported {
                    Ok(()) => {}
                    Err(never) => match never {},
                }
                image.verify().map_err(|error| error.to_string())?;
                Ok(bytes)
            }
        }
    }
}

/// Makes a snapshot of the state, durable first as far as the log is, so that the log can be purged up to it.
pub(crate) struct SnapshotBuilder {
    pub(crate) applier: Arc<Applier>,
    pub(crate) writer: Arc<Lane>,
    pub(crate) flushed: Box<dyn Fn() -> Option<u64> + Send + Sync>,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let applier = self.applier.clone();
        let flushed = (self.flushed)();
        let built = self.writer.run(move || {
            if let Some(flushed) = flushed {
                applier
                    .state
                    .make_durable(flushed)
                    .map_err(|error| applier.fail(&error))?;
            }
            applier.image()
        });
        match built.await {
            Ok(Ok((meta, image))) => Ok(Snapshot {
                meta,
                snapshot: SnapshotData::Image(Box::new(image)),
            }),
            Ok(Err(why)) => Err(io::Error::other(why)),
            Err(lost) => {
                self.applier
                    .shared
                    .stop("making a snapshot ended in a panic", Told::Node);
                Err(io::Error::other(lost))
            }
        }
    }
}

/// The mark of a state that no log has made: a restored one, of which this node is the only replica. It is what the founding
/// of a group writes, so the group goes on as if its founding had brought the rows.
pub fn restored_mark(node: NodeId) -> AppliedMark {
    let founding = raft_types::log_id(0, 0);
    let membership = Membership::new_with_defaults(vec![BTreeSet::from([node.0])], [node.0]);
    let applied = AppliedState {
        last: Some(founding),
        membership: StoredMembership::new(Some(founding), membership),
    };
    AppliedMark {
        index: founding.index,
        bytes: raft_types::encode_applied(&applied),
    }
}
