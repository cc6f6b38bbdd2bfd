//! Sound of a voice's recording: decoded, and judged before the model hears it.

use std::time::Duration;

use repartee_engine_api::{EnrolError, SpeechEngine};
use repartee_media::level::is_audible;
use repartee_media::sound_file;

use super::error::{VoiceError, readable};

/// Longest accepted recording.
pub(super) const MAX_RECORDING: Duration = Duration::from_secs(60);
/// Least magnitude of a clipped sample.
const FULL_SCALE: f32 = 0.999;
/// Share of clipped samples that is audible.
const CLIPPED: f64 = 0.001;

/// Recording of a voice at the engine's rate, mono.
pub(super) struct VoiceSound {
    pub samples: Vec<f32>,
    /// Difference between it and a good recording, for the client.
    pub warning: Option<String>,
}

impl VoiceSound {
    /// Decodes a sound file, the field `field` of a request.
    pub fn read(engine: &dyn SpeechEngine, field: &'static str, recording: &[u8]) -> Result<Self, VoiceError> {
        let samples = samples(engine, field, recording)?;
        if !is_audible(&samples) {
            let problem = "nobody is heard in it: no part of it exceeds -45 dBFS".to_owned();
            return Err(VoiceError::Field { field, problem });
        }
        let clipped = samples.iter().filter(|sample| sample.abs() >= FULL_SCALE).count();
        let warning = (clipped as f64 > CLIPPED * samples.len() as f64)
            .then(|| format!("{field}: it is clipped, and so the voice may be: record it at a lower level"));
        Ok(Self { samples, warning })
    }
}

/// Decodes a sound file to the engine's input rate.
pub(super) fn samples(
    engine: &dyn SpeechEngine,
    field: &'static str,
    recording: &[u8],
) -> Result<Vec<f32>, VoiceError> {
    let Some(rate) = engine.info().recording_rate else {
        return Err(EnrolError::Fixed { known: engine.info().voices.join(", ") }.into());
    };
    readable(field, sound_file::read(recording, rate, MAX_RECORDING))
}
