//! Qwen3-Omni: audio tower, thinker, talker with code predictor, code2wav.

mod as_written;
pub mod config;
pub mod generation;
mod validate;
