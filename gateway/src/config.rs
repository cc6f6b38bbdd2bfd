//! The server's settings.

use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

/// Where the server listens if nothing else is said.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// The server's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where to listen; port 0 takes any free one. Only addresses of this machine itself, for there are no keys.
    pub listen: SocketAddr,
    /// A socket that takes nothing for so long is closed.
    pub stalled_after: Duration,
    /// How long running calls may take to say good-bye when the server goes down.
    pub drain: Duration,
    /// What the checkpoint says of itself to people, as JSON for the demo page: `name`, `ask` (questions), `note`,
    /// `remembers`; every field may be missing.
    pub card: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: DEFAULT_LISTEN,
            stalled_after: Duration::from_secs(10),
            drain: Duration::from_secs(5),
            card: None,
        }
    }
}

/// Settings that are refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The address can be reached from other machines.
    #[error(
        "{0} can be reached from other machines, and there are no keys to keep strangers out: listen on 127.0.0.1 or [::1]"
    )]
    Public(SocketAddr),
}

impl Config {
    /// Says what is wrong with the settings, before anything is loaded.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.listen.ip().is_loopback() { Ok(()) } else { Err(ConfigError::Public(self.listen)) }
    }
}
