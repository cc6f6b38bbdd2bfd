//! The speech engine of Repartee: sessions, sub-requests, continuous batching and model families.
//!
//! No network and no async runtime: one thread owns the device and the models, callers hold a
//! [`repartee_engine_api::SessionHandle`].
//!
//! Entry:
//! - [`engine`]: starts the engine and opens sessions
//! - [`config`]: settings
//!
//! The engine thread:
//! - [`scheduler`]: the tick loop, which sees only stages
//! - [`deadline`]: the planner
//! - [`hand_off`]: the edges between stages
//! - [`session`]: history and responses of one session
//! - [`audio_input`]: open input audio
//! - [`stage`]: the interface of stages and the items between them
//! - [`sequence`]: block pools and tables of cached positions
//!
//! Models:
//! - [`checkpoint`]: checkpoints in published formats
//! - [`models`]: one folder a model family
//! - [`audio`]: the log-mel front end
//! - [`text`]: the tokenizer

pub mod audio;
pub mod audio_input;
pub mod checkpoint;
pub mod config;
pub mod deadline;
pub mod engine;
pub mod hand_off;
pub mod models;
pub mod scheduler;
pub mod sequence;
pub mod session;
pub mod stage;
pub mod text;

pub use checkpoint::Source;
pub use config::EngineConfig;
pub use engine::{Engine, StartError};
