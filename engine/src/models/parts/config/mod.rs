//! Configurations: one struct for each section of a checkpoint's files.
//!
//! A struct's `read` is the table of its fields: one line a field, with its name in the file, its default and the
//! allowed values ([`ConfigSection`]), the bounds of which stand in [`limits`]. Fields of which one value is supported are
//! checked, but not kept. Names are those of the references; defaults are those of their configuration classes, and a
//! family names those that differ. Older files, with `rope_theta` and `rope_scaling` outside `rope_parameters`, are read
//! as well. Sizes are numbers of elements unless stated otherwise.

mod audio_tower;
mod codec;
pub mod conformer;
mod language_model;
pub mod limits;
mod rope;
mod section;
pub mod short_conv;
mod speaker_encoder;
mod speech_codec;
pub mod tagged_yaml;

pub use self::audio_tower::AudioTowerConfig;
pub use self::codec::{Code2WavConfig, CodeInput};
pub use self::language_model::{
    CodePredictorConfig, LanguageModelConfig, LayersConfig, LayersDefaults, RotaryFields, TALKER, THINKER,
    layer_window, switched_window,
};
pub use self::section::{ConfigFile, ConfigSection};
pub use self::speaker_encoder::{SpeakerDefaults, SpeakerEncoderConfig};
pub use self::speech_codec::SpeechCodecConfig;
use crate::checkpoint::CheckpointError;

/// Refuses a text-only file of a model with thinker and talker; such a file lacks the talker's section.
pub fn require_audio_output(top: &ConfigSection<'_>) -> Result<(), CheckpointError> {
    let allowed = "true: text-only checkpoints cannot be served";
    top.value("enable_audio_output", true, |enabled| enabled, allowed).map(|_| ())
}
