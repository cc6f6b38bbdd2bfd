//! TLS of the signalling's connections, version 1.2 too: exchanges of the last ten years speak no other.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use repartee_chat_client::{TrustError, client_config};
use rustls::DEFAULT_VERSIONS;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::stream_task::Stream;
use crate::config::{SipAddress, SipConfig, SipScheme};
use crate::server::tls::{CertificateResolver, TlsError, server_config};

/// Keys and trust of both kinds of connections: those that come in, and ours.
#[derive(Clone, Default)]
pub(super) struct SipTls {
    acceptor: Option<TlsAcceptor>,
    connector: Option<Connector>,
}

impl std::fmt::Debug for SipTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SipTls").finish_non_exhaustive()
    }
}

/// Connector, with the name that the other side's certificate has to have; `None` for its address.
type Connector = (TlsConnector, Option<ServerName<'static>>);

/// Error of the encryption's settings.
#[derive(Debug, thiserror::Error)]
pub enum SipTlsError {
    /// The server's certificate cannot be used.
    #[error(transparent)]
    Own(#[from] TlsError),
    /// The trusted certificates cannot be used.
    #[error("sip.certificates: {0}")]
    Trust(#[from] TrustError),
}

impl SipTls {
    /// Reads what the settings need; `certificates` is the server's own.
    pub fn new(config: &SipConfig, certificates: Option<Arc<CertificateResolver>>) -> Result<Self, SipTlsError> {
        let is_encrypted = |address: &SipAddress| address.scheme == SipScheme::Tls;
        let accepts = config.listen.iter().any(is_encrypted);
        let acceptor = certificates.filter(|_| accepts).map(|own| server_config(own, DEFAULT_VERSIONS)).transpose()?;
        // Calls that came in encrypted may need a connection of ours, too.
        let connects = accepts || config.trunk.iter().chain(&config.registrar).any(is_encrypted);
        let connector = match connects {
            true => {
                let trust = client_config(config.certificates.as_deref(), DEFAULT_VERSIONS)?;
                let name = config.domain.clone().and_then(|domain| ServerName::try_from(domain).ok());
                Some((TlsConnector::from(Arc::new(trust)), name))
            }
            false => None,
        };
        Ok(Self { acceptor: acceptor.map(|config| TlsAcceptor::from(Arc::new(config))), connector })
    }

    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        self.acceptor.clone()
    }

    pub fn connector(&self) -> Option<Connector> {
        self.connector.clone()
    }

    /// Encrypts a connection that came in.
    pub async fn accept(acceptor: Option<TlsAcceptor>, socket: TcpStream) -> io::Result<Stream> {
        let acceptor = acceptor.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Box::new(acceptor.accept(socket).await?))
    }

    /// Encrypts a connection of ours to `address`.
    pub async fn connect(connector: Option<Connector>, address: IpAddr, socket: TcpStream) -> io::Result<Stream> {
        let (connector, name) = connector.ok_or(io::ErrorKind::Unsupported)?;
        let name = name.unwrap_or_else(|| ServerName::IpAddress(address.into()));
        Ok(Box::new(connector.connect(name, socket).await?))
    }
}
