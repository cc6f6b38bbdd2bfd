//! Settings of the server, their defaults and checks.
//!
//! - `settings`: every setting, with its default
//! - `cluster`: settings of a node that shares calls with others; `check_cluster`: their checks
//! - `barge_in`: policy of interruptions
//! - `check`: ranges, and contradictions between settings
//! - `files`: files of secrets that other users can read
//! - `load`: loading from a file, the environment and the command line
//! - `print`: printing the effective settings as TOML
//! - `renamed`: old names of settings
//! - `seconds`: durations as numbers of seconds
//! - `secret`: settings that are never printed
//! - `recording`: settings of recorded calls
//! - `sip`: settings of telephone calls over SIP; `sip_address`: their addresses; `check_sip`: their checks
//! - `think_source`: folder or URL of a cascade's language model
//! - `turn_model`: turn-detection model
//!
//! `repartee.example.toml` describes every setting for users.

mod barge_in;
mod check;
mod check_cluster;
mod check_sip;
mod cluster;
mod files;
mod load;
mod print;
mod recording;
mod renamed;
mod seconds;
mod secret;
mod settings;
mod sip;
mod sip_address;
mod think_source;
mod turn_model;

pub use barge_in::BargeInSetting;
pub use check::ConfigError;
pub use cluster::ClusterConfig;
pub use load::{LoadError, LoadedConfig, load, unknown_variables};
pub use recording::RecordingConfig;
pub use renamed::RenamedSetting;
pub use secret::Secret;
pub use settings::{
    BrowserConfig, CascadeConfig, Config, DEFAULT_LISTEN, HealthConfig, KeyConfig, LimitConfig, LogConfig, ProxyConfig,
    TelemetryConfig, TelephonyConfig, TlsConfig, TokenLimitField, TurnDetectionConfig, TurnServerConfig, UsageConfig,
    VoiceConfig, WebRtcConfig,
};
pub use sip::SipConfig;
pub use sip_address::{SipAddress, SipScheme};
pub use think_source::ThinkSource;
pub use turn_model::TurnModelSource;

/// Contents of `repartee.example.toml`, which describes every setting.
pub const EXAMPLE: &str = include_str!("../../../repartee.example.toml");
