//! config.json as the published files have it. Absent fields and `null` take the defaults of the references'
//! configuration classes; a family names those that differ. Older files, with `rope_theta` and `rope_scaling` outside
//! `rope_parameters`, are read as well.

mod audio;
mod codec;
mod language_model;
mod speaker_encoder;

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use self::audio::RawAudio;
pub use self::codec::RawCode2Wav;
pub use self::language_model::{LayersDefaults, RawLanguageModel};
pub use self::speaker_encoder::RawSpeakerEncoder;
use super::checks::ConfigSection;
use super::config::Rope;
use crate::checkpoint::{BadValue, CONFIG, Checkpoint, CheckpointError};

/// Refuses a checkpoint whose config.json names another architecture; the error names the first of `names`.
pub fn expect_architecture(checkpoint: &Checkpoint, names: &[&str]) -> Result<(), CheckpointError> {
    let found = checkpoint.architecture()?;
    if names.contains(&&found[..]) {
        return Ok(());
    }
    let known = names.first().copied().unwrap_or_default().to_owned();
    Err(CheckpointError::UnknownArchitecture { file: checkpoint.label(CONFIG), found, known })
}

/// The field that decides which others a model with thinker and talker has.
#[derive(Deserialize)]
struct AudioOutputSwitch {
    enable_audio_output: Option<bool>,
}

/// Reads config.json of a model with thinker and talker.
///
/// # Errors
///
/// If `enable_audio_output` is false, or the file does not fit `T`.
pub fn load_omni_config<T: DeserializeOwned>(checkpoint: &Checkpoint) -> Result<T, CheckpointError> {
    // A text-only file lacks the talker's section; report that, not a missing field.
    let outline: AudioOutputSwitch = checkpoint.config()?;
    let enabled = outline.enable_audio_output.unwrap_or(true);
    let allowed = "true: text-only checkpoints cannot be served";
    checked(checkpoint, ConfigSection("").check("enable_audio_output", enabled, enabled, allowed))?;
    checkpoint.config()
}

/// Adds the name of config.json to an error about a field.
pub fn checked<T>(checkpoint: &Checkpoint, found: Result<T, BadValue>) -> Result<T, CheckpointError> {
    found.map_err(|value| CheckpointError::BadValue { file: checkpoint.label(CONFIG), value })
}

/// Rotary parameters, from `rope_parameters` or the older `rope_scaling`.
#[derive(Default, Deserialize)]
pub struct RopeTable {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
    #[serde(rename = "type")]
    old_type: Option<String>,
    partial_rotary_factor: Option<f64>,
}

/// Resolves rotary parameters in the reference's order: the older table, the newer one, the field outside both, the
/// class's default.
pub fn rope(scaling: Option<RopeTable>, parameters: Option<RopeTable>, theta: Option<f64>, default_theta: f64) -> Rope {
    let table = scaling.or(parameters).unwrap_or_default();
    Rope {
        theta: table.rope_theta.or(theta).unwrap_or(default_theta),
        kind: table.rope_type.or(table.old_type).unwrap_or_else(|| "default".to_owned()),
        partial_rotary_factor: table.partial_rotary_factor.unwrap_or(1.0),
    }
}

/// Default of every transformer's `hidden_act`.
fn silu() -> String {
    "silu".to_owned()
}

/// Width of one head. Zero heads give 0; validation reports them later.
pub fn head_size(hidden: usize, heads: usize) -> usize {
    hidden.checked_div(heads).unwrap_or_default()
}
