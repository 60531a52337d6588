//! One address for everything: gRPC and HTTP share it, told apart by path.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tenure_replica::runtime::{IoStream, Listener, Tasks};
use tokio::sync::watch;

use crate::service::Service;

/// Streams of one connection: calls that are open at once.
const STREAMS_MAX: u32 = 1_024;
/// How much a stream and a connection may have under way. The default of 64 KiB would stall a multiplexed stream.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// A peer that answers no ping for so long is gone.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that opens a connection says its first byte, and the head of its first request, within this time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
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

/// Accepts connections until the node stops, then lets those that are open finish: `drained` completes when the last
/// one has.
pub(crate) async fn serve(
    listener: Box<dyn Listener>,
    router: axum::Router,
    service: Service,
    open: watch::Sender<usize>,
    connections_max: usize,
) {
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
    let open = Arc::new(open);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = service.stopping() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if *open.borrow() >= connections_max {
            tracing::warn!(
                connections_max,
                "a connection is refused: the node has as many as it takes"
            );
            continue;
        }
        open.send_modify(|open| *open += 1);
        service.metrics().connections.increment(1);
        let (builder, router, service, open) = (builder.clone(), router.clone(), service.clone(), open.clone());
        tasks.spawn(
            "connection",
            Box::pin(async move {
                serve_one(&builder, stream, router, &service).await;
                service.metrics().connections.decrement(1);
                open.send_modify(|open| *open -= 1);
            }),
        );
    }
}

/// Serves one connection to its end, or until it has finished what it was doing when the node began to stop.
async fn serve_one(builder: &Builder<Executor>, stream: Box<dyn IoStream>, router: axum::Router, service: &Service) {
    let connection = builder.serve_connection(TokioIo::new(Stream::new(stream)), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let mut stopping = std::pin::pin!(service.stopping());
    let mut told = false;
    let ended = poll_fn(|context| {
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
    fn new(inner: Box<dyn IoStream>) -> Stream {
        let limit = Box::pin(tokio::time::sleep(HEADER_TIMEOUT));
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
