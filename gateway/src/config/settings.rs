//! Every setting of the server, with its default.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use repartee_engine::EngineConfig;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::barge_in::BargeInSetting;
use super::cluster::ClusterConfig;
use super::recording::RecordingConfig;
use super::seconds;
use super::secret::Secret;
use super::sip::SipConfig;
use super::think_source::ThinkSource;
use super::turn_model::TurnModelSource;
use crate::auth::KeySet;
use crate::telemetry::LogFormat;

/// Default address of [`Config::listen`].
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// All settings of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address to listen on; port 0 takes any free port. An address that other machines can reach needs API keys.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// Folder of the checkpoint; `None` for the embedded demo.
    pub model: Option<PathBuf>,
    /// Two models that serve as one.
    pub cascade: CascadeConfig,
    /// Write timeout: a socket that accepts no data for this time is closed.
    #[serde(rename = "stalled_after_s", with = "seconds")]
    pub stalled_after: Duration,
    /// Interval of websocket pings.
    #[serde(rename = "ping_every_s", with = "seconds")]
    pub ping_every: Duration,
    /// Time for running turns to end when the server shuts down.
    #[serde(rename = "drain_s", with = "seconds")]
    pub drain: Duration,
    /// True if calls go on within that time until their callers end them; otherwise each ends after its turn.
    pub drain_calls: bool,
    /// Settings of the listener for health checks.
    pub health: HealthConfig,
    /// Settings of API keys.
    pub keys: KeyConfig,
    /// Origins and host names that the server accepts.
    pub browser: BrowserConfig,
    /// Limits of calls and connections.
    pub limits: LimitConfig,
    /// Settings of turn detection.
    pub turns: TurnDetectionConfig,
    /// Settings of voices enrolled from recordings.
    pub voices: VoiceConfig,
    /// Settings of the usage ledger.
    pub usage: UsageConfig,
    /// Settings of HTTPS.
    pub tls: TlsConfig,
    /// Settings of a reverse proxy.
    pub proxy: ProxyConfig,
    /// Settings of WebRTC calls.
    pub webrtc: WebRtcConfig,
    /// Settings of telephone calls over Media Streams.
    pub telephony: TelephonyConfig,
    /// Recorded telephone calls.
    pub recording: RecordingConfig,
    /// Settings of telephone calls over SIP.
    pub sip: SipConfig,
    /// Settings of a node that shares calls with others.
    pub cluster: ClusterConfig,
    /// Settings of the log.
    pub log: LogConfig,
    /// Settings of traces.
    pub telemetry: TelemetryConfig,
    /// Settings of the engine.
    pub engine: EngineConfig,
    /// Hashes of the API keys, from [`KeyConfig::file`] and the environment.
    #[serde(skip)]
    pub api_keys: KeySet,
    /// Card of the checkpoint as JSON for the demo page: `name`, `ask` (questions), `note` and `remembers`; every field
    /// is optional.
    #[serde(skip)]
    pub card: Option<String>,
}

/// Settings of the listener for health checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// Address that serves `/healthz`, `/readyz`, `/metrics` and the usage of all keys alone, over plain HTTP; `None` for the main address only.
    pub listen: Option<SocketAddr>,
}

/// Settings of API keys. The keys themselves are not settings: see [`Config::api_keys`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyConfig {
    /// File with one key a line; `None` for no file.
    pub file: Option<PathBuf>,
    /// True if `/metrics` needs a key on a server with keys.
    pub metrics: bool,
}

/// Origins and host names that the server accepts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrowserConfig {
    /// Allowed origins such as `https://app.example`, besides the server's own and loopback ones; `*` allows all.
    pub origins: Vec<String>,
    /// Host names of this machine, besides `localhost`, that requests to a server without keys may use.
    pub hosts: Vec<String>,
}

/// Limits of calls, keys, connections and requests. 0 means no limit, except for `ephemeral_keys`, `connections`,
/// `bytes_in_flight`, `head` and `request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitConfig {
    /// Maximum concurrent calls with one key; with 0 and several keys half of the sessions.
    pub calls_per_key: u32,
    /// Maximum concurrent calls from one address; loopback is not counted.
    pub calls_per_address: u32,
    /// Refuse calls while the machine has no headroom: while frames are late, the runtime or the engine is, or the processors
    /// or the engine's ticks would be full with one call more.
    pub headroom: bool,
    /// Maximum requests for calls and ephemeral keys from one address in a minute; loopback is not counted.
    pub opens_per_minute: u32,
    /// Maximum prompt tokens of one key that are computed in a minute.
    pub prefill_tokens_per_minute: u32,
    /// Maximum tokens that are generated for one key in a minute.
    pub decode_tokens_per_minute: u32,
    /// Maximum seconds of input sound of one key in a minute.
    pub sound_s_per_minute: u32,
    /// Maximum seconds of input sound that wait to be heard, of all calls; of one key half of it if there are several.
    pub waiting_sound_s: u32,
    /// Maximum valid ephemeral keys, of all API keys; of one key half of it if there are several.
    pub ephemeral_keys: u32,
    /// Maximum wrong keys from one address in a minute before the answers are delayed and say so.
    pub wrong_keys_per_minute: u32,
    /// Maximum duration of a call.
    #[serde(rename = "call_s", with = "seconds")]
    pub call: Duration,
    /// Maximum time without an event or audio from the caller, before the call ends.
    #[serde(rename = "idle_s", with = "seconds")]
    pub idle: Duration,
    /// Maximum concurrent connections; an upgraded websocket is not counted.
    pub connections: u32,
    /// Maximum concurrent connections from one address; trusted proxies and loopback are not counted.
    pub connections_per_address: u32,
    /// Maximum bytes of requests in memory, such as uploads and offers, and of large messages over websockets.
    pub bytes_in_flight: u64,
    /// Maximum bytes of a sound file that is transcribed.
    pub file_bytes: u64,
    /// Maximum sound of such a file.
    #[serde(rename = "file_s", with = "seconds")]
    pub file: Duration,
    /// Timeout of reading a request's head, and of the TLS handshake before it.
    #[serde(rename = "head_s", with = "seconds")]
    pub head: Duration,
    /// Timeout of reading a request's body; its bytes extend it.
    #[serde(rename = "request_s", with = "seconds")]
    pub request: Duration,
}

/// Settings of turn detection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TurnDetectionConfig {
    /// Longest turn that turn detection leaves open; then it is committed. Zero for no limit.
    #[serde(rename = "longest_s", with = "seconds")]
    pub longest: Duration,
    /// True if the echo of the server's playback in a caller's sound is cancelled.
    pub echo_cancellation: bool,
    /// Policy by which a voice interrupts an answer.
    pub barge_in: BargeInSetting,
    /// Model that judges the pauses of sessions with `semantic_vad`.
    pub model: TurnModelSource,
    /// Number of threads that run the model.
    pub threads: usize,
}

/// Settings of voices enrolled from recordings, for a model that takes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VoiceConfig {
    /// Folder of the voices and the recorded consents; without one they are lost when the server ends.
    pub folder: Option<PathBuf>,
    /// Maximum number of voices, and of consents.
    pub most: usize,
}

/// Settings of the usage ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UsageConfig {
    /// File of the ledger; without one the usage is lost when the server ends.
    pub file: Option<PathBuf>,
    /// Days that are kept, the present one included.
    pub days: u32,
}

/// Settings of HTTPS. Without a certificate the server speaks plain HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file of the certificate chain.
    pub certificate: Option<PathBuf>,
    /// PEM file of the private key.
    pub key: Option<PathBuf>,
    /// True to make a self-signed certificate at start.
    pub development: bool,
    /// Folder that stores the self-signed certificate between starts.
    pub keep: Option<PathBuf>,
}

/// Settings of a reverse proxy in front of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxyConfig {
    /// Networks of trusted proxies: their `X-Forwarded-For`, `-Proto` and `-Host` are believed.
    pub trusted: Vec<IpNet>,
}

/// Settings of WebRTC calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebRtcConfig {
    /// UDP address of all calls; `None` for a free port of the HTTP address, or of all addresses if that is loopback.
    pub udp: Option<SocketAddr>,
    /// Addresses to announce in place of this machine's own.
    pub advertised: Vec<IpAddr>,
    /// Maximum size of a caller's message, in bytes.
    pub max_message_bytes: u32,
    /// Time for an answered call to connect; later it is closed.
    #[serde(rename = "connect_within_s", with = "seconds")]
    pub connect_within: Duration,
    /// Assumed jitter buffer of the caller: duration of audio that was received and not heard yet.
    #[serde(rename = "receiver_buffer_s", with = "seconds")]
    pub receiver_buffer: Duration,
    /// TURN relays for callers without a direct path.
    pub turn: TurnServerConfig,
}

/// Settings of TURN relays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TurnServerConfig {
    /// URLs of the relays, such as `turn:turn.example:3478?transport=udp`.
    pub urls: Vec<String>,
    /// Secret shared with the relay; the callers' credentials are derived from it.
    pub secret: Option<Secret>,
    /// Lifetime of the callers' credentials.
    #[serde(rename = "ttl_s", with = "seconds")]
    pub ttl: Duration,
}

/// Settings of telephone calls over Twilio's Media Streams protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelephonyConfig {
    /// Token of the account at the provider: a request that it signs needs no key.
    pub secret: Option<Secret>,
    /// URL that the provider connects to and signs; `None` for the one that the request names.
    pub url: Option<String>,
    /// Instructions of a first answer to everybody who calls by telephone; `None` to wait for the caller.
    pub greeting: Option<String>,
}

/// Settings of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Format of log lines.
    pub format: LogFormat,
    /// Log every request with its status, its duration and its client's address.
    pub access: bool,
}

/// Settings of a cascade: a recogniser, a language model, and a model that speaks its text. Each may be left out, but
/// not the one between the two others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CascadeConfig {
    /// Folder of the recogniser's checkpoint.
    pub hear: Option<PathBuf>,
    /// Folder of the language model's checkpoint, or URL of a chat-completions server.
    pub think: Option<ThinkSource>,
    /// Folder of the checkpoint that speaks.
    pub speak: Option<PathBuf>,
    /// Model of the server; `None` for its only one.
    pub model: Option<String>,
    /// Key of the server, sent as a bearer token.
    pub key: Option<Secret>,
    /// File that holds the key alone.
    pub key_file: Option<PathBuf>,
    /// PEM file of certificates to trust beside the system's.
    pub certificates: Option<PathBuf>,
    /// Sentence that is spoken in place of a failed answer; empty for none.
    pub fallback: String,
    /// Field of requests that limits the tokens of an answer.
    pub token_limit: TokenLimitField,
    /// Maximum number of attempts of a request; only a failure before the first token leads to another one.
    pub attempts: u32,
    /// Timeout of a connection to the server.
    #[serde(rename = "connect_s", with = "seconds")]
    pub connect: Duration,
    /// Timeout of the first token after a request.
    #[serde(rename = "first_token_s", with = "seconds")]
    pub first_token: Duration,
    /// Timeout of each further token.
    #[serde(rename = "between_tokens_s", with = "seconds")]
    pub between_tokens: Duration,
    /// Timeout of a whole answer, with all attempts.
    #[serde(rename = "answer_s", with = "seconds")]
    pub whole: Duration,
}

/// Field of requests that limits the tokens of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenLimitField {
    /// `max_tokens`, which most servers know.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, which some models of hosted services demand.
    MaxCompletionTokens,
}

/// Settings of traces of calls, turns and stages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// URL of the OTLP collector, such as `http://127.0.0.1:4318`; `None` for no traces.
    pub otlp_endpoint: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: DEFAULT_LISTEN,
            model: None,
            cascade: CascadeConfig::default(),
            stalled_after: Duration::from_secs(10),
            ping_every: Duration::from_secs(20),
            drain: Duration::from_secs(25),
            drain_calls: false,
            health: HealthConfig::default(),
            keys: KeyConfig::default(),
            browser: BrowserConfig::default(),
            limits: LimitConfig::default(),
            turns: TurnDetectionConfig::default(),
            voices: VoiceConfig::default(),
            usage: UsageConfig::default(),
            tls: TlsConfig::default(),
            proxy: ProxyConfig::default(),
            webrtc: WebRtcConfig::default(),
            telephony: TelephonyConfig::default(),
            recording: RecordingConfig::default(),
            sip: SipConfig::default(),
            cluster: ClusterConfig::default(),
            log: LogConfig::default(),
            telemetry: TelemetryConfig::default(),
            engine: EngineConfig::default(),
            api_keys: KeySet::default(),
            card: None,
        }
    }
}

impl Default for CascadeConfig {
    fn default() -> Self {
        Self {
            hear: None,
            think: None,
            speak: None,
            model: None,
            key: None,
            key_file: None,
            certificates: None,
            fallback: "Sorry, I cannot answer right now. Please ask me again.".to_owned(),
            token_limit: TokenLimitField::default(),
            attempts: 2,
            connect: Duration::from_secs(5),
            first_token: Duration::from_secs(20),
            between_tokens: Duration::from_secs(10),
            whole: Duration::from_secs(300),
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
            headroom: true,
            opens_per_minute: 120,
            prefill_tokens_per_minute: 0,
            decode_tokens_per_minute: 0,
            sound_s_per_minute: 0,
            waiting_sound_s: 3_600,
            ephemeral_keys: 4_096,
            wrong_keys_per_minute: 30,
            call: Duration::from_secs(3_600),
            idle: Duration::ZERO,
            connections: 2_048,
            connections_per_address: 128,
            bytes_in_flight: 160 << 20,
            file_bytes: 25 << 20,
            file: Duration::from_secs(7_200),
            head: Duration::from_secs(5),
            request: Duration::from_secs(15),
        }
    }
}

impl Default for TurnDetectionConfig {
    fn default() -> Self {
        Self {
            longest: Duration::from_secs(60),
            echo_cancellation: true,
            barge_in: BargeInSetting::default(),
            model: TurnModelSource::default(),
            threads: 1,
        }
    }
}

impl Default for UsageConfig {
    fn default() -> Self {
        Self { file: None, days: 400 }
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

/// Reads an address; `localhost` is the loopback address.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    let named = text.strip_prefix("localhost:").map(|port| format!("{}:{port}", Ipv4Addr::LOCALHOST));
    let explain =
        |_| de::Error::custom(format!("`{text}` is no address: write 127.0.0.1:8080, localhost:8080 or [::1]:8080"));
    named.as_ref().unwrap_or(&text).parse().map_err(explain)
}
