//! Depth models: the codes of a frame one after another, with a short KV cache of their own.
//!
//! - [`model`]: the model in general: delays, several frames, layers for each step
//! - [`code_predictor`]: the one of Qwen3's talkers

pub mod code_predictor;
pub mod model;
