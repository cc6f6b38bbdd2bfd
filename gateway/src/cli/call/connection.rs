//! Address of a server, and the websocket of a call with it.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::header::{AUTHORIZATION, HeaderValue};
use repartee_chat_client::{BaseUrl, ByteStream, open_stream};
use serde_json::Value;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::error::CallError;
use super::wire_event::kind;

/// Samples a second on the wire.
pub const RATE: u32 = 24_000;
/// Time for the connection, the websocket and the first event.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Time for the end of a connection.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// Last part of the path of a call.
const ENDPOINT: &str = "/realtime";

/// Server to call, and the credentials for it.
#[derive(Debug, Clone)]
pub struct CallTarget {
    base: BaseUrl,
    /// URL of the websocket.
    url: String,
    key: Option<HeaderValue>,
    trusted: Option<PathBuf>,
}

impl CallTarget {
    /// Parses an address: `HOST:PORT`, or a URL with http, https, ws or wss. `trusted` is a file of certificates to trust beside the
    /// system's.
    ///
    /// # Errors
    /// The address is malformed, or the key has characters that no header has.
    pub fn new(address: &str, key: Option<&str>, trusted: Option<PathBuf>) -> Result<Self, CallError> {
        let address = address.trim();
        let http = match address.split_once("://") {
            Some(("ws", rest)) => format!("http://{rest}"),
            Some(("wss", rest)) => format!("https://{rest}"),
            Some(_) => address.to_owned(),
            None => format!("http://{address}"),
        };
        let base = BaseUrl::parse(&http).map_err(|error| CallError::Url { url: address.to_owned(), error })?;
        let whole = base.to_string();
        let whole = whole.strip_suffix(ENDPOINT).unwrap_or(&whole);
        // `http` and `https` become `ws` and `wss`.
        let url = format!("{}{ENDPOINT}", whole.replacen("http", "ws", 1));
        let key = key.filter(|key| !key.is_empty()).map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| CallError::Key)?;
            value.set_sensitive(true);
            Ok::<_, CallError>(value)
        });
        Ok(Self { base, url, key: key.transpose()?, trusted })
    }

    /// URL of the websocket.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Opens a call.
    ///
    /// # Errors
    /// The server cannot be reached, refuses the call, or does not answer within 10 s.
    pub async fn connect(&self) -> Result<CallSocket, CallError> {
        let mut request = self.url.as_str().into_client_request()?;
        if let Some(key) = &self.key {
            request.headers_mut().insert(AUTHORIZATION, key.clone());
        }
        let opened = async {
            let stream = open_stream(&self.base, self.trusted.as_deref())
                .await
                .map_err(|error| CallError::Unreachable { url: self.url.clone(), error })?;
            let (socket, _) = client_async(request, stream).await.map_err(|error| match error {
                Error::Http(reply) => self.refusal(&reply),
                error => error.into(),
            })?;
            let mut socket = CallSocket(socket);
            match kind(&socket.next().await?) {
                "session.created" => Ok(socket),
                _ => Err(CallError::NotRealtime("another event than session.created")),
            }
        };
        let late = |_| CallError::Late { url: self.url.clone(), seconds: CONNECT_WITHIN.as_secs() };
        timeout(CONNECT_WITHIN, opened).await.map_err(late)?
    }

    fn refusal(&self, reply: &Response) -> CallError {
        let body = reply.body().as_deref().and_then(|body| serde_json::from_slice::<Value>(body).ok());
        let message = body.as_ref().and_then(|body| body["error"]["message"].as_str());
        let message = message.unwrap_or("it gives no reason").to_owned();
        let (url, status) = (self.url.clone(), reply.status().as_u16());
        match status {
            401 | 403 => CallError::Unauthorized { url, message },
            status => CallError::Refused { url, status, message },
        }
    }
}

/// Websocket of a call.
pub struct CallSocket(WebSocketStream<Box<dyn ByteStream>>);

impl std::fmt::Debug for CallSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallSocket")
    }
}

impl CallSocket {
    /// Sends an event.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn send(&mut self, event: &Value) -> Result<(), CallError> {
        Ok(self.0.send(Message::text(event.to_string())).await?)
    }

    /// Returns the next event. Dropping the future loses none.
    ///
    /// # Errors
    /// The connection is lost or closed, or a message is no JSON.
    pub async fn next(&mut self) -> Result<Value, CallError> {
        loop {
            match self.0.next().await.transpose()? {
                Some(Message::Text(text)) => {
                    return serde_json::from_str(&text)
                        .map_err(|_| CallError::NotRealtime("a message that is no JSON"));
                }
                Some(Message::Close(frame)) => {
                    let reason = frame.map(|frame| frame.reason.to_string()).filter(|reason| !reason.is_empty());
                    return Err(CallError::HungUp(reason.map(|reason| format!(": {reason}")).unwrap_or_default()));
                }
                Some(_) => {}
                None => return Err(CallError::HungUp(String::new())),
            }
        }
    }

    /// Closes the connection; a server that does not answer that is left.
    pub async fn close(mut self) {
        let _ = timeout(CLOSE_WITHIN, self.0.close(None)).await;
    }
}
