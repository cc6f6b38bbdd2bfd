//! Dynin-Omni: a text read aloud by a masked-diffusion language model. It fills a canvas of speech units in, block by block,
//! and U-VITS makes sound of each block.
//!
//! The model files follow the published code, `modeling_dynin_omni.py`, `modeling_llada.py` and EMOVA's speech tokenizer, and
//! name its classes. Its hearing is the encoder of that tokenizer, a tree of NeMo that no description covers, so it is not
//! read; nor are images and video.

pub mod config;
pub mod model;
pub mod prompt;

use std::time::Duration;

use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;
use repartee_spoken::{ClauseBounds, WordBounds};

use self::config::{CODEC, Config};
use self::model::UnitLm;
use self::prompt::PromptIds;
use super::family::{Family, FamilyVariant};
use super::load_error::LoadError;
use super::parts::clause_reader::{ClauseReaderPart, ClauseTemplate};
use super::parts::denoising::stage::DenoiserPart;
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::vocoder::vits::Vits;
use super::parts::vocoder::vits::stage::VitsPart;
use super::parts::weights::Weights;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::device::Device;
use crate::model::Codec;
use crate::text::Tokenizer;

/// Beginning of `architectures`, in lower case: the published class and that of vllm-omni differ behind it.
const ARCHITECTURE: &str = "dynin";
/// Duration of a unit before equal ones are joined.
const UNIT: Duration = Duration::from_millis(40);
/// Units in a second.
const UNITS_PER_SECOND: u32 = 25;
/// Clauses of some seconds: each fills blocks of its own.
const CLAUSES: ClauseBounds =
    ClauseBounds { first: WordBounds { min: 8, max: 20 }, later: WordBounds { min: 16, max: 40 } };

/// Models of this family, one field for each part.
pub struct DyninOmni<O: Ops> {
    /// Configuration of all parts.
    pub config: Config,
    /// The language model.
    pub units: UnitLm<O>,
    /// The codec's decoder.
    pub codec: Vits<O>,
}

impl<O: Ops> DyninOmni<O> {
    /// Loads all parts, with matrices of the language model in the formats of the settings.
    ///
    /// # Errors
    /// A file, field or tensor is missing or wrong.
    pub fn load(ops: &O, checkpoint: &Checkpoint, settings: &EngineConfig) -> Result<Self, LoadError> {
        let config = Config::load(checkpoint, settings)?;
        let tokenizer = Tokenizer::load(checkpoint, config.text_rows)?;
        let prompt = PromptIds::load(checkpoint, &tokenizer, &config)?;
        let most = prompt.most_positions();
        if most > config::MOST_PROMPT {
            let message = format!("a prompt takes {most} tokens, more than {}", config::MOST_PROMPT);
            let (file, field) = (checkpoint.label("tokenizer.json"), "model".to_owned());
            return Err(CheckpointError::WrongField { file, field, message }.into());
        }
        let all = Weights::new(ops, checkpoint).with_policy(settings.weights);
        let sound = checkpoint.part(CODEC)?;
        let codec = Vits::load(&Weights::new(ops, &sound), config.codec.clone(), config.styles.len())?;
        Ok(Self { units: UnitLm::load(&all.at("model.transformer"), prompt, &config)?, codec, config })
    }
}

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: "Dynin-Omni",
    claims: |checkpoint| {
        let named = checkpoint.architectures().into_iter().next()?;
        named.to_lowercase().starts_with(ARCHITECTURE).then_some(FamilyVariant("speech"))
    },
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
    let DyninOmni { config, units, codec } = DyninOmni::load(&ops, checkpoint, settings)?;
    let reader = Tokenizer::of_bytes().map_err(|error| CheckpointError::WrongField {
        file: checkpoint.name().to_owned(),
        field: "tokenizer of bytes".to_owned(),
        message: error.to_string(),
    })?;
    let rate = config.codec.sample_rate;
    let voices = config.voices();
    let pipeline = Pipeline::new(&ops)
        .stage(ClauseReaderPart::new(&reader, settings).with_bounds(CLAUSES))
        .stage(DenoiserPart { model: units, most_positions: config.positions })
        .stage(VitsPart { model: codec, styles: config.styles, most_units: config.plan.block, unit: UNIT });
    Ok(pipeline.with(ModelFrame {
        tokenizer: reader,
        template: Box::new(ClauseTemplate),
        voices: Box::new(voices),
        codec: Some(Codec { sample_rate: rate, frame_samples: (rate, UNITS_PER_SECOND) }),
        max_tokens: None,
    }))
}
