//! Connections: HTTP and HTTPS on one port, with timeouts for reading a request and for writing a response.
//! `connections` limits their number.
//!
//! With a certificate, plain HTTP is served to loopback and to trusted proxies; all others are redirected to `https://`.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{HOST, LOCATION};
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use super::client_addr::{Peer, trusts};
use super::connections::ConnectionLimiter;
use super::routes::RouterSwitch;
use super::timed_body::{BodyDeadline, TimedBody};
use crate::metrics::RequestMetrics;

/// First byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// Pause after `accept` failed for lack of resources.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Time for connections to end when the server shuts down.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// Routes of connections in the reserve, beyond the limit.
    pub reserve_router: Router,
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
}

/// Accepts connections until `stop`, then ends them and returns. An upgraded websocket is not counted any more.
pub(super) async fn serve(
    listener: TcpListener,
    context: ConnectionContext,
    limits: Arc<ConnectionLimiter>,
    stop: impl Future<Output = ()>,
) {
    let stopped = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let permit = tokio::select! {
            permit = limits.acquire() => permit,
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
                if !is_peer_error(&error) {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_RETRY).await;
                }
                continue;
            }
        };
        let Some(place) = limits.admit(address.ip(), permit) else {
            context.metrics.refused.with_label_values(&["connections"]).inc();
            continue;
        };
        // Audio packets are small and useless when late.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let (context, stopped) = (context.clone(), stopped.subscribe());
        connections.spawn(async move {
            context.metrics.connections.inc();
            serve_connection(socket, Peer { address, tls: false }, &context, stopped, place.reserve).await;
            context.metrics.connections.dec();
            drop(place);
        });
    }
    drop(listener);
    stopped.send_replace(true);
    // Dropping the set cuts off connections that did not end in time.
    let _ = timeout(CLOSE_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
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
    /// Health checks only, one a connection.
    Reserve,
}

async fn serve_connection(
    socket: TcpStream,
    peer: Peer,
    context: &ConnectionContext,
    stopped: watch::Receiver<bool>,
    reserve: bool,
) {
    let served = if reserve { ServiceLevel::Reserve } else { ServiceLevel::Full };
    let Some(tls) = &context.tls else { return serve_http(socket, peer, context, stopped, served).await };
    let mut first = [0; 1];
    match timeout(context.head_timeout, socket.peek(&mut first)).await {
        Ok(Ok(1)) if first[0] == TLS_HANDSHAKE => match timeout(context.head_timeout, tls.accept(socket)).await {
            Ok(Ok(socket)) => serve_http(socket, Peer { tls: true, ..peer }, context, stopped, served).await,
            // Usually a browser that rejects the certificate.
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
            Err(_) => tracing::debug!("the TLS handshake timed out"),
        },
        Ok(Ok(1)) => {
            let address = peer.address.ip();
            let plain = address.to_canonical().is_loopback() || trusts(&context.trusted, address);
            serve_http(socket, peer, context, stopped, if plain { served } else { ServiceLevel::Redirect }).await;
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
    let service = service_fn(|request: Request<Incoming>| {
        let mut router = match served {
            ServiceLevel::Reserve => context.reserve_router.clone(),
            _ => context.routes.current(),
        };
        let request_timeout = context.request_timeout;
        async move {
            if served == ServiceLevel::Redirect {
                return Ok::<_, Infallible>(to_https(&request));
            }
            let slow = BodyDeadline::default();
            let mut request = request.map(|body| Body::new(TimedBody::new(body, request_timeout, slow.clone())));
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(slow);
            router.call(request).await
        }
    });
    let mut socket = TimeoutStream::new(socket);
    socket.set_write_timeout(Some(context.stalled_after));
    let socket = Box::pin(socket);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(context.head_timeout);
    http.keep_alive(served != ServiceLevel::Reserve);
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
