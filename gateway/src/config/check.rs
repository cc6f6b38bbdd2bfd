//! Checks of the settings: ranges, and contradictions.

use std::net::SocketAddr;

use axum::http::uri::Authority;
use thiserror::Error;

use super::settings::Config;

/// Error of [`Config::check`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Other machines can reach the address, and there are no keys.
    #[error(
        "listen: {0} can be reached from other machines, and there are no keys, so anyone could call: listen on \
         127.0.0.1 or [::1], or set keys.file or REPARTEE_API_KEYS"
    )]
    Public(SocketAddr),
    /// The engine's settings are out of range.
    #[error(transparent)]
    Engine(#[from] repartee_engine::ConfigError),
    /// A value is out of range or contradicts another.
    #[error("{path}: {problem}")]
    Value {
        /// Path of the setting.
        path: &'static str,
        /// Reason of the refusal.
        problem: String,
    },
}

impl Config {
    /// Refuses half a cascade, and a cascade beside a model.
    pub fn check_models(&self) -> Result<(), ConfigError> {
        let refuse = |path, problem: &str| Err(ConfigError::Value { path, problem: problem.into() });
        match (&self.cascade.think, &self.cascade.speak) {
            (Some(_), None) => refuse("cascade.speak", "is missing: set it too, or set `model` to the language model"),
            (None, Some(_)) => {
                refuse("cascade.think", "is missing: set it too, or set `model` to the model that speaks")
            }
            (Some(_), Some(_)) if self.model.is_some() => refuse("model", "is set beside a cascade: keep one of them"),
            _ => Ok(()),
        }
    }

    /// Checks the settings against their ranges and each other, before anything is loaded.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |path, problem: &str| Err(ConfigError::Value { path, problem: problem.into() });
        for (path, duration) in [
            ("stalled_after_s", self.stalled_after),
            ("ping_every_s", self.ping_every),
            ("limits.head_s", self.limits.head),
            ("limits.request_s", self.limits.request),
            ("webrtc.connect_within_s", self.webrtc.connect_within),
            ("webrtc.turn.ttl_s", self.webrtc.turn.ttl),
        ] {
            if duration.is_zero() {
                return refuse(path, "has to be more than 0 seconds");
            }
        }
        self.check_models()?;
        if self.limits.connections == 0 {
            return refuse("limits.connections", "has to be at least 1");
        }
        if !(1..=64).contains(&self.turns.threads) {
            return refuse("turns.threads", "goes from 1 to 64");
        }
        if self.voices.most > 10_000 {
            return refuse("voices.most", "goes from 0, which allows none, to 10000");
        }
        self.engine.check()?;
        if !(1_024..=262_144).contains(&self.webrtc.max_message_bytes) {
            return refuse("webrtc.max_message_bytes", "goes from 1024 to 262144");
        }
        if self.browser.origins.iter().any(|origin| origin == "*") && self.api_keys.is_empty() {
            return refuse(
                "browser.origins",
                "`*` lets every page of the web call, and there are no keys: name the pages",
            );
        }
        for origin in &self.browser.origins {
            let named = origin.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && !host.is_empty());
            if origin != "*" && (!named || origin.matches('/').count() != 2) {
                let problem = format!("`{origin}` is no origin: write https://host or https://host:port, or * for all");
                return Err(ConfigError::Value { path: "browser.origins", problem });
            }
        }
        if let Some(host) = self.browser.hosts.iter().find(|host| host.is_empty() || host.contains(['/', ':', ','])) {
            let problem = format!("`{host}` is no host name: write voice.internal, without scheme and port");
            return Err(ConfigError::Value { path: "browser.hosts", problem });
        }
        match (&self.tls.certificate, &self.tls.key, self.tls.development) {
            (Some(_), None, _) => return refuse("tls.key", "a certificate needs its key: set both"),
            (None, Some(_), _) => return refuse("tls.certificate", "a key needs its certificate: set both"),
            (Some(_), Some(_), true) => {
                return refuse("tls.development", "there is a certificate already: remove one of the two");
            }
            _ => {}
        }
        if self.webrtc.turn.urls.is_empty() != self.webrtc.turn.secret.is_none() {
            return refuse("webrtc.turn", "set both urls and secret, or neither");
        }
        if let Some(endpoint) = &self.telemetry.otlp_endpoint {
            let authority = endpoint.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
            if authority.is_none_or(|authority| authority.parse::<Authority>().is_err()) {
                let problem = format!("`{endpoint}` is no endpoint: write http://host:port, without a path");
                return Err(ConfigError::Value { path: "telemetry.otlp_endpoint", problem });
            }
        }
        if self.listen.ip().is_loopback() || !self.api_keys.is_empty() {
            return Ok(());
        }
        Err(ConfigError::Public(self.listen))
    }

    /// True if keys and audio may cross a network unencrypted.
    pub fn is_unencrypted(&self) -> bool {
        !self.is_https() && !self.listen.ip().is_loopback()
    }

    /// True if the server serves HTTPS.
    pub fn is_https(&self) -> bool {
        self.tls.certificate.is_some() || self.tls.development
    }
}
