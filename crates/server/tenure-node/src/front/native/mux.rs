//! The multiplexed stream: requests with ids of the client's choice, answered out of order, and watches beside them.
//!
//! One task a connection reads frames and works on all requests of that connection. A client that does not read its
//! answers stops only its own task: the channel to it is bounded, and so is what it may have under way.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tenure_api::limits::STREAM_REQUESTS_MAX;
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, ClientFrame, ServerFrame, WatchEnd, WireError};
use tenure_replica::runtime::TaskHandle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::handler::{Call, handle};
use super::watch;
use crate::admission::RETRY_AFTER;
use crate::service::Service;

/// Keep-alives that one stream may have under way. They have a share of their own beside the requests, so that a busy
/// client does not starve its sessions.
const KEEP_ALIVES_MAX: usize = 64;
/// Watches of one stream.
const WATCHES_MAX: usize = 1_024;
/// How long a client may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers that wait to be written to one stream.
const ANSWERS_MAX: usize = 256;

type Answered = (u64, bool, Result<Reply, WireError>);
type Work<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = Answered> + Send + 'a>>>;

/// The service.
#[derive(Clone)]
pub(super) struct Mux {
    service: Service,
}

impl Mux {
    pub(super) fn new(service: Service) -> Mux {
        Mux { service }
    }
}

#[tonic::async_trait]
impl v1::mux_server::Mux for Mux {
    type ConnectStream = ReceiverStream<Result<ServerFrame, Status>>;

    async fn connect(&self, request: Request<Streaming<ClientFrame>>) -> Result<Response<Self::ConnectStream>, Status> {
        let (answers, stream) = mpsc::channel(ANSWERS_MAX);
        let (ended, ended_receiver) = mpsc::channel(WATCHES_MAX);
        let connection = Connection {
            service: self.service.clone(),
            answers,
            in_use: BTreeSet::new(),
            watches: BTreeMap::new(),
            watches_begun: 0,
            ended,
            requests: 0,
            keep_alives: 0,
        };
        let work = connection.run(request.into_inner(), ended_receiver);
        self.service.runtime().tasks.spawn("stream", Box::pin(work));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

struct Connection {
    service: Service,
    answers: mpsc::Sender<Result<ServerFrame, Status>>,
    /// Ids of requests and watches that are not finished.
    in_use: BTreeSet<u64>,
    watches: BTreeMap<u64, BegunWatch>,
    watches_begun: u64,
    /// Watches that ended by themselves say so here, by id and number.
    ended: mpsc::Sender<(u64, u64)>,
    requests: usize,
    keep_alives: usize,
}

/// A watch under way.
struct BegunWatch {
    /// Tells it from an earlier one of the same id.
    number: u64,
    task: TaskHandle,
}

impl Connection {
    /// Works until the client goes, or until the node stops and what was under way is answered.
    async fn run(mut self, mut frames: Streaming<ClientFrame>, mut ended: mpsc::Receiver<(u64, u64)>) {
        let service = self.service.clone();
        if self.greet(&mut frames).await.is_none() {
            return;
        }
        let mut work: Work<'_> = FuturesUnordered::new();
        let mut stopping = std::pin::pin!(service.stopping());
        let mut draining = false;
        loop {
            let answered = tokio::select! {
                Some((id, is_keep_alive, answer)) = work.next(), if !work.is_empty() => {
                    self.finish(id, is_keep_alive);
                    self.answer(id, answer.unwrap_or_else(Reply::Error)).await
                }
                Some((id, number)) = ended.recv() => {
                    // Unless it was cancelled meanwhile and its id given to another.
                    if self.watches.get(&id).is_some_and(|watch| watch.number == number) {
                        self.cancel(id);
                    }
                    Ok(())
                }
                frame = frames.message(), if !draining => {
                    let Ok(Some(frame)) = frame else { break };
                    let id = frame.id;
                    match self.take(frame, &service, &mut work) {
                        Ok(None) => Ok(()),
                        Ok(Some(reply)) => self.answer(id, reply).await,
                        Err(error) => self.answer(id, Reply::Error(error)).await,
                    }
                }
                () = &mut stopping, if !draining => {
                    draining = true;
                    self.answer(0, Reply::Drain(v1::Drain::default())).await
                }
            };
            if answered.is_err() || (draining && work.is_empty()) {
                break;
            }
        }
        for watch in self.watches.values() {
            watch.task.abort();
        }
    }

    /// Answers the hello, before which nothing is worked on. `None`: the stream is over, since no hello came or it was
    /// refused; whoever came to the wrong cluster has then done nothing here.
    async fn greet(&self, frames: &mut Streaming<ClientFrame>) -> Option<()> {
        let first = tokio::time::timeout(HELLO_TIMEOUT, frames.message()).await.ok()?;
        let ClientFrame { id, timeout_ms, body } = first.ok()??;
        let Some(ask @ Ask::Hello(_)) = body else {
            let error = WireError::invalid("body", "a stream begins with a hello");
            let _ = self.answer(id, Reply::Error(error)).await;
            return None;
        };
        let call = Call {
            service: &self.service,
            timeout_ms,
        };
        match handle(&call, ask).await {
            Ok(reply) => self.answer(id, reply).await.ok(),
            Err(error) => {
                let _ = self.answer(id, Reply::Error(error)).await;
                None
            }
        }
    }

    /// Begins what a frame asks for, and returns what is answered at once.
    fn take<'a>(
        &mut self,
        frame: ClientFrame,
        service: &'a Service,
        work: &mut Work<'a>,
    ) -> Result<Option<Reply>, WireError> {
        let ClientFrame { id, timeout_ms, body } = frame;
        let body = body.ok_or_else(|| WireError::invalid("body", "a request that this node does not know"))?;
        if matches!(body, Ask::Cancel(_)) {
            return Ok(self.cancel(id).then(|| Reply::WatchEnded(WatchEnd::default())));
        }
        if id == 0 || self.in_use.contains(&id) {
            return Err(WireError::invalid(
                "id",
                "from 1, and not that of a request or watch under way",
            ));
        }
        match body {
            Ask::Watch(request) => self.begin_watch(id, timeout_ms, request)?,
            ask => {
                let is_keep_alive = matches!(ask, Ask::KeepAlive(_));
                let (count, max) = match is_keep_alive {
                    true => (&mut self.keep_alives, KEEP_ALIVES_MAX),
                    false => (&mut self.requests, STREAM_REQUESTS_MAX),
                };
                if *count >= max {
                    return Err(overloaded());
                }
                *count += 1;
                work.push(Box::pin(async move {
                    let call = Call { service, timeout_ms };
                    (id, is_keep_alive, handle(&call, ask).await)
                }));
            }
        }
        self.in_use.insert(id);
        Ok(None)
    }

    fn finish(&mut self, id: u64, is_keep_alive: bool) {
        self.in_use.remove(&id);
        match is_keep_alive {
            true => self.keep_alives -= 1,
            false => self.requests -= 1,
        }
    }

    async fn answer(&self, id: u64, body: Reply) -> Result<(), ()> {
        let frame = ServerFrame { id, body: Some(body) };
        self.answers.send(Ok(frame)).await.map_err(|_| ())
    }

    fn begin_watch(&mut self, id: u64, timeout_ms: u64, request: v1::WatchRequest) -> Result<(), WireError> {
        if self.watches.len() >= WATCHES_MAX {
            return Err(WireError::limit("watches of a stream", WATCHES_MAX as u64));
        }
        let (service, answers, ended) = (self.service.clone(), self.answers.clone(), self.ended.clone());
        self.watches_begun += 1;
        let number = self.watches_begun;
        let task = self.service.runtime().tasks.spawn(
            "watch",
            Box::pin(async move {
                if let Some(error) = tell(&service, timeout_ms, request, id, &answers).await {
                    let body = Some(Reply::WatchEnded(WatchEnd { error: Some(error) }));
                    // If the client is gone, nobody is left to be told.
                    let _ = answers.send(Ok(ServerFrame { id, body })).await;
                }
                let _ = ended.send((id, number)).await;
            }),
        );
        self.watches.insert(id, BegunWatch { number, task });
        Ok(())
    }

    /// Ends a watch, if there is one of this id.
    fn cancel(&mut self, id: u64) -> bool {
        let Some(watch) = self.watches.remove(&id) else {
            return false;
        };
        watch.task.abort();
        self.in_use.remove(&id);
        true
    }
}

/// Tells a watch's events until it ends, and returns why; `None` if the client is gone.
async fn tell(
    service: &Service,
    timeout_ms: u64,
    request: v1::WatchRequest,
    id: u64,
    answers: &mpsc::Sender<Result<ServerFrame, Status>>,
) -> Option<WireError> {
    let call = Call { service, timeout_ms };
    let mut watch = match watch::begin(&call, request).await {
        Ok(watch) => watch,
        Err(error) => return Some(error),
    };
    loop {
        match watch.next().await {
            Ok(event) => {
                let body = Some(Reply::WatchEvent(event));
                if answers.send(Ok(ServerFrame { id, body })).await.is_err() {
                    return None;
                }
            }
            Err(error) => return Some(error),
        }
    }
}

fn overloaded() -> WireError {
    let retry_after_us = u64::try_from(RETRY_AFTER.as_micros()).unwrap_or(u64::MAX);
    WireError::overloaded("too much is under way on this stream", retry_after_us)
}
