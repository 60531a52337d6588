//! One address for everything: gRPC and HTTP share it, told apart by path.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tenure_replica::PeerService;
use tenure_replica::runtime::{IoStream, Listener, Tasks};
use tonic::server::NamedService;

use super::answers::{AnswerBody, Room};
use super::connection::Connection;
use super::errors;
use super::seats::{Seat, Seats};
use crate::service::Service;

/// Streams of one connection: calls that are open at once.
const STREAMS_MAX: u32 = 1_024;
/// How much a stream and a connection may have sent that was not read here. The default of 64 KiB would stall a
/// multiplexed stream; more would only wait. The library closes a connection of which very many small frames wait, and
/// how many depends on the connection's window: this one holds all the small frames of a stream's.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// How often a peer of HTTP/2 is pinged, however idle its connection is, and how long it may take to answer. One that is
/// gone without a word gives its place back within the sum of both; one that lives keeps it. An idle connection of HTTP/1.1
/// ends after [`HEADER_TIMEOUT`].
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that opens a connection says its first byte, and the head of its first request, within this time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for one that is beyond the clients' number: it is another node's, which does not hesitate, or it is closed.
const UNPROVEN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of the preface of HTTP/2. A request of HTTP/1.1 is no shorter, since it names its host.
const PREFACE_BYTES: usize = 24;
/// After an accept that failed, for example for want of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Executes hyper's own tasks where all tasks of the node are started.
#[derive(Clone)]
struct Executor(Arc<dyn Tasks>);

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let task: BoxFuture<'static, ()> = Box::pin(future);
        self.0.spawn("http2", task);
    }
}

/// Accepts connections until the node stops, then lets those that are open finish.
pub(crate) async fn serve(listener: Box<dyn Listener>, router: axum::Router, service: Service, seats: Arc<Seats>) {
    let tasks = service.runtime().tasks.clone();
    let mut builder = Builder::new(Executor(tasks.clone()));
    // No date in answers: nobody needs it, and it would be read from a clock that was not handed in.
    builder
        .http1()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = service.stopping() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                if let Some(left_out) = service.metrics().log_limit.allow("accept", service.now()) {
                    tracing::warn!(%error, left_out, "a connection could not be accepted");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(seat) = seats.take() else {
            refused(&service);
            continue;
        };
        service.metrics().connections.increment(1);
        let (builder, router, service) = (builder.clone(), router.clone(), service.clone());
        tasks.spawn(
            "connection",
            Box::pin(async move {
                let seat = Arc::new(seat);
                serve_one(&builder, stream, router, &service, &seat).await;
                service.metrics().connections.decrement(1);
                drop(seat);
            }),
        );
    }
}

/// Counts and tells that a connection found no place.
fn refused(service: &Service) {
    service.metrics().connections_refused.increment(1);
    if let Some(left_out) = service.metrics().log_limit.allow("connections", service.now()) {
        tracing::warn!(left_out, "a connection is refused: the node has as many as it takes");
    }
}

/// Whether a request is one of another node.
fn is_of_peer(path: &str) -> bool {
    let path = path
        .strip_prefix('/')
        .and_then(|path| path.strip_prefix(PeerService::NAME));
    path.is_some_and(|method| method.starts_with('/'))
}

/// Serves one connection to its end, or until it has finished what it was doing when the node began to stop.
async fn serve_one(
    builder: &Builder<Executor>,
    stream: Box<dyn IoStream>,
    router: axum::Router,
    service: &Service,
    seat: &Arc<Seat>,
) {
    let share = Arc::new(Connection::new(service.connections().clone()));
    let router = TowerToHyperService::new(router);
    let requested = {
        let (share, seat, service) = (share.clone(), seat.clone(), service.clone());
        move |mut request: Request<Incoming>| {
            if !seat.asked(is_of_peer(request.uri().path())) {
                refused(&service);
                share.close();
            }
            let room = Arc::new(Room::new(share.clone()));
            request.extensions_mut().insert(share.clone());
            request.extensions_mut().insert(room.clone());
            let answered = router.call(request);
            async move {
                let answer = answered.await.map(errors::named)?;
                Ok::<_, Infallible>(answer.map(|body| AnswerBody::new(body, room)))
            }
        }
    };
    let patience = match seat.is_unproven() {
        true => UNPROVEN_TIMEOUT,
        false => HEADER_TIMEOUT,
    };
    let connection = builder.serve_connection(TokioIo::new(Stream::new(stream, patience)), service_fn(requested));
    let mut connection = std::pin::pin!(connection);
    let mut stopping = std::pin::pin!(service.stopping());
    let mut cutting_off = std::pin::pin!(service.cutting_off());
    let mut closing = std::pin::pin!(share.closing());
    let mut watching = std::pin::pin!(share.watch_for_stall());
    let mut watched = false;
    let mut told = false;
    let ended = poll_fn(|context| {
        watched = watched || watching.as_mut().poll(context).is_ready();
        if closing.as_mut().poll(context).is_ready() {
            let left_out = service.metrics().log_limit.allow("stalled", service.now());
            if let Some(left_out) = left_out.filter(|_| !seat.is_unproven()) {
                tracing::warn!(left_out, "a connection is closed: its client does not read its answers");
            }
            return Poll::Ready(Ok(()));
        }
        if cutting_off.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if !told && stopping.as_mut().poll(context).is_ready() {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// A boxed stream with a type of its own, as hyper wants it. It fails if its peer says too little at first: hyper waits
/// for ever to learn which protocol it is.
struct Stream {
    inner: Box<dyn IoStream>,
    first: Option<First>,
}

/// The first bytes of a connection.
struct First {
    left: usize,
    limit: Pin<Box<tokio::time::Sleep>>,
}

impl Stream {
    fn new(inner: Box<dyn IoStream>, patience: Duration) -> Stream {
        let limit = Box::pin(tokio::time::sleep(patience));
        let first = Some(First {
            left: PREFACE_BYTES,
            limit,
        });
        Stream { inner, first }
    }
}

impl tokio::io::AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut *self.inner).poll_read(context, buffer);
        let Some(first) = &mut self.first else {
            return read;
        };
        if read.is_ready() {
            first.left = first.left.saturating_sub(buffer.filled().len() - before);
            if first.left == 0 {
                self.first = None;
            }
            return read;
        }
        match first.limit.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl tokio::io::AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.inner).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
