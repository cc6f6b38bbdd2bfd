//! Reload of keys and certificate while the server runs.

use std::sync::{Arc, PoisonError};

use thiserror::Error;

use super::AppState;
use super::tls::{self, CertificateResolver, TlsError};
use crate::cli::lan;
use crate::config::{Config, ConfigError};

/// Error of a reload, which then changed nothing.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// The settings are refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The certificate is refused.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The change needs a restart: a server keeps having or lacking keys, and HTTPS.
    #[error("{0} cannot be added or removed while the server runs: restart it")]
    Restart(&'static str),
}

/// Handle that replaces a running server's keys and certificate.
#[derive(Debug, Clone)]
pub struct Reloader {
    pub(super) app: Arc<AppState>,
    pub(super) certificates: Option<Arc<CertificateResolver>>,
}

impl Reloader {
    /// Applies the keys and the certificate of `config`, or changes nothing. Running calls stay, and so do ephemeral keys
    /// whose API key stays.
    pub fn reload(&self, config: &Config) -> Result<(), ReloadError> {
        config.check()?;
        let mut keys = self.app.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.is_empty() != config.api_keys.is_empty() {
            return Err(ReloadError::Restart("keys"));
        }
        match (&self.certificates, tls::certificate(&config.tls, lan::certificate_names)?) {
            (Some(certificates), Some(certificate)) => {
                let expiry = tls::expiry(&certificate).unwrap_or_default();
                self.app.metrics.requests.certificate_expiry.set(expiry);
                certificates.replace(certificate);
            }
            (None, None) => {}
            _ => return Err(ReloadError::Restart("HTTPS")),
        }
        keys.clone_from(&config.api_keys);
        self.app.ephemeral.keep_owners(&keys);
        self.app.budgets.set_keys(&keys);
        Ok(())
    }
}
