//! Talkers: text to codec frames.
//!
//! - [`stage`], [`speech_state`]: the queue of text, the codes that wait for it, and the common end of text and speech
//! - [`codec_lm`]: the language model over codes
//! - [`frames`]: frames of several codes, completed by a code predictor
//! - [`resize_mlp`]: rows of another width

pub mod codec_lm;
pub mod frames;
pub mod resize_mlp;
pub mod speech_state;
pub mod stage;
