//! Connections: HTTP and HTTPS on one port, each with a limit on how long its requests may take to arrive and how long its
//! answers may wait for the reader.
//!
//! With a certificate, plain HTTP is answered for this machine itself and for trusted proxies; everybody else is sent on to
//! `https://`.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::header::{HOST, LOCATION};
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use super::via::{Peer, trusts};
use crate::metrics::Metrics;

/// The first byte of every TLS connection: a handshake record.
const HANDSHAKE: u8 = 0x16;
/// Where the system has no room for another connection, trying again at once is in vain.
const BREATH: Duration = Duration::from_millis(50);
/// How long connections may take to end by themselves when the server goes down.
const FAREWELL: Duration = Duration::from_secs(1);
/// The slowest body: each second brings at least so many bytes, or the time for it grows no further.
const SLOWEST: f64 = 65_536.0;

/// What every connection needs.
#[derive(Clone)]
pub(super) struct Doors {
    pub router: Router,
    pub tls: Option<TlsAcceptor>,
    /// Who may speak plain HTTP where there is HTTPS.
    pub trusted: Vec<IpNet>,
    /// How long a request's head may take, and its body.
    pub patience: Duration,
    /// A socket that takes nothing for so long is closed.
    pub stalled_after: Duration,
    pub metrics: Arc<Metrics>,
}

/// Takes connections until `stop`; then ends them and returns. At most `most` are open at once, and new ones wait; a connection
/// that has become a websocket is not counted any more.
pub(super) async fn serve(listener: TcpListener, doors: Doors, most: u32, stop: impl Future<Output = ()>) {
    let room = Arc::new(Semaphore::new(most as usize));
    let stopped = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let permit = tokio::select! {
            permit = room.clone().acquire_owned() => permit,
            () = &mut stop => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        let (socket, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_the_peers(&error) {
                    tracing::warn!(%error, "no room for another connection");
                    sleep(BREATH).await;
                }
                continue;
            }
        };
        // Packets of speech are small and late ones are worthless.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let (doors, stopped) = (doors.clone(), stopped.subscribe());
        connections.spawn(async move {
            doors.metrics.connections.inc();
            connection(socket, Peer { address, tls: false }, &doors, stopped).await;
            doors.metrics.connections.dec();
            drop(permit);
        });
    }
    drop(listener);
    stopped.send_replace(true);
    // What does not end in time is cut off when the set is dropped.
    let _ = timeout(FAREWELL, async { while connections.join_next().await.is_some() {} }).await;
}

/// Errors of one connection that was gone before it was taken.
fn is_the_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(socket: TcpStream, peer: Peer, doors: &Doors, stopped: watch::Receiver<bool>) {
    let Some(tls) = &doors.tls else { return talk(socket, peer, doors, stopped, false).await };
    let mut first = [0; 1];
    match timeout(doors.patience, socket.peek(&mut first)).await {
        Ok(Ok(1)) if first[0] == HANDSHAKE => match timeout(doors.patience, tls.accept(socket)).await {
            Ok(Ok(socket)) => talk(socket, Peer { tls: true, ..peer }, doors, stopped, false).await,
            // A browser that does not like the certificate, mostly.
            Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
            Err(_) => tracing::debug!("no TLS in time"),
        },
        Ok(Ok(1)) => {
            let address = peer.address.ip();
            let plain = address.to_canonical().is_loopback() || trusts(&doors.trusted, address);
            talk(socket, peer, doors, stopped, !plain).await;
        }
        // Gone, or silent.
        _ => {}
    }
}

async fn talk<S>(socket: S, peer: Peer, doors: &Doors, mut stopped: watch::Receiver<bool>, send_on: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        let mut router = doors.router.clone();
        let patience = doors.patience;
        async move {
            if send_on {
                return Ok::<_, Infallible>(to_https(&request));
            }
            let mut request = request.map(|body| Body::new(Timely::new(body, patience)));
            request.extensions_mut().insert(peer);
            router.call(request).await
        }
    });
    let mut socket = TimeoutStream::new(socket);
    socket.set_write_timeout(Some(doors.stalled_after));
    let socket = Box::pin(socket);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(doors.patience);
    let mut serving = std::pin::pin!(http.serve_connection(TokioIo::new(socket), service).with_upgrades());
    let going = async {
        // An error means that the server is gone already.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let result: Result<(), hyper::Error> = tokio::select! {
        result = serving.as_mut() => result,
        () = going => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke");
    }
}

/// Sends a browser that spoke plain HTTP on to HTTPS, with the same method.
fn to_https(request: &Request<Incoming>) -> Response<Body> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    match host {
        Some(host) => (StatusCode::PERMANENT_REDIRECT, [(LOCATION, format!("https://{host}{path}"))]).into_response(),
        None => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// A request body that has to arrive: within a time, and after that at no less than [`SLOWEST`].
struct Timely {
    body: Incoming,
    started: Instant,
    patience: Duration,
    /// Made when the body is first waited for.
    deadline: Option<Pin<Box<Sleep>>>,
    bytes: usize,
}

impl Timely {
    fn new(body: Incoming, patience: Duration) -> Self {
        Self { body, started: Instant::now(), patience, deadline: None, bytes: 0 }
    }
}

impl HttpBody for Timely {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            let due = self.started + self.patience + Duration::from_secs_f64(self.bytes as f64 / SLOWEST);
            let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if deadline.deadline() != due {
                deadline.as_mut().reset(due);
            }
            ready!(deadline.as_mut().poll(context));
            let late = io::Error::new(io::ErrorKind::TimedOut, "the request took too long to arrive");
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        };
        if let Some(Ok(frame)) = &frame {
            self.bytes += frame.data_ref().map_or(0, Bytes::len);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
