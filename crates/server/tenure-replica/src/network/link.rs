//! The one outgoing stream to another node, for all groups.
//!
//! It is opened when it is first needed, with a hello, and opened again after a pause when it breaks. While it is broken
//! calls fail at once, as surely not sent. Replies come in any order and are matched by number. A connection on which
//! nothing moves is given up by the transport's pings.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint, Uri};

use tenure_core::ids::{GroupId, NodeId};

use super::wire::peer::{self, PeerReply, PeerRequest, peer_client::PeerClient, peer_reply, peer_request};
use super::{Book, MESSAGE_BYTES_MAX, World, lock};
use crate::runtime::{IoStream, Runtime, TaskHandle, Tasks};

/// Frames that wait for the connection to take them.
const FRAMES_WAITING_MAX: usize = 256;
/// Kibibytes of them.
const FRAMES_KIB_MAX: usize = 32 << 10;
/// Calls without a reply.
const CALLS_MAX: usize = 8_192;
/// Bytes of a reply that comes in several messages.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// How long opening a stream may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// The pause before a stream is opened again: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// HTTP/2 flow control: bytes that one stream may have under way.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// The same for one connection.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// A connection is asked for a sign of life so often…
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// …and given up if none comes for so long.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// It was surely never sent.
    #[error("not sent: {0}")]
    NotSent(Arc<str>),
    /// It may have been worked on: the stream broke.
    #[error("no reply: {0}")]
    Broken(Arc<str>),
    /// It may have been worked on, or may yet be.
    #[error("no reply in time")]
    Late,
    /// The other side could not answer, and did nothing.
    #[error("the peer could not answer: {0}")]
    Unavailable(Arc<str>),
}

/// The way to one node.
pub(crate) struct Link {
    shared: Arc<LinkShared>,
    task: TaskHandle,
}

struct LinkShared {
    target: NodeId,
    world: Arc<World>,
    status: watch::Sender<Status>,
    wanted: Notify,
}

#[derive(Clone)]
enum Status {
    /// There is no stream, and nothing is known against opening one.
    Idle,
    /// The stream is open.
    Up(Arc<Stream>),
    /// It could not be opened, or it broke, a moment ago.
    Down(Arc<str>),
}

impl Link {
    /// A way that is not connected until it is needed.
    pub(super) fn start(world: Arc<World>, target: NodeId) -> Link {
        let shared = Arc::new(LinkShared {
            target,
            world,
            status: watch::Sender::new(Status::Idle),
            wanted: Notify::new(),
        });
        let task = shared
            .world
            .runtime
            .tasks
            .spawn("peer link", shared.clone().run().boxed());
        Link { shared, task }
    }

    /// Whether the stream is open.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(&*self.shared.status.borrow(), Status::Up(_))
    }

    /// Opens the stream if it is not open and nothing has just kept it from being opened.
    pub(super) fn want(&self) {
        self.shared.wanted.notify_one();
    }

    /// Sends a request and waits for its reply, no longer than this.
    ///
    /// # Errors
    /// [`CallError`], which says whether the request may have reached the other node.
    pub(crate) async fn call(
        &self,
        group: GroupId,
        body: peer_request::Body,
        within: Duration,
    ) -> Result<peer_reply::Body, CallError> {
        let sent = AtomicBool::new(false);
        match tokio::time::timeout(within, self.exchange(group, body, &sent)).await {
            Ok(Ok(peer_reply::Body::Unavailable(why))) => Err(CallError::Unavailable(why.into())),
            Ok(replied) => replied,
            Err(_) if sent.load(Ordering::Relaxed) => Err(CallError::Late),
            Err(_) => Err(CallError::NotSent("there was no connection in time".into())),
        }
    }

    async fn exchange(
        &self,
        group: GroupId,
        body: peer_request::Body,
        sent: &AtomicBool,
    ) -> Result<peer_reply::Body, CallError> {
        let stream = self.stream().await?;
        let mut request = PeerRequest {
            id: u64::MAX,
            group: group.0,
            body: Some(body),
        };
        let length = request.encoded_len();
        if length > MESSAGE_BYTES_MAX {
            // On the wire it would break the stream, and with it what others wait for.
            return Err(CallError::NotSent(
                format!("a message of {length} bytes is too long").into(),
            ));
        }
        let not_sent = || CallError::NotSent(stream.why_closed());
        let kib = u32::try_from(length.div_ceil(1_024)).unwrap_or(u32::MAX);
        let room = stream.room.clone().acquire_many_owned(kib).await;
        let room = room.map_err(|_| not_sent())?;
        let place = stream.frames.reserve().await.map_err(|_| not_sent())?;
        let (sender, receiver) = oneshot::channel();
        let id = stream.add(sender)?;
        let _forget = Forget { id, stream: &stream };
        request.id = id;
        sent.store(true, Ordering::Relaxed);
        place.send(Queued { request, _room: room });
        receiver.await.map_err(|_| CallError::Broken(stream.why_closed()))
    }

    /// The stream, once it is open.
    async fn stream(&self) -> Result<Arc<Stream>, CallError> {
        self.shared.wanted.notify_one();
        let mut status = self.shared.status.subscribe();
        let known = status.wait_for(|status| !matches!(status, Status::Idle)).await;
        match known.as_deref() {
            Ok(Status::Up(stream)) => Ok(stream.clone()),
            Ok(Status::Down(why)) => Err(CallError::NotSent(why.clone())),
            Ok(Status::Idle) | Err(_) => Err(CallError::NotSent("the way to the node is closed".into())),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        if let Status::Up(stream) = &*self.shared.status.borrow() {
            stream.close("this node closed the stream");
        }
    }
}

impl LinkShared {
    /// Keeps the stream open while it is used.
    async fn run(self: Arc<LinkShared>) {
        let mut pause = PAUSE_MIN;
        let mut book = self.world.book.subscribe();
        let mut told = String::new();
        loop {
            self.wanted.notified().await;
            let address = book.borrow_and_update().records.get(&self.target).cloned();
            let address = address.map(|record| record.address);
            let why = match self.open(address.as_deref()).await {
                Ok((stream, incoming)) => {
                    pause = PAUSE_MIN;
                    self.status.send_replace(Status::Up(stream.clone()));
                    let moved = async {
                        let is_there = |book: &Book| {
                            let record = book.records.get(&self.target);
                            record.map(|record| &record.address) == address.as_ref()
                        };
                        // The book lives as long as the link.
                        let _ = book.wait_for(|book| !is_there(book)).await;
                        "the node has another address".to_owned()
                    };
                    let why = tokio::select! {
                        biased;
                        why = stream.read(incoming, &self.world) => why,
                        why = moved => why,
                    };
                    stream.close(&why);
                    why
                }
                Err(why) => why,
            };
            if why != told {
                tracing::info!(peer = self.target.0, why, "no stream to the node");
                told.clone_from(&why);
            }
            self.status.send_replace(Status::Down(why.into()));
            let jitter = self.world.runtime.random.next_u64() % 1_000;
            let jittered = pause / 2 + pause.mul_f64(f64::from(u32::try_from(jitter).unwrap_or(0)) / 2_000.0);
            tokio::time::sleep(jittered).await;
            pause = (pause * 2).min(PAUSE_MAX);
            self.status.send_replace(Status::Idle);
        }
    }

    async fn open(&self, address: Option<&str>) -> Result<(Arc<Stream>, Streaming<PeerReply>), String> {
        let address = address.ok_or_else(|| format!("node {} has no known address", self.target.0))?;
        match tokio::time::timeout(CONNECT_WITHIN, self.open_without_limit(address)).await {
            Ok(opened) => opened,
            Err(_) => Err(format!("{address}: no answer in time")),
        }
    }

    async fn open_without_limit(&self, address: &str) -> Result<(Arc<Stream>, Streaming<PeerReply>), String> {
        let mut client = connect(&self.world.runtime, address).await?;
        let (frames, queued) = mpsc::channel::<Queued>(FRAMES_WAITING_MAX);
        let room = Arc::new(Semaphore::new(FRAMES_KIB_MAX));
        let hello = PeerRequest {
            id: 0,
            group: 0,
            body: Some(peer_request::Body::Hello(self.world.hello(self.target))),
        };
        let requests =
            futures_util::stream::once(async { hello }).chain(ReceiverStream::new(queued).map(|queued| queued.request));
        let mut incoming = client
            .exchange(requests)
            .await
            .map_err(|status| format!("{address}: {}", self.world.heard(&status)))?
            .into_inner();
        let first = incoming.message().await;
        let first = first.map_err(|status| format!("{address}: {}", self.world.heard(&status)))?;
        let Some(PeerReply {
            body: Some(peer_reply::Body::Hello(hello)),
            ..
        }) = first
        else {
            return Err(format!("{address}: the node did not say who it is"));
        };
        let from = self.world.check(&hello).map_err(|why| format!("{address}: {why}"))?;
        if from != self.target {
            return Err(format!("{address}: that is node {} and not {}", from.0, self.target.0));
        }
        let stream = Stream {
            frames,
            room,
            table: Mutex::default(),
            next_id: AtomicU64::new(1),
        };
        Ok((Arc::new(stream), incoming))
    }
}

/// An open stream.
struct Stream {
    frames: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    table: Mutex<Table>,
    next_id: AtomicU64,
}

/// A request on its way, with the room that it takes until the connection has taken it.
struct Queued {
    request: PeerRequest,
    _room: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Table {
    closed: Option<Arc<str>>,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    reply: oneshot::Sender<peer_reply::Body>,
    /// What has come of a reply in several messages.
    answers: Vec<peer::ProposedOne>,
    bytes: usize,
}

impl Stream {
    /// A number for a call, whose reply goes to this sender.
    fn add(&self, reply: oneshot::Sender<peer_reply::Body>) -> Result<u64, CallError> {
        let mut table = lock(&self.table);
        if let Some(why) = &table.closed {
            return Err(CallError::NotSent(why.clone()));
        }
        if table.waiting.len() >= CALLS_MAX {
            return Err(CallError::NotSent("too many calls wait for the node".into()));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        table.waiting.insert(
            id,
            Waiting {
                reply,
                answers: Vec::new(),
                bytes: 0,
            },
        );
        Ok(id)
    }

    fn why_closed(&self) -> Arc<str> {
        let closed = lock(&self.table).closed.clone();
        closed.unwrap_or_else(|| "the stream is closing".into())
    }

    /// Ends everything that waits.
    fn close(&self, why: &str) {
        let mut table = lock(&self.table);
        table.closed.get_or_insert_with(|| why.into());
        table.waiting.clear();
        self.room.close();
    }

    /// Takes replies until the stream ends, and says why it did.
    async fn read(&self, mut incoming: Streaming<PeerReply>, world: &World) -> String {
        loop {
            match incoming.message().await {
                Ok(Some(reply)) => {
                    if let Err(why) = self.deliver(reply) {
                        return why;
                    }
                }
                Ok(None) => return "the node closed the stream".to_owned(),
                Err(status) => return world.heard(&status),
            }
        }
    }

    /// Hands a reply to whoever waits for it; one for which nobody waits is dropped.
    fn deliver(&self, reply: PeerReply) -> Result<(), String> {
        let length = reply.encoded_len();
        let Some(body) = reply.body else { return Ok(()) };
        let mut table = lock(&self.table);
        let body = match body {
            peer_reply::Body::Proposed(proposed) => {
                let Some(waiting) = table.waiting.get_mut(&reply.id) else {
                    return Ok(());
                };
                waiting.bytes += length;
                if waiting.bytes > REPLY_BYTES_MAX {
                    return Err("a reply of too many bytes".to_owned());
                }
                waiting.answers.extend(proposed.answers);
                if proposed.more {
                    return Ok(());
                }
                peer_reply::Body::Proposed(peer::Proposed {
                    answers: std::mem::take(&mut waiting.answers),
                    more: false,
                })
            }
            other => other,
        };
        if let Some(waiting) = table.waiting.remove(&reply.id) {
            // The caller may have given up in this moment.
            let _ = waiting.reply.send(body);
        }
        Ok(())
    }
}

/// Takes a call off the table when nobody waits for it any more.
struct Forget<'a> {
    id: u64,
    stream: &'a Stream,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(&self.stream.table).waiting.remove(&self.id);
    }
}

/// A connection to a node, over the network that was handed in.
pub(super) async fn connect(runtime: &Runtime, address: &str) -> Result<PeerClient<Channel>, String> {
    let network = runtime.network.clone();
    let to: Arc<str> = address.into();
    let connector = tower::service_fn(move |_: Uri| {
        let (network, to) = (network.clone(), to.clone());
        async move {
            let mut last = io::Error::from(io::ErrorKind::NotFound);
            for found in network.resolve(&to).await? {
                match network.connect(found).await {
                    Ok(stream) => return Ok::<TokioIo<Box<dyn IoStream>>, io::Error>(TokioIo::new(stream)),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    });
    let failed = |error: &dyn std::error::Error| format!("{address}: {}", last_cause(error));
    let channel = Endpoint::from_shared(Bytes::from(format!("http://{address}")))
        .map_err(|error| failed(&error))?
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .executor(Spawner {
            tasks: runtime.tasks.clone(),
        })
        .connect_with_connector(connector)
        .await
        .map_err(|error| failed(&error))?;
    Ok(PeerClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX))
}

/// What an error comes down to, for people.
fn last_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Lets the transport start its tasks where ours run.
#[derive(Clone)]
struct Spawner {
    tasks: Arc<dyn Tasks>,
}

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.tasks.spawn("peer transport", task.boxed());
    }
}
