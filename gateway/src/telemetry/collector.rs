//! Sends spans to the collector. Each request has its own connection, because there is one in a few seconds.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of a response.
const MAX_ANSWER: usize = 64 << 10;
/// Default port of a URL.
const HTTP_PORT: u16 = 80;

/// HTTP client that runs on a Tokio runtime, for callers on threads without one.
#[derive(Debug)]
pub(super) struct OtlpHttpClient {
    runtime: Handle,
}

impl OtlpHttpClient {
    /// Creates a client on the current runtime.
    pub fn new() -> Self {
        Self { runtime: Handle::current() }
    }
}

#[async_trait]
impl HttpClient for OtlpHttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let exchange = self.runtime.spawn(async move { timeout(TIMEOUT, send(request)).await });
        let answer = async { exchange.await?? }.await;
        match &answer {
            Ok(answer) if !answer.status().is_success() => {
                tracing::warn!(status = %answer.status(), "the collector refused spans");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(error = %error, "cannot send spans"),
        }
        answer
    }
}

async fn send(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().ok_or_else(|| io::Error::other("a URL without a host"))?.clone();
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let socket = TcpStream::connect((host, authority.port_u16().unwrap_or(HTTP_PORT))).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    head.headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
    head.uri = head.uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
    let exchange = async {
        let answer = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
        let (head, body) = answer.into_parts();
        Ok(Response::from_parts(head, Limited::new(body, MAX_ANSWER).collect().await?.to_bytes()))
    };
    let mut exchange = std::pin::pin!(exchange);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        answer = &mut exchange => answer,
        // The collector closed the connection; its response may have arrived before.
        ended = &mut connection => {
            ended?;
            exchange.await
        }
    }
}
