//! New keys and a new certificate while calls go on.

use std::sync::{Arc, PoisonError};

use thiserror::Error;

use super::App;
use super::tls::{self, Certificates, TlsError};
use crate::cli::lan;
use crate::config::{Config, ConfigError};

/// Why nothing was changed.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// The settings are refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The certificate is.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A server with keys cannot become one without, nor the other way round, and HTTPS stays what it is.
    #[error("{0} cannot come or go while the server runs: start it again")]
    Restart(&'static str),
}

/// Exchanges a running server's keys and certificate.
#[derive(Debug, Clone)]
pub struct Reloader {
    pub(super) app: Arc<App>,
    pub(super) certificates: Option<Arc<Certificates>>,
}

impl Reloader {
    /// Takes the keys and the certificate of `config`, or changes nothing. Calls that run go on; so do ephemeral keys.
    pub fn reload(&self, config: &Config) -> Result<(), ReloadError> {
        config.check()?;
        let mut keys = self.app.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.is_empty() != config.api_keys.is_empty() {
            return Err(ReloadError::Restart("keys"));
        }
        match (&self.certificates, tls::certificate(&config.tls, lan::names)?) {
            (Some(certificates), Some(certificate)) => certificates.exchange(certificate),
            (None, None) => {}
            _ => return Err(ReloadError::Restart("HTTPS")),
        }
        keys.clone_from(&config.api_keys);
        Ok(())
    }
}
