//! TLS of connections: trusted certificates, and failures of the handshake.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, InvalidMessage, PeerIncompatible, RootCertStore,
    SupportedProtocolVersion,
};
use thiserror::Error;
use tokio_rustls::TlsConnector;

use crate::dialer::ByteStream;
use crate::failure::TlsFailure;

/// Maximum size of a file of certificates, in bytes.
const MAX_FILE: u64 = 8 << 20;

/// Error of the trusted certificates.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The system has no certificates that can be used.
    #[error(
        "this system has no trusted certificates for https ({0}): install the package ca-certificates, or set SSL_CERT_FILE"
    )]
    NoCertificates(String),
    /// A file is larger than 8 MiB.
    #[error("{0} is larger than {MAX_FILE} bytes: give a file of certificates in PEM")]
    TooLarge(PathBuf),
    /// A file of certificates cannot be used.
    #[error("cannot read certificates in PEM from {path}: {error}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the PEM reader.
        error: pem::Error,
    },
    /// The TLS library refuses its configuration.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// Creates the connector that trusts the system's certificates and those of a file, if one is given.
pub(crate) fn tls_connector(extra: Option<&Path>) -> Result<TlsConnector, TrustError> {
    // Another crate of the program may have 1.2 compiled in.
    let mut config = client_config(extra, &[&rustls::version::TLS13])?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Creates the settings of a client that trusts the system's certificates and those of a file, if one is given.
///
/// # Errors
///
/// See [`TrustError`].
pub fn client_config(
    extra: Option<&Path>,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ClientConfig, TrustError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // Certificates of kinds that are not supported are skipped; a handshake fails if one is needed.
    roots.add_parsable_certificates(found.certs);
    if let Some(path) = extra {
        for certificate in read_certificates(path)? {
            roots.add(certificate)?;
        }
    }
    if roots.is_empty() {
        let reasons: Vec<String> = found.errors.iter().take(3).map(ToString::to_string).collect();
        let reasons = if reasons.is_empty() { "none was found".to_owned() } else { reasons.join("; ") };
        return Err(TrustError::NoCertificates(reasons));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let failed = |error| TrustError::File { path: path.to_owned(), error };
    let size = std::fs::metadata(path).map_err(|error| failed(pem::Error::Io(error)))?.len();
    if size > MAX_FILE {
        return Err(TrustError::TooLarge(path.to_owned()));
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found = found.map_err(failed)?;
    if found.is_empty() {
        return Err(failed(pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// Encrypts a connection to `host`.
pub(crate) async fn encrypt(
    connector: &TlsConnector,
    host: &str,
    stream: Box<dyn ByteStream>,
) -> Result<Box<dyn ByteStream>, TlsFailure> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| TlsFailure::Other(error.to_string()))?;
    let encrypted = connector.connect(name, stream).await.map_err(|error| failure_of(&error))?;
    Ok(Box::new(encrypted))
}

fn failure_of(error: &io::Error) -> TlsFailure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(certificate)) => match certificate {
            // A trusted issuer of the same name has another key: it was made anew.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsFailure::UnknownIssuer,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFailure::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => TlsFailure::NotYetValid,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                TlsFailure::WrongHost
            }
            other => TlsFailure::Other(other.to_string()),
        },
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => TlsFailure::NotTls,
        Some(rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)) => TlsFailure::Version,
        Some(rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13 | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        )) => TlsFailure::Version,
        Some(other) => TlsFailure::Other(other.to_string()),
        None => match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted => TlsFailure::Closed,
            _ => TlsFailure::Other(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_certificate_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roots.pem");
        let error = |path: &Path| read_certificates(path).unwrap_err();
        assert!(matches!(error(&path), TrustError::File { .. }));
        std::fs::write(&path, "no certificate").unwrap();
        let found = error(&path);
        assert!(matches!(&found, TrustError::File { error: pem::Error::NoItemsFound, .. }), "{found:?}");
        assert!(found.to_string().contains("roots.pem"), "{found}");
        std::fs::File::create(&path).unwrap().set_len(MAX_FILE + 1).unwrap();
        assert!(matches!(error(&path), TrustError::TooLarge(_)));
    }
}
