//! Checks of the settings: ranges, and contradictions.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::uri::Authority;
use thiserror::Error;

use super::settings::{CascadeConfig, Config};

/// Smallest number of bytes of requests in memory: the decoded sound of the largest request fits.
const MIN_BYTES_IN_FLIGHT: u64 = 64 << 20;
/// Longest timeout of a language model's server.
const LONGEST_ANSWER: Duration = Duration::from_secs(86_400);
/// Longest pause between two attempts, which the server may ask for, and more.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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
    /// Refuses a cascade without its middle, a cascade beside a model, and settings of a server that fit no server.
    pub fn check_models(&self) -> Result<(), ConfigError> {
        let refuse = |path, problem: &str| Err(ConfigError::Value { path, problem: problem.into() });
        let cascade = &self.cascade;
        let CascadeConfig { hear, think, speak, .. } = cascade;
        if hear.is_some() && think.is_none() && speak.is_some() {
            return refuse(
                "cascade.think",
                "is missing between a recogniser and a voice: set it, or leave one of them out",
            );
        }
        if self.model.is_some() && (hear.is_some() || think.is_some() || speak.is_some()) {
            return refuse("model", "is set beside a cascade: keep one of them");
        }
        if cascade.key.is_some() && cascade.key_file.is_some() {
            return refuse("cascade.key_file", "there is cascade.key already: remove one of the two");
        }
        if !(1..=10).contains(&cascade.attempts) {
            return refuse("cascade.attempts", "goes from 1 to 10");
        }
        for (path, timeout) in [
            ("cascade.connect_s", cascade.connect),
            ("cascade.first_token_s", cascade.first_token),
            ("cascade.between_tokens_s", cascade.between_tokens),
            ("cascade.answer_s", cascade.whole),
        ] {
            if timeout.is_zero() || timeout > LONGEST_ANSWER {
                return refuse(path, "has to be more than 0 and at most 86400 seconds");
            }
        }
        // A session whose response makes no progress for this time ends.
        let stage = Duration::from_secs(u64::from(self.engine.timeouts.stage_s));
        if cascade.think.is_some() && LONGEST_PAUSE + cascade.connect + cascade.first_token >= stage {
            let problem = "with cascade.connect_s and 5 seconds it has to be below engine.timeouts.stage_s";
            return refuse("cascade.first_token_s", problem);
        }
        if cascade.think.is_some() && cascade.between_tokens >= stage {
            return refuse("cascade.between_tokens_s", "has to be below engine.timeouts.stage_s");
        }
        Ok(())
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
        if self.health.listen.is_some_and(|health| health == self.listen && health.port() != 0) {
            return refuse("health.listen", "is the address of `listen`: take another port, or leave it out");
        }
        if self.limits.bytes_in_flight < MIN_BYTES_IN_FLIGHT {
            return refuse("limits.bytes_in_flight", "has to be at least 67108864, 64 MiB");
        }
        if !(1..=1_000_000).contains(&self.limits.ephemeral_keys) {
            return refuse("limits.ephemeral_keys", "goes from 1 to 1000000");
        }
        if !(1..=64).contains(&self.turns.threads) {
            return refuse("turns.threads", "goes from 1 to 64");
        }
        if self.voices.most > 10_000 {
            return refuse("voices.most", "goes from 0, which allows none, to 10000");
        }
        if !(1..=10_000).contains(&self.usage.days) {
            return refuse("usage.days", "goes from 1 to 10000");
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
        if let Some(url) = &self.telephony.url
            && !["wss://", "ws://"].iter().any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| rest.contains('/')))
        {
            let problem = format!("`{url}` is no address of a stream: write wss://host/v1/telephony/media-stream");
            return Err(ConfigError::Value { path: "telephony.url", problem });
        }
        if let Some(endpoint) = &self.telemetry.otlp_endpoint {
            let authority = endpoint.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
            if authority.is_none_or(|authority| authority.parse::<Authority>().is_err()) {
                let problem = format!("`{endpoint}` is no endpoint: write http://host:port, without a path");
                return Err(ConfigError::Value { path: "telemetry.otlp_endpoint", problem });
            }
        }
        self.sip.check(self.is_https())?;
        self.cluster.check(self.listen, self.is_https())?;
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
