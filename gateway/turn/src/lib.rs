//! Turn detection by a model: the probability that a speaker has finished, judged from the last seconds of sound.
//!
//! | file | content |
//! |---|---|
//! | `smart_turn` | [`TurnModel`]: smart-turn v3, a Whisper encoder with a classifier on top |
//! | `features` | its input, a log-mel spectrogram |
//! | `graph` | the weights of the published ONNX file, found by their use |
//! | `protobuf` | the encoding of that file |
//!
//! The published file is read as it is. Its graph is not executed: this crate implements the model with the operations
//! of `repartee-kernels`, in single precision on the calling thread. The file also quantises activations to 8 bits with
//! fixed scales, for integer hardware; here weights are widened and activations are not quantised.

mod features;
mod graph;
mod protobuf;
mod smart_turn;

/// Returns the input spectrogram of smart-turn v3 for a turn (16 kHz, -1..1): 800 frames of 80 mel bins. For tests.
#[doc(hidden)]
pub fn features(turn: &[f32]) -> Vec<f32> {
    features::FeatureExtractor::new(800, 80).map(|features| features.extract(turn)).unwrap_or_default()
}

pub use graph::TurnModelError;
pub use smart_turn::TurnModel;
