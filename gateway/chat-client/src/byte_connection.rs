//! Bare connections to a server, for protocols other than that of this client.

use std::path::Path;

use thiserror::Error;

use crate::base_url::BaseUrl;
use crate::dialer::{ByteStream, DialError, Dialer as _, TcpDialer};
use crate::failure::TlsFailure;
use crate::tls::{TrustError, encrypt, tls_connector};

/// Error of [`open_stream`].
#[derive(Debug, Error)]
pub enum StreamError {
    /// The host is unknown or cannot be reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The trusted certificates cannot be read.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// TLS with the server fails.
    #[error("no TLS with the server: {0}")]
    Tls(TlsFailure),
}

/// Connects to the host of a URL without a proxy, encrypted for https. `trusted` is a file of certificates in PEM to trust beside the
/// system's.
///
/// # Errors
/// The host cannot be reached, or its certificate is not trusted.
pub async fn open_stream(url: &BaseUrl, trusted: Option<&Path>) -> Result<Box<dyn ByteStream>, StreamError> {
    let tls = url.is_secure().then(|| tls_connector(trusted)).transpose()?;
    let stream = TcpDialer.dial(url.host(), url.port()).await?;
    match tls {
        Some(tls) => encrypt(&tls, url.host(), stream).await.map_err(StreamError::Tls),
        None => Ok(stream),
    }
}
