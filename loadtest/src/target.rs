//! The server under load: address, keys, TLS and plain HTTP requests.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Request as SocketRequest;

/// Longest response body, in bytes.
const MAX_BODY: usize = 4 << 20;
/// Timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(10);

/// Address of the server, credentials and source addresses.
#[derive(Debug, Clone, Default, Args)]
pub struct TargetArguments {
    /// URL of the server, http:// or https://; by default a server is started. A path in it replaces /v1
    #[arg(long, value_name = "URL")]
    pub target: Option<String>,
    /// Allow load on another machine's server; only with its owner's consent
    #[arg(long)]
    pub allow_remote: bool,
    /// API key, if the server needs one
    #[arg(long, env = "REPARTEE_KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// Model to request, if the server needs one
    #[arg(long)]
    pub model: Option<String>,
    /// Certificates to trust for https://, as PEM
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    pub ca: PathBuf,
    /// Source addresses of the calls, used in turn; by default the system chooses
    #[arg(long, value_name = "ADDRESS", num_args = 1..)]
    pub source: Vec<IpAddr>,
}

/// A connection, plain or encrypted.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// The server under load.
#[derive(Clone)]
pub struct Target {
    /// Host and port for the `Host` header.
    authority: String,
    host: String,
    address: SocketAddr,
    /// Path prefix of the API, as in `/v1`.
    base: String,
    model: Option<String>,
    authorization: Option<String>,
    tls: Option<TlsConnector>,
    sources: Vec<IpAddr>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Target {
    /// Resolves the server of `url`. An address beyond this machine needs `allow_remote`.
    ///
    /// # Errors
    /// The URL is malformed, the host is unknown or not allowed, or the certificates cannot be read.
    pub async fn resolve(url: &str, arguments: &TargetArguments) -> Result<Self> {
        let parts = UrlParts::of(url)?;
        let found = lookup_host((parts.host.as_str(), parts.port)).await;
        let addresses: Vec<SocketAddr> = found.with_context(|| format!("{url}: no such host"))?.collect();
        let address = *addresses.first().with_context(|| format!("{url}: no such host"))?;
        ensure!(
            arguments.allow_remote || addresses.iter().all(|address| address.ip().is_loopback()),
            "{url} is on another machine: add --allow-remote if its owner agrees to this load"
        );
        let tls = if parts.secure { Some(connector(&arguments.ca)?) } else { None };
        Ok(Self {
            authority: parts.authority(),
            host: parts.host,
            address,
            base: parts.base,
            model: arguments.model.clone(),
            authorization: arguments.key.as_ref().map(|key| format!("Bearer {key}")),
            tls,
            sources: arguments.source.clone(),
        })
    }

    /// Returns the source address of caller `caller`, if one is set.
    pub fn source(&self, caller: usize) -> Option<IpAddr> {
        self.sources.get(caller % self.sources.len().max(1)).copied()
    }

    /// Returns the server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a path of the API, with the model if one is set.
    pub fn path(&self, path: &str) -> String {
        let model = self.model.as_ref().map_or(String::new(), |model| format!("?model={model}"));
        format!("{}{path}{model}", self.base)
    }

    /// Opens a connection for caller `caller`, with TLS for https.
    ///
    /// # Errors
    /// The connection fails, or takes longer than ten seconds.
    pub async fn connect(&self, caller: usize) -> Result<Box<dyn Stream>> {
        timeout(CONNECT, self.connect_at_all(caller)).await.context("connecting took too long")?
    }

    async fn connect_at_all(&self, caller: usize) -> Result<Box<dyn Stream>> {
        let stream = match self.source(caller) {
            None => TcpStream::connect(self.address).await,
            Some(source) => {
                let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                socket.bind((source, 0).into())?;
                socket.connect(self.address).await
            }
        };
        let stream = stream.context("connect")?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).context("invalid host name")?;
                Ok(Box::new(tls.connect(name, stream).await.context("TLS")?))
            }
        }
    }

    /// Posts to the API. The body of the response is a stream.
    ///
    /// # Errors
    /// The connection or the request fails.
    pub async fn post(&self, path: &str, kind: &str, body: Bytes, caller: usize) -> Result<Response<Incoming>> {
        self.request(Method::POST, &self.path(path), Some(kind), body, caller).await
    }

    /// Gets any path of the server. Returns status and body.
    ///
    /// # Errors
    /// The request fails.
    pub async fn get(&self, path: &str) -> Result<(StatusCode, String)> {
        let response = self.request(Method::GET, path, None, Bytes::new(), 0).await?;
        let status = response.status();
        Ok((status, text(response).await?))
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        kind: Option<&str>,
        body: Bytes,
        caller: usize,
    ) -> Result<Response<Incoming>> {
        let (mut client, connection) = http1::handshake(TokioIo::new(self.connect(caller).await?)).await?;
        // The task ends with the response, or with an error that the response reports too.
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, &self.authority);
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        Ok(client.send_request(request.body(Full::new(body))?).await?)
    }

    /// Sends an SDP offer. Returns the SDP answer.
    ///
    /// # Errors
    /// The request fails, or the server refuses the call.
    pub async fn call(&self, offer: String, caller: usize) -> Result<String> {
        let response = self.post("/realtime/calls", "application/sdp", offer.into(), caller).await?;
        let status = response.status();
        let body = text(response).await?;
        if !status.is_success() {
            bail!("the call was refused: {} {}", status.as_u16(), error_code(&body));
        }
        Ok(body)
    }

    /// Returns the request that opens a websocket.
    ///
    /// # Errors
    /// The URL or the key is not valid in a request.
    pub fn socket_request(&self) -> Result<SocketRequest> {
        self.socket_at(&self.path("/realtime"))
    }

    /// Returns the request that attaches to a call.
    ///
    /// # Errors
    /// The URL or the key is not valid in a request.
    pub fn sideband_request(&self, call: &str) -> Result<SocketRequest> {
        self.socket_at(&format!("{}/realtime?call_id={call}", self.base))
    }

    fn socket_at(&self, path: &str) -> Result<SocketRequest> {
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        let mut request = format!("{scheme}://{}{path}", self.authority).into_client_request()?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization.parse()?);
        }
        Ok(request)
    }
}

/// Reads a whole body as text.
///
/// # Errors
/// The body breaks off, or is longer than 4 MiB.
pub async fn text(response: Response<Incoming>) -> Result<String> {
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await.map_err(anyhow::Error::from_boxed)?;
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

/// Returns the code of an API error, else its message, else "without a reason".
pub fn error_code(body: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let field = |name: &str| value["error"][name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    field("code").or_else(|| field("message")).unwrap_or_else(|| "without a reason".to_owned())
}

fn connector(certificates: &Path) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(certificates).with_context(|| certificates.display().to_string())?;
    for certificate in found {
        // Unsupported certificates are skipped; the handshake fails if one is needed.
        let _ = roots.add(certificate.with_context(|| certificates.display().to_string())?);
    }
    ensure!(!roots.is_empty(), "{} holds no certificate that can be used", certificates.display());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The parts of a URL.
#[derive(Debug, PartialEq)]
struct UrlParts {
    secure: bool,
    host: String,
    port: u16,
    base: String,
}

impl UrlParts {
    fn of(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").with_context(|| format!("{url}: begin with http:// or https://"))?;
        let secure = match scheme {
            "http" => false,
            "https" => true,
            _ => bail!("{url}: begin with http:// or https://"),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().with_context(|| format!("{url}: invalid port"))?)
            }
            _ => (authority, if secure { 443 } else { 80 }),
        };
        let host = host.trim_matches(['[', ']']);
        ensure!(!host.is_empty() && !host.contains('@'), "{url}: give scheme, host and port");
        let base = path.trim_end_matches('/');
        let base = if base.is_empty() { "/v1" } else { base };
        Ok(Self { secure, host: host.to_owned(), port, base: base.to_owned() })
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let parts = |url: &str| UrlParts::of(url).map(|parts| (parts.secure, parts.authority(), parts.base));
        let expected = |secure, authority: &str, base: &str| (secure, authority.to_owned(), base.to_owned());
        assert_eq!(parts("http://localhost").unwrap(), expected(false, "localhost:80", "/v1"));
        assert_eq!(parts("https://voice.example/").unwrap(), expected(true, "voice.example:443", "/v1"));
        assert_eq!(parts("https://a:8443/api/v2/").unwrap(), expected(true, "a:8443", "/api/v2"));
        assert_eq!(parts("http://[::1]:80").unwrap(), expected(false, "[::1]:80", "/v1"));
        for bad in ["localhost:8080", "ftp://a", "http://", "http://a:b", "http://user@a"] {
            assert!(parts(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn other_machines_need_the_flag() {
        let error = Target::resolve("http://192.0.2.1:80", &TargetArguments::default()).await.unwrap_err();
        assert!(error.to_string().contains("--allow-remote"), "{error}");
        let allowed = TargetArguments { allow_remote: true, ..TargetArguments::default() };
        assert!(Target::resolve("http://192.0.2.1:80", &allowed).await.is_ok());
        assert!(Target::resolve("http://127.0.0.1:1", &TargetArguments::default()).await.is_ok());
    }

    #[test]
    fn refusals_count_by_code() {
        assert_eq!(
            error_code(r#"{"error": {"code": "session_limit_reached", "message": "full"}}"#),
            "session_limit_reached"
        );
        assert_eq!(error_code(r#"{"error": {"code": null, "message": "full"}}"#), "full");
        assert_eq!(error_code("<html>"), "without a reason");
    }
}
