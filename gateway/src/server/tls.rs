//! HTTPS: a certificate from files, or a self-signed one for development.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use ::ring::digest;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use super::development_certificate::{DevelopmentCertificateError, development_certificate, load_or_create};
use crate::config::TlsConfig;

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file that cannot be read, or holds something else.
    #[error("{path} holds no {what} in PEM: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What should be in it.
        what: &'static str,
        /// Why it is not.
        error: pem::Error,
    },
    /// Certificate and key do not match, or cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// There is no development certificate.
    #[error(transparent)]
    Development(#[from] DevelopmentCertificateError),
}

/// The certificate in use, which a reload replaces.
#[derive(Debug)]
pub(super) struct CertificateResolver(RwLock<Arc<CertifiedKey>>);

impl CertificateResolver {
    /// Uses another certificate from the next connection on.
    pub fn replace(&self, other: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = other;
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // It is replaced whole, so a panic leaves nothing half done.
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// The certificate of the settings; `None` for plain HTTP. `names` are those of a development certificate.
pub(super) fn certificate(
    tls: &TlsConfig,
    names: impl FnOnce() -> Vec<String>,
) -> Result<Option<Arc<CertifiedKey>>, TlsError> {
    let (chain, key) = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            let no_certificate = |error| TlsError::File { path: certificate.clone(), what: "certificate", error };
            let chain = CertificateDer::pem_file_iter(certificate)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(no_certificate)?;
            if chain.is_empty() {
                return Err(no_certificate(pem::Error::NoItemsFound));
            }
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
            // Ours are whole; a kept one may have been changed by somebody.
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

/// The SHA-256 fingerprint of a certificate, as browsers show it.
pub(super) fn fingerprint(certificate: &CertifiedKey) -> Option<String> {
    let hash = digest::digest(&digest::SHA256, certificate.cert.first()?);
    let digits: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    Some(digits.join(":"))
}

/// The TLS acceptor for a certificate, and the handle that replaces it.
pub(super) fn acceptor(certificate: Arc<CertifiedKey>) -> Result<(TlsAcceptor, Arc<CertificateResolver>), TlsError> {
    let certificates = Arc::new(CertificateResolver(RwLock::new(certificate)));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificates.clone());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), certificates))
}
