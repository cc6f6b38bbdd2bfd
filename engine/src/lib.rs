//! Speech engine of Repartee: sessions, sub-requests, continuous batching and model families.
//!
//! Uses no network and no async runtime: one thread owns the device and the models (on the processor a few threads may, each with a
//! share of the sessions), callers hold a [`repartee_engine_api::SessionHandle`]. [`Engine`] is the entry point, [`EngineConfig`] its settings.
//!
//! The engine:
//! - `engine`: loads the models, starts the tick loops and opens sessions
//! - `tick_loop`: one loop with its thread
//! - `model_info`: facts of a loaded model for callers
//! - `scheduler`: the tick loop, which depends on the stage interface alone
//! - `answer_forms`: forms that answers are held to
//! - `deadline`: the planner of ticks
//! - `held_form`: a form that an answer is held to, for a stage
//! - `hand_off`: the edges between stages
//! - `session`: history and responses of one session
//! - `audio_input`: open input audio
//! - `model`: a loaded model: audio front end, prompt template, stages, voices, geometry
//! - `voices`: the model's voices and enrolled ones
//! - `stage`: the interface of stages and the items between them
//! - `recogniser`: the interface of models that hear audio as text
//! - `elements`: contents of histories and prompts
//! - `sequence`: block pools and tables of cached positions
//! - `progress`: progress of a start
//! - `device`: choice of the device
//! - [`measure`]: measures a turn on this machine, stage by stage
//!
//! Models:
//! - [`cascade`]: models in a row that serve as one
//! - `checkpoint`: checkpoints in published formats
//! - `models`: model families, one folder each
//! - [`summary`]: summaries of checkpoints, for a person
//! - `weight_policy`: formats of weights, keys and values
//! - `audio`: the log-mel front end
//! - `text`: the tokenizer
//! - `spoken_answers`: defaults of answers that a cascade speaks
//! - `spoken_text`: settings of spoken text
//! - `turn_model`: a model that judges whether a speaker has finished; no session uses it

mod answer_forms;
mod audio;
mod audio_input;
pub mod cascade;
mod checkpoint;
mod config;
mod deadline;
mod device;
mod elements;
mod engine;
mod hand_off;
mod held_form;
pub mod internals;
pub mod measure;
mod model;
mod model_info;
mod models;
mod progress;
mod recogniser;
mod scheduler;
mod sequence;
mod session;
mod spoken_answers;
mod spoken_text;
mod stage;
pub mod summary;
mod text;
mod tick_loop;
mod turn_model;
mod voices;
mod weight_policy;

pub use cascade::parts::CascadeParts;
pub use cascade::remote_model::RemoteModel;
pub use checkpoint::{BadValue, CheckpointError, Source, Synthetic, quantise};
pub use config::{ConfigError, EngineConfig, RENAMED, StageConfig, Timeouts};
pub use device::{DeviceChoice, DeviceError, UnknownDevice, vector_instructions};
pub use engine::{Engine, StartError};
pub use hand_off::HandOff;
pub use model::TopologyError;
pub use models::check_device;
pub use models::licence::LicenceError;
pub use models::load_error::LoadError;
pub use models::smart_turn::TurnModelError;
pub use progress::{StartProgress, StartStage};
pub use spoken_answers::SpokenAnswersConfig;
pub use spoken_text::SpokenTextConfig;
pub use turn_model::TurnModel;
pub use weight_policy::{KvCacheFormat, WeightPolicy};
