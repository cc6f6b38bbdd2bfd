//! HTTP connections to the server, directly or through a proxy.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use crate::base_url::BaseUrl;
use crate::dialer::{ByteStream, DialError, Dialer};
use crate::failure::{ChatFailure, Peer, TlsFailure};
use crate::proxies::Proxy;
use crate::tls::encrypt;
use crate::tunnel::{TunnelError, open_tunnel};
use crate::url_parts::format_authority;

/// Maximum size of the head of a response, in bytes.
pub(crate) const MAX_HEAD: usize = 64 << 10;
/// Buffer of a connection, in bytes: so much is read before the caller takes it.
const BUFFER: usize = 2 * MAX_HEAD;

/// An HTTP/1.1 connection. Dropping it closes it at once.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Sends requests, one at a time.
    pub sender: http1::SendRequest<Full<Bytes>>,
    /// The task that moves the bytes.
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens connections to one server.
pub(crate) struct Connector {
    pub url: BaseUrl,
    pub proxy: Option<Proxy>,
    /// Present if the server or the proxy is reached over TLS.
    pub tls: Option<TlsConnector>,
    pub dialer: Arc<dyn Dialer>,
}

impl Connector {
    /// True if requests name the whole URL, because a proxy forwards them.
    pub fn is_forwarded(&self) -> bool {
        self.proxy.is_some() && !self.url.is_secure()
    }

    /// Opens a connection. Dropping the future closes what it has opened.
    pub async fn connect(&self) -> Result<Connection, ChatFailure> {
        let mut stream = match &self.proxy {
            None => self.dial(Peer::Server, self.url.host(), self.url.port()).await?,
            Some(proxy) => self.connect_to_proxy(proxy).await?,
        };
        if self.url.is_secure() {
            stream = self.encrypt(Peer::Server, self.url.host(), stream).await?;
        }
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER).max_header_size(MAX_HEAD);
        let (sender, connection) = builder
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ChatFailure::Unreachable { peer: Peer::Server, reason: error.to_string() })?;
        // Its error is that of the request as well.
        let task = tokio::spawn(connection).abort_handle();
        Ok(Connection { sender, task })
    }

    /// Connects to the proxy, and for https through it to the server.
    async fn connect_to_proxy(&self, proxy: &Proxy) -> Result<Box<dyn ByteStream>, ChatFailure> {
        let peer = || Peer::Proxy(proxy.name());
        let mut stream = self.dial(peer(), proxy.host(), proxy.port()).await?;
        if proxy.is_secure() {
            stream = self.encrypt(peer(), proxy.host(), stream).await?;
        }
        if self.url.is_secure() {
            let authority = format_authority(self.url.host(), self.url.port(), 0);
            let opened = open_tunnel(&mut *stream, &authority, proxy.authorization().as_ref()).await;
            opened.map_err(|error| match error {
                TunnelError::Io(error) => ChatFailure::Unreachable { peer: peer(), reason: error.to_string() },
                TunnelError::Proxy(failure) => ChatFailure::Proxy { peer: peer(), failure },
            })?;
        }
        Ok(stream)
    }

    async fn dial(&self, peer: Peer, host: &str, port: u16) -> Result<Box<dyn ByteStream>, ChatFailure> {
        self.dialer.dial(host, port).await.map_err(|error| match error {
            DialError::UnknownHost(error) => ChatFailure::UnknownHost { peer, reason: error.to_string() },
            DialError::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                ChatFailure::Refused { peer }
            }
            DialError::Connect(error) => ChatFailure::Unreachable { peer, reason: error.to_string() },
        })
    }

    async fn encrypt(
        &self,
        peer: Peer,
        host: &str,
        stream: Box<dyn ByteStream>,
    ) -> Result<Box<dyn ByteStream>, ChatFailure> {
        let encrypted = match &self.tls {
            Some(tls) => encrypt(tls, host, stream).await,
            // The client sets it up for every URL that needs it.
            None => Err(TlsFailure::Other("TLS is not set up".to_owned())),
        };
        encrypted.map_err(|failure| ChatFailure::Tls { peer, failure })
    }
}
