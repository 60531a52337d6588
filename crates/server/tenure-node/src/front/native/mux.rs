//! The multiplexed stream: requests with ids of the client's choice, answered out of order, and watches beside them.
//!
//! One task a connection reads frames and works on all requests of that connection. A client that does not read its
//! answers stops only its own task: the channel to it is bounded, and so is what it may have under way.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::stream::{FuturesUnordered, StreamExt};
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

/// Requests that one stream may have under way; more are answered `overloaded`. Keep-alives have a share of their
/// own, so that a busy client does not starve its sessions.
const REQUESTS_MAX: usize = 4_096;
const KEEP_ALIVES_MAX: usize = 64;
/// Watches of one stream.
const WATCHES_MAX: usize = 1_024;
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
        let connection = Connection {
            service: self.service.clone(),
            answers,
            watches: BTreeMap::new(),
        };
        let frames = request.into_inner();
        self.service
            .runtime()
            .tasks
            .spawn("stream", Box::pin(connection.run(frames)));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

struct Connection {
    service: Service,
    answers: mpsc::Sender<Result<ServerFrame, Status>>,
    watches: BTreeMap<u64, TaskHandle>,
}

impl Connection {
    /// Works until the client goes, or until the node stops and what was under way is answered.
    async fn run(mut self, mut frames: Streaming<ClientFrame>) {
        let service = self.service.clone();
        let mut work: Work<'_> = FuturesUnordered::new();
        let (mut requests, mut keep_alives) = (0, 0);
        let mut stopping = std::pin::pin!(service.stopping());
        let mut draining = false;
        loop {
            tokio::select! {
                Some((id, is_keep_alive, answer)) = work.next(), if !work.is_empty() => {
                    if is_keep_alive { keep_alives -= 1 } else { requests -= 1 }
                    let body = answer.unwrap_or_else(Reply::Error);
                    if self.answer(id, body).await.is_err() {
                        break;
                    }
                }
                frame = frames.message(), if !draining => {
                    let Ok(Some(ClientFrame { id, timeout_ms, body })) = frame else { break };
                    let full = match &body {
                        Some(Ask::KeepAlive(_)) => keep_alives >= KEEP_ALIVES_MAX,
                        Some(Ask::Watch(_) | Ask::Cancel(_)) | None => false,
                        Some(_) => requests >= REQUESTS_MAX,
                    };
                    let refused = match body {
                        _ if full => Some(overloaded()),
                        None => Some(WireError::invalid("body", "a request that this node does not know")),
                        Some(Ask::Watch(request)) => self.begin_watch(id, timeout_ms, request),
                        Some(Ask::Cancel(_)) => {
                            self.cancel(id);
                            None
                        }
                        Some(ask) => {
                            let is_keep_alive = matches!(ask, Ask::KeepAlive(_));
                            if is_keep_alive { keep_alives += 1 } else { requests += 1 }
                            let service = &service;
                            work.push(Box::pin(async move {
                                let call = Call { service, timeout_ms };
                                (id, is_keep_alive, handle(&call, ask).await)
                            }));
                            None
                        }
                    };
                    if let Some(error) = refused
                        && self.answer(id, Reply::Error(error)).await.is_err()
                    {
                        break;
                    }
                }
                () = &mut stopping, if !draining => {
                    draining = true;
                    if self.answer(0, Reply::Drain(v1::Drain::default())).await.is_err() {
                        break;
                    }
                }
                else => break,
            }
            if draining && work.is_empty() {
                break;
            }
        }
        for watch in self.watches.values() {
            watch.abort();
        }
    }

    async fn answer(&self, id: u64, body: Reply) -> Result<(), ()> {
        let frame = ServerFrame { id, body: Some(body) };
        self.answers.send(Ok(frame)).await.map_err(|_| ())
    }

    fn begin_watch(&mut self, id: u64, timeout_ms: u64, request: v1::WatchRequest) -> Option<WireError> {
        if self.watches.contains_key(&id) {
            return Some(WireError::invalid("id", "a watch of this stream has it"));
        }
        if self.watches.len() >= WATCHES_MAX {
            return Some(WireError::limit("watches of a stream", WATCHES_MAX as u64));
        }
        let (service, answers) = (self.service.clone(), self.answers.clone());
        let task = self.service.runtime().tasks.spawn(
            "watch",
            Box::pin(async move {
                let error = tell(&service, timeout_ms, request, id, &answers).await;
                if let Some(error) = error {
                    let body = Some(Reply::WatchEnded(WatchEnd { error: Some(error) }));
                    // If the client is gone, nobody is left to be told.
                    let _ = answers.send(Ok(ServerFrame { id, body })).await;
                }
            }),
        );
        self.watches.insert(id, task);
        None
    }

    fn cancel(&mut self, id: u64) {
        if let Some(watch) = self.watches.remove(&id) {
            watch.abort();
        }
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
