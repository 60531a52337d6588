//! What answers the streams of other nodes.
//!
//! The reader of a stream never waits for a request: appends, proposals and the rest each have a number of places, and a
//! request that finds none is told so. Appends of one group go to the library in the order in which they came: each is
//! begun by the reader itself before it looks at the next.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse};
use openraft::type_config::TypeConfigExt;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::NamedService;
use tonic::{Request, Response, Status, Streaming};

use tenure_core::ids::{GroupId, NodeId};

use super::wire::{self, Malformed, peer};
use super::{MESSAGE_BYTES_MAX, Member, Peers, join, snapshot};
use crate::administer;
use crate::forward;
use crate::raft_types::{TypeConfig, in_scope};
use crate::read;
use peer::peer_server::{Peer, PeerServer};
use peer::{PeerReply, PeerRequest, peer_reply, peer_request};

/// How long a stream may take to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// How long a node that is removed may still speak, in which it hands over what it leads.
const REMOVED_GRACE: Duration = Duration::from_secs(5);
/// Replies that wait for the connection to take them.
const REPLIES_WAITING_MAX: usize = 256;
/// Requests of one stream that are worked on at a time.
const APPENDS_MAX: usize = 1_024;
const PROPOSALS_MAX: usize = 1_024;
const OTHERS_MAX: usize = 1_024;

/// The gRPC service that other nodes call: to be mounted on the node's port. Clones are the same service.
#[derive(Clone)]
pub struct PeerService {
    server: PeerServer<Door>,
}

impl PeerService {
    pub(super) fn new(peers: Peers) -> PeerService {
        let server = PeerServer::new(Door { peers })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        PeerService { server }
    }
}

impl fmt::Debug for PeerService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerService").finish_non_exhaustive()
    }
}

impl NamedService for PeerService {
    const NAME: &'static str = "tenure.peer.v1.Peer";
}

impl<B> Service<http::Request<B>> for PeerService
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<http::Request<B>>::poll_ready(&mut self.server, context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        Box::pin(self.server.call(request))
    }
}

struct Door {
    peers: Peers,
}

#[tonic::async_trait]
impl Peer for Door {
    type ExchangeStream = ReceiverStream<Result<PeerReply, Status>>;

    async fn exchange(
        &self,
        request: Request<Streaming<PeerRequest>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        let mut incoming = request.into_inner();
        let first = tokio::time::timeout(HELLO_WITHIN, incoming.message())
            .await
            .map_err(|_| Status::deadline_exceeded("the stream did not say who it is"))??;
        let Some(peer_request::Body::Hello(hello)) = first.and_then(|first| first.body) else {
            return Err(Status::invalid_argument("a stream begins with a hello"));
        };
        let world = &self.peers.inner.world;
        let from = world.check(&hello)?;
        let (replies, outgoing) = mpsc::channel(REPLIES_WAITING_MAX);
        let hello = PeerReply {
            id: 0,
            body: Some(peer_reply::Body::Hello(world.hello(from))),
        };
        let greeted = replies.try_send(Ok(hello));
        greeted.map_err(|_| Status::internal("a new stream has no room"))?;
        let stream = Served {
            peers: self.peers.clone(),
            replies,
            appends: Arc::new(Semaphore::new(APPENDS_MAX)),
            proposals: Arc::new(Semaphore::new(PROPOSALS_MAX)),
            others: Arc::new(Semaphore::new(OTHERS_MAX)),
        };
        world
            .runtime
            .tasks
            .spawn("peer stream", stream.run(from, incoming).boxed());
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<peer::SnapshotPart>>,
    ) -> Result<Response<peer::SnapshotInstalled>, Status> {
        let vote = snapshot::receive(&self.peers, request.into_inner()).await?;
        Ok(Response::new(peer::SnapshotInstalled {
            vote: Some(wire::ballot(&vote)),
        }))
    }

    async fn join(&self, request: Request<peer::JoinRequest>) -> Result<Response<peer::JoinReply>, Status> {
        let asked = join::to_asked(request.get_ref()).map_err(Status::invalid_argument)?;
        let doorkeeper = super::lock(&self.peers.inner.doorkeeper).clone();
        let doorkeeper = doorkeeper.ok_or_else(|| Status::unavailable("this node lets nobody in"))?;
        let joined = doorkeeper.let_in(asked).await.map_err(Status::failed_precondition)?;
        Ok(Response::new(join::from_joined(&joined)))
    }
}

/// One stream of another node.
struct Served {
    peers: Peers,
    replies: mpsc::Sender<Result<PeerReply, Status>>,
    appends: Arc<Semaphore>,
    proposals: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

impl Served {
    async fn run(self, from: NodeId, mut incoming: Streaming<PeerRequest>) {
        let world = self.peers.inner.world.clone();
        let mut removed = std::pin::pin!(async {
            // The book lives as long as the stream.
            let _ = world.book.subscribe().wait_for(|book| book.was_removed(from)).await;
            tokio::time::sleep(REMOVED_GRACE).await;
        });
        loop {
            let message = tokio::select! {
                biased;
                () = self.replies.closed() => return,
                () = &mut removed => {
                    // If there is no room for it, the node hears it when it comes again.
                    let _ = self.replies.try_send(Err(world.removed_from(from).into()));
                    return;
                }
                message = incoming.message() => message,
            };
            let Ok(Some(request)) = message else {
                tracing::debug!(peer = from.0, "the stream of the node has ended");
                return;
            };
            self.begin(from, request).await;
        }
    }

    /// Begins the work on a request. What does not end at once goes on in a task.
    async fn begin(&self, from: NodeId, request: PeerRequest) {
        let PeerRequest { id, group, body } = request;
        let Some(body) = body else {
            return self.refuse(id, "a request that this release does not know").await;
        };
        let Some(member) = self.peers.member(GroupId(group)) else {
            return self.refuse(id, "the group is not open on this node").await;
        };
        if let peer_request::Body::Propose(_) | peer_request::Body::ReadIndex(_) = &body {
            member.shared.askers.note(from, member.shared.runtime.clock.now());
        }
        let places = match &body {
            peer_request::Body::Append(_) => &self.appends,
            peer_request::Body::Propose(_) => &self.proposals,
            _ => &self.others,
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            return self.refuse(id, "too much is asked at a time").await;
        };
        let (replies, peers) = (self.replies.clone(), self.peers.clone());
        let mut work = async move {
            let answered = async {
                let bodies = answer(&member, &peers, body).await;
                for body in bodies {
                    let reply = PeerReply { id, body: Some(body) };
                    if replies.send(Ok(reply)).await.is_err() {
                        return;
                    }
                }
            };
            // What nobody waits for any more is given up, as far as it can be.
            tokio::select! {
                biased;
                () = answered => {}
                () = replies.closed() => {}
            }
            drop(place);
        }
        .boxed();
        let begun = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        if begun.is_pending() {
            self.peers.inner.world.runtime.tasks.spawn("peer request", work);
        }
    }

    async fn refuse(&self, id: u64, why: &str) {
        let reply = PeerReply {
            id,
            body: Some(peer_reply::Body::Unavailable(why.to_owned())),
        };
        // A closed stream is noticed by the reader.
        let _ = self.replies.send(Ok(reply)).await;
    }
}

/// The reply to a request, in one or more messages.
async fn answer(member: &Member, peers: &Peers, body: peer_request::Body) -> Vec<peer_reply::Body> {
    let answered = match body {
        peer_request::Body::Append(append) => append_entries(member, append).await,
        peer_request::Body::Vote(vote) => give_vote(member, &vote, false).await,
        peer_request::Body::PreVote(vote) => give_vote(member, &vote, true).await,
        peer_request::Body::TransferLeader(transfer) => take_leadership(member, &transfer).await,
        peer_request::Body::ReadIndex(_) => Ok(read_point(member).await),
        peer_request::Body::Propose(propose) => return forward::take_in(&member.shared, &member.raft, propose).await,
        peer_request::Body::Administer(asked) => Ok(administer::answer(member, peers, &asked).await),
        peer_request::Body::Hello(_) => Err("a second hello".to_owned()),
    };
    vec![answered.unwrap_or_else(peer_reply::Body::Unavailable)]
}

async fn append_entries(member: &Member, append: peer::Append) -> Result<peer_reply::Body, String> {
    let malformed = |error: Malformed| error.to_string();
    let request = AppendEntriesRequest::<TypeConfig> {
        vote: wire::vote(append.vote.as_ref()).map_err(malformed)?,
        prev_log_id: append.previous.as_ref().map(wire::to_log_id),
        entries: wire::to_entries(append.first_index, &append.entries).map_err(malformed)?,
        leader_commit: append.committed.as_ref().map(wire::to_log_id),
    };
    let shared = &member.shared;
    let heard = TypeConfig::now();
    let (committed, came) = (request.leader_commit.map(|id| id.index), shared.runtime.clock.now());
    // What came from a leader that has been cut off from the others says nothing of what they have done since.
    let confirmed = append
        .unconfirmed_us
        .map(|time| came.saturating_sub(Duration::from_micros(time)));
    let appending = member.raft.append_entries(request);
    let appended = in_scope(member.shared.next_seed(), appending)
        .await
        .map_err(|error| error.to_string())?;
    if !matches!(appended, AppendEntriesResponse::HigherVote(_)) {
        *super::lock(&shared.leader_heard) = Some(heard);
    }
    if let (Some(committed), Some(confirmed), AppendEntriesResponse::Success) = (committed, confirmed, &appended) {
        let applied = shared.progress.borrow().applied.map(|id| id.index);
        shared.heard.said(committed, confirmed, applied);
    }
    let result = match appended {
        AppendEntriesResponse::Success => peer::appended::Result::Success(true),
        AppendEntriesResponse::PartialSuccess(Some(upto)) => peer::appended::Result::Partial(wire::from_log_id(upto)),
        AppendEntriesResponse::PartialSuccess(None) | AppendEntriesResponse::Conflict => {
            peer::appended::Result::Conflict(true)
        }
        AppendEntriesResponse::HigherVote(vote) => peer::appended::Result::HigherVote(wire::ballot(&vote)),
    };
    Ok(peer_reply::Body::Appended(peer::Appended { result: Some(result) }))
}

async fn give_vote(member: &Member, asked: &peer::Vote, before: bool) -> Result<peer_reply::Body, String> {
    let request = VoteRequest::<TypeConfig> {
        vote: wire::vote(asked.vote.as_ref()).map_err(|error| error.to_string())?,
        last_log_id: asked.last.as_ref().map(wire::to_log_id),
        leadership_transfer: asked.leadership_transfer,
    };
    let seed = member.shared.next_seed();
    let voted = if before {
        in_scope(seed, member.raft.pre_vote(request)).await
    } else {
        in_scope(seed, member.raft.vote(request)).await
    };
    let VoteResponse {
        vote,
        vote_granted,
        last_log_id,
    } = voted.map_err(|error| error.to_string())?;
    Ok(peer_reply::Body::Voted(peer::Voted {
        vote: Some(wire::ballot(&vote)),
        granted: vote_granted,
        last: last_log_id.map(wire::from_log_id),
    }))
}

async fn take_leadership(member: &Member, asked: &peer::TransferLeader) -> Result<peer_reply::Body, String> {
    let from = wire::vote(asked.from.as_ref()).map_err(|error| error.to_string())?;
    let request = TransferLeaderRequest::new(from, asked.to, asked.last.as_ref().map(wire::to_log_id));
    let taking = member.raft.handle_transfer_leader(request);
    let taken = in_scope(member.shared.next_seed(), taking)
        .await
        .map_err(|fatal| fatal.to_string())?;
    if let Err(error) = &taken {
        tracing::info!(group = member.shared.group.0, %error, "the leadership was not taken");
    }
    Ok(peer_reply::Body::Transferred(peer::Transferred {
        accepted: taken.is_ok(),
    }))
}

async fn read_point(member: &Member) -> peer_reply::Body {
    let reading = read::read_index(&member.raft, &member.shared, member.timings.leader_wait);
    let point = match reading.await {
        Ok((index, time)) => peer::ReadPoint {
            index: Some(index),
            time_us: time.0,
            leader: member.shared.node.0,
        },
        Err(crate::error::Unavailable::NotLeader { leader }) => peer::ReadPoint {
            index: None,
            time_us: 0,
            leader: leader.map_or(0, |leader| leader.0),
        },
        Err(_) => peer::ReadPoint::default(),
    };
    peer_reply::Body::ReadPoint(point)
}
