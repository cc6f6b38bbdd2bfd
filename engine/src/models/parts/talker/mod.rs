//! Talkers: text to codec frames.
//!
//! - [`model`]: the interface of a talker, and its rows
//! - [`stage`], [`speech_state`]: the queue of text, the codes that wait for it, and the common end of text and speech
//! - [`step`]: one step of the stage
//! - [`codec_lm`]: the language model over codes
//! - [`frames`]: frames of several codes, completed by a code predictor
//! - [`frame_talker`], [`utterance`], [`voice`], [`resize_mlp`]: the talker of Qwen3's families

pub mod codec_lm;
pub mod frame_talker;
pub mod frames;
pub mod model;
pub mod resize_mlp;
pub mod speech_state;
pub mod stage;
pub mod step;
pub mod utterance;
pub mod voice;
