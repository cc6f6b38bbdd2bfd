//! Turn detection by a model: how likely it is that a speaker has finished, judged by the sound of the last seconds.
//!
//! | file | what it holds |
//! |---|---|
//! | `smart_turn` | [`TurnModel`]: smart-turn v3, a Whisper encoder with a classifier on top |
//! | `features` | the log-mel spectrogram that it takes |
//! | `graph` | the weights in the published ONNX file, found by what they do |
//! | `protobuf` | the encoding of that file |
//!
//! The published file is read as it is. Its graph is not executed: the model is written out here over the operations of
//! `repartee-kernels`, and runs in single precision on the calling thread. The file quantises activations too, to 8 bits with fixed
//! scales, which serves integer hardware; here weights are widened and activations stay as they are.

mod features;
mod graph;
mod protobuf;
mod smart_turn;

/// The spectrogram that smart-turn v3 takes of a turn (16 kHz, -1..1): 800 frames of 80 mel bins. For tests.
#[doc(hidden)]
pub fn features(turn: &[f32]) -> Vec<f32> {
    features::FeatureExtractor::new(800, 80).map(|features| features.extract(turn)).unwrap_or_default()
}

pub use graph::TurnModelError;
pub use smart_turn::TurnModel;
