//! One request with a body to a server of any kind, such as a webhook.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::time::timeout;

use crate::base_url::BaseUrl;
use crate::byte_connection::{StreamError, open_stream};

/// Largest head of a response, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// Error of [`post`].
#[derive(Debug, Error)]
pub enum NoticeError {
    /// The server cannot be reached.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The request cannot be written: a header is malformed.
    #[error("the request cannot be written: {0}")]
    Request(#[from] hyper::http::Error),
    /// The connection fails.
    #[error("the connection fails: {0}")]
    Connection(#[from] hyper::Error),
    /// The server does not answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
}

/// Posts JSON to a URL with further headers, without a proxy; returns the status. The response's body is not read. Dropping
/// the future closes the connection.
///
/// # Errors
///
/// See [`NoticeError`].
pub async fn post(
    url: &BaseUrl,
    headers: &[(&'static str, String)],
    body: Bytes,
    within: Duration,
) -> Result<u16, NoticeError> {
    let exchange = async {
        let stream = open_stream(url, None).await?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(2 * MAX_HEAD).max_header_size(MAX_HEAD);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let mut request = Request::post(url.target(""))
            .header(HOST, url.authority())
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, "close");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(credentials) = url.authorization() {
            request = request.header(hyper::header::AUTHORIZATION, credentials);
        }
        let request = request.body(Full::new(body))?;
        // The connection's own error is that of the request as well.
        let (answer, _) = tokio::join!(
            async move {
                let answer = sender.send_request(request).await.map(|answer| answer.status().as_u16());
                // Without a sender the connection ends.
                drop(sender);
                answer
            },
            connection
        );
        Ok(answer?)
    };
    timeout(within, exchange).await.map_err(|_| NoticeError::Late(within))?
}
