//! Connections: HTTP and HTTPS on one port, with timeouts for reading a request and for writing a response.
//! `connections` limits their number.
//!
//! The control thread accepts them and looks at the first bytes. It answers health checks and metrics itself, and so all
//! connections of the reserve; others go to the threads of requests.
//!
//! With a certificate, plain HTTP is served to loopback and to trusted proxies; all others are redirected to `https://`.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{HOST, LOCATION};
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use nix::errno::Errno;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use super::client_addr::{Peer, trusts};
use super::connections::{ConnectionLimiter, ConnectionPermit, NotAdmitted};
use super::control::AbortOnDrop;
use super::descriptors::SpareDescriptors;
use super::moving_socket::MovingSocket;
use super::paced_reads::PacedReads;
use super::routes::{RouterSwitch, may_name_control_path, names_control_path};
use super::timed_body::{BodyDeadline, TimedBody};
use crate::metrics::RequestMetrics;
use crate::transport::message_bytes::MessageBytes;

/// First byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// Pause after `accept` failed for lack of resources.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);
/// Pause between two log lines of a failing `accept`.
const ACCEPT_WARNING: Duration = Duration::from_secs(10);
/// Time for connections to end when the server shuts down.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of a request's head; a connection's buffer takes no more.
const MAX_HEAD: usize = 64 << 10;
/// Bytes of a request that tell a health check from other requests.
const REQUEST_START: usize = 16;
/// Pauses, in ms, before the first bytes of a request that came in part are looked at again; then it is no health check, so
/// that many such connections cost this thread little.
const PEEK_AGAIN_MS: [u64; 7] = [2, 4, 8, 16, 32, 64, 128];

/// Task that accepts connections.
#[derive(Debug)]
pub(super) struct AcceptTask {
    pub routes: RouterSwitch,
    /// Setting or dropping this ends the task.
    pub end: watch::Sender<bool>,
    pub task: JoinHandle<()>,
}

/// State that all connections share.
#[derive(Clone)]
pub(super) struct ConnectionContext {
    pub routes: RouterSwitch,
    /// Routes of the control thread: health checks, metrics, and a refusal.
    pub control_routes: RouterSwitch,
    /// Runtime of all other requests; `None` if there are none.
    pub requests: Option<Handle>,
    pub tls: Option<TlsAcceptor>,
    /// Networks that may use plain HTTP on a server with HTTPS.
    pub trusted: Vec<IpNet>,
    /// Timeout of reading a request's head, and of the TLS handshake before it.
    pub head_timeout: Duration,
    /// Timeout of reading a request's body; its bytes extend it.
    pub request_timeout: Duration,
    /// Write timeout: a socket that accepts no data for this time is closed.
    pub stalled_after: Duration,
    pub metrics: RequestMetrics,
    pub plain_warning: PlainWarning,
}

impl ConnectionContext {
    /// True if a peer at `address` may use plain HTTP.
    fn serves_plain(&self, address: SocketAddr) -> bool {
        let address = address.ip();
        self.tls.is_none() || address.to_canonical().is_loopback() || trusts(&self.trusted, address)
    }
}

/// Warning about clients that speak TLS to an address without it, at most one in some seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct PlainWarning(Arc<Mutex<Option<Instant>>>);

impl PlainWarning {
    fn warn(&self, peer: Peer) {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() >= ACCEPT_WARNING) {
            *warned = Some(Instant::now());
            let address = peer.address.ip();
            tracing::warn!(%address, "a client speaks TLS to a plain address: use http:// and ws://, or set [tls]");
        }
    }
}

/// Limits of the accepted connections.
#[derive(Debug, Clone)]
pub(super) struct AcceptLimits {
    pub connections: Arc<ConnectionLimiter>,
    pub spares: Arc<SpareDescriptors>,
}

/// Accepts connections until `stop`, then ends them and returns. An upgraded websocket is not counted any more.
pub(super) async fn serve(
    listener: TcpListener,
    context: ConnectionContext,
    limits: AcceptLimits,
    stop: impl Future<Output = ()>,
) {
    let stopped = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    let mut warned = None;
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &limits, &mut warned) => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        let Some((socket, address, cramped)) = accepted else { continue };
        let Some(mut place) = admit(&limits.connections, address, cramped).await else {
            context.metrics.refused.with_label_values(&["connections"]).inc();
            limits.spares.refill();
            continue;
        };
        // Audio packets are small and useless when late.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let (context, stopped, spares) = (context.clone(), stopped.subscribe(), limits.spares.clone());
        connections.spawn(async move {
            context.metrics.connections.inc();
            let reserve = place.is_reserve();
            tokio::select! {
                // A request that is here already is answered.
                biased;
                () = serve_accepted(socket, Peer { address, tls: false }, &context, stopped, reserve) => {}
                () = place.evicted() => {}
            }
            context.metrics.connections.dec();
            drop(place);
            spares.refill();
        });
    }
    drop(listener);
    stopped.send_replace(true);
    // Dropping the set cuts off connections that did not end in time.
    let _ = timeout(CLOSE_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
}

/// Accepts a connection; true if it took a spare descriptor. `None` after an error: the caller tries again.
async fn accept(
    listener: &TcpListener,
    limits: &AcceptLimits,
    warned: &mut Option<Instant>,
) -> Option<(TcpStream, SocketAddr, bool)> {
    let mut cramped = false;
    loop {
        let error = match listener.accept().await {
            Ok((socket, address)) => return Some((socket, address, cramped)),
            Err(error) => error,
        };
        if is_peer_error(&error) {
            return None;
        }
        if warned.is_none_or(|at| at.elapsed() >= ACCEPT_WARNING) {
            *warned = Some(Instant::now());
            tracing::warn!(%error, "cannot accept a connection");
        }
        let exhausted =
            error.raw_os_error().map(Errno::from_raw).is_some_and(|of| matches!(of, Errno::EMFILE | Errno::ENFILE));
        if exhausted && limits.spares.spend() {
            cramped = true;
            continue;
        }
        if exhausted {
            limits.connections.evict_oldest();
        }
        sleep(ACCEPT_RETRY).await;
        return None;
    }
}

/// Counts an accepted connection; waits while the reserve is full of connections that have just begun. `None` if its
/// address has reached its share.
async fn admit(limiter: &Arc<ConnectionLimiter>, address: SocketAddr, cramped: bool) -> Option<ConnectionPermit> {
    loop {
        match limiter.admit(address.ip(), cramped) {
            Ok(permit) => return Some(permit),
            Err(NotAdmitted::Share) => return None,
            Err(NotAdmitted::Until(at)) => sleep_until(at).await,
        }
    }
}

/// True if a connection was gone before it was accepted.
fn is_peer_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Service that a connection gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServiceLevel {
    /// All routes.
    Full,
    /// Redirect of every request to HTTPS.
    Redirect,
    /// One request of the control thread's routes.
    Control,
}

/// Serves a health check, or a connection of the reserve, on this thread; hands others over to the threads of requests.
async fn serve_accepted(
    socket: TcpStream,
    peer: Peer,
    context: &ConnectionContext,
    stopped: watch::Receiver<bool>,
    reserve: bool,
) {
    let mut start = [0; REQUEST_START];
    let start = match timeout(context.head_timeout, peek_start(&socket, &mut start)).await {
        Ok(Ok(count)) if count > 0 => &start[..count],
        // The client disconnected or sent nothing in time.
        _ => return,
    };
    let encrypted = context.tls.is_some() && start[0] == TLS_HANDSHAKE;
    if context.tls.is_none() && start[0] == TLS_HANDSHAKE {
        context.plain_warning.warn(peer);
        return;
    }
    let control = reserve || context.requests.is_none() || names_control_path(start);
    let requests = match &context.requests {
        Some(requests) if encrypted || !control || !context.serves_plain(peer.address) => requests,
        _ => {
            let socket = MovingSocket::new(socket, Some(context.stalled_after));
            return serve_http(socket, peer, context, stopped, ServiceLevel::Control).await;
        }
    };
    let Ok(socket) = socket.into_std() else { return };
    let context = context.clone();
    let served = requests.spawn(async move {
        match TcpStream::from_std(socket) {
            Ok(socket) => serve_connection(socket, peer, &context, stopped, reserve).await,
            Err(error) => tracing::debug!(%error, "a connection cannot be handed over"),
        }
    });
    let _abort = AbortOnDrop(served.abort_handle());
    // A panic was reported when it happened.
    let _ = served.await;
}

/// Peeks at the first bytes until they tell a health check from other requests; returns their number. A client may send
/// a request in several packets.
async fn peek_start(socket: &TcpStream, start: &mut [u8; REQUEST_START]) -> io::Result<usize> {
    let mut count = socket.peek(start).await?;
    for pause in PEEK_AGAIN_MS {
        if !may_name_control_path(&start[..count]) {
            break;
        }
        // Bytes that were peeked at stay readable, so nothing signals the next ones.
        sleep(Duration::from_millis(pause)).await;
        count = socket.peek(start).await?;
    }
    Ok(count)
}

/// Serves a connection on the threads of requests.
async fn serve_connection(
    socket: TcpStream,
    peer: Peer,
    context: &ConnectionContext,
    stopped: watch::Receiver<bool>,
    reserve: bool,
) {
    let served = if reserve { ServiceLevel::Control } else { ServiceLevel::Full };
    let moving = |socket| MovingSocket::new(socket, Some(context.stalled_after));
    let Some(tls) = &context.tls else { return serve_http(moving(socket), peer, context, stopped, served).await };
    let mut first = [0; 1];
    match timeout(context.head_timeout, socket.peek(&mut first)).await {
        Ok(Ok(1)) if first[0] == TLS_HANDSHAKE => match timeout(context.head_timeout, tls.accept(moving(socket))).await
        {
            Ok(Ok(socket)) => serve_http(socket, Peer { tls: true, ..peer }, context, stopped, served).await,
            // Usually a browser that rejects the certificate.
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
            Err(_) => tracing::debug!("the TLS handshake timed out"),
        },
        Ok(Ok(1)) => {
            let served = if context.serves_plain(peer.address) { served } else { ServiceLevel::Redirect };
            serve_http(moving(socket), peer, context, stopped, served).await;
        }
        // The client disconnected or sent nothing in time.
        _ => {}
    }
}

async fn serve_http<S>(
    socket: S,
    peer: Peer,
    context: &ConnectionContext,
    mut stopped: watch::Receiver<bool>,
    served: ServiceLevel,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let messages = Arc::new(MessageBytes::default());
    let service = service_fn(|request: Request<Incoming>| {
        let mut router = match served {
            ServiceLevel::Control => context.control_routes.current(),
            _ => context.routes.current(),
        };
        let (request_timeout, messages) = (context.request_timeout, messages.clone());
        async move {
            if served == ServiceLevel::Redirect {
                return Ok::<_, Infallible>(to_https(&request));
            }
            let slow = BodyDeadline::default();
            let mut request = request.map(|body| Body::new(TimedBody::new(body, request_timeout, slow.clone())));
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(slow);
            request.extensions_mut().insert(messages);
            router.call(request).await
        }
    });
    let socket = PacedReads::new(socket, messages.clone(), context.request_timeout);
    let mut http = http1::Builder::new();
    http.max_buf_size(MAX_HEAD);
    http.timer(TokioTimer::new()).header_read_timeout(context.head_timeout);
    http.keep_alive(served != ServiceLevel::Control);
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
        tracing::debug!(%error, "a connection failed");
    }
}

/// Redirects a plain HTTP request to HTTPS, with the same method.
fn to_https(request: &Request<Incoming>) -> Response<Body> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    match host {
        Some(host) => (StatusCode::PERMANENT_REDIRECT, [(LOCATION, format!("https://{host}{path}"))]).into_response(),
        None => StatusCode::BAD_REQUEST.into_response(),
    }
}

#[cfg(test)]
#[path = "listen_tests.rs"]
mod tests;
