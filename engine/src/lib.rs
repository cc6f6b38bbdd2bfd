//! The speech engine of Repartee: sessions, sub-requests, continuous batching and model families.
//!
//! No network and no async runtime: one thread owns the device and the models, callers hold a
//! [`repartee_engine_api::SessionHandle`]. [`Engine`] is the entry, [`EngineConfig`] its settings.
//!
//! The engine thread:
//! - `engine`: starts the thread and opens sessions
//! - `scheduler`: the tick loop, which sees only stages
//! - `deadline`: the planner
//! - `hand_off`: the edges between stages
//! - `session`: history and responses of one session
//! - `audio_input`: open input audio
//! - `model`: what a family loads: ears, script, stages, voices, geometry
//! - `voices`: the model's voices, and those that are made while it runs
//! - `stage`: the interface of stages and the items between them
//! - `elements`: what a history and a prompt are made of
//! - `sequence`: block pools and tables of cached positions
//! - `progress`: how far a start has come
//! - `device`: where models run
//! - [`measure`]: what a turn takes on this machine, stage by stage
//!
//! Models:
//! - `checkpoint`: checkpoints in published formats
//! - `models`: one folder a model family
//! - `weight_policy`: which weights are kept as integers, and how keys and values are
//! - `audio`: the log-mel front end
//! - `text`: the tokenizer

mod audio;
mod audio_input;
mod checkpoint;
mod config;
mod deadline;
mod device;
mod elements;
mod engine;
mod hand_off;
pub mod internals;
pub mod measure;
mod model;
mod models;
mod progress;
mod scheduler;
mod sequence;
mod session;
mod stage;
mod text;
mod voices;
mod weight_policy;

pub use audio::log_mel::{LogMel, LogMelConfig};
pub use checkpoint::{BadValue, CheckpointError, Source, Synthetic, quantise};
pub use config::{ConfigError, EngineConfig, RENAMED, StageConfig, Timeouts};
pub use device::{DeviceChoice, DeviceError, UnknownDevice};
pub use engine::{Engine, StartError};
pub use hand_off::HandOff;
pub use model::TopologyError;
pub use models::LoadError;
pub use progress::{StartProgress, StartStage};
pub use weight_policy::{KvCacheFormat, WeightPolicy};
