//! Requests to another node over connections that are kept, with short timeouts, and tunnels of websockets.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_LENGTH, HOST, ORIGIN, TRANSFER_ENCODING, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use repartee_cluster::{HOP_HEADER, Hop, Patience, Target};
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::app::AppState;
use super::super::moving_socket::MovingSocket;
use super::hops::{signed_path, unix_now};
use crate::cluster::membership::Membership;
use crate::cluster::pool::NodeConnection;

/// Timeout of a connection to another node.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(150);
/// Timeout of the question whether a node lives.
const PROBE_TIMEOUT: Duration = Duration::from_millis(150);
/// Headers that name the client: the signed header stands for them. `Origin` has been checked.
const REPLACED: [&str; 6] = ["forwarded", "via", "x-client-ip", "x-forwarded-for", "x-real-ip", "keep-alive"];

/// Error of a forward.
#[derive(Debug, Error)]
pub(super) enum ForwardError {
    /// There is no connection.
    #[error("no connection: {0}")]
    Connect(io::Error),
    /// The node does not answer.
    #[error("no answer")]
    Silent,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Http(#[from] hyper::Error),
    /// A header cannot be sent.
    #[error("a header cannot be sent")]
    Header,
}

/// Sends a request with this head and body to another node, and returns its response. A websocket goes through a tunnel, which
/// lives until one end closes it or this server stops.
pub(super) async fn forward(
    app: &Arc<AppState>,
    cluster: &Membership,
    target: &Target,
    hop: Hop,
    parts: &Parts,
    body: Bytes,
) -> Result<Response, ForwardError> {
    let request = request(cluster, hop, parts, body)?;
    let pool = &cluster.connections;
    let (mut connection, is_fresh) = match pool.take(target.tag, Instant::now()) {
        Some(connection) => (connection, false),
        None => (open(target).await?, true),
    };
    let patience = || Patience::new(parts.method.as_str(), parts.uri.path(), Instant::now());
    let mut answer = answered(target, connection.send_request(request.clone()), patience()).await;
    if !is_fresh && matches!(answer, Err(ForwardError::Http(_))) {
        // The node closed it meanwhile, as it does without a request; one that has ended takes no new connection. If the network
        // broke it after the request was read, an offer is taken twice: the call that nobody connects ends by itself.
        connection = open(target).await?;
        answer = answered(target, connection.send_request(request), patience()).await;
    }
    let response = answer.inspect_err(|_| pool.close(target.tag))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        pool.put(target.tag, connection, Instant::now());
        return Ok(response.map(Body::new));
    }
    Ok(tunnel(app, parts, response))
}

/// Opens a connection to a node.
async fn open(target: &Target) -> Result<NodeConnection, ForwardError> {
    let stream = MovingSocket::new(connect(target).await?, None);
    let (connection, served) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // Its end reaches who sends, or the tunnel.
        let _ = served.with_upgrades().await;
    });
    Ok(connection)
}

async fn connect(target: &Target) -> Result<TcpStream, ForwardError> {
    let late = |_| ForwardError::Connect(io::ErrorKind::TimedOut.into());
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(&*target.address)).await.map_err(late)?;
    let stream = stream.map_err(ForwardError::Connect)?;
    stream.set_nodelay(true).map_err(ForwardError::Connect)?;
    Ok(stream)
}

/// Waits for a response. A node that takes its time is asked on another connection whether it lives, again and again: one that
/// is stopped is left at once, one that is busy is not.
async fn answered(
    target: &Target,
    response: impl Future<Output = hyper::Result<Response<Incoming>>>,
    mut patience: Patience,
) -> Result<Response<Incoming>, ForwardError> {
    let mut response = std::pin::pin!(response);
    while let Some(wait) = patience.next_wait(Instant::now()) {
        if let Ok(response) = timeout(wait, &mut response).await {
            return Ok(response?);
        }
        tokio::select! {
            response = &mut response => return Ok(response?),
            lives = timeout(PROBE_TIMEOUT, lives(target)) => {
                if !lives.is_ok_and(|lives| lives.is_ok()) {
                    return Err(ForwardError::Silent);
                }
            }
        }
    }
    Err(ForwardError::Silent)
}

/// Asks a node for its health; any answer will do.
async fn lives(target: &Target) -> io::Result<()> {
    let mut stream = TcpStream::connect(&*target.address).await?;
    stream.write_all(b"HEAD /healthz HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n").await?;
    stream.read_u8().await.map(|_| ())
}

fn request(cluster: &Membership, hop: Hop, parts: &Parts, body: Bytes) -> Result<Request<Full<Bytes>>, ForwardError> {
    let path = signed_path(&parts.uri);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = path.parse().map_err(|_| ForwardError::Header)?;
    *request.headers_mut() = headers(&parts.headers);
    let signed = cluster.hops.sign(&hop, parts.method.as_str(), path, unix_now());
    let signed = HeaderValue::try_from(signed).map_err(|_| ForwardError::Header)?;
    request.headers_mut().insert(HOP_HEADER, signed);
    Ok(request)
}

/// Headers of the client that go on to the other node.
fn headers(all: &HeaderMap) -> HeaderMap {
    let upgrade = all.get(UPGRADE).cloned();
    let mut headers = all.clone();
    for name in [CONNECTION, UPGRADE, TRANSFER_ENCODING, CONTENT_LENGTH, ORIGIN] {
        headers.remove(name);
    }
    let replaced =
        |name: &str| REPLACED.contains(&name) || name.starts_with("x-forwarded-") || name.starts_with("proxy-");
    let names: Vec<_> = headers.keys().filter(|name| replaced(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    headers.entry(HOST).or_insert(HeaderValue::from_static("localhost"));
    headers
}

/// Joins the client's websocket with that of the other node.
fn tunnel(app: &Arc<AppState>, parts: &Parts, mut response: Response<Incoming>) -> Response {
    let theirs = hyper::upgrade::on(&mut response);
    let ours = parts.extensions.get::<OnUpgrade>().cloned();
    // The tunnel delays the server's exit as a call does.
    let (alive, stopped) = (app.alive.upgrade(), app.stopped());
    app.spawn_call(async move {
        let join = async {
            let Some(ours) = ours else { return };
            let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
            // Either end may close it at any time.
            let _ = copy_bidirectional(&mut TokioIo::new(ours), &mut TokioIo::new(theirs)).await;
        };
        tokio::select! {
            () = join => {}
            () = stopped => {}
        }
        drop(alive);
    });
    response.map(|_| Body::empty())
}
