//! Kokoro: reads text aloud, clause by clause. PL-BERT and a text encoder read phonemes, a predictor gives durations,
//! pitch and loudness, and an iSTFTNet decoder makes sound.
//!
//! The model files follow the reference, kokoro 0.9.4 `model.py`, `modules.py` and `istftnet.py`, and name its classes.

pub mod clause;
pub mod config;
pub mod decoder;
pub mod model;
pub mod predictor;
pub mod stage;
pub mod text_encoder;
pub mod utterances;
pub mod voices;

use repartee_kernels::cpu::Cpu;
use serde::Deserialize;

use self::config::SAMPLE_RATE;
use self::model::Kokoro;
use self::stage::KokoroPart;
use self::voices::VoiceStyles;
use super::family::{Family, FamilyVariant};
use super::load_error::LoadError;
use super::parts::audio_encoder::pieces::UNIT;
use super::parts::clause_reader::{ClauseReaderPart, ClauseTemplate};
use super::parts::phonemes::{Accent, Lexicon};
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::device::Device;
use crate::model::Codec;
use crate::text::Tokenizer;

/// Fields of config.json that tell the family: the file names no architecture.
#[derive(Deserialize)]
struct FamilyFields {
    #[serde(rename = "istftnet")]
    _istftnet: serde_json::Map<String, serde_json::Value>,
    #[serde(rename = "plbert")]
    _plbert: serde_json::Map<String, serde_json::Value>,
}

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: "Kokoro",
    claims: |checkpoint| checkpoint.config::<FamilyFields>().is_ok().then_some(FamilyVariant("kokoro")),
    assemble_cpu: assemble::<Cpu>,
    #[cfg(feature = "cuda")]
    assemble_cuda: assemble::<repartee_kernels::cuda::Cuda>,
};

/// Loads the parts of a checkpoint of this family.
///
/// # Errors
/// A file, field or tensor is missing or wrong.
pub fn assemble<O: Device>(
    ops: O,
    checkpoint: &Checkpoint,
    _: FamilyVariant,
    settings: &EngineConfig,
) -> Result<Assembly<O>, LoadError> {
    let model = Kokoro::load(&ops, checkpoint, settings.weights)?;
    let voices = VoiceStyles::load(checkpoint, &model.config)?;
    let lexicons = lexicons(checkpoint, &voices)?;
    let tokenizer = Tokenizer::of_bytes().map_err(|error| CheckpointError::WrongField {
        file: checkpoint.name().to_owned(),
        field: "tokenizer of bytes".to_owned(),
        message: error.to_string(),
    })?;
    let frame = u32::try_from(model.config.frame_samples()).unwrap_or(SAMPLE_RATE);
    let codec = Codec { sample_rate: SAMPLE_RATE, frame_samples: (frame, 1) };
    let names = voices.requests();
    let pipeline = Pipeline::new(&ops).stage(ClauseReaderPart::new(&tokenizer, settings)).stage(KokoroPart {
        model,
        voices,
        lexicons,
        // A device that captures steps is fast, and gains nothing from smaller ones.
        unit: if ops.eager_steps().is_some() { usize::MAX } else { UNIT },
    });
    Ok(pipeline.with(ModelFrame {
        tokenizer,
        template: Box::new(ClauseTemplate),
        voices: Box::new(names),
        codec: Some(codec),
        max_tokens: None,
    }))
}

/// Lexicons of the accents that the voices have.
fn lexicons(checkpoint: &Checkpoint, voices: &VoiceStyles) -> Result<Vec<Lexicon>, LoadError> {
    let british = voices.names().iter().any(|name| voices::is_british(name));
    let american = voices.names().iter().any(|name| !voices::is_british(name));
    let accents = [(american, Accent::American), (british, Accent::British)];
    let wanted = accents.into_iter().filter(|(wanted, _)| *wanted);
    wanted.map(|(_, accent)| Ok(Lexicon::load(checkpoint, accent)?)).collect()
}
