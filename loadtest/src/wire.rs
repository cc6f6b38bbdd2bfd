//! The protocol as an independent client sees it: OpenAI Realtime GA, of which only what is needed is read.

use anyhow::{Context as _, bail, ensure};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Request as SocketRequest;

/// No answer to a call is longer.
const MAX_REPLY: usize = 1 << 20;

/// Where the server is and how it knows us.
#[derive(Debug)]
pub struct Server {
    /// Host and port.
    authority: String,
    authorization: Option<String>,
}

impl Server {
    /// From `http://HOST:PORT`.
    pub fn new(url: &str, key: Option<String>) -> anyhow::Result<Self> {
        let authority = url.strip_prefix("http://").with_context(|| format!("{url}: only http:// is spoken"))?;
        let authority = authority.trim_end_matches('/');
        ensure!(!authority.is_empty() && !authority.contains('/'), "{url}: give scheme, host and port alone");
        let authority = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
        Ok(Self { authority, authorization: key.map(|key| format!("Bearer {key}")) })
    }

    /// Posts an offer; the answer to it.
    pub async fn call(&self, offer: String) -> anyhow::Result<String> {
        let stream = TcpStream::connect(&self.authority).await.context("connect")?;
        let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let mut request = Request::post("/v1/realtime/calls")
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/sdp");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let response = client.send_request(request.body(Full::new(Bytes::from(offer)))?).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_REPLY).collect().await;
        driver.abort();
        let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        if status != StatusCode::CREATED {
            bail!("the call was refused: {status} {}", code(&text));
        }
        Ok(text)
    }

    /// The request that opens a websocket.
    pub fn socket(&self) -> anyhow::Result<SocketRequest> {
        let mut request = format!("ws://{}/v1/realtime", self.authority).into_client_request()?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization.parse()?);
        }
        Ok(request)
    }
}

/// The code in a refusal's JSON.
fn code(body: &str) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: ErrorDetail,
    }
    serde_json::from_str::<Refusal>(body)
        .map_or_else(|_| "without JSON".to_owned(), |refusal| refusal.error.to_string())
}

/// The `error` of an event or a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ErrorDetail {
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    message: String,
}

impl std::fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Errors are counted by their text: the code is the same for all of a kind.
        f.write_str(self.code.as_deref().unwrap_or(&self.message))
    }
}

/// What the server reports, as far as a caller cares.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type")]
pub enum Event {
    /// The session is there.
    #[serde(rename = "session.created")]
    Created,
    /// Its configuration was changed.
    #[serde(rename = "session.updated")]
    Updated,
    /// The turn is complete.
    #[serde(rename = "input_audio_buffer.committed")]
    Committed,
    /// Sound, over the websocket.
    #[serde(rename = "response.output_audio.delta")]
    Audio {
        /// 16-bit PCM in base64.
        delta: String,
    },
    /// A response has ended.
    #[serde(rename = "response.done")]
    Done {
        /// The response.
        response: Response,
    },
    /// Unplayed audio was dropped, over WebRTC.
    #[serde(rename = "output_audio_buffer.cleared")]
    Cleared,
    /// A response was played to its end, over WebRTC.
    #[serde(rename = "output_audio_buffer.stopped")]
    Stopped,
    /// Something went wrong.
    #[serde(rename = "error")]
    Error {
        /// What.
        error: ErrorDetail,
    },
    /// Anything else.
    #[serde(other)]
    Other,
}

/// How a response ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Response {
    /// `completed`, `cancelled`, `incomplete` or `failed`.
    pub status: String,
}

impl Event {
    /// Reads an event.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        serde_json::from_str(text).context("the server sent an event that is not JSON of the protocol")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_events_are_read_as_other() {
        let read = |text| Event::read(text).unwrap();
        assert_eq!(read(r#"{"type": "session.created", "session": {}}"#), Event::Created);
        assert_eq!(read(r#"{"type": "rate_limits.updated", "rate_limits": []}"#), Event::Other);
        let done = read(r#"{"type": "response.done", "response": {"id": "resp_1", "status": "completed"}}"#);
        assert_eq!(done, Event::Done { response: Response { status: "completed".into() } });
        let error = r#"{"type": "error", "error": {"type": "invalid_request_error", "code": "x", "message": "y"}}"#;
        assert!(matches!(read(error), Event::Error { error } if error.to_string() == "x"));
        assert!(Event::read("hello").is_err());
    }

    #[test]
    fn only_plain_http_addresses_are_servers() {
        assert_eq!(Server::new("http://localhost/", None).unwrap().authority, "localhost:80");
        assert_eq!(Server::new("http://127.0.0.1:8080", None).unwrap().authority, "127.0.0.1:8080");
        for bad in ["https://localhost", "localhost:8080", "http://", "http://a/b"] {
            assert!(Server::new(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refusal_is_counted_by_code() {
        assert_eq!(
            code(r#"{"error": {"code": "session_limit_reached", "message": "all 4 slots"}}"#),
            "session_limit_reached"
        );
        assert_eq!(code("<html>"), "without JSON");
    }
}
