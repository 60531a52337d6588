//! The multiplexed stream: requests with ids of the client's choice, answered out of order, and watches beside them.
//!
//! One task a stream reads frames and works on all requests of that stream. A client that does not read its answers
//! stops only its own task: what waits for it is bounded (see `outbox`), and so is what it may have under way.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use prost::Message;
use tenure_api::limits::{MESSAGE_BYTES_MAX, STREAM_REQUESTS_MAX};
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, ClientFrame, ServerFrame, WatchEnd, WireError};
use tenure_replica::runtime::TaskHandle;
use tokio::sync::mpsc;
use tonic::{Code, Request, Response, Status, Streaming};

use super::cluster::{self, Home};
use super::handler::{Call, handle};
use super::outbox::{self, Gone, Outbox, Telling, Written};
use super::subscription::{Subscribe, Subscription};
use super::watch;
use crate::admission::RETRY_AFTER;
use crate::front::answers::{AnswerShare, Room};
use crate::service::Service;

/// Keep-alives that one stream may have under way. They have a share of their own beside the requests, so that a busy
/// client does not starve its sessions.
const KEEP_ALIVES_MAX: usize = 64;
/// Watches of one stream.
const WATCHES_MAX: usize = 1_024;
/// How long a client may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

type Answered = (u64, bool, Result<(Reply, AnswerShare), WireError>);
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
    type ConnectStream = Written;

    async fn connect(&self, request: Request<Streaming<ClientFrame>>) -> Result<Response<Self::ConnectStream>, Status> {
        let (answers, stream) = outbox::open(Room::of(request.extensions()));
        let (ended, ended_receiver) = mpsc::channel(WATCHES_MAX);
        let opened = Opened {
            service: self.service.clone(),
            answers,
            in_use: BTreeSet::new(),
            watches: BTreeMap::new(),
            watches_begun: 0,
            ended,
            requests: 0,
            keep_alives: 0,
        };
        let work = opened.run(request.into_inner(), ended_receiver);
        self.service.runtime().tasks.spawn("stream", Box::pin(work));
        Ok(Response::new(stream))
    }
}

/// A stream under way.
struct Opened {
    service: Service,
    answers: Outbox,
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
    telling: Telling,
}

impl Opened {
    /// Works until the client goes, or until the node stops and what was under way is answered.
    async fn run(mut self, mut frames: Streaming<ClientFrame>, mut ended: mpsc::Receiver<(u64, u64)>) {
        let service = self.service.clone();
        let _counted = self.answers.connection().take_stream();
        let Some(home) = self.greet(&mut frames).await else {
            return;
        };
        let mut leaders = std::pin::pin!(cluster::leaders(&service, home).fuse());
        let mut work: Work<'_> = FuturesUnordered::new();
        let mut stopping = std::pin::pin!(service.stopping());
        let mut draining = false;
        loop {
            let answered = tokio::select! {
                Some((id, is_keep_alive, answer)) = work.next(), if !work.is_empty() => {
                    self.finish(id, is_keep_alive);
                    match answer {
                        Ok((reply, share)) => {
                            let frame = ServerFrame { id, body: Some(reply) };
                            self.answers.send_counted(frame, share).await
                        }
                        Err(error) => self.answer(id, Reply::Error(error)).await,
                    }
                }
                Some((id, number)) = ended.recv() => {
                    // Unless it was cancelled meanwhile and its id given to another.
                    if self.watches.get(&id).is_some_and(|watch| watch.number == number) {
                        self.cancel(id);
                    }
                    Ok(())
                }
                frame = frames.message(), if !draining => {
                    let frame = match frame {
                        Ok(Some(frame)) => frame,
                        Ok(None) => break,
                        Err(status) => {
                            let _ = self.answer(0, Reply::Error(not_a_frame(&status))).await;
                            break;
                        }
                    };
                    let id = frame.id;
                    match self.take(frame, &service, &mut work) {
                        Ok(None) => Ok(()),
                        Ok(Some(reply)) => self.answer(id, reply).await,
                        Err(error) => self.answer(id, Reply::Error(error)).await,
                    }
                }
                Some(hint) = leaders.next(), if !draining => self.answer(0, Reply::Leader(hint)).await,
                () = &mut stopping, if !draining => {
                    draining = true;
                    let endpoints = cluster::other_endpoints(&service);
                    self.answer(0, Reply::Drain(v1::Drain { endpoints })).await
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

    /// Answers the hello, before which nothing is worked on, and returns where the namespace lives, if it exists, with who
    /// was said to lead there. `None`: the stream is over, since no hello came or it was refused; whoever came to the wrong
    /// cluster has then done nothing here.
    async fn greet(&self, frames: &mut Streaming<ClientFrame>) -> Option<Option<Home>> {
        let first = tokio::time::timeout(HELLO_TIMEOUT, frames.message()).await.ok()?;
        let frame = match first {
            Ok(frame) => frame?,
            Err(status) => {
                let _ = self.answer(0, Reply::Error(not_a_frame(&status))).await;
                return None;
            }
        };
        let ClientFrame { id, timeout_ms, body } = frame;
        let Some(ask @ Ask::Hello(_)) = body else {
            let error = WireError::invalid("body", "a stream begins with a hello");
            let _ = self.answer(id, Reply::Error(error)).await;
            return None;
        };
        let room = Room::new(self.answers.connection().clone());
        let call = Call {
            service: &self.service,
            timeout_ms,
            room: &room,
        };
        match handle(&call, ask).await {
            Ok(reply) => {
                let home = match &reply {
                    Reply::Hello(hello) => Home::of(hello),
                    _ => None,
                };
                self.answer(id, reply).await.ok().map(|()| home)
            }
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
        let bytes = frame.encoded_len();
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
            Ask::Watch(request) => self.begin_watch(id, timeout_ms, Subscribe::Watch(request))?,
            Ask::Follow(request) => self.begin_watch(id, timeout_ms, Subscribe::Follow(request))?,
            ask => {
                let is_keep_alive = matches!(ask, Ask::KeepAlive(_));
                let (count, max) = match is_keep_alive {
                    true => (&mut self.keep_alives, KEEP_ALIVES_MAX),
                    false => (&mut self.requests, STREAM_REQUESTS_MAX),
                };
                if *count >= max {
                    return Err(overloaded("too much is under way on this stream"));
                }
                // Keep-alives have their share of the stream, and are not held up by what else the connection does.
                let share = match is_keep_alive {
                    true => None,
                    false => {
                        let taken = self.answers.connection().take_request(bytes);
                        Some(taken.ok_or_else(|| overloaded("too much is under way on this connection"))?)
                    }
                };
                *count += 1;
                let room = Room::new(self.answers.connection().clone());
                work.push(Box::pin(async move {
                    let _share = share;
                    let call = Call {
                        service,
                        timeout_ms,
                        room: &room,
                    };
                    let reply = handle(&call, ask).await;
                    let counted = reply.map(|reply| {
                        let share = room.hand_on_all(reply.encoded_len());
                        (reply, share)
                    });
                    (id, is_keep_alive, counted)
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

    async fn answer(&self, id: u64, body: Reply) -> Result<(), Gone> {
        self.answers.send(ServerFrame { id, body: Some(body) }).await
    }

    fn begin_watch(&mut self, id: u64, timeout_ms: u64, asked: Subscribe) -> Result<(), WireError> {
        if self.watches.len() >= WATCHES_MAX {
            return Err(WireError::limit("watches of a stream", WATCHES_MAX as u64));
        }
        let share = watch::share(self.answers.connection())?;
        let (service, ended, telling) = (self.service.clone(), self.ended.clone(), self.answers.telling());
        self.watches_begun += 1;
        let number = self.watches_begun;
        let events = telling.clone();
        let task = self.service.runtime().tasks.spawn(
            "watch",
            Box::pin(async move {
                let _share = share;
                if let Some(error) = tell(&service, timeout_ms, asked, id, &events).await {
                    let body = Some(Reply::WatchEnded(WatchEnd { error: Some(error) }));
                    // If the client is gone, nobody is left to be told.
                    let _ = events.send_last(ServerFrame { id, body }).await;
                }
                let _ = ended.send((id, number)).await;
            }),
        );
        let watch = BegunWatch { number, task, telling };
        self.watches.insert(id, watch);
        Ok(())
    }

    /// Ends a watch, if there is one of this id: nothing that it tells comes behind this. Returns whether its end is still
    /// to be told.
    fn cancel(&mut self, id: u64) -> bool {
        let Some(watch) = self.watches.remove(&id) else {
            return false;
        };
        // Its task may be about to tell something on another thread, and goes on until its next await.
        watch.task.abort();
        self.in_use.remove(&id);
        watch.telling.close()
    }
}

/// Tells a watch's events until it ends, and returns why; `None` if the client is gone or cancelled it.
async fn tell(service: &Service, timeout_ms: u64, asked: Subscribe, id: u64, events: &Telling) -> Option<WireError> {
    let call = Call {
        service,
        timeout_ms,
        room: &Room::new(events.connection().clone()),
    };
    let mut subscription = match Subscription::begin(&call, asked).await {
        Ok(subscription) => subscription,
        Err(error) => return Some(error),
    };
    loop {
        match subscription.next().await {
            Ok((event, share)) => {
                let body = Some(event);
                if events.send(ServerFrame { id, body }, share).await.is_err() {
                    return None;
                }
            }
            Err(error) => return Some(error),
        }
    }
}

/// What a client is told that sent something that is no frame; the stream ends with it, since nobody knows where the
/// next one would begin.
fn not_a_frame(status: &Status) -> WireError {
    match status.code() {
        Code::OutOfRange => WireError::limit("message bytes", MESSAGE_BYTES_MAX as u64),
        _ => WireError::invalid("frame", "a message of this protocol"),
    }
}

fn overloaded(what: &str) -> WireError {
    let retry_after_us = u64::try_from(RETRY_AFTER.as_micros()).unwrap_or(u64::MAX);
    WireError::overloaded(what, retry_after_us)
}
