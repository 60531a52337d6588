//! One multiplexed stream to one node: requests by number, answers out of order.
//!
//! The reader of the stream never waits for anybody: an answer goes to whoever waits for its number, an event of a
//! watch or a following into its own bounded buffer. A request whose stream breaks ends as an attempt of which nothing is
//! known; whether it is sent again is decided elsewhere (`call`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint, Uri};

use tenure_api::limits::{MESSAGE_BYTES_MAX, PROTOCOL};
use tenure_api::v1::mux_client::MuxClient;
use tenure_api::v1::server_frame;
use tenure_api::v1::{self, Cancel, ClientFrame, HelloReply, HelloRequest, ServerFrame, WireError, client_frame};
use tenure_api::{ErrorCode, Outcome};

use crate::directory::{Directory, Home};
use crate::error::Error;
use crate::feed::{FeedBuffer, FeedEnd, FeedEvent};
use crate::runtime::{ClientRuntime, Instants, TaskHandle, Tasks};

/// Requests and feeds in flight on one stream.
pub(crate) const IN_FLIGHT_MAX: usize = 4_096;
/// Frames that wait for the connection to take them.
const OUTGOING_MAX: usize = 64;
/// HTTP/2 flow control: bytes that one stream may have under way.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// The same for one connection.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// A connection on which nothing comes is asked for a sign of life so often…
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// …and given up if none comes for so long.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// What a stream needs in order to be opened.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) runtime: ClientRuntime,
    pub(crate) directory: Arc<Directory>,
    pub(crate) scope: v1::Scope,
    /// Where the namespace of that scope lives: each hello says so.
    pub(crate) home: Arc<Home>,
    pub(crate) label: String,
    pub(crate) connect_timeout: Duration,
    /// The longest that an endpoint is left alone after failed connections.
    pub(crate) backoff_max: Duration,
}

/// An answer, and when the attempt that it answers was sent.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: server_frame::Body,
    pub(crate) sent: Instants,
}

/// Why an attempt has no answer.
#[derive(Clone, Debug)]
pub(crate) enum AttemptError {
    /// It never left: nothing was applied.
    NotSent(Error),
    /// The server answered with an error.
    Server(Box<WireError>),
    /// The stream broke behind it.
    Broken(String),
}

impl AttemptError {
    /// The error, if no endpoint could be reached.
    pub(crate) fn unreachable(&self) -> Option<&Error> {
        match self {
            AttemptError::NotSent(error @ Error::Unreachable { .. }) => Some(error),
            _ => None,
        }
    }

    /// The error by itself, as if this attempt were the whole call.
    pub(crate) fn into_error(self) -> Error {
        match self {
            AttemptError::NotSent(error) => error,
            AttemptError::Server(error) => Error::from_wire(*error),
            AttemptError::Broken(why) => Error::NoAnswer {
                why,
                outcome: Outcome::Unknown,
            },
        }
    }
}

/// Why a stream was not opened. Nothing was applied.
#[derive(Debug)]
pub(crate) struct NotOpened {
    pub(crate) error: Error,
    /// The network said at once that there is nobody: a refused connection, or an address that leads nowhere.
    pub(crate) refused: bool,
}

/// An open stream to a node.
pub(crate) struct Stream {
    pub(crate) endpoint: usize,
    pub(crate) node_id: u64,
    outgoing: Outgoing,
    waiting: Arc<Waiting>,
    slots: Semaphore,
    next_id: AtomicU64,
    runtime: ClientRuntime,
    reader: TaskHandle,
}

impl Stream {
    /// Opens a stream and says hello.
    ///
    /// # Errors
    /// The endpoint cannot be reached, refuses the hello, or belongs to another cluster. Nothing was applied.
    pub(crate) async fn open(dialer: &Dialer, index: usize, endpoint: &str) -> Result<Stream, NotOpened> {
        let refused = Arc::new(AtomicBool::new(false));
        let opening = Stream::open_without_limit(dialer, index, endpoint, Arc::clone(&refused));
        let opened = match tokio::time::timeout(dialer.connect_timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(Error::Unreachable {
                why: format!("{endpoint}: no answer within {} ms", dialer.connect_timeout.as_millis()),
                outcome: Outcome::NotApplied,
            }),
        };
        opened.map_err(|error| NotOpened {
            error,
            refused: refused.load(Ordering::Relaxed),
        })
    }

    async fn open_without_limit(
        dialer: &Dialer,
        index: usize,
        endpoint: &str,
        refused: Arc<AtomicBool>,
    ) -> Result<Stream, Error> {
        let unreachable = |why: String| Error::Unreachable {
            why: format!("{endpoint}: {why}"),
            outcome: Outcome::NotApplied,
        };
        let channel = connect(dialer, endpoint, refused)
            .await
            .map_err(|error| unreachable(whole_message(&error)))?;
        let (outgoing, frames) = mpsc::channel(OUTGOING_MAX);
        outgoing
            .try_send(hello(dialer))
            .map_err(|_| unreachable("the stream is closed".to_owned()))?;
        let mut mux = MuxClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let mut incoming = mux
            .connect(ReceiverStream::new(frames))
            .await
            .map_err(|status| status_error(endpoint, &status))?
            .into_inner();
        let greeting = greeted(dialer, endpoint, &mut incoming).await?;
        dialer.directory.met(endpoint, &greeting, dialer.runtime.clock.boot())?;
        dialer.directory.reached(endpoint, &greeting);
        dialer.home.told(&greeting);
        let outgoing = Outgoing {
            frames: outgoing,
            tasks: Arc::clone(&dialer.runtime.tasks),
        };
        let waiting = Arc::new(Waiting::new(dialer.runtime.clock.boot()));
        let reader = dialer.runtime.tasks.spawn(
            "tenure stream reader",
            read(
                incoming,
                Arc::clone(&waiting),
                outgoing.clone(),
                Arc::clone(&dialer.directory),
                dialer.runtime.clone(),
            )
            .boxed(),
        );
        Ok(Stream {
            endpoint: index,
            node_id: greeting.node_id,
            outgoing,
            waiting,
            slots: Semaphore::new(IN_FLIGHT_MAX),
            next_id: AtomicU64::new(2),
            runtime: dialer.runtime.clone(),
            reader,
        })
    }

    /// Whether new requests may go here.
    pub(crate) fn usable(&self) -> bool {
        !self.waiting.retired.load(Ordering::Relaxed) && !self.waiting.is_closed()
    }

    /// New requests go elsewhere from now on; what is in flight is still waited for.
    pub(crate) fn retire(&self) {
        self.waiting.retired.store(true, Ordering::Relaxed);
    }

    /// For how long nothing has come, answers and events alike.
    pub(crate) fn silent_for(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_micros(self.waiting.heard_us.load(Ordering::Relaxed)))
    }

    /// Sends a request and waits for its answer. `on_the_way` counts it from the moment at which it may have reached
    /// the node until it is answered. Dropping the future ends the wait; the node goes on with it.
    ///
    /// # Errors
    /// [`AttemptError`], which says whether it may have been applied.
    pub(crate) async fn request(
        &self,
        body: client_frame::Body,
        timeout: Duration,
        on_the_way: &AtomicUsize,
    ) -> Result<Answer, AttemptError> {
        let not_sent = |_| AttemptError::NotSent(self.closed_error());
        let mut frame = ClientFrame {
            id: u64::MAX,
            timeout_ms: milliseconds(timeout),
            body: Some(body),
        };
        if frame.encoded_len() > MESSAGE_BYTES_MAX {
            // On the wire it would break the stream, and with it what others wait for.
            let rule = format!("at most {MESSAGE_BYTES_MAX} bytes");
            return Err(AttemptError::NotSent(Error::Invalid { what: "request", rule }));
        }
        let _slot = self
            .slots
            .acquire()
            .await
            .map_err(|_| AttemptError::NotSent(self.closed_error()))?;
        let place = self.outgoing.frames.reserve().await.map_err(not_sent)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        if !self.waiting.add(id, Waiter::Once(sender)) {
            return Err(AttemptError::NotSent(self.closed_error()));
        }
        let _forget = Forget {
            id,
            waiting: &self.waiting,
        };
        let sent = self.runtime.clock.now();
        on_the_way.fetch_add(1, Ordering::Relaxed);
        frame.id = id;
        place.send(frame);
        let answer = receiver.await;
        on_the_way.fetch_sub(1, Ordering::Relaxed);
        match answer {
            Ok(Some(server_frame::Body::Error(error))) => Err(AttemptError::Server(Box::new(error))),
            Ok(Some(body)) => Ok(Answer { body, sent }),
            Ok(None) => Err(AttemptError::Server(Box::new(WireError::internal(
                "an answer of an unknown kind",
            )))),
            Err(_) => Err(AttemptError::Broken(self.waiting.why_closed())),
        }
    }

    /// Begins a watch or a following. Its events go into the feed's buffer; dropping the feed ends it.
    ///
    /// # Errors
    /// The stream is closed, or has as much in flight as it may.
    pub(crate) async fn feed(
        self: &Arc<Stream>,
        request: client_frame::Body,
        timeout: Duration,
    ) -> Result<Feed, AttemptError> {
        let not_sent = |_| AttemptError::NotSent(self.closed_error());
        let place = self.outgoing.frames.reserve().await.map_err(not_sent)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let buffer = Arc::new(FeedBuffer::new());
        if !self.waiting.add(id, Waiter::Feed(Arc::clone(&buffer))) {
            return Err(AttemptError::NotSent(self.closed_error()));
        }
        place.send(ClientFrame {
            id,
            timeout_ms: milliseconds(timeout),
            body: Some(request),
        });
        Ok(Feed {
            id,
            buffer,
            stream: Arc::clone(self),
        })
    }

    fn closed_error(&self) -> Error {
        Error::Unreachable {
            why: self.waiting.why_closed(),
            outcome: Outcome::NotApplied,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
        self.waiting.close("the client closed the stream");
    }
}

/// A watch or a following on a stream.
pub(crate) struct Feed {
    id: u64,
    pub(crate) buffer: Arc<FeedBuffer>,
    pub(crate) stream: Arc<Stream>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        // One that is not on the table any more was ended by the node, or is cancelled already.
        if self.stream.waiting.remove(self.id) {
            self.stream.outgoing.cancel(self.id);
        }
    }
}

/// The way of frames to the node.
#[derive(Clone)]
struct Outgoing {
    frames: mpsc::Sender<ClientFrame>,
    tasks: Arc<dyn Tasks>,
}

impl Outgoing {
    /// Tells the node that a feed is not wanted any more, behind the frame that began it. Nobody waits here, and a full
    /// queue does not lose it: then a task waits for room, at most one for each feed and as long as the stream lives.
    fn cancel(&self, id: u64) {
        let frame = ClientFrame {
            id,
            timeout_ms: 0,
            body: Some(client_frame::Body::Cancel(Cancel {})),
        };
        if let Err(mpsc::error::TrySendError::Full(frame)) = self.frames.try_send(frame) {
            let frames = self.frames.clone();
            let sending = async move {
                // A stream that has ended has ended its feeds.
                let _ = frames.send(frame).await;
            };
            self.tasks.spawn("tenure feed cancel", sending.boxed());
        }
    }
}

/// Who waits for what on one stream.
struct Waiting {
    table: Mutex<Table>,
    retired: AtomicBool,
    /// When something came last, in microseconds of the boot-time clock.
    heard_us: AtomicU64,
}

struct Table {
    closed: Option<String>,
    waiters: BTreeMap<u64, Waiter>,
}

impl Table {
    /// Puts an event into the feed that it is for. Says whether that had no room, and so has ended.
    fn feed(&mut self, id: u64, event: FeedEvent) -> bool {
        let overflowed = match self.waiters.get(&id) {
            Some(Waiter::Feed(buffer)) => !buffer.push(event),
            _ => false,
        };
        if overflowed {
            self.waiters.remove(&id);
        }
        overflowed
    }
}

enum Waiter {
    Once(oneshot::Sender<Option<server_frame::Body>>),
    Feed(Arc<FeedBuffer>),
}

impl Waiting {
    fn new(now: Duration) -> Waiting {
        let waiting = Waiting {
            table: Mutex::new(Table {
                closed: None,
                waiters: BTreeMap::new(),
            }),
            retired: AtomicBool::new(false),
            heard_us: AtomicU64::new(0),
        };
        waiting.heard(now);
        waiting
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds somebody who waits; not if the stream is closed.
    fn add(&self, id: u64, waiter: Waiter) -> bool {
        let mut table = self.table();
        let open = table.closed.is_none();
        if open {
            table.waiters.insert(id, waiter);
        }
        open
    }

    fn remove(&self, id: u64) -> bool {
        self.table().waiters.remove(&id).is_some()
    }

    fn is_closed(&self) -> bool {
        self.table().closed.is_some()
    }

    fn why_closed(&self) -> String {
        self.table()
            .closed
            .clone()
            .unwrap_or_else(|| "the stream is full".to_owned())
    }

    fn heard(&self, now: Duration) {
        self.heard_us
            .store(u64::try_from(now.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Ends everything that waits: requests as unknown, feeds so that they go on elsewhere.
    fn close(&self, why: &str) {
        let waiters = {
            let mut table = self.table();
            table.closed.get_or_insert_with(|| why.to_owned());
            std::mem::take(&mut table.waiters)
        };
        for (_, waiter) in waiters {
            if let Waiter::Feed(buffer) = waiter {
                buffer.end(FeedEnd::Broken(why.to_owned()));
            }
        }
    }

    /// Hands an answer to whoever waits for it; one for which nobody waits is dropped. Says whether this was the end of
    /// a feed with which the node would go on, so that it is to be told.
    #[must_use = "a node that is not told goes on with the feed"]
    fn deliver(&self, frame: ServerFrame) -> bool {
        let mut table = self.table();
        match frame.body {
            Some(server_frame::Body::WatchEvent(event)) => table.feed(frame.id, FeedEvent::Watch(event)),
            Some(server_frame::Body::FollowEvent(event)) => table.feed(frame.id, FeedEvent::Follow(event)),
            body => match (table.waiters.remove(&frame.id), body) {
                (Some(Waiter::Once(sender)), body) => {
                    // The other side may have given up in this moment.
                    let _ = sender.send(body);
                    false
                }
                (Some(Waiter::Feed(buffer)), Some(server_frame::Body::WatchEnded(end))) => {
                    buffer.end(
                        end.error
                            .map_or(FeedEnd::Cancelled, |error| FeedEnd::Server(Box::new(error))),
                    );
                    false
                }
                (Some(Waiter::Feed(buffer)), Some(server_frame::Body::Error(error))) => {
                    buffer.end(FeedEnd::Server(Box::new(error)));
                    false
                }
                (Some(Waiter::Feed(buffer)), _) => {
                    let error = WireError::internal("a feed was answered with something else");
                    buffer.end(FeedEnd::Server(Box::new(error)));
                    true
                }
                (None, _) => false,
            },
        }
    }
}

/// Takes a request off the table when nobody waits for its answer any more. The node is not told: it does not stop a
/// request that it has.
struct Forget<'a> {
    id: u64,
    waiting: &'a Waiting,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.waiting.remove(self.id);
    }
}

/// Reads a stream until it ends.
async fn read(
    mut incoming: Streaming<ServerFrame>,
    waiting: Arc<Waiting>,
    outgoing: Outgoing,
    directory: Arc<Directory>,
    runtime: ClientRuntime,
) {
    let why = loop {
        match incoming.message().await {
            Ok(Some(frame)) => {
                waiting.heard(runtime.clock.boot());
                if let Some(why) = take(frame, &waiting, &outgoing, &directory) {
                    break why;
                }
            }
            Ok(None) => break "the node closed the stream".to_owned(),
            Err(status) => break format!("the stream broke: {}", status.message()),
        }
    };
    tracing::debug!(%why, "a stream ended");
    waiting.close(&why);
}

/// Takes one frame; says why if the stream cannot go on.
fn take(frame: ServerFrame, waiting: &Waiting, outgoing: &Outgoing, directory: &Directory) -> Option<String> {
    if frame.id != 0 {
        if let Some(server_frame::Body::Error(WireError { leader: Some(hint), .. })) = &frame.body {
            directory.led(hint);
        }
        let id = frame.id;
        if waiting.deliver(frame) {
            outgoing.cancel(id);
        }
        return None;
    }
    match frame.body {
        Some(server_frame::Body::Error(error)) => return Some(error.message),
        Some(server_frame::Body::Drain(_)) => waiting.retired.store(true, Ordering::Relaxed),
        Some(server_frame::Body::Leader(hint)) => directory.led(&hint),
        _ => {}
    }
    None
}

/// What is said first on a stream.
fn hello(dialer: &Dialer) -> ClientFrame {
    let hello = HelloRequest {
        scope: Some(dialer.scope.clone()),
        create_namespace: false,
        cluster_id: dialer.directory.cluster(),
        client: dialer.label.clone(),
        protocol: PROTOCOL,
        timeout_ms: 0,
    };
    ClientFrame {
        id: 1,
        timeout_ms: milliseconds(dialer.connect_timeout),
        body: Some(client_frame::Body::Hello(hello)),
    }
}

/// Waits for the answer to the hello.
async fn greeted(dialer: &Dialer, endpoint: &str, incoming: &mut Streaming<ServerFrame>) -> Result<HelloReply, Error> {
    let unreachable = |why: String| Error::Unreachable {
        why: format!("{endpoint}: {why}"),
        outcome: Outcome::NotApplied,
    };
    loop {
        let frame = match incoming.message().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(unreachable("the node closed the stream".to_owned())),
            Err(status) => return Err(status_error(endpoint, &status)),
        };
        match frame.body {
            Some(server_frame::Body::Hello(reply)) => return Ok(reply),
            Some(server_frame::Body::Error(error)) => return Err(hello_refused(endpoint, error)),
            Some(server_frame::Body::Leader(hint)) => dialer.directory.led(&hint),
            _ => return Err(unreachable("the node did not answer the hello".to_owned())),
        }
    }
}

/// Why a stream could not be opened. A node of ours says it in the trailer.
fn status_error(endpoint: &str, status: &tonic::Status) -> Error {
    match WireError::from_status(status) {
        Ok(Some(error)) => hello_refused(endpoint, error),
        Ok(None) | Err(_) => Error::Unreachable {
            why: format!("{endpoint}: {}", whole_message(status)),
            outcome: Outcome::NotApplied,
        },
    }
}

fn hello_refused(endpoint: &str, error: WireError) -> Error {
    match (error.error_code(), &error.detail) {
        (Some(ErrorCode::WrongCluster), Some(v1::wire_error::Detail::Mismatch(mismatch))) => Error::WrongCluster {
            endpoint: endpoint.to_owned(),
            expected: mismatch.asked.clone(),
            actual: mismatch.actual.clone(),
        },
        // A hello changes nothing, so nothing is unknown about its effect.
        _ => Error::from_wire(error).with_outcome(Outcome::NotApplied),
    }
}

/// Makes the connection over the network that was handed in, and notes if that refuses it.
async fn connect(
    dialer: &Dialer,
    endpoint: &str,
    refused: Arc<AtomicBool>,
) -> Result<Channel, tonic::transport::Error> {
    let network = Arc::clone(&dialer.runtime.network);
    let address: Arc<str> = endpoint.into();
    let tasks = Arc::clone(&dialer.runtime.tasks);
    let connector = tower::service_fn(move |_: Uri| {
        let connecting = network.connect(&address);
        let refused = Arc::clone(&refused);
        async move {
            let connected = connecting.await;
            refused.store(connected.is_err(), Ordering::Relaxed);
            connected.map(TokioIo::new)
        }
    });
    Endpoint::from_shared(Bytes::from(format!("http://{endpoint}")))?
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .executor(Spawner { tasks })
        .connect_with_connector(connector)
        .await
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
        self.tasks.spawn("tenure transport", task.boxed());
    }
}

/// An error with what caused it, for people.
fn whole_message(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = inner.source();
    }
    message
}

/// A length of time for the wire, at least a millisecond, as 0 would mean the node's default.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests;
