//! The speech engine of Repartee: sessions, sub-requests, continuous batching and model families.
//!
//! No network and no async runtime: one thread owns the device and the models, callers hold a [`repartee_engine_api::SessionHandle`].
//!
//! A caller's way in:
//! - [`engine`]: starts the engine and opens sessions
//! - [`config`]: how it is set up
//! - [`session`]: the handle, its commands and events
//!
//! What the thread does:
//! - [`scheduler`]: the tick loop, which sees only stages
//! - [`deadline`]: what runs next
//! - [`hand_off`]: the edges between stages
//! - [`conversation`]: one session's history and answers
//! - [`hearing`]: sound that is still being spoken
//! - [`stage`]: what a stage is, and what passes between stages
//! - [`sequence`]: block pools and the tables of cached positions
//!
//! What it runs:
//! - [`checkpoint`]: published-format model folders
//! - [`models`]: one folder a model family
//! - [`audio`]: the log-mel front end
//! - [`text`]: the tokenizer

pub mod audio;
pub mod checkpoint;
pub mod config;
pub mod conversation;
pub mod deadline;
pub mod engine;
pub mod hand_off;
pub mod hearing;
pub mod models;
pub mod scheduler;
pub mod sequence;
pub mod stage;
pub mod text;

pub use checkpoint::Source;
pub use config::EngineConfig;
pub use engine::{Engine, StartError};
