//! The consensus library's network: each of its calls is one call on the link to the node.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use openraft::OptionalSend;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{Backoff, RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    VoteRequest, VoteResponse,
};
use openraft::raft::{TransferLeaderError, TransferLeaderResponse};

use tenure_core::ids::NodeId;

use super::commits::{Appends, Confirmed};
use super::wire::{self, Malformed, peer};
use super::{CallError, Link, Peers, lock, snapshot};
use crate::raft_types::{NodeNumber, Snapshot, TypeConfig, Vote};
use crate::shared::Shared;
use crate::snapshot_adapter::SnapshotData;
use peer::{peer_reply, peer_request};

type Failed = RPCError<TypeConfig>;

/// After an unreachable peer was met the next try comes so soon: a call that cannot be sent costs next to nothing.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Makes the way of one group to each peer.
pub(crate) struct PeerNetworks {
    pub(crate) shared: Arc<Shared>,
    /// None for a group that has no other replicas.
    pub(crate) peers: Option<Peers>,
}

impl RaftNetworkFactory<TypeConfig> for PeerNetworks {
    type Network = PeerNetwork;

    async fn new_client(&mut self, target: NodeNumber, _node: &()) -> PeerNetwork {
        PeerNetwork {
            shared: self.shared.clone(),
            target: NodeId(target),
            confirmed: Confirmed::default(),
            way: self.peers.clone().map(|peers| {
                let link = peers.link(NodeId(target));
                (peers, link)
            }),
        }
    }
}

/// The way of one group to one peer.
pub(crate) struct PeerNetwork {
    shared: Arc<Shared>,
    target: NodeId,
    confirmed: Confirmed,
    way: Option<(Peers, Arc<Link>)>,
}

impl PeerNetwork {
    async fn call(
        &self,
        kind: RPCTypes,
        body: peer_request::Body,
        option: &RPCOption,
    ) -> Result<peer_reply::Body, RPCError<TypeConfig>> {
        let Some((_, link)) = &self.way else {
            return Err(RPCError::Unreachable(self.no_way()));
        };
        let within = option.soft_ttl();
        link.call(self.shared.group, body, within)
            .await
            .map_err(|error| match error {
                CallError::Late => RPCError::Timeout(Timeout {
                    action: kind,
                    id: self.shared.node.0,
                    target: self.target.0,
                    timeout: within,
                }),
                CallError::NotSent(_) | CallError::Broken(_) | CallError::Unavailable(_) => {
                    RPCError::Unreachable(Unreachable::new(&error))
                }
            })
    }

    fn no_way(&self) -> Unreachable<TypeConfig> {
        Unreachable::from_string(format!(
            "node {} has no address: this group has no peers",
            self.target.0
        ))
    }

    async fn ask_vote(
        &self,
        request: VoteRequest<TypeConfig>,
        before: bool,
        option: &RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let asked = peer::Vote {
            vote: Some(wire::ballot(&request.vote)),
            last: request.last_log_id.map(wire::from_log_id),
            leadership_transfer: request.leadership_transfer,
        };
        let body = if before {
            peer_request::Body::PreVote(asked)
        } else {
            peer_request::Body::Vote(asked)
        };
        match self.call(RPCTypes::Vote, body, option).await? {
            peer_reply::Body::Voted(voted) => Ok(VoteResponse {
                vote: wire::vote(voted.vote.as_ref()).map_err(malformed)?,
                vote_granted: voted.granted,
                last_log_id: voted.last.as_ref().map(wire::to_log_id),
            }),
            _ => Err(malformed(Malformed("a vote was answered with something else"))),
        }
    }
}

impl RaftNetworkV2<TypeConfig> for PeerNetwork {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let entries = wire::from_entries(&request.entries);
        // What was not sent is asked for again by the library, behind what was.
        let sent_upto = match entries.len() {
            len if len < request.entries.len() => Some(request.entries[len - 1].log_id),
            _ => None,
        };
        let now = self.shared.runtime.clock.now();
        let unconfirmed = lock(&self.confirmed).map(|confirmed| now.saturating_sub(confirmed));
        let body = peer_request::Body::Append(peer::Append {
            vote: Some(wire::ballot(&request.vote)),
            previous: request.prev_log_id.map(wire::from_log_id),
            committed: request.leader_commit.map(wire::from_log_id),
            first_index: request.entries.first().map_or(0, |entry| entry.log_id.index),
            entries,
            unconfirmed_us: unconfirmed.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
        });
        let replied = self.call(RPCTypes::AppendEntries, body, &option).await?;
        let odd = || malformed(Malformed("an append was answered with something else"));
        let peer_reply::Body::Appended(appended) = replied else {
            return Err(odd());
        };
        match appended.result.ok_or_else(odd)? {
            peer::appended::Result::Success(_) => Ok(match sent_upto {
                None => AppendEntriesResponse::Success,
                upto => AppendEntriesResponse::PartialSuccess(upto),
            }),
            peer::appended::Result::Partial(upto) => {
                Ok(AppendEntriesResponse::PartialSuccess(Some(wire::to_log_id(&upto))))
            }
            // The library takes it for granted that what conflicts was named.
            peer::appended::Result::Conflict(_) if request.prev_log_id.is_none() => Err(odd()),
            peer::appended::Result::Conflict(_) => Ok(AppendEntriesResponse::Conflict),
            peer::appended::Result::HigherVote(vote) => Ok(AppendEntriesResponse::HigherVote(
                wire::vote(Some(&vote)).map_err(malformed)?,
            )),
        }
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<StreamAppendResult<TypeConfig>, Failed>>, Failed>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let appends = Appends::new(self.shared.clone(), self.target, self.confirmed.clone(), input);
        stream_append_sequential(self, appends.in_turn(), option)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_vote(request, false, &option).await
    }

    // The default grants: a node that reaches nobody would grant itself a majority and raise its term for ever.
    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_vote(request, true, &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let Some((peers, _)) = &self.way else {
            return Err(StreamingError::Unreachable(self.no_way()));
        };
        let sending = snapshot::send(peers, self.target, self.shared.group, vote, snapshot);
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = sending => match sent {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(why) => {
                    tracing::info!(group = self.shared.group.0, peer = self.target.0, why, "a snapshot was not sent");
                    Err(StreamingError::Unreachable(Unreachable::from_string(why)))
                }
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let body = peer_request::Body::TransferLeader(peer::TransferLeader {
            from: Some(wire::ballot(request.from_leader())),
            to: *request.to_node_id(),
            last: request.last_log_id().copied().map(wire::from_log_id),
        });
        match self.call(RPCTypes::TransferLeader, body, &option).await? {
            peer_reply::Body::Transferred(peer::Transferred { accepted: true }) => Ok(Ok(())),
            // The library asks again; what exactly differs is in the other node's log.
            peer_reply::Body::Transferred(peer::Transferred { accepted: false }) => {
                Ok(Err(TransferLeaderError::LogNotFlushed {
                    expected: request.last_log_id().copied(),
                    actual: None,
                }))
            }
            _ => Err(malformed(Malformed("a transfer was answered with something else"))),
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new(std::iter::repeat(TRY_AGAIN_AFTER)))
    }
}

fn malformed(error: Malformed) -> RPCError<TypeConfig> {
    RPCError::Network(NetworkError::new(&error))
}
