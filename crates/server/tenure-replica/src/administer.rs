//! What an operator asks of a group: any replica answers, by asking the leader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;

use tenure_core::ids::NodeId;

use crate::error::Unavailable;
use crate::leadership::{self, Role};
use crate::membership::{self, MembershipError};
use crate::network::{CallError, Member, Peers, peer, to_refused, to_unavailable};
use crate::raft_types::Raft;
use crate::replica::{Replica, Running};
use crate::shared::Shared;
use peer::administer::Ask;
use peer::administered::Result as Answer;
use peer::{peer_reply, peer_request};

/// How long the leader may take. It hands over within three seconds, or not.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// How far the replicas of a group are, as its leader knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last entry in the leader's log.
    pub last_index: u64,
    /// The replicas that follow.
    pub replicas: BTreeMap<NodeId, ReplicaProgress>,
}

/// How far a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaProgress {
    /// Up to which entry it has acknowledged the log; `None`: of none.
    pub index: Option<u64>,
    /// Whether the leader has a stream to its node.
    pub connected: bool,
}

impl Replica {
    /// Asks the leader how far the replicas are.
    ///
    /// # Errors
    /// [`MembershipError::Unavailable`]: it could not be asked.
    pub async fn progress(&self) -> Result<Progress, MembershipError> {
        Ok(self.ask(Ask::Progress(true)).await?.unwrap_or_default())
    }

    /// Asks the leader whether the voters that are left without this node, and follow closely, are a majority.
    ///
    /// # Errors
    /// [`MembershipError`]: they are none, or the leader could not be asked. Nothing was changed.
    pub async fn may_lose(&self, node: NodeId) -> Result<(), MembershipError> {
        self.ask(Ask::MayLose(node.0)).await.map(drop)
    }

    /// Has the leader hand the leadership to this node; see [`Replica::transfer_leadership`].
    ///
    /// # Errors
    /// [`MembershipError`]. Whoever leads then, nothing is lost.
    pub async fn hand_to(&self, node: NodeId) -> Result<(), MembershipError> {
        self.ask(Ask::HandOver(node.0)).await.map(drop)
    }

    async fn ask(&self, ask: Ask) -> Result<Option<Progress>, MembershipError> {
        let Running {
            shared, raft, peers, ..
        } = &*self.running;
        let (Role::Follows(leader), Some(peers)) = (leadership::role(raft, shared), peers) else {
            return perform(shared, raft, peers.as_ref(), &ask).await;
        };
        let body = peer_request::Body::Administer(peer::Administer { ask: Some(ask) });
        match peers.link(leader).call(shared.group, body, ANSWERED_WITHIN).await {
            Ok(peer_reply::Body::Administered(answered)) => from_answer(answered.result),
            Ok(_) => Err(malformed()),
            Err(CallError::NotSent(_) | CallError::Unavailable(_)) => Err(Unavailable::NoLeader.into()),
            Err(CallError::Broken(_)) => Err(Unavailable::LeadershipLost.into()),
            Err(CallError::Late) => Err(Unavailable::QuorumTimeout.into()),
        }
    }
}

/// The leader's half.
pub(crate) async fn answer(member: &Member, peers: &Peers, asked: &peer::Administer) -> peer_reply::Body {
    let result = match &asked.ask {
        Some(ask) => perform(&member.shared, &member.raft, Some(peers), ask).await,
        None => Err(malformed()),
    };
    peer_reply::Body::Administered(peer::Administered {
        result: Some(to_answer(result)),
    })
}

async fn perform(
    shared: &Arc<Shared>,
    raft: &Raft,
    peers: Option<&Peers>,
    ask: &Ask,
) -> Result<Option<Progress>, MembershipError> {
    match ask {
        Ask::MayLose(node) => membership::may_lose(shared, raft, peers, NodeId(*node)).map(|()| None),
        Ask::HandOver(node) => {
            let handed = membership::transfer(shared, raft, peers, NodeId(*node)).await;
            handed.map(|()| None)
        }
        Ask::Progress(_) => match leadership::role(raft, shared) {
            Role::Leads(_) => Ok(Some(progress(shared, raft, peers))),
            role => Err(leadership::refusal(role).into()),
        },
    }
}

fn progress(shared: &Arc<Shared>, raft: &Raft, peers: Option<&Peers>) -> Progress {
    let known = membership::members(raft);
    let others = known.voters.iter().chain(&known.learners);
    let others = others.copied().filter(|node| *node != shared.node);
    let replica = |node: NodeId| ReplicaProgress {
        index: known.replicated.get(&node).copied().flatten(),
        connected: peers.is_some_and(|peers| peers.is_connected(node)),
    };
    Progress {
        last_index: raft.metrics().borrow_watched().last_log_index.unwrap_or(0),
        replicas: others.map(|node| (node, replica(node))).collect(),
    }
}

fn to_answer(result: Result<Option<Progress>, MembershipError>) -> Answer {
    match result {
        Ok(None) => Answer::Done(true),
        Ok(Some(progress)) => Answer::Progress(peer::Progress {
            last_index: progress.last_index,
            replicas: progress
                .replicas
                .into_iter()
                .map(|(node, replica)| peer::ReplicaProgress {
                    node: node.0,
                    index: replica.index,
                    connected: replica.connected,
                })
                .collect(),
        }),
        Err(MembershipError::Refused { why }) => Answer::Refused(why.to_string()),
        Err(MembershipError::Unavailable(error)) => Answer::Unavailable(to_refused(&error)),
    }
}

fn from_answer(answer: Option<Answer>) -> Result<Option<Progress>, MembershipError> {
    match answer.ok_or_else(malformed)? {
        Answer::Done(_) => Ok(None),
        Answer::Progress(progress) => {
            let replicas = progress.replicas.iter().map(|replica| {
                let known = ReplicaProgress {
                    index: replica.index,
                    connected: replica.connected,
                };
                (NodeId(replica.node), known)
            });
            Ok(Some(Progress {
                last_index: progress.last_index,
                replicas: replicas.collect(),
            }))
        }
        Answer::Refused(why) => Err(MembershipError::Refused { why: why.into() }),
        Answer::Unavailable(refused) => Err(to_unavailable(&refused).into()),
    }
}

fn malformed() -> MembershipError {
    Unavailable::Internal("what the leader was asked, or answered, cannot be read".into()).into()
}
