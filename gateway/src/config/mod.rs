//! The server's settings, their defaults and their checks.
//!
//! - `load`: from a file, the environment and the command line
//! - `print`: the effective settings as TOML
//! - `renamed`: old names of settings
//! - `secret`: settings that are never printed
//!
//! `repartee.example.toml` describes every setting for the person who sets it.

mod load;
mod print;
mod renamed;
mod secret;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use axum::http::uri::Authority;
use ipnet::IpNet;
use repartee_engine::EngineConfig;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::auth::KeySet;
use crate::telemetry::LogFormat;
pub use load::{LoadError, LoadedConfig, load};
pub use renamed::RenamedSetting;
pub use secret::Secret;

/// The default of `listen`.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Every setting, described: the file to copy.
pub const EXAMPLE: &str = include_str!("../../../repartee.example.toml");

/// The server's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where to listen; port 0 takes any free one. Addresses that other machines reach need keys.
    pub listen: SocketAddr,
    /// Folder of the checkpoint; `None` for the demo.
    pub model: Option<PathBuf>,
    /// A socket that accepts nothing for so long is closed.
    #[serde(rename = "stalled_after_s", with = "seconds")]
    pub stalled_after: Duration,
    /// How often a websocket is pinged.
    #[serde(rename = "ping_every_s", with = "seconds")]
    pub ping_every: Duration,
    /// How long running turns may take to end when the server shuts down.
    #[serde(rename = "drain_s", with = "seconds")]
    pub drain: Duration,
    /// API keys.
    pub keys: KeyConfig,
    /// Web pages that may call.
    pub browser: BrowserConfig,
    /// Limits of one caller.
    pub limits: LimitConfig,
    /// When a caller's turn has ended.
    pub turns: TurnDetectionConfig,
    /// Voices made out of recordings.
    pub voices: VoiceConfig,
    /// HTTPS.
    pub tls: TlsConfig,
    /// The reverse proxy in front.
    pub proxy: ProxyConfig,
    /// Calls over WebRTC.
    pub webrtc: WebRtcConfig,
    /// The log.
    pub log: LogConfig,
    /// Traces.
    pub telemetry: TelemetryConfig,
    /// The engine.
    pub engine: EngineConfig,
    /// The API keys, from [`Keys::file`] and the environment.
    #[serde(skip)]
    pub api_keys: KeySet,
    /// The checkpoint's card, as JSON for the demo page: `name`, `ask` (questions), `note`, `remembers`; every field may be
    /// missing.
    #[serde(skip)]
    pub card: Option<String>,
}

/// API keys. The keys themselves are no settings: see [`Config::api_keys`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyConfig {
    /// A file with one key a line.
    pub file: Option<PathBuf>,
    /// Whether `/metrics` needs a key as well, once there are keys.
    pub metrics: bool,
}

/// Web pages that may call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrowserConfig {
    /// Origins such as `https://app.example`, besides the server's own and loopback ones; `*` for all.
    pub origins: Vec<String>,
    /// Names of this machine besides `localhost` by which a server without keys may be asked.
    pub hosts: Vec<String>,
}

/// Limits of one caller. 0 stands for no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitConfig {
    /// Calls at once with one key.
    pub calls_per_key: u32,
    /// Calls at once from one address; this machine's own are not counted.
    pub calls_per_address: u32,
    /// Calls and ephemeral keys asked for from one address in a minute; this machine's own are not counted.
    pub opens_per_minute: u32,
    /// How long a call may last.
    #[serde(rename = "call_s", with = "seconds")]
    pub call: Duration,
    /// How long a caller may send nothing, neither an event nor sound, before the call ends.
    #[serde(rename = "idle_s", with = "seconds")]
    pub idle: Duration,
    /// Connections at once, of any kind; an open websocket is none any more.
    pub connections: u32,
    /// Of these, how many from one address; trusted proxies' and this machine's own are not counted.
    pub connections_per_address: u32,
    /// How long the head of a request may take to arrive, and the TLS handshake before it.
    #[serde(rename = "head_s", with = "seconds")]
    pub head: Duration,
    /// How long the body of a request may take to arrive.
    #[serde(rename = "request_s", with = "seconds")]
    pub request: Duration,
}

/// When a caller's turn has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TurnDetectionConfig {
    /// A turn-detection model, smart-turn v3 as its ONNX file; `None` to judge pauses by the eagerness alone.
    pub model: Option<PathBuf>,
    /// Threads that run it.
    pub threads: usize,
}

/// Voices made out of recordings, where the model takes any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VoiceConfig {
    /// A folder that keeps them and the recorded consents; without one they are gone when the server ends.
    pub folder: Option<PathBuf>,
    /// Most voices, and most consents.
    pub most: usize,
}

/// HTTPS. Without a certificate the server speaks plain HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate chain, PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// Make a self-signed certificate at start.
    pub development: bool,
    /// A folder that keeps it between starts.
    pub keep: Option<PathBuf>,
}

/// The reverse proxy in front.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxyConfig {
    /// Whose `X-Forwarded-For`, `-Proto` and `-Host` are believed.
    pub trusted: Vec<IpNet>,
}

/// Calls over WebRTC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebRtcConfig {
    /// The UDP socket of all calls; `None` for a free port of the address that HTTP is served on.
    pub udp: Option<SocketAddr>,
    /// Addresses to announce instead of this machine's own.
    pub advertised: Vec<IpAddr>,
    /// The longest message accepted from a caller, in bytes.
    pub max_message_bytes: u32,
    /// A call that was answered but not connected for so long is freed.
    #[serde(rename = "connect_within_s", with = "seconds")]
    pub connect_within: Duration,
    /// The jitter buffer that the caller is assumed to have: audio that was received but not heard yet.
    #[serde(rename = "receiver_buffer_s", with = "seconds")]
    pub receiver_buffer: Duration,
    /// Relays for callers that no direct path reaches.
    pub turn: TurnServerConfig,
}

/// TURN relays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TurnServerConfig {
    /// Such as `turn:turn.example:3478?transport=udp`.
    pub urls: Vec<String>,
    /// Shared with the relay; callers get credentials made of it.
    pub secret: Option<Secret>,
    /// Lifetime of the credentials.
    #[serde(rename = "ttl_s", with = "seconds")]
    pub ttl: Duration,
}

/// The log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// How a line is written.
    pub format: LogFormat,
}

/// Traces of calls, turns and stages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The collector, such as `http://127.0.0.1:4318`; `None` for no traces.
    pub otlp_endpoint: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: DEFAULT_LISTEN,
            model: None,
            stalled_after: Duration::from_secs(10),
            ping_every: Duration::from_secs(20),
            drain: Duration::from_secs(25),
            keys: KeyConfig::default(),
            browser: BrowserConfig::default(),
            limits: LimitConfig::default(),
            turns: TurnDetectionConfig::default(),
            voices: VoiceConfig::default(),
            tls: TlsConfig::default(),
            proxy: ProxyConfig::default(),
            webrtc: WebRtcConfig::default(),
            log: LogConfig::default(),
            telemetry: TelemetryConfig::default(),
            engine: EngineConfig::default(),
            api_keys: KeySet::default(),
            card: None,
        }
    }
}

impl Default for KeyConfig {
    fn default() -> Self {
        Self { file: None, metrics: true }
    }
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            calls_per_key: 0,
            calls_per_address: 16,
            opens_per_minute: 120,
            call: Duration::from_secs(3_600),
            idle: Duration::ZERO,
            connections: 2_048,
            connections_per_address: 128,
            head: Duration::from_secs(5),
            request: Duration::from_secs(15),
        }
    }
}

impl Default for TurnDetectionConfig {
    fn default() -> Self {
        Self { model: None, threads: 1 }
    }
}

impl Default for VoiceConfig {
    fn default() -> Self {
        Self { folder: None, most: 64 }
    }
}

impl Default for ProxyConfig {
    fn default() -> Self {
        let loopback = [
            IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
            IpNet::new_assert(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128),
        ];
        Self { trusted: loopback.to_vec() }
    }
}

impl Default for WebRtcConfig {
    fn default() -> Self {
        Self {
            udp: None,
            advertised: Vec::new(),
            max_message_bytes: 256 << 10,
            connect_within: Duration::from_secs(30),
            receiver_buffer: Duration::from_millis(60),
            turn: TurnServerConfig::default(),
        }
    }
}

impl Default for TurnServerConfig {
    fn default() -> Self {
        Self { urls: Vec::new(), secret: None, ttl: Duration::from_secs(3_600) }
    }
}

/// Settings that are refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The address can be reached from other machines.
    #[error(
        "listen: {0} can be reached from other machines, and there are no keys to keep strangers out: listen on \
         127.0.0.1 or [::1], or set keys.file or REPARTEE_API_KEYS"
    )]
    Public(SocketAddr),
    /// The engine's settings are out of range.
    #[error(transparent)]
    Engine(#[from] repartee_engine::ConfigError),
    /// A value that is out of range or contradicts another.
    #[error("{path}: {problem}")]
    Value {
        /// Which setting.
        path: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl Config {
    /// Checks the settings, before anything is loaded.
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
            (Some(_), None, _) => return refuse("tls.key", "a certificate needs its key"),
            (None, Some(_), _) => return refuse("tls.certificate", "a key needs its certificate"),
            (Some(_), Some(_), true) => {
                return refuse("tls.development", "there is a certificate already: remove one of the two");
            }
            _ => {}
        }
        if self.webrtc.turn.urls.is_empty() != self.webrtc.turn.secret.is_none() {
            return refuse("webrtc.turn", "urls and secret go together");
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

    /// Whether keys and audio may cross a network unencrypted.
    pub fn is_unencrypted(&self) -> bool {
        !self.is_https() && !self.listen.ip().is_loopback()
    }

    /// Whether the server serves HTTPS.
    pub fn is_https(&self) -> bool {
        self.tls.certificate.is_some() || self.tls.development
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print::settings(self, f)
    }
}

/// Durations as a number of seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    /// A year: no setting needs more, and every clock can be moved on by as much.
    const LONGEST: u64 = 365 * 24 * 3_600;

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        if duration.subsec_nanos() == 0 {
            serializer.serialize_u64(duration.as_secs())
        } else {
            serializer.serialize_f64(duration.as_secs_f64())
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|duration| *duration <= Duration::from_secs(LONGEST))
            .ok_or_else(|| de::Error::custom(format!("{seconds} is no number of seconds from 0 to {LONGEST}, a year")))
    }
}
