//! HTTPS: the certificate from files, or a self-signed one for development.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use ::ring::digest;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ServerConfig, SupportedProtocolVersion};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use super::certificate_validity::{Validity, ValidityState};
use super::development_certificate::{DevelopmentCertificateError, development_certificate, load_or_create};
use crate::config::TlsConfig;

/// Error of a certificate.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read, or does not hold the item.
    #[error("cannot read a {what} in PEM from {path}: {error}")]
    File {
        /// Path of the file, or folder of the development certificate.
        path: PathBuf,
        /// Expected item: certificate or private key.
        what: &'static str,
        /// Error of the PEM reader.
        error: pem::Error,
    },
    /// The certificate is not valid now, so every client would refuse it.
    #[error("tls.certificate: the certificate in {path} {problem}: renew it, or set the machine's clock")]
    NotValid {
        /// Path of the file.
        path: PathBuf,
        /// Problem, with the date.
        problem: String,
    },
    /// Certificate and key do not match or cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// The development certificate cannot be generated or stored.
    #[error(transparent)]
    Development(#[from] DevelopmentCertificateError),
}

/// Certificate in use; a reload replaces it.
#[derive(Debug)]
pub(super) struct CertificateResolver(RwLock<Arc<CertifiedKey>>);

impl CertificateResolver {
    /// Replaces the certificate for all next connections.
    pub fn replace(&self, other: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = other;
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // The certificate is replaced as a whole, so a panic cannot leave it half changed.
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// Reads or generates the certificate of the settings; `None` for plain HTTP. `names` are those of a development
/// certificate.
pub(super) fn certificate(
    tls: &TlsConfig,
    names: impl FnOnce() -> Vec<String>,
) -> Result<Option<Arc<CertifiedKey>>, TlsError> {
    let (chain, key) = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            let chain = read_chain(certificate)?;
            check_validity(&chain, certificate, SystemTime::now())?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::File {
                path: key.clone(),
                what: "private key",
                error,
            })?;
            (chain, key)
        }
        _ if tls.development => {
            let made = match &tls.keep {
                Some(folder) => load_or_create(folder, names())?,
                None => development_certificate(names())?,
            };
            let certificate = CertificateDer::from_pem_slice(made.certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes());
            // A generated certificate is valid; a stored one may have been changed by somebody.
            let path = || tls.keep.clone().unwrap_or_default();
            let certificate =
                certificate.map_err(|error| TlsError::File { path: path(), what: "certificate", error })?;
            let key = key.map_err(|error| TlsError::File { path: path(), what: "private key", error })?;
            (vec![certificate], key)
        }
        _ => return Ok(None),
    };
    Ok(Some(Arc::new(CertifiedKey::from_der(chain, key, &ring::default_provider())?)))
}

/// Checks the certificate and the key of the settings, if they are files. Returns a warning if the certificate ends soon.
///
/// # Errors
///
/// A server with these settings would not start.
pub fn check_certificate(tls: &TlsConfig) -> Result<Option<String>, TlsError> {
    let Some(path) = &tls.certificate else { return Ok(None) };
    certificate(&TlsConfig { development: false, ..tls.clone() }, Vec::new)?;
    check_validity(&read_chain(path)?, path, SystemTime::now())
}

/// Reads the certificates of a file, at least one.
fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let no_certificate = |error| TlsError::File { path: path.to_owned(), what: "certificate", error };
    let chain = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(no_certificate)?;
    if chain.is_empty() { Err(no_certificate(pem::Error::NoItemsFound)) } else { Ok(chain) }
}

/// Checks that the first certificate, the server's, is valid. Those of issuers may be old: clients find newer ones. Returns
/// a warning if it ends soon.
fn check_validity(chain: &[CertificateDer<'_>], path: &Path, now: SystemTime) -> Result<Option<String>, TlsError> {
    let problem = match chain.first().and_then(|first| Validity::of(first)).map(|validity| validity.at(now)) {
        Some(ValidityState::Valid) => return Ok(None),
        Some(ValidityState::EndsSoon(date)) => {
            return Ok(Some(format!("tls.certificate: the certificate in {} expires on {date}", path.display())));
        }
        Some(ValidityState::Expired(date)) => format!("expired on {date}"),
        Some(ValidityState::NotYet(date)) => format!("is not valid before {date}"),
        None => "says no time for which it is valid".to_owned(),
    };
    Err(TlsError::NotValid { path: path.to_owned(), problem })
}

/// Returns the end of a certificate's time in seconds since 1970; `None` if it names none.
pub(super) fn expiry(certificate: &CertifiedKey) -> Option<i64> {
    let validity = Validity::of(certificate.cert.first()?)?;
    let since_1970 = validity.until().duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since_1970.as_secs()).ok()
}

/// Returns the SHA-256 fingerprint of a certificate, in the format of browsers.
pub(super) fn fingerprint(certificate: &CertifiedKey) -> Option<String> {
    let hash = digest::digest(&digest::SHA256, certificate.cert.first()?);
    let digits: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    Some(digits.join(":"))
}

/// Creates the TLS acceptor for a certificate, and the handle that replaces the certificate.
pub(super) fn acceptor(certificate: Arc<CertifiedKey>) -> Result<(TlsAcceptor, Arc<CertificateResolver>), TlsError> {
    let certificates = Arc::new(CertificateResolver(RwLock::new(certificate)));
    let mut config = server_config(certificates.clone(), &[&TLS13])?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), certificates))
}

/// Creates the settings of a server with a certificate that may be replaced.
pub(super) fn server_config(
    certificates: Arc<CertificateResolver>,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ServerConfig, TlsError> {
    Ok(ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(certificates))
}
