//! The peers of a group. There are none yet: every group has one voter, and every peer is unreachable.

use std::future::Future;

use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};

use crate::raft_types::{NodeNumber, Snapshot, TypeConfig, Vote};
use crate::snapshot_adapter::SnapshotData;

/// Makes the way to each peer.
pub(crate) struct NoPeers;

impl RaftNetworkFactory<TypeConfig> for NoPeers {
    type Network = UnreachablePeer;

    async fn new_client(&mut self, target: NodeNumber, _node: &()) -> UnreachablePeer {
        UnreachablePeer { target }
    }
}

/// A peer that no message reaches.
pub(crate) struct UnreachablePeer {
    target: NodeNumber,
}

impl UnreachablePeer {
    fn unreachable(&self) -> Unreachable<TypeConfig> {
        Unreachable::from_string(format!(
            "node {} has no address: there is no peer transport",
            self.target
        ))
    }
}

impl RaftNetworkV2<TypeConfig> for UnreachablePeer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }

    // The default grants: a node that reaches nobody would grant itself a majority and raise its term for ever.
    async fn pre_vote(
        &mut self,
        _request: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(StreamingError::Unreachable(self.unreachable()))
    }
}
