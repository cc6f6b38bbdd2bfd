//! HTTPS: a certificate from files, or a self-signed one made at start for development.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use crate::config::Tls;

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
    /// A development certificate could not be made.
    #[error("no certificate could be made: {0}")]
    Making(#[from] rcgen::Error),
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate")
    }
}

/// Makes a self-signed certificate for these names and addresses.
pub fn development_certificate(names: Vec<String>) -> Result<Certificate, TlsError> {
    let made = rcgen::generate_simple_self_signed(names)?;
    Ok(Certificate { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() })
}

/// The certificate in use, which a reload replaces.
#[derive(Debug)]
pub(super) struct Certificates(RwLock<Arc<CertifiedKey>>);

impl Certificates {
    /// Uses another certificate from the next connection on.
    pub fn replace(&self, other: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = other;
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // It is replaced whole, so a panic leaves nothing half done.
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// The certificate of the settings; `None` for plain HTTP. `names` are those of a development certificate.
pub(super) fn certificate(
    tls: &Tls,
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
            let made = rcgen::generate_simple_self_signed(names())?;
            (vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()))
        }
        _ => return Ok(None),
    };
    Ok(Some(Arc::new(CertifiedKey::from_der(chain, key, &ring::default_provider())?)))
}

/// The TLS acceptor for a certificate, and the handle that replaces it.
pub(super) fn acceptor(certificate: Arc<CertifiedKey>) -> Result<(TlsAcceptor, Arc<Certificates>), TlsError> {
    let certificates = Arc::new(Certificates(RwLock::new(certificate)));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificates.clone());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), certificates))
}
