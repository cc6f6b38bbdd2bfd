//! config.json as the published files have it: absent fields take the defaults of the references' configuration classes, which a family
//! names where they differ. Older files, with `rope_theta` and `rope_scaling` outside of `rope_parameters`, are read as well. `null` means
//! the same as an absent field.

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

/// Refuses a checkpoint whose config.json names another architecture; the first of `names` is what it should be.
pub fn expect_architecture(checkpoint: &Checkpoint, names: &[&str]) -> Result<(), CheckpointError> {
    let found = checkpoint.architecture()?;
    if names.contains(&&found[..]) {
        return Ok(());
    }
    let known = names.first().copied().unwrap_or_default().to_owned();
    Err(CheckpointError::UnknownArchitecture { file: checkpoint.label(CONFIG), found, known })
}

/// The field of a model that hears and speaks that decides which others there are.
#[derive(Deserialize)]
struct AudioOutputSwitch {
    enable_audio_output: Option<bool>,
}

/// config.json of a model that hears and speaks, as written in the file.
pub fn load_omni_config<T: DeserializeOwned>(checkpoint: &Checkpoint) -> Result<T, CheckpointError> {
    // Without audio output the talker's part is absent, which must not be reported as a missing field.
    let outline: AudioOutputSwitch = checkpoint.config()?;
    let enabled = outline.enable_audio_output.unwrap_or(true);
    let allowed = "true: text-only checkpoints cannot be served";
    checked(checkpoint, ConfigSection("").check("enable_audio_output", enabled, enabled, allowed))?;
    checkpoint.config()
}

/// What was found of config.json's fields; an error gets the file's name.
pub fn checked<T>(checkpoint: &Checkpoint, found: Result<T, BadValue>) -> Result<T, CheckpointError> {
    found.map_err(|value| CheckpointError::BadValue { file: checkpoint.label(CONFIG), value })
}

/// Rotary parameters: in `rope_parameters`, or in the older `rope_scaling`.
#[derive(Default, Deserialize)]
pub struct RopeTable {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
    #[serde(rename = "type")]
    old_type: Option<String>,
    partial_rotary_factor: Option<f64>,
}

/// The reference's order: the older table, the newer one, the field outside of both, the class's default.
pub fn rope(scaling: Option<RopeTable>, parameters: Option<RopeTable>, theta: Option<f64>, default_theta: f64) -> Rope {
    let table = scaling.or(parameters).unwrap_or_default();
    Rope {
        theta: table.rope_theta.or(theta).unwrap_or(default_theta),
        kind: table.rope_type.or(table.old_type).unwrap_or_else(|| "default".to_owned()),
        partial_rotary_factor: table.partial_rotary_factor.unwrap_or(1.0),
    }
}

/// The default of every transformer's `hidden_act`.
fn silu() -> String {
    "silu".to_owned()
}

/// Size of one head. Zero heads are reported by validation and must not divide here.
pub fn head_size(hidden: usize, heads: usize) -> usize {
    hidden.checked_div(heads).unwrap_or_default()
}
